//! What the store is to know of a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::freshness::Silence;
use crate::policy::{NodePolicy, Policies};
use crate::render::Allocatable;

/// What is to be known of a Node object.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Time>,
    /// `status.allocatable`.
    pub allocatable: Allocatable,
    /// Condition `Ready`: it is alive, and so expected to report.
    pub ready: bool,
    /// What condition `NodeMetricFresh` says, and so what an earlier leader knew; never stale.
    pub condition: Option<Silence>,
    /// What it is to collect.
    pub policy: NodePolicy,
}

impl NodeFacts {
    /// A live Node of which nothing else is known: of no size, not judged before, with the policy of a cluster that says nothing.
    pub fn alive(name: &str) -> Self {
        Self {
            name: name.into(),
            uid: format!("uid-{name}"),
            created: None,
            allocatable: Allocatable::default(),
            ready: true,
            condition: None,
            policy: Policies::default().of(&BTreeMap::new()),
        }
    }
}

//! What the cluster says of a node and its pods, as the sampler needs it.

use std::collections::BTreeMap;

use node_report::report::{Priority, Qos, Resources};

/// What the cluster says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Pods of this node by the UID in the name of their cgroup.
    pub pods: BTreeMap<String, PodFacts>,
    /// What of the node may be given to pods; unknown: all of it.
    pub allocatable: Resources,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Koordinator's priority class.
    pub priority: Option<Priority>,
    /// Koordinator's quality of service.
    pub qos: Option<Qos>,
    /// What it asks for.
    pub requests: Resources,
}

impl PodFacts {
    /// Whether it is to be served first: `koord-prod`, and what has no class at all, as Koordinator counts it
    /// (`isPriorityClassReclaimableForProd` of koordlet). An ordinary pod has one by its quality of service.
    pub fn is_prod(&self) -> bool {
        matches!(self.priority, None | Some(Priority::Prod))
    }
}

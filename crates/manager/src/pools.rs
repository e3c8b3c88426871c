//! An index of the cluster's NodePools, kept by a watch on every replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::NodePool;
use kube::ResourceExt;
use parking_lot::RwLock;

use crate::watches::Index;

/// The index: every NodePool by name.
#[derive(Default)]
pub(crate) struct Pools {
    by_name: RwLock<BTreeMap<String, Arc<NodePool>>>,
}

impl Pools {
    /// The pool of that name, if it exists.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<NodePool>> {
        self.by_name.read().get(name).cloned()
    }

    /// The names of all pools.
    pub(crate) fn names(&self) -> Vec<String> {
        self.by_name.read().keys().cloned().collect()
    }

    /// Whether any pool is in host-network mode.
    pub(crate) fn any_host_network(&self) -> bool {
        self.by_name.read().values().any(|pool| pool.is_host_network())
    }
}

/// Managed fields are a large part of an object, and nothing here reads them.
fn slim(mut pool: NodePool) -> Arc<NodePool> {
    pool.metadata.managed_fields = None;
    if let Some(annotations) = &mut pool.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    Arc::new(pool)
}

impl Index<NodePool> for Pools {
    fn apply(&self, pool: NodePool) -> BTreeSet<String> {
        let name = pool.name_any();
        let pool = slim(pool);
        let before = self.by_name.write().insert(name.clone(), Arc::clone(&pool));
        // A status written by ourselves changes no decision; one that somebody else wrote does.
        match before {
            Some(before) if before.metadata.resource_version == pool.metadata.resource_version => {
                BTreeSet::new()
            }
            _ => [name].into(),
        }
    }

    fn delete(&self, pool: NodePool) -> BTreeSet<String> {
        let name = pool.name_any();
        self.by_name.write().remove(&name);
        [name].into()
    }

    fn replace(&self, pools: Vec<NodePool>) -> BTreeSet<String> {
        let fresh: BTreeMap<_, _> = pools.into_iter().map(|pool| (pool.name_any(), slim(pool))).collect();
        let mut by_name = self.by_name.write();
        let touched = by_name.keys().chain(fresh.keys()).cloned().collect();
        *by_name = fresh;
        touched
    }
}

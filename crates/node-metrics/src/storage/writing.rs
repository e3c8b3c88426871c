//! Writes through the API: the leader's alone, which takes them while it may not be read, too.

use std::sync::Arc;

use aggregated_api::{Draft, Expected, Intent, StorageError, User};
use kube_wire::object::Object;
use kube_wire::resource::{GroupVersionResource, ObjectKey};
use kube_wire::resource_version::ResourceVersion;
use kube_wire::status::Status;

use super::kind::Metric;
use super::{NodeMetrics, internal, unavailable};
use crate::store::{Phase, WriteError};
use crate::{GROUP, RESOURCE, record};

/// Which node a service account's token is bound to: that of the pod which shows it.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

impl NodeMetrics {
    /// Whether a write may come so far, besides what the cluster's roles say. What is made must be of a Node, and nobody of a node speaks for another.
    pub(super) fn admit(&self, user: &User, name: &str, intent: Intent) -> Result<(), StorageError> {
        if let Some(why) = speaks_for_another(user, name, intent) {
            let version = self.api_version.rsplit('/').next().unwrap_or_default();
            let resource = GroupVersionResource::new(GROUP, version, RESOURCE);
            return Err(StorageError::Refused(Box::new(Status::forbidden(&resource, name, &why))));
        }
        if intent == Intent::Create {
            self.store.read().may_make(name).map_err(refused)?;
        }
        Ok(())
    }

    /// For a write, which may be what a leader still waits for.
    pub(super) fn get_to_write(&self, key: &ObjectKey) -> Result<Option<Arc<Object>>, StorageError> {
        let stored = {
            let store = self.store.read();
            if !self.is_leading() || store.phase() == Phase::Following {
                return Err(unavailable("this replica does not lead"));
            }
            let stored = store.ledger().get(key.name()).cloned();
            // What it has none of yet may be there.
            if stored.is_none() && !store.knows_nodes() {
                self.readable(&store)?;
            }
            stored
        };
        stored.map(|stored| self.object::<Metric>(&stored)).transpose()
    }

    /// Writes one that is as expected.
    pub(super) fn write_now(
        &self,
        key: &ObjectKey,
        expected: Expected,
        draft: &Draft,
    ) -> Result<Arc<Object>, StorageError> {
        if !self.is_leading() {
            return Err(unavailable("this replica does not lead"));
        }
        let name: Arc<str> = key.name().into();
        let expected = match expected {
            Expected::Absent => None,
            Expected::Version(version) => Some(version.get()),
        };
        let stored = self
            .change(|store, now| store.write(now, &name, expected, &draft.0, self.api_version))
            .map_err(refused)?;
        self.object::<Metric>(&stored)
    }

    /// Removes one that is as expected; returns it as it was.
    pub(super) fn remove_now(
        &self,
        key: &ObjectKey,
        expected: ResourceVersion,
    ) -> Result<Arc<Object>, StorageError> {
        if !self.is_leading() {
            return Err(unavailable("this replica does not lead"));
        }
        let (version, last) =
            self.change(|store, now| store.erase(now, key.name(), expected.get())).map_err(refused)?;
        record::departed(&last, version, self.api_version).map_err(|error| internal(&error))
    }
}

/// Why `user` may not do that to the NodeMetric of node `name`. A node itself writes its own and no other. Of a pod, whose token says on which node it runs, the
/// status that it writes is that node's; a controller, which is a pod somewhere, may make, change and remove others as its role says.
fn speaks_for_another(user: &User, name: &str, intent: Intent) -> Option<String> {
    if let Some(node) = user.name.strip_prefix(api::names::NODE_USER_PREFIX) {
        return (node != name).then(|| format!("node {node:?} may write its own NodeMetric and no other"));
    }
    let mut nodes = user.extra.get(NODE_NAME)?.iter();
    let other = nodes.find(|node| *node != name).filter(|_| intent == Intent::UpdateStatus)?;
    Some(format!("a pod of node {other:?} may write the status of that node's NodeMetric and of no other"))
}

fn refused(error: WriteError) -> StorageError {
    match error {
        WriteError::Conflict => StorageError::Conflict,
        WriteError::NotLeading => unavailable("this replica does not lead"),
        WriteError::NoNode(_) | WriteError::Long(..) => {
            StorageError::Refused(Box::new(Status::bad_request(error.to_string())))
        }
        WriteError::Malformed(message) => StorageError::Refused(Box::new(Status::bad_request(message))),
    }
}

//! Writes through the API: the leader's alone, which takes them while it may not be read, too.

use std::sync::Arc;

use aggregated_api::{Draft, Expected, StorageError};
use kube_wire::object::Object;
use kube_wire::resource::ObjectKey;
use kube_wire::resource_version::ResourceVersion;
use kube_wire::status::Status;

use super::kind::Metric;
use super::{NodeMetrics, internal, unavailable};
use crate::record;
use crate::store::{Phase, WriteError};

impl NodeMetrics {
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

fn refused(error: WriteError) -> StorageError {
    match error {
        WriteError::Conflict => StorageError::Conflict,
        WriteError::NotLeading => unavailable("this replica does not lead"),
        WriteError::NoNode(_) => StorageError::Refused(Box::new(Status::bad_request(error.to_string()))),
        WriteError::Malformed(message) => StorageError::Refused(Box::new(Status::bad_request(message))),
    }
}

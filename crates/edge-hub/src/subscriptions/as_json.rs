//! Whether what a subscription holds as protobuf can be told as JSON. An API server that is newer than the hub may send fields that the
//! hub has no names for; an object is then told by the API server itself or not at all, never with a part missing.

use std::sync::Arc;

use kube_wire::{
    object::{Encoding, Object},
    resource::GroupVersionResource,
    resource_version::ResourceVersion,
    transcode::{self, TranscodeError},
};
use watch_cache::Snapshot;

/// What is known about that.
#[derive(Debug, Default)]
pub(super) struct AsJson {
    /// Every object up to this version can be told.
    checked: Option<ResourceVersion>,
    /// One that cannot, and why.
    fails: Option<(Arc<Object>, TranscodeError)>,
    /// The last event that could not be told: nobody's watch may begin before it.
    event: Option<ResourceVersion>,
}

impl AsJson {
    /// Whether all of a snapshot can be told. Each object is looked at once.
    pub(super) fn check(
        &mut self,
        resource: &GroupVersionResource,
        snapshot: &Snapshot,
    ) -> Result<(), TranscodeError> {
        if let Some((object, error)) = &self.fails
            && snapshot.get(object.key()).is_some_and(|held| Arc::ptr_eq(held, object))
        {
            return Err(error.clone());
        }
        self.fails = None;
        if self.checked == Some(snapshot.resource_version()) {
            return Ok(());
        }
        let new = |object: &&Arc<Object>| {
            object.encoding() == Encoding::Protobuf && Some(object.resource_version()) > self.checked
        };
        for object in snapshot.iter().filter(new) {
            if let Err(error) = transcode::to_json(resource, object.body(), true) {
                self.fails = Some((object.clone(), error.clone()));
                return Err(error);
            }
        }
        self.checked = Some(snapshot.resource_version());
        Ok(())
    }

    /// The event of this version could not be told.
    pub(super) fn untold(&mut self, version: ResourceVersion) {
        self.event = self.event.max(Some(version));
    }

    /// Whether all events after this version, as far as they are known, can be told.
    pub(super) fn from(&self, version: ResourceVersion) -> bool {
        self.event.is_none_or(|event| event <= version)
    }
}

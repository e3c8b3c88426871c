//! Of which kind the objects of a resource are that is not built in: lists say it, and it is stored.

use kube_wire::{resource::GroupVersionResource, transcode};

use super::Reflector;

impl Reflector {
    /// The kind of the objects of a resource, as a list said it in an earlier run; for those that are not built in.
    pub fn kind(&self, resource: &GroupVersionResource) -> Option<String> {
        String::from_utf8(self.storage.blob(&kind_blob(resource))?.into()).ok()
    }

    /// Stored, so that what is held can be answered with after a restart, too: objects of one kind are kept without it
    /// beside them, and a list may be empty.
    pub(super) fn keep_kind(&self, resource: &GroupVersionResource, kind: Option<&str>) {
        let Some(kind) = kind.filter(|_| transcode::kind_of(resource).is_none()) else { return };
        if self.kind(resource).as_deref() != Some(kind) {
            self.storage.keep_blob(&kind_blob(resource), kind.as_bytes());
        }
    }
}

fn kind_blob(resource: &GroupVersionResource) -> String {
    format!("kind {}/{}", resource.api_version(), resource.resource)
}

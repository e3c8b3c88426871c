//! One change of one object, as every reader of the cache shares it.

use std::sync::{Arc, OnceLock};

use kube_wire::{object::Object, resource_version::ResourceVersion};

/// What happened to the object in the subscription as a whole; a reader with a selector may see another change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// There was no object under this key before.
    Added,
    /// There was one, of an earlier version.
    Modified,
    /// There is none any more.
    Deleted,
}

/// One change of one object, with what was there before: a selector that was left needs it.
#[derive(Debug)]
pub struct Event {
    /// The version at which the change happened; no two events of a cache share one.
    pub resource_version: ResourceVersion,
    /// What happened.
    pub change: Change,
    /// The object after the change; for [`Change::Deleted`] its last state, with the version of the deletion.
    pub object: Arc<Object>,
    /// The object before the change; `None` for [`Change::Added`].
    pub previous: Option<Arc<Object>>,
    /// [`Event::departed`] of a modification, made at most once for all readers.
    departed: OnceLock<Arc<Object>>,
}

/// What an event costs beside the bodies: itself, its place in the ring, and the objects' own fields.
const OVERHEAD: usize = size_of::<Event>() + size_of::<Object>() + 64;

impl Event {
    /// An event whose version is the object's own.
    pub(crate) fn new(change: Change, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self {
            resource_version: object.resource_version(),
            change,
            object,
            previous,
            departed: OnceLock::new(),
        }
    }

    /// The bytes that only the history keeps alive because of this event.
    ///
    /// The newest body of an object belongs to the current state. It becomes the history's when the next event replaces
    /// it, so each body counts once: at the event of which it is the previous one. A deletion's own body is nobody else's.
    pub(crate) fn bytes(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |object| object.body().len());
        let own = if self.change == Change::Deleted { self.object.body().len() } else { 0 };
        previous + own + OVERHEAD
    }

    /// The body of the DELETED event for a reader that loses the object here: the last state that it saw, with the
    /// version of this event. `None` if there was no object before.
    ///
    /// The version matters: clients resume from it, and with the previous one they would go back in time.
    pub fn departed(&self) -> Option<Arc<Object>> {
        if self.change == Change::Deleted {
            return Some(Arc::clone(&self.object));
        }
        let previous = self.previous.as_ref()?;
        let departed =
            self.departed.get_or_init(|| Arc::new(previous.with_resource_version(self.resource_version)));
        Some(Arc::clone(departed))
    }
}

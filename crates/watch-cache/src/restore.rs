//! A cache from what the store kept: the objects, and as much of the history as is whole.

use std::{collections::HashMap, sync::Arc};

use kube_wire::{object::Object, resource::ObjectKey, resource_version::ResourceVersion};

use crate::{
    cache::{Cache, Limits, State},
    event::{Change, Event},
    history::History,
    snapshot::Snapshot,
};

/// One event as the store kept it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// What happened.
    pub change: Change,
    /// The object after the change; of a deletion its last state with the version of the deletion.
    pub object: Arc<Object>,
    /// The object before the change, if the store kept it; it is also taken from an earlier event of the same object.
    pub previous: Option<Arc<Object>>,
}

impl Cache {
    /// A complete cache of the `objects` at `version`, whose readers can resume from before the restart.
    ///
    /// `history` is all that happened after the version beside it, oldest first. It is used as far back as it can be believed: versions
    /// ascend, each event's previous object is known, and undoing it from the newest on agrees with the objects. A history
    /// that does not costs readers a list, never a wrong event.
    pub fn restore(
        limits: Limits,
        objects: Vec<Arc<Object>>,
        version: ResourceVersion,
        (after, history): (ResourceVersion, Vec<Past>),
    ) -> Self {
        let snapshot = Snapshot::collect(version, objects);
        let length = history.len();
        let events = believable(&snapshot, with_previous(history));
        // All that happened from the first event on is there.
        let first = events.first().map_or(version, |event| before(event.resource_version));
        let floor = if events.len() == length { after.min(first) } else { first };
        let mut history = History::new(limits, floor);
        for event in events {
            history.push(event);
        }
        Self { limits, epoch: 0, state: Some(State { snapshot, history }) }
    }
}

/// Fills in previous objects from earlier events.
fn with_previous(history: Vec<Past>) -> Vec<Past> {
    let mut newest: HashMap<ObjectKey, Option<Arc<Object>>> = HashMap::new();
    let mut filled = Vec::with_capacity(history.len());
    for Past { change, object, previous } in history {
        let after = (change != Change::Deleted).then(|| Arc::clone(&object));
        // What an earlier event left is known for sure; it is also the same allocation.
        let previous = newest.insert(object.key().clone(), after).unwrap_or(previous);
        filled.push(Past { change, object, previous });
    }
    filled
}

/// The longest end of the history that agrees with itself and with the objects it led to.
fn believable(snapshot: &Snapshot, history: Vec<Past>) -> Vec<Arc<Event>> {
    let mut state = snapshot.clone();
    let mut events = Vec::with_capacity(history.len());
    let mut above: Option<ResourceVersion> = None;
    for Past { change, object, previous } in history.into_iter().rev() {
        let version = object.resource_version();
        let ascends = above.map_or(version <= snapshot.resource_version(), |above| version < above);
        let stored = state.get(object.key());
        let led_here = match change {
            Change::Deleted => stored.is_none(),
            Change::Added | Change::Modified => stored.is_some_and(|stored| **stored == *object),
        };
        let begins = previous
            .as_ref()
            .is_none_or(|previous| previous.key() == object.key() && previous.resource_version() < version)
            && previous.is_none() == (change == Change::Added);
        if !(ascends && led_here && begins) {
            break;
        }
        let object = stored.cloned().unwrap_or(object);
        let event = Arc::new(Event::new(change, object, previous));
        state.undo(&event);
        above = Some(version);
        events.push(event);
    }
    events.reverse();
    events
}

/// The version before `version`; the first has none, and stands for itself.
fn before(version: ResourceVersion) -> ResourceVersion {
    ResourceVersion::new(version.get() - 1).unwrap_or(version)
}

#[cfg(test)]
mod tests;

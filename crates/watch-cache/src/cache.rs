//! The writer's side: what came from upstream goes in here, in upstream's order.
//!
//! A cache is complete or it answers nothing. It becomes so by a whole list ([`Cache::replace`]) or by what the store kept
//! ([`Cache::restore`](crate::restore)), and ceases only with the epoch ([`Cache::reset`]).

use std::sync::Arc;

use kube_wire::{object::Object, resource_version::ResourceVersion};
use thiserror::Error;

use crate::{
    event::{Change, Event},
    history::History,
    snapshot::Snapshot,
};

/// How much of the past a cache keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes that the history may keep alive: superseded and deleted bodies, and bookkeeping.
    pub history_bytes: usize,
    /// The most events in the history.
    pub history_events: usize,
}

/// 4 MiB, and a number of events that only very small objects reach.
impl Default for Limits {
    fn default() -> Self {
        Self { history_bytes: 4 << 20, history_events: 1 << 16 }
    }
}

/// The objects of one subscription, at one version, and their recent history.
#[derive(Debug)]
pub struct Cache {
    pub(crate) limits: Limits,
    /// Counts resets: a reader of an earlier epoch has nothing in common with this one.
    pub(crate) epoch: u64,
    pub(crate) state: Option<State>,
}

/// What a complete cache holds.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) snapshot: Snapshot,
    pub(crate) history: History,
}

/// What a whole list did to the readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The cache was not complete before.
    First,
    /// The list is what the cache holds already, at the same version: nothing happened.
    Same,
    /// The history ended; readers below the list's version have expired.
    Anew,
}

/// The list is older than what the cache holds: upstream went back in time, or another server lags behind. Nothing changed.
/// Ask a server that has caught up, or [`Cache::reset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the list is of version {listed}, older than {current}, which the cache holds")]
pub struct Rewind {
    /// What the cache holds.
    pub current: ResourceVersion,
    /// What the list is.
    pub listed: ResourceVersion,
}

/// The change does not follow from what the cache holds. Nothing changed; only a whole list helps.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OutOfOrder {
    /// There is nothing yet that could change.
    #[error("the cache is not complete: it takes a whole list before changes")]
    NotComplete,
    /// An object of this name but another identity was there, or none although it was changed or deleted: what was before was
    /// missed, and with it perhaps more. So it is if upstream was restored from a backup, written to since, and watched from a version
    /// of before.
    #[error(
        "the change of {key} at version {version} does not follow from what is known by that name: an event was missed"
    )]
    Missed {
        /// The key of the object that changed.
        key: String,
        /// The version of the change.
        version: ResourceVersion,
    },
}

impl Cache {
    /// A cache that holds nothing and is not complete.
    pub fn new(limits: Limits) -> Self {
        Self { limits, epoch: 0, state: None }
    }

    /// Whether the cache holds all objects of its subscription.
    pub fn is_complete(&self) -> bool {
        self.state.is_some()
    }

    /// The version up to which the cache has applied everything; `None` while it is not complete.
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.state.as_ref().map(State::version)
    }

    /// The version from which on watches and exact lists can be served; `None` while the cache is not complete.
    pub fn oldest(&self) -> Option<ResourceVersion> {
        self.state.as_ref().map(|state| state.history.floor())
    }

    /// The bytes and the number of events of the history.
    pub fn history_size(&self) -> (usize, usize) {
        self.state.as_ref().map_or((0, 0), |state| (state.history.bytes(), state.history.len()))
    }

    /// What the cache takes in memory: the objects, and what only the history keeps alive.
    pub fn bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.snapshot.bytes() + state.history.bytes())
    }

    /// All objects at the current version; `None` while the cache is not complete.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.state.as_ref().map(|state| state.snapshot.clone())
    }

    /// Takes in a whole list of version `version`; of a list in pages, only when the last page is there.
    ///
    /// What happened between the version before and this one is not known, so the history ends and readers below `version`
    /// expire. Readers stay only if the list is byte for byte what the cache holds at the same version.
    pub fn replace(
        &mut self,
        objects: Vec<Arc<Object>>,
        version: ResourceVersion,
    ) -> Result<Replaced, Rewind> {
        let Some(state) = &mut self.state else {
            let history = History::new(self.limits, version);
            self.state = Some(State { snapshot: Snapshot::collect(version, objects), history });
            return Ok(Replaced::First);
        };
        let current = state.version();
        if version < current {
            return Err(Rewind { current, listed: version });
        }
        let listed = Snapshot::collect(version, objects);
        // Other bytes at the same version come from another server or a changed schema; no event could tell a reader.
        if version == current
            && listed.len() == state.snapshot.len()
            && listed.iter().eq(state.snapshot.iter())
        {
            return Ok(Replaced::Same);
        }
        state.snapshot = listed;
        state.history.clear(version);
        if version == current {
            // A reader that stands at this very version must expire, too, and its version does not tell.
            self.epoch += 1;
        }
        Ok(Replaced::Anew)
    }

    /// Takes in one change as upstream told it; the object's version is the change's, also for a deletion.
    ///
    /// `None` if it tells nothing new: at or below the current version (a duplicate after resuming), or not newer than the object
    /// held (a list may run ahead of its version). The change handed to readers is by what the cache holds: an upstream
    /// with a selector of its own may say ADDED of an object that never left.
    pub fn apply(&mut self, change: Change, object: Arc<Object>) -> Result<Option<Arc<Event>>, OutOfOrder> {
        let State { snapshot, history } = self.state.as_mut().ok_or(OutOfOrder::NotComplete)?;
        let version = object.resource_version();
        if version <= snapshot.resource_version() {
            return Ok(None);
        }
        let follows = match snapshot.get(object.key()) {
            Some(stored) if stored.resource_version() >= version => {
                snapshot.set_version(version);
                return Ok(None);
            }
            Some(stored) => {
                stored.uid().is_empty() || object.uid().is_empty() || stored.uid() == object.uid()
            }
            None => change == Change::Added,
        };
        if !follows {
            return Err(OutOfOrder::Missed { key: object.key().to_string(), version });
        }
        let previous = if change == Change::Deleted {
            snapshot.take(object.key())
        } else {
            snapshot.put(Arc::clone(&object))
        };
        snapshot.set_version(version);
        let change = match (change, &previous) {
            (Change::Added, Some(_)) => Change::Modified,
            (change, _) => change,
        };
        let event = Arc::new(Event::new(change, object, previous));
        history.push(Arc::clone(&event));
        Ok(Some(event))
    }

    /// Upstream said that nothing else happened up to `version`. Ignored if older than what is known, or if there is nothing yet.
    pub fn bookmark(&mut self, version: ResourceVersion) {
        if let Some(State { snapshot, .. }) = &mut self.state
            && version > snapshot.resource_version()
        {
            snapshot.set_version(version);
        }
    }

    /// Begins a new epoch: the cache is not complete, and every reader has expired, whatever its version. For an upstream
    /// that went back in time or is another cluster: its versions cannot be compared with those before.
    pub fn reset(&mut self) {
        self.epoch += 1;
        self.state = None;
    }
}

impl State {
    /// The version up to which everything was applied.
    pub(crate) fn version(&self) -> ResourceVersion {
        self.snapshot.resource_version()
    }
}

#[cfg(test)]
mod tests;

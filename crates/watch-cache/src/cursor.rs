//! The reader's side of a watch: where one reader stands, and what it sees next.
//!
//! A cursor is a version and a position in the shared history. It computes what its selector makes of each event when the
//! reader asks for it, so it holds no queue: a reader that does not ask costs nothing, and expires when the history has moved
//! past it. While it tells the initial state it also holds the snapshot it began with.

use std::{ops::Range, sync::Arc};

use kube_wire::{object::Object, resource_version::ResourceVersion};

use crate::{
    cache::{Cache, State},
    event::{Change, Event},
    selection::{Selection, Selects},
    snapshot::{Objects, Place, Snapshot},
};

/// A reader that asked for bookmarks gets one when events of so many bytes have passed it by: the version that it was last told would leave
/// the history otherwise, long before the next minute's bookmark where much happens, and its next watch would begin with 410. A quarter of
/// the least history that outlives the process, which is shorter than the one in memory.
const PASSED: u32 = 128 << 10;

/// Where one reader of a watch stands.
#[derive(Debug)]
pub struct Cursor<S = Selection> {
    selects: S,
    epoch: u64,
    /// Everything up to this version was told, or was not the reader's to see.
    version: ResourceVersion,
    /// Where the first event above `version` stands, unless the history has dropped it.
    position: u64,
    /// What is left of the initial state. Boxed, since most readers have none most of the time.
    initial: Option<Box<Initial>>,
    bookmarks: bool,
    bookmark_due: bool,
    caught_up: bool,
    /// The bytes of events since the reader was last told a version.
    passed: u32,
}

/// What a reader has not been told yet of the state it began with.
#[derive(Debug)]
struct Initial {
    snapshot: Snapshot,
    rest: Range<Place>,
    end_bookmark: bool,
}

/// One thing to tell a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The reader did not see this object before.
    Added(Arc<Object>),
    /// The reader saw an earlier version of it.
    Modified(Arc<Object>),
    /// The object is gone, or its selector no longer selects it: the last state that the reader saw, with the version at
    /// which it went.
    Deleted(Arc<Object>),
    /// The initial state is told; the state was so at this version.
    InitialEnd(ResourceVersion),
    /// Nothing else happened up to this version.
    Bookmark(ResourceVersion),
}

/// What a reader gets when it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Tell these, then ask again. May be empty if the selector left out all that the budget allowed to look at.
    Events(Vec<Delivery>),
    /// There is nothing to tell until the writer's next call.
    Idle,
    /// The history no longer has what comes next: tell the client to begin anew (410). The cursor stays expired.
    Expired {
        /// From which version on watches can be served; `None` while the cache is not complete.
        oldest: Option<ResourceVersion>,
        /// Where the reader stood.
        asked: ResourceVersion,
    },
}

impl<S: Selects> Cursor<S> {
    /// A reader that saw everything up to `version`, which may lie in the future.
    pub(crate) fn after(
        cache: &Cache,
        state: &State,
        version: ResourceVersion,
        bookmarks: bool,
        selects: S,
    ) -> Self {
        let position = state.history.seek(version);
        Self {
            selects,
            epoch: cache.epoch,
            version,
            position,
            initial: None,
            bookmarks,
            bookmark_due: false,
            caught_up: false,
            passed: 0,
        }
    }

    /// A reader that is told the current state first.
    pub(crate) fn initial(
        cache: &Cache,
        state: &State,
        end_bookmark: bool,
        bookmarks: bool,
        selects: S,
    ) -> Self {
        let mut cursor = Self::after(cache, state, state.version(), bookmarks, selects);
        let snapshot = state.snapshot.clone();
        let rest = cursor.selects.scope().range(&snapshot);
        cursor.initial = Some(Box::new(Initial { snapshot, rest, end_bookmark }));
        cursor
    }

    /// Everything up to this version was told, or was not the reader's to see.
    pub fn resource_version(&self) -> ResourceVersion {
        self.version
    }

    /// Whether the reader asked for bookmarks.
    pub fn has_bookmarks(&self) -> bool {
        self.bookmarks
    }

    /// By what it selects.
    pub fn selects(&self) -> &S {
        &self.selects
    }

    /// What it selects by, to be changed between two calls of [`Cursor::next`]. What the reader knows of the state so far (see
    /// [`Cursor::state`]) and would not know by the new selection is the caller's to tell.
    pub fn selects_mut(&mut self) -> &mut S {
        &mut self.selects
    }

    /// The objects in its scope at [`Cursor::resource_version`], selected or not; `None` while there is something to tell before.
    pub fn state(&self, cache: &Cache) -> Option<Objects> {
        let state = cache.state.as_ref().filter(|_| cache.epoch == self.epoch)?;
        let caught_up =
            self.initial.is_none() && self.position == state.history.end() && self.version == state.version();
        caught_up.then(|| Objects::of(&state.snapshot, self.selects.scope()))
    }

    /// The objects in its scope as they are held, of a reader from the future: at an earlier version than it knows.
    pub fn held(&self, cache: &Cache) -> Option<Objects> {
        let state = cache.state.as_ref().filter(|_| cache.epoch == self.epoch)?;
        let is_ahead = self.initial.is_none() && self.version > state.version();
        is_ahead.then(|| Objects::of(&state.snapshot, self.selects.scope()))
    }

    /// Tells what came after `version` once more: the reader was told of a state of then.
    pub fn rewind(&mut self, cache: &Cache, version: ResourceVersion) {
        if let Some(state) = cache.state.as_ref().filter(|_| cache.epoch == self.epoch) {
            (self.version, self.position, self.caught_up) = (version, state.history.seek(version), false);
        }
    }

    /// Asks for a bookmark as soon as the reader has caught up; for a reader that asked for none, nothing.
    pub fn request_bookmark(&mut self) {
        self.bookmark_due = self.bookmarks;
    }

    /// Whether the last call of [`Cursor::next`] left nothing to tell until the writer's next call, as far as the reader asks for no
    /// bookmark: it need not ask once more to learn that.
    pub fn has_caught_up(&self) -> bool {
        self.caught_up && !self.bookmark_due
    }

    /// What to tell the reader next, having looked at no more than `budget` objects or events (at least one).
    pub fn next(&mut self, cache: &Cache, budget: usize) -> Step {
        self.caught_up = false;
        let expired = Step::Expired { oldest: cache.oldest(), asked: self.version };
        let Some(state) = cache.state.as_ref().filter(|_| cache.epoch == self.epoch) else { return expired };
        // Also while the initial state is being told: a reader that would have to begin anew should not hear the rest first.
        if self.version < state.history.floor() {
            return expired;
        }
        let mut deliveries = Vec::new();
        let budget = self.tell_initial(budget.max(1), &mut deliveries);
        if self.initial.is_some() {
            return Step::Events(deliveries);
        }
        if !self.tell_events(state, budget, &mut deliveries) {
            return Step::Events(deliveries);
        }
        self.caught_up = true;
        if self.bookmark_due && state.version() >= self.version {
            self.bookmark_due = false;
            deliveries.push(Delivery::Bookmark(self.version));
        }
        if deliveries.is_empty() { Step::Idle } else { Step::Events(deliveries) }
    }

    /// Tells of the initial state what `budget` allows, and returns what is left of it.
    fn tell_initial(&mut self, mut budget: usize, deliveries: &mut Vec<Delivery>) -> usize {
        let Some(initial) = &mut self.initial else { return budget };
        while budget > 0 {
            let Some(object) = initial.snapshot.next_in(&mut initial.rest) else {
                if initial.end_bookmark {
                    deliveries.push(Delivery::InitialEnd(self.version));
                }
                self.initial = None;
                break;
            };
            budget -= 1;
            if self.selects.selects(object) {
                deliveries.push(Delivery::Added(Arc::clone(object)));
            }
        }
        budget
    }

    /// Tells the events that `budget` allows; whether the reader has caught up.
    fn tell_events(&mut self, state: &State, mut budget: usize, deliveries: &mut Vec<Delivery>) -> bool {
        while let Some((position, event)) = state.history.at_or_after(self.position) {
            if budget == 0 {
                return false;
            }
            budget -= 1;
            self.position = position + 1;
            // A reader from the future waits until its version has passed.
            if event.resource_version > self.version {
                self.version = event.resource_version;
                let delivery = self.transition(event);
                self.passes(event, delivery.is_some());
                deliveries.extend(delivery);
            }
        }
        self.position = state.history.end();
        self.version = self.version.max(state.version());
        true
    }

    /// Counts an event that the reader was told of, or not.
    fn passes(&mut self, event: &Event, is_told: bool) {
        let length = u32::try_from(event.object.body().len()).unwrap_or(PASSED);
        self.passed = if is_told { 0 } else { self.passed.saturating_add(length) };
        if self.passed >= PASSED {
            self.passed = 0;
            self.request_bookmark();
        }
    }

    /// What the event is to this reader: `convertToWatchEvent` of the API server.
    fn transition(&self, event: &Event) -> Option<Delivery> {
        let before = event.previous.as_ref().is_some_and(|object| self.selects.selects(object));
        let after = event.change != Change::Deleted && self.selects.selects(&event.object);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(Delivery::Added(Arc::clone(&event.object))),
            (true, true) => Some(Delivery::Modified(Arc::clone(&event.object))),
            (true, false) => event.departed().map(Delivery::Deleted),
        }
    }
}

#[cfg(test)]
mod tests;

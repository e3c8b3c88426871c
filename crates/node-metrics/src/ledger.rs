//! Named values and the order in which they last changed: what lists and watches of an aggregated API are answered from.
//!
//! Of each name only the latest value is kept, so the history is as long as there are names, whatever the rate of changes: a
//! watch that resumes anywhere gets each changed value once, the latest. Deletions are kept as tombstones, up to a bound; whoever
//! stands before the oldest that was dropped must begin anew.
//!
//! By what selectors choose changes seldom, and each change of it is kept in its place, up to a bound: who selects is told what left the
//! selection, and nothing of what never was in it, wherever the watch goes on.
//!
//! Versions are `max(last + 1, unix microseconds)` and never above a ceiling that has been made known elsewhere, so that the next
//! leader can begin above whatever this one told. No clock, no lock, no rendering here.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

mod copied;
pub(crate) mod place;

/// The fewest tombstones kept; else as many as there are names.
const TOMBSTONES: usize = 1_024;

/// The fewest changes kept of that by which selectors choose; else several of each name.
const RESELECTIONS: usize = 4_096;

/// So many of each name: what a cluster goes through that is cut off and comes back.
const RESELECTIONS_OF_EACH: usize = 4;

/// The most gaps kept in mind; one comes with each take-over.
const GAPS: usize = 64;

/// A value that selectors choose by a part of it.
pub trait Selectable {
    /// That part.
    type Head: Clone + std::fmt::Debug + PartialEq;

    /// That part of this value.
    fn head(&self) -> Self::Head;
}

/// Selectors may choose otherwise since then.
#[derive(Debug)]
pub struct Reselected<H> {
    /// The name.
    pub name: Arc<str>,
    /// When that was.
    pub version: u64,
    /// When the value came to be.
    pub added: u64,
    /// By what they chose before.
    pub before: H,
    /// By what they choose since.
    pub after: H,
}

/// One value under its name, at its version.
#[derive(Debug)]
pub struct Stored<T> {
    /// The name.
    pub name: Arc<str>,
    /// When it last changed.
    pub version: u64,
    /// When it came to be: who has seen less has not seen it.
    pub added: u64,
    /// The value.
    pub value: T,
}

/// What happened to a name.
#[derive(Debug)]
pub enum Change<T: Selectable> {
    /// Selectors may choose it otherwise since then. What it is then comes by itself: later, or next at the same version.
    Reselected {
        /// How.
        how: Arc<Reselected<T::Head>>,
        /// What it is at the moment, if it is there.
        now: Option<Arc<Stored<T>>>,
    },
    /// It has this value now.
    Live(Arc<Stored<T>>),
    /// It is gone since `version`.
    Gone {
        /// When it went.
        version: u64,
        /// What it was.
        last: Arc<Stored<T>>,
    },
}

impl<T: Selectable> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Reselected { how, now } => Self::Reselected { how: Arc::clone(how), now: now.clone() },
            Self::Live(stored) => Self::Live(Arc::clone(stored)),
            Self::Gone { version, last } => Self::Gone { version: *version, last: Arc::clone(last) },
        }
    }
}

impl<T: Selectable> Change<T> {
    /// Of whom it is.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Reselected { how, .. } => &how.name,
            Self::Live(stored) | Self::Gone { last: stored, .. } => &stored.name,
        }
    }

    /// When it happened.
    pub fn version(&self) -> u64 {
        match self {
            Self::Reselected { how, .. } => how.version,
            Self::Live(stored) => stored.version,
            Self::Gone { version, .. } => *version,
        }
    }
}

/// Named values in the order of their changes.
#[derive(Debug)]
pub struct Ledger<T: Selectable> {
    last: u64,
    /// The last version at which all was known: a copy that is catching up was told of some of what is above.
    complete: u64,
    oldest: u64,
    ceiling: u64,
    /// Versions above the first and up to the second: another may have told of them, and this one does not know what.
    gaps: Vec<(u64, u64)>,
    live: BTreeMap<Arc<str>, Arc<Stored<T>>>,
    order: BTreeMap<u64, Change<T>>,
    tombstones: usize,
    /// How that changed by which selectors choose, by version.
    reselections: BTreeMap<u64, Arc<Reselected<T::Head>>>,
    /// The oldest version after which all of those are known.
    reselections_from: u64,
}

impl<T: Selectable> Default for Ledger<T> {
    fn default() -> Self {
        Self {
            last: 0,
            complete: 0,
            oldest: 0,
            ceiling: u64::MAX,
            gaps: Vec::new(),
            live: BTreeMap::new(),
            order: BTreeMap::new(),
            tombstones: 0,
            reselections: BTreeMap::new(),
            reselections_from: 0,
        }
    }
}

impl<T: Selectable> Ledger<T> {
    /// The version of the last change.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The last version at which all was known; below [`Ledger::last`] in a copy that is catching up, which goes on from here: of what changed
    /// twice since, it was not told.
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// The oldest version after which all changes are known.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// All values by name.
    pub fn values(&self) -> impl Iterator<Item = &Arc<Stored<T>>> {
        self.live.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The value of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Stored<T>>> {
        self.live.get(name)
    }

    /// Values whose name is `from` or after it.
    pub fn from(&self, from: &str) -> impl Iterator<Item = &Arc<Stored<T>>> {
        self.live.range::<str, _>((std::ops::Bound::Included(from), Unbounded)).map(|(_, stored)| stored)
    }

    /// Versions stay at or below `ceiling` while that is possible.
    pub fn set_ceiling(&mut self, ceiling: u64) {
        self.ceiling = ceiling;
    }

    /// Goes on above `version`: some earlier holder of the same values may have told of versions up to it. Who was told of one
    /// that this ledger did not hear of must begin anew.
    pub fn begin_above(&mut self, version: u64) {
        if version < self.last {
            return;
        }
        if self.live.is_empty() && self.order.is_empty() {
            self.oldest = version.saturating_add(1);
        } else if version > self.complete {
            self.gaps.push((self.complete, version));
            if self.gaps.len() > GAPS {
                self.oldest = self.oldest.max(self.gaps.remove(0).1);
            }
        }
        self.last = version.saturating_add(1);
        self.complete = self.last;
    }

    /// Gives all values versions above those of before, in the order that they have: where others may have told of a later state of
    /// some, nobody is told of an older version than they know. `again` makes the same value.
    pub fn restamp(&mut self, again: impl Fn(&T) -> T) {
        let live = |change: &Change<T>| match change {
            Change::Live(stored) => Some(Arc::clone(stored)),
            Change::Reselected { .. } | Change::Gone { .. } => None,
        };
        for before in self.order.values().filter_map(live).collect::<Vec<_>>() {
            let version = self.next(0);
            let Stored { name, added, value, .. } = &*before;
            self.set(Stored { name: Arc::clone(name), version, added: *added, value: again(value) });
        }
    }

    /// Whether all changes after `version` are known.
    pub fn is_known(&self, version: u64) -> bool {
        version >= self.oldest && !self.gaps.iter().any(|(above, to)| (above + 1..=*to).contains(&version))
    }

    /// Whether all is known after `version` that somebody needs who selects.
    pub fn is_known_to_selectors(&self, version: u64) -> bool {
        self.is_known(version) && version >= self.reselections_from
    }

    /// How selectors choose otherwise since that version, if they do.
    pub fn reselected_at(&self, version: u64) -> Option<&Arc<Reselected<T::Head>>> {
        self.reselections.get(&version)
    }

    /// What selectors choose by may have changed unheard of up to now: who selects begins anew.
    pub fn forget_reselections(&mut self) {
        self.reselections.clear();
        self.reselections_from = self.last;
    }

    /// Sets a value.
    pub fn put(&mut self, name: &Arc<str>, value: T, wall_micros: u64) -> Arc<Stored<T>> {
        let version = self.next(wall_micros);
        let Some(known) = self.live.get(name) else {
            let (name, added) = (Arc::clone(name), version);
            return self.set(Stored { name, version, added, value });
        };
        let (added, before, after) = (known.added, known.value.head(), value.head());
        if before != after {
            self.reselect(Arc::new(Reselected { name: Arc::clone(name), version, added, before, after }));
        }
        self.set(Stored { name: Arc::clone(name), version, added, value })
    }

    /// Takes a value away; `None` if there is none. The version is that of its going.
    pub fn remove(&mut self, name: &str, wall_micros: u64) -> Option<(u64, Arc<Stored<T>>)> {
        if !self.live.contains_key(name) {
            return None;
        }
        let version = self.next(wall_micros);
        self.bury(name, version).map(|last| (version, last))
    }

    /// The first changes after `version`, about `budget` at most, and the version up to which they are all. What they are to
    /// who reads in several turns, [`Place`](place::Place) says.
    pub fn after(&self, version: u64, budget: usize) -> (Vec<Change<T>>, u64) {
        let since = || (Excluded(version), Unbounded);
        let mut changes = self.order.range(since()).peekable();
        let mut reselections = self.reselections.range(since()).peekable();
        let mut first: Vec<Change<T>> = Vec::new();
        loop {
            let next = (reselections.peek().map(|(at, _)| **at), changes.peek().map(|(at, _)| **at));
            let (at, how) = match next {
                (None, None) => return (first, self.last.max(version)),
                (Some(how), None) => (how, true),
                (None, Some(change)) => (change, false),
                // How selectors choose stands before what they choose from then.
                (Some(how), Some(change)) => (how.min(change), how <= change),
            };
            // What is of one version is told at one time.
            if let Some(told) = first.last().map(Change::version)
                && first.len() >= budget.max(1)
                && told < at
            {
                return (first, told);
            }
            if how {
                first.extend(reselections.next().map(|(_, how)| Change::Reselected {
                    how: Arc::clone(how),
                    now: self.live.get(&how.name).map(Arc::clone),
                }));
            } else {
                first.extend(changes.next().map(|(_, change)| change.clone()));
            }
        }
    }

    fn reselect(&mut self, how: Arc<Reselected<T::Head>>) {
        self.reselections.insert(how.version, how);
        if self.reselections.len() > (self.live.len() * RESELECTIONS_OF_EACH).max(RESELECTIONS)
            && let Some((at, _)) = self.reselections.pop_first()
        {
            self.reselections_from = self.reselections_from.max(at);
        }
    }

    fn next(&mut self, wall_micros: u64) -> u64 {
        self.last = self.last.saturating_add(1).max(wall_micros.min(self.ceiling));
        self.complete = self.last;
        self.last
    }

    fn set(&mut self, stored: Stored<T>) -> Arc<Stored<T>> {
        let stored = Arc::new(stored);
        if let Some(before) = self.live.insert(Arc::clone(&stored.name), Arc::clone(&stored)) {
            self.order.remove(&before.version);
        }
        self.order.insert(stored.version, Change::Live(Arc::clone(&stored)));
        stored
    }

    fn bury(&mut self, name: &str, version: u64) -> Option<Arc<Stored<T>>> {
        let last = self.live.remove(name)?;
        self.order.remove(&last.version);
        // A copy that goes on from where it knew all may be told of it again.
        let known = self.order.insert(version, Change::Gone { version, last: Arc::clone(&last) });
        self.tombstones += usize::from(known.is_none());
        if self.tombstones > self.live.len().max(TOMBSTONES) {
            self.forget_oldest();
        }
        Some(last)
    }

    fn forget_oldest(&mut self) {
        let gone = |(at, change): (&u64, &Change<T>)| matches!(change, Change::Gone { .. }).then_some(*at);
        if let Some(at) = self.order.iter().find_map(gone) {
            self.order.remove(&at);
            self.tombstones -= 1;
            self.oldest = self.oldest.max(at);
        }
    }
}

#[cfg(test)]
mod tests;

//! The recent events of a cache, one ring for all readers, bounded by bytes and by count.
//!
//! An event keeps its position for as long as the cache lives, so a reader that stands at a position finds the next event
//! without a search; one that comes with a version finds its position by binary search.

use std::{collections::VecDeque, sync::Arc};

use kube_wire::resource_version::ResourceVersion;

use crate::{cache::Limits, event::Event};

/// The recent events, ascending by version without holes above [`History::floor`].
#[derive(Debug)]
pub(crate) struct History {
    limits: Limits,
    events: VecDeque<Arc<Event>>,
    /// The position of the oldest event; it only grows.
    first: u64,
    /// Every event above this version is here.
    floor: ResourceVersion,
    bytes: usize,
}

impl History {
    /// An empty history: nothing before `floor` is known.
    pub(crate) fn new(limits: Limits, floor: ResourceVersion) -> Self {
        Self { limits, events: VecDeque::new(), first: 0, floor, bytes: 0 }
    }

    /// The version from which a reader can be served all that came after it.
    pub(crate) fn floor(&self) -> ResourceVersion {
        self.floor
    }

    /// The bytes of bodies and bookkeeping that the history keeps alive.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many events there are.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// The position of the next event to come.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The first event at or after `position` that is still here, and its position.
    pub(crate) fn at_or_after(&self, position: u64) -> Option<(u64, &Arc<Event>)> {
        let position = position.max(self.first);
        let index = usize::try_from(position - self.first).ok()?;
        Some((position, self.events.get(index)?))
    }

    /// The position of the first event above `version`.
    pub(crate) fn seek(&self, version: ResourceVersion) -> u64 {
        self.first + self.events.partition_point(|event| event.resource_version <= version) as u64
    }

    /// The events above `version`, newest first.
    pub(crate) fn newest_above(&self, version: ResourceVersion) -> impl Iterator<Item = &Arc<Event>> {
        self.events.iter().rev().take_while(move |event| event.resource_version > version)
    }

    /// Adds an event, whose version must be above all before it, and drops the oldest until the limits hold.
    ///
    /// The newest always stays: one large object must not expire every reader at each of its changes.
    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.bytes += event.bytes();
        self.events.push_back(event);
        while self.events.len() > 1
            && (self.bytes > self.limits.history_bytes || self.events.len() > self.limits.history_events)
        {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.first += 1;
            self.floor = oldest.resource_version;
        }
    }

    /// Forgets all events: what happened up to `floor` is not known. Positions go on, so no reader mistakes a later event.
    pub(crate) fn clear(&mut self, floor: ResourceVersion) {
        self.first = self.end();
        self.events = VecDeque::new();
        self.bytes = 0;
        self.floor = floor;
    }
}

#[cfg(test)]
mod tests;

//! A whole list that is written without the store: it takes as long as the disk does, and nobody else's records wait for that.

use std::{path::Path, sync::Arc};

use super::{Store, subscription::Subscription};
use crate::{
    disk::Disk,
    error::Error,
    log::{Identity, Log},
    record::{Record, SubscriptionId},
    segment::Name,
    statistics::Counters,
};

/// A list that is on its way into the store: [`Store::begin`] gives it, [`Store::install`] has to take it back, whatever became of it.
#[derive(Debug)]
#[must_use = "its files are the store's to remove"]
pub struct List {
    subscription: Subscription,
    place: Identity,
    disk: Arc<dyn Disk>,
    counters: Arc<Counters>,
    /// Whether names in the folder wait for the disk, as far as this list must know.
    names: bool,
}

impl List {
    /// Takes the objects of the list and its end, in memory. After an error it is none.
    pub fn take(&mut self, records: &[Record]) -> Result<(), Error> {
        self.subscription.check(&self.place, records)?;
        records.iter().try_for_each(|record| self.subscription.take(&self.place, record, &self.counters))
    }

    /// Gives the system what was taken, and waits for the disk. After an error it is no list, as [`Store::install`] sees: what the disk has no room for
    /// is not to take that of memory as well.
    pub fn hand_over(&mut self) -> Result<(), Error> {
        let dir: &Path = &self.place.dir;
        self.subscription.flush(self.disk.as_ref(), dir, &self.counters, &mut self.names)
    }
}

impl Store {
    /// Begins a list of a subscription, beside the one that counts until [`Store::install`]. What is appended to that one meanwhile goes
    /// with it.
    pub fn begin(&mut self, subscription: &SubscriptionId, sealed: bool) -> Result<List, Error> {
        let begin = if sealed { Record::BeginSealed } else { Record::Begin };
        self.append(subscription, &[begin])?;
        let name = Name::of(subscription);
        let entry = self.subscriptions.entry(name.clone()).or_default();
        entry.away += 1;
        let (generation, building) = (entry.generation, entry.building.take());
        Ok(List {
            subscription: Subscription { generation, building, ..Subscription::default() },
            place: Identity { subscription: subscription.clone(), name, ..self.place.clone() },
            disk: self.disk.clone(),
            counters: self.counters.clone(),
            names: self.names,
        })
    }

    /// Takes a list back. It takes the place of the one before, if it is whole and on the disk, and the subscription was neither begun anew nor dropped
    /// meanwhile; else its files are removed.
    pub fn install(&mut self, list: List) {
        let List { subscription: listed, place, names, .. } = list;
        self.names |= names;
        let entry = self.subscriptions.entry(place.name).or_default();
        entry.away = entry.away.saturating_sub(1);
        let is_last = entry.generation == listed.generation;
        let files = |log: Option<Log>| log.iter().flat_map(Log::files).collect::<Vec<_>>();
        entry.unfinished.extend(files(listed.building));
        if !is_last || !listed.current.as_ref().is_some_and(|log| log.listed) {
            entry.unfinished.extend(files(listed.current));
            // What the disk had no room for leaves it at once; what stays goes later.
            _ = entry.remove_unfinished(self.disk.as_ref(), &mut self.names);
            return;
        }
        entry.doomed.extend(files(std::mem::replace(&mut entry.current, listed.current)));
        entry.doomed.append(&mut entry.kept);
    }
}

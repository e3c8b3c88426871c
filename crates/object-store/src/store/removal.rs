//! The word that all of a subscription is dropped, written without the store: it takes as long as the disk does, and nobody else's records
//! wait for that.

use std::{path::Path, sync::Arc};

use super::{
    Store,
    subscription::{Marker, Word},
};
use crate::{
    disk::Disk,
    error::Error,
    log::sync_names,
    record::{Record, SubscriptionId},
    segment::Name,
    statistics::Counters,
};

/// What is being dropped: [`Store::begin_drop`] gives it, [`Store::settle_drop`] has to take it back, whatever became of it.
#[derive(Debug)]
#[must_use = "the store has to know what became of it"]
pub struct Dropping {
    name: String,
    /// Nothing, if there was nothing to drop.
    word: Option<Arc<Word>>,
    disk: Arc<dyn Disk>,
    dir: Arc<Path>,
    counters: Arc<Counters>,
    /// Whether names in the folder wait for the disk.
    names: bool,
}

impl Dropping {
    /// Writes that it is dropped: whoever opens the store from now on finds nothing of it, after a loss of power once [`Store::sync`] succeeded.
    /// What fails is tried again by that.
    pub fn hand_over(&mut self) -> Result<(), Error> {
        let Some(word) = &self.word else { return Ok(()) };
        word.write(
            || sync_names(self.disk.as_ref(), &self.dir, &mut self.names),
            self.disk.as_ref(),
            &self.counters,
        )
    }
}

impl Store {
    /// Drops all of a subscription, in memory. Others can be stored while that is written.
    pub fn begin_drop(&mut self, subscription: &SubscriptionId) -> Result<Dropping, Error> {
        self.append(subscription, &[Record::Drop])?;
        let name = Name::of(subscription);
        let last = self.subscriptions.get_mut(&name).and_then(|dropped| dropped.markers.last_mut());
        let word = last.map(|marker| {
            marker.is_away = true;
            marker.word.clone()
        });
        Ok(Dropping {
            name,
            word,
            disk: self.disk.clone(),
            dir: self.place.dir.clone(),
            counters: self.counters.clone(),
            names: self.names,
        })
    }

    /// Takes it back: what is dropped is removed with the next [`Store::sync`].
    pub fn settle_drop(&mut self, dropping: Dropping) {
        let Some(word) = dropping.word else { return };
        self.names = true;
        let dropped = self.subscriptions.get_mut(&dropping.name);
        let markers = dropped.into_iter().flat_map(|dropped| &mut dropped.markers);
        for marker in markers.filter(|marker: &&mut Marker| Arc::ptr_eq(&marker.word, &word)) {
            marker.is_away = false;
        }
    }
}

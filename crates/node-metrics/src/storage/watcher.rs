//! One watch of one client: where it stands in the order of changes. It holds no queue, so who reads slowly costs nobody anything
//! and is told the latest of each object when it comes back.

use std::sync::Arc;

use aggregated_api::{StorageError, Watcher};
use futures::future::{BoxFuture, FutureExt};
use kube_wire::field_selector::FieldSelector;
use kube_wire::label_selector::LabelSelector;
use kube_wire::resource_version::ResourceVersion;
use tokio::sync::watch;
use watch_cache::Delivery;

use super::kind::Kind;
use super::{NodeMetrics, internal, unavailable, version};
use crate::ledger::{Change, Stored};
use crate::turns::Turns;

/// How many objects are looked at, and told, at a time.
const BATCH: usize = 32;

/// What is left of the initial state, and whether its end is told.
type Initial<T> = (std::vec::IntoIter<Arc<Stored<T>>>, bool);

pub(super) struct StoreWatcher<K: Kind> {
    source: Arc<NodeMetrics>,
    /// The leadership that it began under; it ends with it.
    term: u64,
    told: u64,
    /// When it last knew everything. Only what is older than this is sure to be known: of what changed since then twice, the first
    /// change stands no more in the order.
    knew_all: u64,
    initial: Option<Initial<K::Value>>,
    selectors: (LabelSelector, FieldSelector),
    turns: Turns,
}

impl<K: Kind> StoreWatcher<K> {
    pub(super) fn new(
        source: Arc<NodeMetrics>,
        term: u64,
        told: u64,
        initial: Option<Initial<K::Value>>,
        selectors: (LabelSelector, FieldSelector),
        changed: watch::Receiver<u64>,
    ) -> Self {
        Self { source, term, told, knew_all: told, initial, selectors, turns: Turns::new(changed) }
    }

    fn selects(&self, stored: &Stored<K::Value>) -> Result<bool, StorageError> {
        let (labels, fields) = &self.selectors;
        self.source.selects::<K>((labels, fields), stored)
    }

    /// What can be told at once. Nothing is lost if the caller goes away behind it: it does not wait.
    fn step(&mut self) -> Result<Vec<Delivery>, StorageError> {
        if let Some((rest, end_bookmark)) = &mut self.initial {
            let batch: Vec<_> = rest.by_ref().take(BATCH).collect();
            let end = rest.len() == 0;
            let end_bookmark = *end_bookmark;
            let mut deliveries = Vec::with_capacity(batch.len() + 1);
            for stored in batch {
                if self.selects(&stored)? {
                    deliveries.push(Delivery::Added(self.source.object::<K>(&stored)?));
                }
            }
            if end {
                self.initial = None;
                if end_bookmark {
                    deliveries.push(Delivery::InitialEnd(version(self.told)));
                }
            }
            return Ok(deliveries);
        }
        let (changes, told, last) = {
            let store = self.source.store.read();
            if self.source.readable(&store)? != self.term {
                return Err(unavailable("another leadership began"));
            }
            let ledger = K::ledger(&store);
            if !ledger.is_known(self.told) {
                let (asked, oldest) = (version(self.told), version(ledger.oldest()));
                return Err(StorageError::Expired { asked, oldest });
            }
            let (changes, told) = ledger.after(self.told, BATCH);
            (changes, told, ledger.last())
        };
        let mut deliveries = Vec::with_capacity(changes.len());
        for change in &changes {
            self.tell(change, &mut deliveries)?;
        }
        self.told = told;
        if told >= last {
            self.knew_all = told;
        }
        Ok(deliveries)
    }

    fn tell(&self, change: &Change<K::Value>, deliveries: &mut Vec<Delivery>) -> Result<(), StorageError> {
        match change {
            Change::Live(stored) => {
                let object = || self.source.object::<K>(stored);
                let selected = self.selects(stored)?;
                if stored.added > self.knew_all {
                    if selected {
                        deliveries.push(Delivery::Added(object()?));
                    }
                } else if selected {
                    deliveries.push(Delivery::Modified(object()?));
                } else if stored.reselected > self.knew_all {
                    // It may have been selected before; if not, nobody misses it.
                    deliveries.push(Delivery::Deleted(object()?));
                }
            }
            Change::Gone { version, last } => {
                let selected = self.selects(last)?;
                let is_new = last.added > self.knew_all;
                // It came and went since: both are told, so that a copy knows as much as any reader.
                if selected && is_new {
                    deliveries.push(Delivery::Added(self.source.object::<K>(last)?));
                }
                // What left the selection before it went may have been selected when this watch last looked.
                if selected || (!is_new && last.reselected > self.knew_all) {
                    let departed = K::departed(last, *version, self.source.api_version)
                        .map_err(|error| internal(&error))?;
                    deliveries.push(Delivery::Deleted(departed));
                }
            }
        }
        Ok(())
    }
}

impl<K: Kind> Watcher for StoreWatcher<K> {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Delivery>, StorageError>> {
        async move {
            loop {
                self.turns.begin().await;
                // The initial state is of the moment at which the watch began.
                let looks = self.initial.is_none();
                let deliveries = self.step()?;
                self.turns.end(looks && self.told == self.knew_all);
                if !deliveries.is_empty() {
                    return Ok(deliveries);
                }
            }
        }
        .boxed()
    }

    fn told(&self) -> Option<ResourceVersion> {
        self.initial.is_none().then(|| version(self.told))
    }
}

//! One watch of one client: where it stands in the order of changes. It holds no queue, so who reads slowly costs nobody anything
//! and is told the latest of each object when it comes back.

use std::sync::Arc;

use aggregated_api::{StorageError, Watcher};
use futures::future::{BoxFuture, FutureExt};
use kube_wire::field_selector::FieldSelector;
use kube_wire::label_selector::LabelSelector;
use kube_wire::object::Object;
use kube_wire::resource_version::ResourceVersion;
use tokio::sync::watch;
use watch_cache::Delivery;

use super::kind::Kind;
use super::sending::Sending;
use super::{NodeMetrics, internal, is_known, is_of_another, unavailable, version};
use crate::ledger::place::{News, Place};
use crate::ledger::{Change, Reselected, Selectable, Stored};
use crate::turns::Turns;

/// How many objects are looked at, and told, at a time.
const BATCH: usize = 32;

/// What is left of the initial state, and whether its end is told.
type Initial<T> = (Arc<Sending<T>>, bool);

pub(super) struct StoreWatcher<K: Kind> {
    source: Arc<NodeMetrics>,
    /// The leadership that it began under; it ends with it.
    term: u64,
    place: Place,
    initial: Option<Initial<K::Value>>,
    selectors: (LabelSelector, FieldSelector),
    turns: Turns,
}

impl<K: Kind> StoreWatcher<K> {
    pub(super) fn new(
        source: Arc<NodeMetrics>,
        term: u64,
        place: Place,
        initial: Option<Initial<K::Value>>,
        selectors: (LabelSelector, FieldSelector),
        changed: watch::Receiver<u64>,
    ) -> Self {
        Self { source, term, place, initial, selectors, turns: Turns::new(changed) }
    }

    fn selects(&self, name: &str, head: &<K::Value as Selectable>::Head) -> Result<bool, StorageError> {
        let (labels, fields) = &self.selectors;
        self.source.selects::<K>((labels, fields), name, head)
    }

    /// What can be told at once. Nothing is lost if the caller goes away behind it: it does not wait.
    fn step(&mut self) -> Result<Vec<Delivery>, StorageError> {
        if let Some((rest, end_bookmark)) = &self.initial {
            let (batch, end) = rest.take(BATCH, self.source.now().steady)?;
            let end_bookmark = *end_bookmark;
            let mut deliveries = Vec::with_capacity(batch.len() + 1);
            for stored in batch {
                if self.selects(&stored.name, &stored.value.head())? {
                    deliveries.push(Delivery::Added(self.source.object::<K>(&stored)?));
                }
            }
            if end {
                self.initial = None;
                if end_bookmark {
                    deliveries.push(Delivery::InitialEnd(version(self.place.told())));
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
            let (labels, fields) = &self.selectors;
            if !is_known(ledger, (labels, fields), self.place.told()) {
                let (asked, oldest) = (version(self.place.told()), version(ledger.oldest()));
                return Err(StorageError::Expired { asked, oldest });
            }
            let (changes, told) = ledger.after(self.place.told(), BATCH);
            (changes, told, ledger.last())
        };
        let mut deliveries = Vec::with_capacity(changes.len());
        for change in &changes {
            if let Some(delivery) = self.tell(change)? {
                deliveries.push(delivery);
            }
        }
        self.place.reach(told, last);
        Ok(deliveries)
    }

    fn tell(&mut self, change: &Change<K::Value>) -> Result<Option<Delivery>, StorageError> {
        let (name, (labels, fields)) = (change.name(), &self.selectors);
        if is_of_another(fields, name) {
            return Ok(None);
        }
        let selects = |head: &_| self.source.selects::<K>((labels, fields), name, head);
        let Some(news) = self.place.news(change, selects)? else { return Ok(None) };
        let object = match change {
            Change::Live(stored) => self.source.object::<K>(stored)?,
            Change::Reselected { how, now } => self.left(how, now.as_deref())?,
            Change::Gone { version, last } => {
                K::departed(last, *version, self.source.api_version).map_err(|error| internal(&error))?
            }
        };
        Ok(Some(match news {
            News::Added => Delivery::Added(object),
            News::Modified => Delivery::Modified(object),
            News::Deleted => Delivery::Deleted(object),
        }))
    }

    /// What left the selection, at the version of that.
    fn left(
        &self,
        how: &Reselected<<K::Value as Selectable>::Head>,
        now: Option<&Stored<K::Value>>,
    ) -> Result<Arc<Object>, StorageError> {
        let api_version = self.source.api_version;
        let object = match now {
            Some(now) => K::departed(now, how.version, api_version),
            None => K::head(&self.source, &how.name, &how.before, how.version).map(Arc::new),
        };
        object.map_err(|error| internal(&error))
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
                self.turns.end(looks && self.place.is_whole());
                if !deliveries.is_empty() {
                    return Ok(deliveries);
                }
            }
        }
        .boxed()
    }

    fn told(&self) -> Option<ResourceVersion> {
        (self.initial.is_none() && self.place.is_whole()).then(|| version(self.place.told()))
    }
}

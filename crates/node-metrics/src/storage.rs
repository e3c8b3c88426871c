//! The store as an aggregated API reads and writes it: behind a lock that is held for copies of pointers only. Objects become JSON
//! outside of it.

use std::sync::Arc;

use aggregated_api::{Draft, Expected, Intent, Page, Storage, StorageError, User, Watcher};
use futures::future::{self, BoxFuture, FutureExt};
use kube_wire::field_selector::FieldSelector;
use kube_wire::label_selector::LabelSelector;
use kube_wire::list_options::{ListRead, ListRequest, WatchRequest, WatchStart};
use kube_wire::object::Object;
use kube_wire::resource::ObjectKey;
use kube_wire::resource_version::ResourceVersion;
use kube_wire::status::Status;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use watch_cache::Scope;

use crate::freshness::Now;
use crate::ledger::place::Place;
use crate::ledger::{Change, Ledger, Selectable, Stored};
use crate::load::LoadRecord;
use crate::recent::Recent;
use crate::record::{MalformedRecord, Record};
use crate::render::buffers::BUFFERS;
use crate::store::{Phase, Store};

mod kind;
mod loads;
mod page;
mod pages;
mod sending;
mod watcher;
mod writing;

use self::kind::{Kind, Metric};
pub use self::loads::NodeLoadStorage;
use self::pages::Pages;
use self::sending::Readers;

/// The store with what it needs of the world: a clock, and whether this process leads at this very moment.
pub struct NodeMetrics {
    store: RwLock<Store>,
    version: watch::Sender<u64>,
    paged: Mutex<Pages<Record>>,
    paged_loads: Mutex<Pages<LoadRecord>>,
    readers: Readers,
    recent: Recent,
    clock: Box<dyn Fn() -> Now + Send + Sync>,
    leading: Box<dyn Fn() -> bool + Send + Sync>,
    api_version: &'static str,
}

/// All objects of one version, in the order of their names.
type State<T> = Arc<Vec<Arc<Stored<T>>>>;

/// A term, a version, and the objects of it.
pub(crate) type StateToCopy = (u64, u64, Option<Vec<Arc<Stored<Record>>>>);

impl std::fmt::Debug for NodeMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeMetrics").field("api_version", &self.api_version).finish_non_exhaustive()
    }
}

impl NodeMetrics {
    /// `leading` is asked whenever something is told or taken: a leadership may end without anybody saying so.
    pub fn new(
        store: Store,
        api_version: &'static str,
        clock: impl Fn() -> Now + Send + Sync + 'static,
        leading: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            version: watch::Sender::new(store.ledger().last()),
            store: RwLock::new(store),
            paged: Mutex::default(),
            paged_loads: Mutex::default(),
            readers: Readers::default(),
            recent: Recent::default(),
            clock: Box::new(clock),
            leading: Box::new(leading),
            api_version,
        })
    }

    /// The moment.
    pub fn now(&self) -> Now {
        (self.clock)()
    }

    /// Whether this process leads at this moment.
    pub fn is_leading(&self) -> bool {
        (self.leading)()
    }

    /// `slo.koordinator.sh/v1beta1`
    pub fn api_version(&self) -> &'static str {
        self.api_version
    }

    /// Looks at the store.
    pub fn read<R>(&self, look: impl FnOnce(&Store) -> R) -> R {
        look(&self.store.read())
    }

    /// Changes the store, and wakes those who wait for changes.
    pub fn change<R>(&self, change: impl FnOnce(&mut Store, Now) -> R) -> R {
        let now = self.now();
        let mut store = self.store.write();
        let result = change(&mut store, now);
        let last = store.ledger().last();
        drop(store);
        self.version.send_if_modified(|version| std::mem::replace(version, last) != last);
        result
    }

    /// Wakes all watches, so that they find out that a leadership is over.
    pub fn wake(&self) {
        self.version.send_modify(|_| {});
    }

    /// A version as clients get it.
    fn object<K: Kind>(&self, stored: &Stored<K::Value>) -> Result<Arc<Object>, StorageError> {
        K::object(self, stored).map_err(|error| internal(&error))
    }

    /// Whether selectors choose a version. Those who are not chosen need no JSON.
    fn selects<K: Kind>(
        &self,
        (labels, fields): (&LabelSelector, &FieldSelector),
        name: &str,
        head: &<K::Value as Selectable>::Head,
    ) -> Result<bool, StorageError> {
        if labels.is_everything() && fields.is_everything() {
            return Ok(true);
        }
        if is_of_another(fields, name) {
            return Ok(false);
        }
        // Of which version, no selector asks.
        let head = K::head(self, name, head, 1).map_err(|error| internal(&error))?;
        Ok(labels.matches(&head) && fields.matches(&head))
    }

    /// The term, if the store may be read at this moment.
    fn readable(&self, store: &Store) -> Result<u64, StorageError> {
        if !self.is_leading() || store.phase() == Phase::Following {
            return Err(unavailable("this replica does not lead"));
        }
        match store.phase() {
            Phase::Serving => Ok(store.epoch()),
            _ => Err(unavailable("not enough nodes have reported to this leader yet")),
        }
    }

    /// What a list shows, its version, and where it begins.
    fn state_for<'a, K: Kind>(
        &self,
        read: &'a ListRead,
    ) -> Result<(State<K::Value>, u64, &'a str), StorageError> {
        let store = self.store.read();
        self.readable(&store)?;
        let ledger = K::ledger(&store);
        let last = ledger.last();
        let current = || (Arc::new(ledger.values().cloned().collect::<Vec<_>>()), last);
        let at = |asked: ResourceVersion| {
            if asked.get() == last {
                return Ok(current());
            }
            if asked.get() > last {
                return Err(StorageError::Behind { current: version(last) });
            }
            let held = K::pages(self).lock().find(asked.get());
            held.map(|values| (values, asked.get()))
                .ok_or(StorageError::Expired { asked, oldest: version(last) })
        };
        let ((values, at), from) = match read {
            ListRead::NotOlderThan(asked) if asked.get() > last => {
                return Err(StorageError::Behind { current: version(last) });
            }
            ListRead::MostRecent | ListRead::Any | ListRead::NotOlderThan(_) => (current(), ""),
            ListRead::Exact(asked) => (at(*asked)?, ""),
            ListRead::Continue { at: Some(asked), after } => (at(*asked)?, after.as_str()),
            ListRead::Continue { at: None, after } => (current(), after.as_str()),
        };
        Ok((values, at, from))
    }

    /// Holds a state for the pages that follow.
    fn hold<K: Kind>(&self, version: u64, values: State<K::Value>) {
        let at = self.now().steady;
        K::pages(self).lock().hold(version, values, at);
    }

    /// Lets go of states whose pages nobody asked for, or whose readers stand still, and of objects while nobody is told of changes. To be called now and then.
    pub fn release(&self) {
        if self.version.receiver_count() == 0 {
            self.recent.clear();
            BUFFERS.clear();
        }
        let at = self.now().steady;
        self.paged.lock().release(at);
        self.paged_loads.lock().release(at);
        self.readers.release(at);
    }

    fn get_now<K: Kind>(&self, key: &ObjectKey) -> Result<Option<Arc<Object>>, StorageError> {
        let stored = {
            let store = self.store.read();
            self.readable(&store)?;
            K::ledger(&store).get(key.name()).cloned()
        };
        stored.map(|stored| self.object::<K>(&stored)).transpose()
    }

    fn begin<K: Kind>(
        self: &Arc<Self>,
        user: &User,
        request: &WatchRequest,
    ) -> Result<Box<dyn Watcher>, StorageError> {
        // Subscribed before the state is looked at: no change can fall between them.
        let changed = self.version.subscribe();
        let store = self.store.read();
        let term = self.readable(&store)?;
        let ledger = K::ledger(&store);
        let last = ledger.last();
        let (place, initial) = match request.start {
            WatchStart::After(asked) if asked.get() > last => {
                return Err(StorageError::Behind { current: version(last) });
            }
            WatchStart::After(asked)
                if !is_known(ledger, (&request.labels, &request.fields), asked.get()) =>
            {
                return Err(StorageError::Expired { asked, oldest: version(ledger.oldest()) });
            }
            WatchStart::After(asked) => (Place::resumed(asked.get()), None),
            WatchStart::Initial { at_least: Some(asked), .. } if asked.get() > last => {
                return Err(StorageError::Behind { current: version(last) });
            }
            WatchStart::Initial { end_bookmark, .. } => {
                let room = self.readers.room(user)?;
                let values: Vec<_> = ledger.values().cloned().collect();
                (Place::whole(last), Some((values, room, end_bookmark)))
            }
            WatchStart::Live { .. } => (Place::whole(last), None),
        };
        drop(store);
        let initial = initial.map(|(values, room, end_bookmark)| {
            (self.readers.begin(values, Some(room), self.now().steady), end_bookmark)
        });
        let (labels, fields) = (request.labels.clone(), request.fields.clone());
        let watcher = watcher::StoreWatcher::<K>::new(
            Arc::clone(self),
            term,
            place,
            initial,
            (labels, fields),
            changed,
        );
        Ok(Box::new(watcher))
    }

    /// To be waited for changes with; subscribe before looking.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The term, where a copy of this moment stands, and with `after: None` all that is in it.
    pub(crate) fn state_to_copy(&self, after: Option<u64>) -> Result<StateToCopy, StorageError> {
        let store = self.store.read();
        let term = self.readable(&store)?;
        let (ledger, last) = (store.ledger(), store.ledger().last());
        match after {
            None => Ok((term, last, Some(ledger.values().cloned().collect()))),
            Some(asked) if asked > last => Err(StorageError::Behind { current: version(last) }),
            Some(asked) if !ledger.is_known_to_selectors(asked) => {
                Err(StorageError::Expired { asked: version(asked), oldest: version(ledger.oldest()) })
            }
            Some(asked) => Ok((term, asked, None)),
        }
    }

    /// What changed after `told`, up to where that is all, and the last version; an error once it is another term.
    pub(crate) fn changes_to_copy(
        &self,
        term: u64,
        told: u64,
        budget: usize,
    ) -> Result<(Vec<Change<Record>>, u64, u64), StorageError> {
        let store = self.store.read();
        if self.readable(&store)? != term {
            return Err(unavailable("another leadership began"));
        }
        let ledger = store.ledger();
        if !ledger.is_known_to_selectors(told) {
            let (asked, oldest) = (version(told), version(ledger.oldest()));
            return Err(StorageError::Expired { asked, oldest });
        }
        let (changes, told) = ledger.after(told, budget);
        Ok((changes, told, ledger.last()))
    }
}

/// [`NodeMetrics`] as a storage.
#[derive(Clone, Debug)]
pub struct NodeMetricStorage(pub Arc<NodeMetrics>);

impl Storage for NodeMetricStorage {
    fn get<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Option<Arc<Object>>, StorageError>> {
        future::ready(self.0.get_now::<Metric>(key)).boxed()
    }

    fn get_to_write<'a>(
        &'a self,
        key: &'a ObjectKey,
    ) -> BoxFuture<'a, Result<Option<Arc<Object>>, StorageError>> {
        future::ready(self.0.get_to_write(key)).boxed()
    }

    fn list<'a>(
        &'a self,
        _scope: &'a Scope,
        request: &'a ListRequest,
    ) -> BoxFuture<'a, Result<Page, StorageError>> {
        self.0.page::<Metric>(request).boxed()
    }

    fn watch<'a>(
        &'a self,
        user: &'a User,
        _scope: &'a Scope,
        request: &'a WatchRequest,
    ) -> BoxFuture<'a, Result<Box<dyn Watcher>, StorageError>> {
        future::ready(self.0.begin::<Metric>(user, request)).boxed()
    }

    fn version(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    fn admit(&self, user: &User, key: &ObjectKey, intent: Intent) -> Result<(), StorageError> {
        self.0.admit(user, key.name(), intent)
    }

    fn write<'a>(
        &'a self,
        key: &'a ObjectKey,
        expected: Expected,
        object: Draft,
    ) -> BoxFuture<'a, Result<Arc<Object>, StorageError>> {
        future::ready(self.0.write_now(key, expected, &object)).boxed()
    }

    fn remove<'a>(
        &'a self,
        key: &'a ObjectKey,
        expected: ResourceVersion,
    ) -> BoxFuture<'a, Result<Arc<Object>, StorageError>> {
        future::ready(self.0.remove_now(key, expected)).boxed()
    }
}

/// Whether all is known after `version` that a reader with these selectors needs.
fn is_known<T: Selectable>(
    ledger: &Ledger<T>,
    (labels, fields): (&LabelSelector, &FieldSelector),
    version: u64,
) -> bool {
    // A name stays what it is.
    let chooses = !labels.is_everything() || !fields.looks_only_at("metadata.name");
    if chooses { ledger.is_known_to_selectors(version) } else { ledger.is_known(version) }
}

/// Whether a selector asks for one object, and this is another: it never was and never will be selected.
fn is_of_another(fields: &FieldSelector, name: &str) -> bool {
    fields.requires_exactly("metadata.name").is_some_and(|wanted| wanted != name)
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(number.max(1)).expect("at least 1")
}

fn unavailable(message: &str) -> StorageError {
    StorageError::Unavailable { message: message.to_owned(), retry_after: 1 }
}

fn internal(error: &MalformedRecord) -> StorageError {
    StorageError::Refused(Box::new(Status::internal_error(&error.to_string())))
}

#[cfg(test)]
mod tests;

//! A storage in memory: the shared list/watch machine of crate `watch-cache`, which here is written to by requests.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use futures::future::{self, BoxFuture, FutureExt};
use kube_wire::{
    list_options::{ListRequest, WatchRequest},
    object::{MalformedObject, Object},
    resource::ObjectKey,
    resource_version::ResourceVersion,
    status::Status,
};
use parking_lot::RwLock;
use tokio::sync::watch;
use watch_cache::{Cache, Change, Cursor, Delivery, Limits, ListAnswer, Scope, Step, watch::WatchAnswer};

use crate::{
    authenticate::User,
    storage::{Draft, Expected, Page, Storage, StorageError, Watcher},
};

/// How many objects or events a watcher looks at while it holds the lock.
const BUDGET: usize = 256;

/// Objects in memory, with a ring of history. Resource versions are `max(last + 1, unix microseconds)`, so that they do not go back
/// when the process starts again.
#[derive(Debug, Clone)]
pub struct MemoryStorage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    cache: RwLock<Cache>,
    /// The version of the last write; watchers wait for it to change.
    version: watch::Sender<u64>,
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStorage {
    /// An empty one, with the usual limits of history.
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// An empty one.
    pub fn with_limits(limits: Limits) -> Self {
        let first = next_version(0);
        let mut cache = Cache::new(limits);
        // An empty cache takes any list.
        let _ = cache.replace(Vec::new(), first);
        Self(Arc::new(Shared { cache: RwLock::new(cache), version: watch::Sender::new(first.get()) }))
    }

    fn change(
        &self,
        key: &ObjectKey,
        expected: Expected,
        make: impl FnOnce(Option<&Arc<Object>>, ResourceVersion) -> Result<Arc<Object>, MalformedObject>,
        change: Change,
    ) -> Result<Arc<Object>, StorageError> {
        let mut cache = self.0.cache.write();
        let snapshot = cache.snapshot();
        let stored = snapshot.as_ref().and_then(|snapshot| snapshot.get(key));
        let fits = match expected {
            Expected::Absent => stored.is_none(),
            Expected::Version(version) => stored.is_some_and(|object| object.resource_version() == version),
        };
        if !fits {
            return Err(StorageError::Conflict);
        }
        let version = next_version(*self.0.version.borrow());
        let object = make(stored, version).map_err(|error| internal(&error))?;
        drop(snapshot);
        cache.apply(change, Arc::clone(&object)).map_err(|error| internal(&error))?;
        drop(cache);
        self.0.version.send_replace(version.get());
        Ok(object)
    }
}

fn internal(error: &dyn std::error::Error) -> StorageError {
    StorageError::Refused(Box::new(Status::internal_error(&error.to_string())))
}

/// The version of a write after `last`.
fn next_version(last: u64) -> ResourceVersion {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |elapsed| elapsed.as_micros());
    let number = u64::try_from(micros).unwrap_or(1).max(last.saturating_add(1)).max(1);
    ResourceVersion::new(number).expect("at least 1")
}

impl From<WatchAnswer> for StorageError {
    fn from(answer: WatchAnswer) -> Self {
        match answer {
            WatchAnswer::Behind { current } => Self::Behind { current },
            WatchAnswer::Expired { oldest, asked } => Self::Expired { oldest, asked },
            WatchAnswer::NotComplete => {
                Self::Unavailable { message: "not complete".to_owned(), retry_after: 1 }
            }
        }
    }
}

impl Storage for MemoryStorage {
    fn get<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Option<Arc<Object>>, StorageError>> {
        let snapshot = self.0.cache.read().snapshot();
        future::ready(Ok(snapshot.and_then(|snapshot| snapshot.get(key).cloned()))).boxed()
    }

    fn list<'a>(
        &'a self,
        scope: &'a Scope,
        request: &'a ListRequest,
    ) -> BoxFuture<'a, Result<Page, StorageError>> {
        let answer = match self.0.cache.read().list(request, scope.clone()) {
            ListAnswer::Page(page) => Ok(page.into()),
            ListAnswer::Behind { current } => Err(WatchAnswer::Behind { current }.into()),
            ListAnswer::Expired { oldest, asked } => Err(WatchAnswer::Expired { oldest, asked }.into()),
            ListAnswer::NotComplete => Err(WatchAnswer::NotComplete.into()),
        };
        future::ready(answer).boxed()
    }

    fn watch<'a>(
        &'a self,
        _user: &'a User,
        scope: &'a Scope,
        request: &'a WatchRequest,
    ) -> BoxFuture<'a, Result<Box<dyn Watcher>, StorageError>> {
        // Subscribed before the cursor is made: no write can fall between them.
        let written = self.0.version.subscribe();
        let cursor = self.0.cache.read().watch(request, scope.clone());
        let watcher = cursor.map_err(StorageError::from).map(|cursor| {
            let watcher = MemoryWatcher { shared: Arc::clone(&self.0), cursor, written, initial: true };
            Box::new(watcher) as Box<dyn Watcher>
        });
        future::ready(watcher).boxed()
    }

    fn version(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    fn write<'a>(
        &'a self,
        key: &'a ObjectKey,
        expected: Expected,
        object: Draft,
    ) -> BoxFuture<'a, Result<Arc<Object>, StorageError>> {
        let change = if expected == Expected::Absent { Change::Added } else { Change::Modified };
        let written = self.change(key, expected, |_, version| object.into_object(version), change);
        future::ready(written).boxed()
    }

    fn remove<'a>(
        &'a self,
        key: &'a ObjectKey,
        expected: ResourceVersion,
    ) -> BoxFuture<'a, Result<Arc<Object>, StorageError>> {
        let last = |stored: Option<&Arc<Object>>, version| {
            let stored = stored.ok_or(MalformedObject::Missing("object"))?;
            Ok(Arc::new(stored.with_resource_version(version)))
        };
        future::ready(self.change(key, Expected::Version(expected), last, Change::Deleted)).boxed()
    }
}

struct MemoryWatcher {
    shared: Arc<Shared>,
    cursor: Cursor,
    written: watch::Receiver<u64>,
    /// Whether the initial state may not be told yet.
    initial: bool,
}

impl Watcher for MemoryWatcher {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Delivery>, StorageError>> {
        async move {
            loop {
                self.written.borrow_and_update();
                let step = self.cursor.next(&self.shared.cache.read(), BUDGET);
                match step {
                    Step::Events(deliveries) if deliveries.is_empty() => {}
                    Step::Events(deliveries) => {
                        self.initial = deliveries.len() >= BUDGET;
                        return Ok(deliveries);
                    }
                    Step::Idle => {
                        self.initial = false;
                        // The sender lives as long as `shared`.
                        let _ = self.written.changed().await;
                    }
                    Step::Expired { oldest, asked } => {
                        return Err(StorageError::Expired { asked, oldest: oldest.unwrap_or(asked) });
                    }
                }
            }
        }
        .boxed()
    }

    fn told(&self) -> Option<ResourceVersion> {
        (!self.initial).then(|| self.cursor.resource_version())
    }
}

//! What the hub keeps on disk, in the hub's own terms: whole lists, changes, and documents.
//!
//! A change is written to its file before any reader sees it, so that after `kill -9` no client knows more than the store. That the
//! disk has it for good, against a loss of power, follows within two seconds.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use kube_wire::{
    object::{Encoding, MalformedObject, Object},
    resource_version::ResourceVersion,
};
use object_store::{
    Blobs, Change as StoredChange, Error, OpenError, Record, Restored, Statistics, Store, Stored,
    SubscriptionId,
};
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use watch_cache::{Cache, Change, Event, Limits, restore::Past};

use crate::subscriptions::Key;

/// How long a change may wait for the disk.
const SYNC: Duration = Duration::from_secs(2);

/// How many times in a row something may be written meanwhile before files are brought into order all the same.
const BUSY: u32 = 5;

/// How many bytes a step of compaction may move between two syncs.
const COMPACTION: u64 = 4 << 20;

/// What cannot be stored, or read back.
pub type StorageError = Error;

/// The store of the hub, shared by all that write to it.
#[derive(Clone)]
pub struct Storage {
    store: Arc<Mutex<Store>>,
    /// Beside it: documents are files of their own, each waits for the disk, and no event waits for them.
    blobs: Arc<Blobs>,
    /// What could not be read at the start and was not written since: what is wrong, by the subscription, or by the file where that does
    /// not say whose it is.
    unreadable: Arc<Mutex<BTreeMap<String, String>>>,
}

/// The store and the caches that it holds, by the names of their subscriptions.
pub type Opened = (Storage, HashMap<String, Cache>);

impl Storage {
    /// Opens the store in `dir`; bodies of private resources are sealed with `key`.
    pub fn open(dir: &Path, key: [u8; 32]) -> Result<Opened, OpenError> {
        let (store, restored) = Store::open(dir, Some(&object_store::Key::new(key)))?;
        let mut unreadable = BTreeMap::new();
        for problem in store.problems() {
            warn!(%problem, "a part of what was stored cannot be used");
            let whose = problem.subscription.as_ref().map(ToString::to_string);
            let whose = whose.unwrap_or_else(|| problem.path.display().to_string());
            unreadable.insert(whose, problem.kind.to_string());
        }
        let mut caches = HashMap::new();
        for restored in restored {
            let name = restored.subscription.to_string();
            match cache(restored) {
                Ok(cache) => _ = caches.insert(name, cache),
                Err(error) => {
                    warn!(subscription = name, %error, "what was stored cannot be read: it will be listed anew");
                    unreadable.insert(name, error.to_string());
                }
            }
        }
        let (blobs, unreadable) = (store.blobs(), Arc::new(Mutex::new(unreadable)));
        Ok((Self { store: Arc::new(Mutex::new(store)), blobs, unreadable }, caches))
    }

    /// Stores a whole list, which takes the place of all before it.
    pub fn replace(&self, key: &Key, objects: &[Arc<Object>], version: ResourceVersion) -> Result<(), Error> {
        let begin = if is_private(key) { Record::BeginSealed } else { Record::Begin };
        let listed = objects.iter().map(|object| put(object, StoredChange::Added));
        let records: Vec<Record> = std::iter::once(begin)
            .chain(listed)
            .chain(std::iter::once(Record::Complete { version: version.get() }))
            .collect();
        self.append(key, &records)
    }

    /// Stores changes, in their order.
    pub fn apply(&self, key: &Key, events: &[Arc<Event>]) -> Result<(), Error> {
        let records: Vec<Record> = events
            .iter()
            .map(|event| match event.change {
                Change::Added => put(&event.object, StoredChange::Added),
                Change::Modified => put(&event.object, StoredChange::Modified),
                Change::Deleted => Record::Delete {
                    key: Bytes::copy_from_slice(event.object.key().as_str().as_bytes()),
                    version: event.resource_version.get(),
                    body: event.object.body().clone(),
                },
            })
            .collect();
        self.append(key, &records)
    }

    /// Stores that nothing else happened up to `version`.
    pub fn bookmark(&self, key: &Key, version: ResourceVersion) -> Result<(), Error> {
        self.append(key, &[Record::Bookmark { version: version.get() }])
    }

    /// Removes a subscription, by its name.
    pub fn forget(&self, name: &str) -> Result<(), Error> {
        self.append_to(name, &[Record::Drop])
    }

    fn append(&self, key: &Key, records: &[Record]) -> Result<(), Error> {
        self.append_to(&key.to_string(), records)
    }

    fn append_to(&self, name: &str, records: &[Record]) -> Result<(), Error> {
        if records.is_empty() {
            return Ok(());
        }
        let subscription = SubscriptionId::from(name);
        let mut store = self.store.lock();
        store.append(&subscription, records)?;
        store.hand_over(&subscription)?;
        self.unreadable.lock().remove(name);
        Ok(())
    }

    /// What could not be read at the start and was not written since, with what is wrong.
    pub fn unreadable(&self) -> Vec<String> {
        let unreadable = self.unreadable.lock();
        unreadable.iter().map(|(whose, problem)| format!("{whose}: {problem}")).collect()
    }

    /// Keeps a document, atomically.
    pub fn put_blob(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        self.blobs.put(name, content)
    }

    /// Keeps a document that holds a secret, encrypted.
    pub fn put_sealed_blob(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        self.blobs.put_sealed(name, content)
    }

    /// Removes a document.
    pub fn remove_blob(&self, name: &str) -> Result<(), Error> {
        self.blobs.remove(name)
    }

    /// A document that was kept; `None` if there is none, or it cannot be read.
    pub fn blob(&self, name: &str) -> Option<Bytes> {
        self.blobs.get(name).unwrap_or_else(|error| {
            warn!(name, %error, "a document cannot be read");
            None
        })
    }

    /// What was given and written.
    pub fn statistics(&self) -> Statistics {
        self.store.lock().statistics()
    }

    /// Makes what was written durable every two seconds, until `shutdown`, and once more then. Files are brought into order when nothing
    /// is written, and now and then else: whoever writes an event waits for that.
    pub async fn keep_durable(self, shutdown: CancellationToken) {
        let mut ticks = interval(SYNC);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut busy = 0;
        loop {
            let ending = tokio::select! {
                () = shutdown.cancelled() => true,
                _ = ticks.tick() => false,
            };
            let storage = self.clone();
            let patient = busy < BUSY && !ending;
            let synced = tokio::task::spawn_blocking(move || {
                // The waiting is done here, while the store takes what comes.
                let unsynced = storage.store.lock().unsynced();
                let waited = unsynced.wait();
                let mut store = storage.store.lock();
                store.settle(waited)?;
                if patient && !store.is_durable() {
                    return Ok::<_, Error>(false);
                }
                store.sync()?;
                store.compact_step(COMPACTION)?;
                Ok(true)
            })
            .await;
            match synced {
                Ok(Ok(in_order)) => busy = if in_order { 0 } else { busy + 1 },
                Ok(Err(error)) => warn!(%error, "what changed is not durable yet"),
                Err(error) => debug!(%error, "the sync was cut short"),
            }
            if ending {
                return;
            }
        }
    }
}

/// Whether the bodies are nobody else's business: they are encrypted on disk.
fn is_private(key: &Key) -> bool {
    key.resource.group.is_empty() && &*key.resource.resource == "secrets"
}

fn put(object: &Object, change: StoredChange) -> Record {
    Record::Put {
        key: Bytes::copy_from_slice(object.key().as_str().as_bytes()),
        version: object.resource_version().get(),
        body: object.body().clone(),
        change,
    }
}

/// A cache of what was stored. The encoding is that of the bytes: JSON begins with a brace, which no message does.
fn cache(restored: Restored) -> Result<Cache, MalformedObject> {
    let Restored { version, objects, history, subscription: _, sealed: _, history_after: _ } = restored;
    let version = ResourceVersion::new(version).ok_or(MalformedObject::Missing("version"))?;
    let objects = objects.into_iter().map(object).collect::<Result<Vec<_>, _>>()?;
    let history = history
        .into_iter()
        .map(|event| {
            let change = match event.change {
                StoredChange::Added => Change::Added,
                StoredChange::Modified => Change::Modified,
                StoredChange::Deleted => Change::Deleted,
            };
            Ok(Past {
                change,
                object: object(event.object)?,
                previous: event.previous.map(object).transpose()?,
            })
        })
        .collect::<Result<Vec<_>, MalformedObject>>()?;
    Ok(Cache::restore(Limits::default(), objects, version, history))
}

fn object(stored: Stored) -> Result<Arc<Object>, MalformedObject> {
    let encoding = if stored.body.first() == Some(&b'{') { Encoding::Json } else { Encoding::Protobuf };
    let object = match encoding {
        Encoding::Json => Object::from_json(stored.body),
        Encoding::Protobuf => Object::from_protobuf(stored.body),
    };
    object.map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_events_do_not_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, _) = Storage::open(folder.path(), [7; 32]).unwrap();
        let busy = storage.store.lock();
        let (done, waiting) = std::sync::mpsc::channel();
        let documents = storage.clone();
        let writer = std::thread::spawn(move || {
            documents.put_blob("a", b"open").unwrap();
            documents.put_sealed_blob("b", b"sealed").unwrap();
            documents.remove_blob("a").unwrap();
            done.send((documents.blob("a"), documents.blob("b"))).unwrap();
        });
        let found = waiting.recv_timeout(Duration::from_secs(30)).expect("not kept by the store");
        assert_eq!(found, (None, Some(Bytes::from_static(b"sealed"))));
        drop(busy);
        writer.join().unwrap();
    }
}

//! What the hub keeps on disk, in the hub's own terms: whole lists, changes, and documents.
//!
//! A change is written to its file before any reader sees it, so that after `kill -9` no client knows more than the store. That the
//! disk has it for good, against a loss of power, follows within five seconds.
//!
//! A disk that is full, or fails, stops nobody: what changes is shown from memory, [`Storage::unstored`] says so, and what the disk missed is
//! written when it takes it again. Until then a restart finds an earlier whole state, and goes on from there.

mod blobs;
mod durable;
#[cfg(test)]
pub(crate) mod test_disk;
#[cfg(test)]
mod tests;
mod unreadable;

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
    Blobs, Change as StoredChange, Disk, Error, OpenError, RealDisk, Record, Restored, Sizes, Statistics,
    Store, Stored, SubscriptionId,
};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info, warn};
use watch_cache::{Cache, Change, Event, Limits, restore::Past};

use self::{blobs::Unwritten, unreadable::Unreadable};
use crate::{offline::documents::unix_seconds, subscriptions::Key};

/// How long after a whole list could not be stored that is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// The document that names what could not be read.
const UNREADABLE: &str = "unreadable";

/// What cannot be stored, or read back.
pub type StorageError = Error;

/// The store of the hub, shared by all that write to it.
#[derive(Clone)]
pub struct Storage {
    store: Arc<Mutex<Store>>,
    /// Beside it: documents are files of their own, each waits for the disk, and no event waits for them.
    blobs: Arc<Blobs>,
    /// What could not be read and was not written since.
    unreadable: Arc<Mutex<Unreadable>>,
    /// What the disk does not take, by subscription.
    unstored: Arc<Mutex<BTreeMap<String, Unstored>>>,
    /// Documents that the disk does not take.
    unwritten: Arc<Unwritten>,
    /// What else could not be made beside it at the start.
    unmade: Arc<Mutex<Vec<String>>>,
    /// Whose turn it is to change a document by what it says.
    turn: Arc<Mutex<()>>,
}

/// A subscription of which the disk does not have all.
struct Unstored {
    why: String,
    /// Changes are missing that only a whole list brings; when one was last tried, or it was noticed.
    hole: Option<Instant>,
}

/// The store and the caches that it holds, by the names of their subscriptions.
pub type Opened = (Storage, HashMap<String, Cache>);

impl Storage {
    /// Opens the store in `dir`; bodies of private resources are sealed with `key`.
    pub fn open(dir: &Path, key: [u8; 32]) -> Result<Opened, OpenError> {
        Self::open_on(Arc::new(RealDisk), dir, key)
    }

    pub(crate) fn open_on(disk: Arc<dyn Disk>, dir: &Path, key: [u8; 32]) -> Result<Opened, OpenError> {
        let key = object_store::Key::new(key);
        let named = |restored: Restored| (restored.subscription.to_string(), cache(restored));
        let (store, restored) = Store::open_with(disk, dir, Some(&key), Sizes::default(), named)?;
        let (mut unreadable, now) = (Unreadable::default(), unix_seconds());
        for problem in store.problems() {
            warn!(%problem, "a part of what was stored cannot be used");
            let what = problem.kind.to_string();
            match &problem.subscription {
                Some(subscription) => _ = unreadable.note(&subscription.to_string(), what, now),
                None => unreadable.note_file(problem.path.display().to_string(), what),
            }
        }
        for (subscription, path) in store.earlier() {
            warn!(%subscription, path = %path.display(), "a record does not read and what was written after it is lost, as after a loss of power: an earlier state is shown until there is a link");
        }
        let mut caches = HashMap::new();
        for (name, cache) in restored {
            match cache {
                Ok(cache) => _ = caches.insert(name, cache),
                Err(error) => {
                    warn!(subscription = name, %error, "what was stored cannot be read: it will be listed anew");
                    unreadable.note(&name, error.to_string(), now);
                }
            }
        }
        let blobs = store.blobs();
        if let Ok(Some(earlier)) = blobs.get(UNREADABLE) {
            unreadable.restore(&earlier, now);
        }
        let unreadable = Arc::new(Mutex::new(unreadable));
        let store = Arc::new(Mutex::new(store));
        let (unstored, unwritten, unmade) = (Arc::default(), Arc::default(), Arc::default());
        let turn = Arc::default();
        let storage = Self { store, blobs, unreadable, unstored, unwritten, unmade, turn };
        // At once: of what cannot be read nothing is left with the next list, and whoever starts then finds no trace of it.
        storage.keep_unreadable();
        Ok((storage, caches))
    }

    /// Stores a whole list, which takes the place of all before it. Says whether the disk has it; if not that before it stays, and all of it is wanted
    /// once more ([`Storage::wants_whole`]).
    pub fn replace<'a>(
        &self,
        key: &Key,
        objects: impl IntoIterator<Item = &'a Arc<Object>>,
        version: ResourceVersion,
    ) -> bool {
        let name = key.to_string();
        let listed = objects.into_iter().map(|object| put(object, StoredChange::Added));
        let records: Vec<Record> =
            listed.chain(std::iter::once(Record::Complete { version: version.get() })).collect();
        let begun = self.store.lock().begin(&SubscriptionId::from(name.as_str()), is_private(key));
        let (taken, list) = match begun {
            Ok(mut list) => {
                // Without the store, which others need meanwhile: the disk takes its time.
                let taken = list.take(&records).and_then(|()| list.hand_over());
                (taken, Some(list))
            }
            Err(error) => (Err(error), None),
        };
        let mut unstored = self.unstored.lock();
        if let Some(list) = list {
            self.store.lock().install(list);
        }
        let (is_taken, hole) = (taken.is_ok(), taken.is_err().then(Instant::now));
        self.note(&mut unstored, &name, taken, hole);
        is_taken
    }

    /// Stores changes, in their order.
    pub fn apply(&self, key: &Key, events: &[Arc<Event>]) {
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
        self.take(key, &records);
    }

    /// Stores that nothing else happened up to `version`.
    pub fn bookmark(&self, key: &Key, version: ResourceVersion) {
        self.take(key, &[Record::Bookmark { version: version.get() }]);
    }

    /// Whether changes of a subscription were lost to the disk, and it is time to store all of it.
    pub fn wants_whole(&self, key: &Key) -> bool {
        let unstored = self.unstored.lock();
        // As a rule: this is asked with each change.
        if unstored.is_empty() {
            return false;
        }
        let hole = unstored.get(&key.to_string()).and_then(|unstored| unstored.hole);
        hole.is_some_and(|tried| tried.elapsed() >= AGAIN)
    }

    /// What the disk does not take, and why.
    pub fn unstored(&self) -> Vec<String> {
        let unmade = self.unmade.lock().clone();
        let unstored = self.unstored.lock();
        let streams = unstored.iter().map(|(whose, unstored)| format!("{whose}: {}", unstored.why));
        unmade.into_iter().chain(streams).chain(self.unwritten.list()).collect()
    }

    /// Notes what could not be made on the disk beside the store, and why: [`Storage::unstored`] tells of it until the end of the process.
    pub fn goes_without(&self, what: String) {
        self.unmade.lock().push(what);
    }

    /// Removes a subscription, by its name. Waits for the disk; others are stored meanwhile.
    pub fn forget(&self, name: &str) -> Result<(), Error> {
        self.unstored.lock().remove(name);
        let mut dropping = self.store.lock().begin_drop(&SubscriptionId::from(name))?;
        let written = dropping.hand_over();
        self.store.lock().settle_drop(dropping);
        written?;
        self.forget_problem(name);
        Ok(())
    }

    /// Stores records. What the store took it writes when it can; what it did not take is a hole, behind which nothing is stored any more.
    fn take(&self, key: &Key, records: &[Record]) {
        if records.is_empty() {
            return;
        }
        let name = key.to_string();
        let mut unstored = self.unstored.lock();
        if unstored.get(&name).is_some_and(|unstored| unstored.hole.is_some()) {
            return;
        }
        let subscription = SubscriptionId::from(name.as_str());
        let mut store = self.store.lock();
        let taken = store.append(&subscription, records);
        let hole = taken.is_err().then(Instant::now);
        let stored = taken.and_then(|()| store.hand_over(&subscription));
        drop(store);
        self.note(&mut unstored, &name, stored, hole);
    }

    /// Notes what became of what was stored.
    fn note(
        &self,
        unstored: &mut BTreeMap<String, Unstored>,
        name: &str,
        stored: Result<(), Error>,
        hole: Option<Instant>,
    ) {
        match stored {
            Ok(()) => {
                if unstored.remove(name).is_some() {
                    info!(key = name, "the disk takes what changes again");
                }
                self.forget_problem(name);
            }
            // It was let go meanwhile: a change was on its way still.
            Err(error @ Error::NotBegun { .. }) => debug!(key = name, %error, "it is no longer stored"),
            Err(error) => {
                let why = error.to_string();
                if unstored.insert(name.to_owned(), Unstored { why, hole }).is_none() {
                    warn!(key = name, %error, "the disk does not take what changes: it is shown from memory, and lost if the hub ends now");
                }
            }
        }
    }

    /// What could not be read and was not written since, with what is wrong.
    pub fn unreadable(&self) -> Vec<String> {
        self.unreadable.lock().list()
    }

    /// Nothing is wrong with it any more.
    fn forget_problem(&self, name: &str) {
        self.unreadable.lock().forget(name);
    }

    /// Stores what could not be read, if that is other than it was: the next start is to tell of it, too. A disk that does not take it is tried again.
    pub fn keep_unreadable(&self) {
        let _turn = self.unwritten.turn.lock();
        let Some(stored) = self.unreadable.lock().export() else { return };
        if let Err(error) = self.blobs.put(UNREADABLE, &stored) {
            debug!(%error, "what cannot be read is not noted on the disk yet");
            self.unreadable.lock().not_exported();
        }
    }

    /// What was given and written.
    pub fn statistics(&self) -> Statistics {
        self.store.lock().statistics()
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
    let Restored { version, objects, history, history_after, subscription: _, sealed: _ } = restored;
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
    let after = ResourceVersion::new(history_after).unwrap_or(version);
    Ok(Cache::restore(Limits::default(), objects, version, (after, history)))
}

fn object(stored: Stored) -> Result<Arc<Object>, MalformedObject> {
    let encoding = if stored.body.first() == Some(&b'{') { Encoding::Json } else { Encoding::Protobuf };
    let object = match encoding {
        Encoding::Json => Object::from_json(stored.body),
        Encoding::Protobuf => Object::from_protobuf(stored.body),
    };
    object.map(Arc::new)
}

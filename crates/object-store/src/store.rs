//! The store: its subscriptions, and the order in which what belongs to them reaches the disk.

mod list;
mod open;
mod removal;
mod subscription;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use list::List;
pub use removal::Dropping;
use subscription::Subscription;

use crate::{
    blobs::Blobs,
    disk::{Disk, FolderLock, RealDisk},
    error::{Error, OpenError},
    log::{HandedOver, Identity, Sizes, sync_names},
    record::{Problem, Record, Restored, SubscriptionId},
    seal::Key,
    segment::Name,
    statistics::{Counters, Statistics},
};

/// So many bytes may wait for the disk before `append` waits for it itself.
const BACKLOG_MAX: u64 = 4 << 20;

/// A store of subscriptions and blobs in one folder, of one process.
pub struct Store {
    disk: Arc<dyn Disk>,
    /// By what stands for them in the names of files.
    subscriptions: BTreeMap<String, Subscription>,
    place: Identity,
    /// Whether names in the folder of logs wait for the disk.
    names: bool,
    blobs: Arc<Blobs>,
    counters: Arc<Counters>,
    syncs: u64,
    problems: Vec<Problem>,
    earlier: Vec<Earlier>,
    torn: Vec<Torn>,
    unfinished: Vec<Unfinished>,
    /// After which subscription the next step of compaction begins.
    compacted: String,
    _lock: FolderLock,
}

/// A subscription and the file behind whose damage its records are lost: see [`Store::earlier`].
pub type Earlier = (SubscriptionId, PathBuf);

/// A file that ends in what is no whole record: see [`Store::torn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Whose it is.
    pub subscription: SubscriptionId,
    /// Where it is.
    pub path: PathBuf,
    /// How many bytes of it do not read; none if it is empty.
    pub bytes: usize,
}

/// A list that is not whole: see [`Store::unfinished`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Whose it is; unknown when no file says it.
    pub subscription: Option<SubscriptionId>,
    /// Its files, in their order.
    pub files: Vec<PathBuf>,
    /// Whether all that is there reads, but for a last record that was not written to its end: so it is when the process ended while it wrote the list, or
    /// when the file of a whole one was cut. Else the list may have been whole, and was damaged.
    pub is_read: bool,
}

/// What the system has and the disk may not.
#[derive(Debug)]
pub struct Unsynced {
    disk: Arc<dyn Disk>,
    files: Vec<File>,
}

/// Bytes of a file, and of which list of which subscription it is.
#[derive(Debug)]
struct File {
    subscription: String,
    generation: u64,
    bytes: HandedOver,
}

/// What came of waiting for [`Unsynced`].
#[derive(Debug)]
pub struct Waited(Vec<(File, bool)>);

impl Unsynced {
    /// Waits until the disk has what these files hold now; [`Store::settle`] is to be told.
    pub fn wait(self) -> Waited {
        let Self { disk, files } = self;
        let wait = |file: File| {
            let is_durable = disk.sync(&file.bytes.path).is_ok();
            (file, is_durable)
        };
        Waited(files.into_iter().map(wait).collect())
    }
}

/// What [`Store::compact_step`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Bytes read and written.
    pub moved: u64,
    /// Whether there may be more to do at once.
    pub more: bool,
}

impl Store {
    /// Opens or creates the store in `dir` and returns what is in it. `key` seals what is to be sealed.
    ///
    /// What could not be restored is told by [`Store::problems`] and is not an error.
    pub fn open(dir: &Path, key: Option<&Key>) -> Result<(Store, Vec<Restored>), OpenError> {
        Self::open_on(Arc::new(RealDisk), dir, key, Sizes::default())
    }

    /// As [`Store::open`], on another disk and with other sizes, for tests.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        key: Option<&Key>,
        sizes: Sizes,
    ) -> Result<(Store, Vec<Restored>), OpenError> {
        Self::open_with(disk, dir, key, sizes, |restored| restored)
    }

    /// Subscriptions that were not restored as they had been written, and why.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Of what an earlier state was restored than was written last: in the file a record does not read, and records are behind it. A loss of power
    /// leaves that where nothing was synced yet, and damage does; the two cannot be told apart.
    pub fn earlier(&self) -> &[Earlier] {
        &self.earlier
    }

    /// What was restored is whole but for a last record that does not read, and no records are behind that: so the end of a process leaves it while it
    /// writes, and so does damage there.
    pub fn torn(&self) -> &[Torn] {
        &self.torn
    }

    /// Lists that were found and are not whole, so that they were left out and are removed.
    pub fn unfinished(&self) -> &[Unfinished] {
        &self.unfinished
    }

    /// Takes records, in memory; [`Store::sync`] makes them durable. After an error nothing of them was taken (but for
    /// [`Error::Seal`]): the same records may be given again.
    pub fn append(&mut self, subscription: &SubscriptionId, records: &[Record]) -> Result<(), Error> {
        let name = Name::of(subscription);
        let place = Identity { subscription: subscription.clone(), name: name.clone(), ..self.place.clone() };
        let new = Subscription::default();
        self.subscriptions.get(&name).unwrap_or(&new).check(&place, records)?;
        // What begins anew or ends leaves memory and disk to others.
        let leaves = matches!(records.first(), Some(Record::Begin | Record::BeginSealed | Record::Drop));
        if !leaves
            && self.backlog() > BACKLOG_MAX
            // Lists that are longer than memory should hold; or the disk refuses, and so must we, but of those that it took.
            && let Err(error) = self.flush()
            && self.subscriptions.get(&name).is_some_and(|entry| entry.backlog() > 0)
        {
            return Err(error);
        }
        let entry = self.subscriptions.entry(name).or_default();
        for record in records {
            entry.take(&place, record, &self.counters)?;
        }
        Ok(())
    }

    /// Gives the system what was appended to a subscription: it outlives this process, and the power only once [`Store::sync`]
    /// succeeded. Waits for the disk only when a file is begun.
    pub fn hand_over(&mut self, subscription: &SubscriptionId) -> Result<(), Error> {
        let Some(entry) = self.subscriptions.get_mut(&Name::of(subscription)) else { return Ok(()) };
        let (disk, dir) = (self.disk.as_ref(), &self.place.dir);
        if entry.is_simple() {
            entry.current.as_mut().map_or(Ok(()), |log| log.hand_over(disk, &self.counters, &mut self.names))
        } else {
            entry.flush(disk, dir, &self.counters, &mut self.names)
        }
    }

    /// What was handed over and waits for the disk, so that it can be waited for without the store.
    pub fn unsynced(&self) -> Unsynced {
        let files = self.subscriptions.iter().flat_map(|(name, subscription)| {
            subscription.logs().filter_map(|log| {
                let (subscription, generation) = (name.clone(), log.identity.generation);
                Some(File { subscription, generation, bytes: log.handed_over()? })
            })
        });
        Unsynced { disk: self.disk.clone(), files: files.collect() }
    }

    /// Takes note of what was waited for, and waits for names that the disk may not have. All that was handed over before
    /// [`Store::unsynced`] is durable then; what could not be waited for [`Store::sync`] writes again.
    pub fn settle(&mut self, Waited(files): Waited) -> Result<(), Error> {
        for (File { subscription, generation, bytes }, is_durable) in files {
            let Some(subscription) = self.subscriptions.get_mut(&subscription) else { continue };
            if let Some(log) = subscription.log_mut(generation) {
                log.settle(&bytes, is_durable);
            }
        }
        sync_names(self.disk.as_ref(), &self.place.dir, &mut self.names)
    }

    /// Whether nothing that was appended waits for the disk.
    pub fn is_durable(&self) -> bool {
        !self.names && !self.subscriptions.values().any(Subscription::is_busy)
    }

    /// Makes all that was appended durable. After an error nothing is lost, some of it may be durable, and it can be
    /// called again.
    pub fn sync(&mut self) -> Result<(), Error> {
        let busy = !self.is_durable();
        if let Err(error) = self.flush() {
            if !self.free_room()? {
                return Err(error);
            }
            self.flush()?;
        }
        sync_names(self.disk.as_ref(), &self.place.dir, &mut self.names)?;
        self.clear()?;
        self.syncs += u64::from(busy);
        Ok(())
    }

    /// Rewrites files most of which is dead, until `budget` bytes were read and written or nothing is left to do. One
    /// file is always done whole, so a step may move some megabytes more.
    pub fn compact_step(&mut self, budget: u64) -> Result<Compaction, Error> {
        let mut done = Compaction::default();
        let after = self.subscriptions.range(self.compacted.clone()..).map(|(name, _)| name.clone());
        let order: Vec<String> = after.chain(self.subscriptions.keys().cloned()).collect();
        for name in order {
            let Some(subscription) = self.subscriptions.get_mut(&name) else { continue };
            // Moved on before, so that one that fails does not keep the others waiting.
            self.compacted = format!("{name}~");
            let Some(log) = &mut subscription.current else { continue };
            while let Some(step) = log.compact(self.disk.as_ref(), &self.counters, &mut self.names)? {
                done.moved += step.moved;
                sync_names(self.disk.as_ref(), &self.place.dir, &mut self.names)?;
                subscription::remove_all(self.disk.as_ref(), &mut log.replaced)?;
                if done.moved >= budget {
                    return Ok(Compaction { more: true, ..done });
                }
            }
        }
        Ok(done)
    }

    /// What was given and written since the store was opened, and what it holds.
    pub fn statistics(&self) -> Statistics {
        let (given, written) = self.counters.read();
        let mut statistics = Statistics {
            given,
            written,
            backlog: self.backlog(),
            syncs: self.syncs,
            ..Statistics::default()
        };
        for log in self.subscriptions.values().flat_map(Subscription::logs) {
            statistics.length += log.ledger.length();
            statistics.live += log.ledger.live();
            statistics.files += log.ledger.segments().len() as u64;
        }
        statistics
    }

    /// The blobs, for who wants to use them without waiting for the store. As long as they are there the folder is this process's.
    pub fn blobs(&self) -> Arc<Blobs> {
        self.blobs.clone()
    }

    fn backlog(&self) -> u64 {
        self.subscriptions.values().map(Subscription::backlog).sum()
    }

    /// Writes what waits, of all subscriptions: one that fails does not keep the others from the disk.
    pub fn flush(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        for subscription in self.subscriptions.values_mut() {
            let flushed =
                subscription.flush(self.disk.as_ref(), &self.place.dir, &self.counters, &mut self.names);
            result = result.and(flushed);
        }
        result
    }

    /// Removes what nothing needs though some of what was appended is not on the disk: lists that were too large for it, and what those replaced that
    /// are there as a whole. Says whether there was any.
    fn free_room(&mut self) -> Result<bool, Error> {
        let disk = self.disk.as_ref();
        sync_names(disk, &self.place.dir, &mut self.names)?;
        let mut freed = false;
        for subscription in self.subscriptions.values_mut() {
            freed |= !subscription.unfinished.is_empty();
            subscription.remove_unfinished(disk, &mut self.names)?;
            if subscription.is_written() {
                freed |= !subscription.doomed.is_empty();
                subscription.remove_files(disk, &mut self.names)?;
            }
        }
        Ok(freed)
    }

    /// Removes the files that nothing needs any more, now that what replaces them is durable.
    fn clear(&mut self) -> Result<(), Error> {
        let disk = self.disk.as_ref();
        for subscription in self.subscriptions.values_mut() {
            // A list of which nothing is known any more leaves its names to the next one: should some of its files come back, they
            // would stand behind that one's. And the word that all is dropped goes only after what it drops is gone for good.
            subscription.remove_files(disk, &mut self.names)?;
        }
        sync_names(disk, &self.place.dir, &mut self.names)?;
        for subscription in self.subscriptions.values_mut() {
            subscription.remove_markers(disk)?;
        }
        self.subscriptions.retain(|_, subscription| !subscription.is_forgotten());
        Ok(())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("dir", &self.place.dir).finish_non_exhaustive()
    }
}

//! One list of one subscription with the events after it: what is not yet on the disk, and what is there.

mod compact;
mod hand_over;
mod plan;

pub(crate) use self::hand_over::Waiting;

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    disk::{Disk, remove_if_there},
    error::{Error, failed},
    frame::{Frame, Kind},
    ledger::{Entry, Keys, Ledger},
    names::Names,
    record::SubscriptionId,
    seal::{Sealer, binding},
    segment::{Floor, Header, Name},
    statistics::Counters,
};

/// A small log has small files, so that little of it is dead; a great one is not rewritten in small steps.
const SEGMENT_MIN: u64 = 64 << 10;
const SEGMENT_MAX: u64 = 1 << 20;
/// How many bytes of events are kept for watches that resume, by the size of the log.
const HISTORY_MIN: u64 = 512 << 10;
const HISTORY_MAX: u64 = 2 << 20;

/// How long files and histories are; tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Shortest and longest file, in bytes.
    pub segment: (u64, u64),
    /// Shortest and longest history, in bytes.
    pub history: (u64, u64),
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { segment: (SEGMENT_MIN, SEGMENT_MAX), history: (HISTORY_MIN, HISTORY_MAX) }
    }
}

/// Where a log is and how its bodies are kept.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) dir: Arc<Path>,
    pub(crate) subscription: SubscriptionId,
    pub(crate) name: String,
    pub(crate) generation: u64,
    pub(crate) sealer: Option<Arc<Sealer>>,
    pub(crate) sizes: Sizes,
}

/// The file that grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) seed: u32,
    /// The frames after its header.
    pub(crate) frames: u64,
}

/// Bytes that wait for the disk. They are kept until a sync succeeded: after a failed one the system may have forgotten
/// them.
#[derive(Debug)]
struct Chunk {
    first: u32,
    last: u32,
    offset: u64,
    bytes: Vec<u8>,
    /// How many of them the system has, without having said that the disk has them.
    handed_over: usize,
    /// Whether the system has the file. It is never begun anew: who opens the log meanwhile would miss what it had.
    created: bool,
    seals: bool,
}

impl Chunk {
    /// What comes behind so much of a file that is there.
    fn behind(first: u32, last: u32, offset: u64, bytes: Vec<u8>) -> Self {
        Self { first, last, offset, bytes, handed_over: 0, created: true, seals: false }
    }
}

/// A file that was given no seal when it was long enough, since nobody synced, is sealed at so many times its length.
const OVERLONG: u64 = 4;

/// A log.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) identity: Identity,
    pub(crate) complete: bool,
    /// Whether the list is on the disk to its end; before, nothing is left out of it.
    pub(crate) listed: bool,
    pub(crate) version: u64,
    pub(crate) sequence: u64,
    pub(crate) ledger: Ledger,
    pub(crate) keys: Keys,
    pub(crate) active: Option<Active>,
    /// The number of the file after the last.
    pub(crate) next: u32,
    /// The last file is cut here before anything is written.
    pub(crate) cut: Option<(PathBuf, u64)>,
    /// Files behind it, which go before anything is written: they would be taken for what follows.
    pub(crate) cut_off: Vec<PathBuf>,
    /// Files of which nothing is known of what of them is on the disk.
    pub(crate) unsure: Vec<PathBuf>,
    pending: VecDeque<Chunk>,
    /// Files that were rewritten into others.
    pub(crate) replaced: Vec<PathBuf>,
}

impl Log {
    pub(crate) fn new(identity: Identity) -> Self {
        Log {
            identity,
            complete: false,
            listed: false,
            version: 0,
            sequence: 0,
            ledger: Ledger::default(),
            keys: Keys::default(),
            active: None,
            next: 0,
            cut: None,
            cut_off: Vec::new(),
            unsure: Vec::new(),
            pending: VecDeque::new(),
            replaced: Vec::new(),
        }
    }

    /// Bytes that wait for the disk.
    pub(crate) fn backlog(&self) -> u64 {
        self.pending.iter().map(|chunk| chunk.bytes.len() as u64).sum()
    }

    /// Whether all that was appended is on the disk.
    pub(crate) fn is_durable(&self) -> bool {
        self.pending.is_empty() && !self.is_unsettled()
    }

    /// Whether the files that were found are not yet as they were read.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.cut.is_some() || !self.cut_off.is_empty() || !self.unsure.is_empty()
    }

    /// All files that are or may be there.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let segments = self.ledger.segments().iter();
        let files = segments.map(|(first, segment)| self.path(*first, segment.last));
        files.chain(self.replaced.iter().chain(&self.cut_off).cloned()).collect()
    }

    pub(crate) fn path(&self, first: u32, last: u32) -> PathBuf {
        let Identity { dir, name, generation, .. } = &self.identity;
        Name { subscription: name.clone(), generation: *generation, first, last }.path(dir)
    }

    /// Takes a record of an object. The body is sealed if the log's bodies are.
    pub(crate) fn put(&mut self, kind: Kind, key: &[u8], version: u64, body: &[u8]) -> Result<(), Error> {
        let sealed = match &self.identity.sealer {
            Some(sealer) => {
                let bound = binding(&self.identity.subscription.0, key, version);
                Some(sealer.seal(&bound, body).ok_or(Error::Seal)?)
            }
            None => None,
        };
        let kind = if self.complete || kind == Kind::Deleted { kind } else { Kind::Listed };
        let body = sealed.as_deref().unwrap_or(body);
        let (segment, sequence, weight) = self.push(kind, key, version, body);
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        let without_body = weight - u32::try_from(body.len()).unwrap_or(weight);
        let gone = (kind == Kind::Deleted).then_some(without_body);
        let entry = Entry { key: self.keys.hash(key), sequence, version, segment, weight, gone };
        if self.complete {
            self.ledger.event(entry);
            self.version = self.version.max(version);
        } else {
            self.ledger.list(entry);
        }
        self.roll_if_overlong();
        Ok(())
    }

    /// The list is whole.
    pub(crate) fn complete(&mut self, version: u64) {
        let (segment, sequence, length) = self.push(Kind::Complete, &[], version, &[]);
        self.ledger.grow(segment, length);
        self.complete = true;
        self.version = version;
        self.ledger.settle_to(Floor { sequence, version });
        // What is in the list is never again in a file that may be torn.
        self.roll();
    }

    pub(crate) fn bookmark(&mut self, version: u64) {
        if version > self.version {
            let (segment, _, length) = self.push(Kind::Bookmark, &[], version, &[]);
            self.ledger.grow(segment, length);
            self.version = version;
            self.roll_if_overlong();
        }
    }

    fn push(&mut self, kind: Kind, key: &[u8], version: u64, body: &[u8]) -> (u32, u64, usize) {
        let mut active = self.active.unwrap_or_else(|| self.begin());
        self.sequence += 1;
        let sequence = self.sequence;
        let bytes = self.tail(active);
        let length = Frame { kind, sequence, version, key, body }.encode(active.seed, bytes);
        active.frames += 1;
        self.active = Some(active);
        (active.first, sequence, length)
    }

    /// Begins the next file.
    fn begin(&mut self) -> Active {
        let header = self.header(self.next, self.next);
        let mut bytes = Vec::new();
        let (length, seed) = header.encode(&mut bytes);
        let first = self.next;
        self.next += 1;
        self.ledger.begin(first, first, length as u64);
        self.pending.push_back(Chunk { created: false, ..Chunk::behind(first, first, 0, bytes) });
        Active { first, last: first, seed, frames: 0 }
    }

    pub(crate) fn header(&self, first: u32, last: u32) -> Header {
        let Identity { subscription, generation, sealer, .. } = &self.identity;
        Header {
            subscription: subscription.clone(),
            generation: *generation,
            first,
            last,
            complete: self.complete,
            dropped: false,
            rewritten: false,
            sealed: sealer.as_ref().map(|sealer| sealer.id()),
            version: self.version,
            floor: self.ledger.floor(),
        }
    }

    /// Where bytes for the file that grows are put.
    fn tail(&mut self, active: Active) -> &mut Vec<u8> {
        let Active { first, last, .. } = active;
        if self.pending.back().is_none_or(|chunk| chunk.first != first) {
            let offset = self.ledger.segments().get(&first).map_or(0, |segment| segment.length);
            self.pending.push_back(Chunk::behind(first, last, offset, Vec::new()));
        }
        &mut self.pending.back_mut().expect("pushed above if there was none").bytes
    }

    /// Files of events are sealed at the sync at which they are long enough, or far beyond, should nobody sync.
    fn roll_if_overlong(&mut self) {
        self.roll_if_long(if self.complete { OVERLONG } else { 1 });
    }

    fn roll_if_long(&mut self, times: u64) {
        let length =
            self.active.and_then(|active| self.ledger.segments().get(&active.first)).map(|s| s.length);
        if length.is_some_and(|length| length >= times * self.target()) {
            self.roll();
        }
    }

    /// Seals the file that grows.
    pub(crate) fn roll(&mut self) {
        let Some(active) = self.active else { return };
        let (segment, _, length) = self.push(Kind::Seal, &[], active.frames, &[]);
        self.ledger.grow(segment, length);
        self.active = None;
        if let Some(chunk) = self.pending.back_mut() {
            chunk.seals = true;
        }
    }

    /// How long a file is to be.
    fn target(&self) -> u64 {
        let (min, max) = self.identity.sizes.segment;
        (self.ledger.live() / 16).clamp(min, max)
    }

    fn history(&self) -> u64 {
        let (min, max) = self.identity.sizes.history;
        (self.ledger.live() / 16).clamp(min, max)
    }

    /// Writes what waits, in its order. Says in `names` that the folder must be synced. After an error it can be called
    /// again.
    pub(crate) fn flush(
        &mut self,
        disk: &dyn Disk,
        counters: &Counters,
        names: &mut Names,
    ) -> Result<(), Error> {
        self.settle_files(disk, names)?;
        if self.complete {
            self.roll_if_long(1);
        }
        while let Some(chunk) = self.pending.front_mut() {
            let handed_over = std::mem::take(&mut chunk.handed_over);
            let (first, last) = (chunk.first, chunk.last);
            let path = self.path(first, last);
            let Some(chunk) = self.pending.front() else { break };
            if handed_over == chunk.bytes.len() {
                // Should it fail, the system may have forgotten what it was given: all of it is written again.
                disk.sync(&path).map_err(failed("sync", &path))?;
            } else if !chunk.created {
                // One name after another: a list with a gap would be no list.
                names.sync(disk, &self.identity.dir)?;
                names.changed();
                disk.create(&path, &chunk.bytes).map_err(failed("write", &path))?;
            } else {
                let (offset, rest) = (chunk.offset + handed_over as u64, &chunk.bytes[handed_over..]);
                disk.write(&path, offset, rest).map_err(failed("write", &path))?;
            }
            counters.wrote(chunk.bytes.len() - handed_over);
            self.first_is_durable();
        }
        self.listed = self.complete;
        self.settle_history();
        Ok(())
    }

    /// The disk has all of what waits first.
    fn first_is_durable(&mut self) {
        if let Some(chunk) = self.pending.pop_front().filter(|chunk| chunk.seals) {
            self.ledger.seal(chunk.first);
        }
    }

    /// Settles what is in sealed files and beyond the history that is kept.
    fn settle_history(&mut self) {
        let history = self.history();
        self.ledger.settle(history);
    }

    /// Makes the files that were found what was read of them.
    fn settle_files(&mut self, disk: &dyn Disk, names: &mut Names) -> Result<(), Error> {
        if !self.cut_off.is_empty() {
            while let Some(path) = self.cut_off.last() {
                remove_if_there(disk, path).map_err(failed("remove", path))?;
                self.cut_off.pop();
            }
            names.changed();
            names.sync(disk, &self.identity.dir)?;
        }
        if let Some((path, length)) = &self.cut {
            disk.truncate(path, *length).map_err(failed("cut", path))?;
            self.cut = None;
        }
        while let Some(path) = self.unsure.last() {
            disk.sync(path).map_err(failed("sync", path))?;
            self.unsure.pop();
        }
        Ok(())
    }
}

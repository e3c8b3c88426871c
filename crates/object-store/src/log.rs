//! One list of one subscription with the events after it: what is not yet on the disk, and what is there.

mod compact;
mod plan;

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    disk::Disk,
    error::{Error, failed},
    frame::{Frame, Kind},
    ledger::{Entry, Keys, Ledger},
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
/// Five seconds at 1,000 events of 800 bytes each second. What is read at once to rewrite a file is not to be more.
const BURST: u64 = 4 << 20;

/// How long files and histories are; tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Shortest and longest file, in bytes.
    pub segment: (u64, u64),
    /// Shortest and longest history, in bytes.
    pub history: (u64, u64),
    /// How long the file that grows may become between two syncs, in bytes. To begin the next one waits for the disk, three times and some
    /// 60 ms where others sync as well, and with it every event; so a burst is to end before.
    pub burst: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { segment: (SEGMENT_MIN, SEGMENT_MAX), history: (HISTORY_MIN, HISTORY_MAX), burst: BURST }
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
    seals: bool,
}

/// Bytes of a file that the system has, without having said that the disk has them.
#[derive(Clone, Debug)]
pub(crate) struct HandedOver {
    pub(crate) path: PathBuf,
    first: u32,
    offset: u64,
    length: usize,
}

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
    /// Whether nothing is known of what of the last file is on the disk.
    pub(crate) unsure: Option<PathBuf>,
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
            unsure: None,
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
        self.pending.is_empty() && self.cut.is_none() && self.unsure.is_none()
    }

    /// All files that are or may be there.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let segments = self.ledger.segments().iter();
        let files = segments.map(|(first, segment)| self.path(*first, segment.last));
        files.chain(self.replaced.iter().cloned()).collect()
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
        self.roll_if_long(self.longest());
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
            self.roll_if_long(self.longest());
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
        self.pending.push_back(Chunk { first, last: first, offset: 0, bytes, handed_over: 0, seals: false });
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
            let (bytes, handed_over) = (Vec::new(), 0);
            self.pending.push_back(Chunk { first, last, offset, bytes, handed_over, seals: false });
        }
        &mut self.pending.back_mut().expect("pushed above if there was none").bytes
    }

    /// How long the file may become between two syncs; a list has nobody who waits for its parts.
    fn longest(&self) -> u64 {
        if self.complete { self.identity.sizes.burst.max(self.target()) } else { self.target() }
    }

    fn roll_if_long(&mut self, longest: u64) {
        let length =
            self.active.and_then(|active| self.ledger.segments().get(&active.first)).map(|s| s.length);
        if length.is_some_and(|length| length >= longest) {
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

    /// Gives the system what waits, so that whoever opens the log after this process finds it; the disk has it after [`Log::flush`].
    /// That is so only for more of the file that grows: before it gets a successor it is waited for.
    pub(crate) fn hand_over(
        &mut self,
        disk: &dyn Disk,
        counters: &Counters,
        names: &mut bool,
    ) -> Result<(), Error> {
        let grows = self.pending.len() == 1 && self.cut.is_none() && self.unsure.is_none();
        let Some(chunk) = self.pending.back().filter(|chunk| grows && chunk.offset > 0 && !chunk.seals)
        else {
            return self.flush(disk, counters, names);
        };
        let path = self.path(chunk.first, chunk.last);
        let (length, new) = (chunk.bytes.len(), &chunk.bytes[chunk.handed_over..]);
        disk.write_soon(&path, chunk.offset + chunk.handed_over as u64, new)
            .map_err(failed("write", &path))?;
        counters.wrote(new.len());
        if let Some(chunk) = self.pending.back_mut() {
            chunk.handed_over = length;
        }
        Ok(())
    }

    /// The bytes that the system has and the disk may not.
    pub(crate) fn handed_over(&self) -> Option<HandedOver> {
        let chunk = self.pending.back().filter(|chunk| chunk.handed_over > 0)?;
        Some(HandedOver {
            path: self.path(chunk.first, chunk.last),
            first: chunk.first,
            offset: chunk.offset,
            length: chunk.handed_over,
        })
    }

    /// The disk has bytes that were handed over, or, after an error, the system may have forgotten them: then they are written again.
    pub(crate) fn settle(&mut self, given: &HandedOver, is_durable: bool) {
        let same = |chunk: &Chunk| (chunk.first, chunk.offset) == (given.first, given.offset);
        let Some(chunk) = self.pending.iter_mut().find(|chunk| same(chunk)) else { return };
        if !is_durable {
            chunk.handed_over = 0;
            return;
        }
        // Fewer than were handed over if all of it is being written again.
        let length = given.length.min(chunk.handed_over);
        chunk.bytes.drain(..length);
        chunk.offset += length as u64;
        chunk.handed_over -= length;
        self.pending.retain(|chunk| !chunk.bytes.is_empty());
    }

    /// Writes what waits, in its order. Says in `names` that the folder must be synced. After an error it can be called
    /// again.
    pub(crate) fn flush(
        &mut self,
        disk: &dyn Disk,
        counters: &Counters,
        names: &mut bool,
    ) -> Result<(), Error> {
        if let Some((path, length)) = &self.cut {
            disk.truncate(path, *length).map_err(failed("cut", path))?;
            self.cut = None;
        }
        if let Some(path) = &self.unsure {
            disk.sync(path).map_err(failed("sync", path))?;
            self.unsure = None;
        }
        if self.complete {
            self.roll_if_long(self.target());
        }
        while let Some(chunk) = self.pending.front_mut() {
            let handed_over = std::mem::take(&mut chunk.handed_over);
            let (first, last) = (chunk.first, chunk.last);
            let path = self.path(first, last);
            let Some(chunk) = self.pending.front() else { break };
            if handed_over == chunk.bytes.len() {
                // Should it fail, the system may have forgotten what it was given: all of it is written again.
                disk.sync(&path).map_err(failed("sync", &path))?;
            } else if chunk.offset == 0 {
                // One name after another: a log with a gap would be no log.
                sync_names(disk, &self.identity.dir, names)?;
                *names = true;
                disk.create(&path, &chunk.bytes).map_err(failed("write", &path))?;
            } else {
                let (offset, rest) = (chunk.offset + handed_over as u64, &chunk.bytes[handed_over..]);
                disk.write(&path, offset, rest).map_err(failed("write", &path))?;
            }
            counters.wrote(chunk.bytes.len() - handed_over);
            if chunk.seals {
                let first = chunk.first;
                self.ledger.seal(first);
            }
            self.pending.pop_front();
        }
        self.listed = self.complete;
        let history = self.history();
        self.ledger.settle(history);
        Ok(())
    }
}

/// Waits until the names in the folder are on the disk, if they are not.
pub(crate) fn sync_names(disk: &dyn Disk, dir: &Path, names: &mut bool) -> Result<(), Error> {
    if *names {
        disk.sync_dir(dir).map_err(failed("sync", dir))?;
        *names = false;
    }
    Ok(())
}

//! What of a log is still needed, kept in memory: no I/O, no keys, no bodies.
//!
//! An event is *recent* until it is in a sealed file and more than the history's length ago; then it is *settled*. A
//! record is dead once a later record of its key has settled: so each recent event has its object's former state, and
//! what the file that may be torn (the last) says is never a reason to remove anything.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher, RandomState},
};

use std::hash::BuildHasher;

use crate::{frame::Kind, segment::Floor};

/// Stands for a key: two independently seeded hashes, so no key that anyone could choose collides with another.
pub(crate) type KeyHash = u128;

/// Hashes keys.
#[derive(Debug, Default)]
pub(crate) struct Keys(RandomState, RandomState);

impl Keys {
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        u128::from(self.0.hash_one(key)) << 64 | u128::from(self.1.hash_one(key))
    }
}

/// A map by [`KeyHash`], which is not hashed again.
pub(crate) type ByKey<V> = HashMap<KeyHash, V, BuildHasherDefault<Hashed>>;

/// The hasher of what is a hash.
#[derive(Debug, Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash << 8 | u64::from(*byte));
    }
    fn write_u128(&mut self, hash: u128) {
        // The lower half is as good as the whole.
        self.0 = u64::try_from(hash & u128::from(u64::MAX)).unwrap_or_default();
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    /// The last number it holds.
    pub(crate) last: u32,
    /// Its length in bytes.
    pub(crate) length: u64,
    /// How many of them are needed.
    pub(crate) live: u64,
    /// Whether it is on the disk with its seal.
    pub(crate) sealed: bool,
}

/// A record of an object, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) key: KeyHash,
    pub(crate) sequence: u64,
    pub(crate) version: u64,
    /// The first number of the file it was written into.
    pub(crate) segment: u32,
    /// Its length in the file.
    pub(crate) weight: u32,
    /// Its length without the body, if it says that the object is gone.
    pub(crate) gone: Option<u32>,
}

#[derive(Debug)]
struct Settled {
    sequence: u64,
    segment: u32,
    weight: u32,
    gone: bool,
    /// How many records of the key up to this one there are on the disk.
    copies: u32,
}

/// What becomes of a record when its file is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    /// Keep the word that the object is gone, without its body.
    KeepGone,
    /// It is dead.
    Leave,
    /// It says that the object is gone, and nothing is there that says otherwise.
    Forget,
}

/// The account of a log.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    settled: ByKey<Settled>,
    recent: VecDeque<Entry>,
    recent_bytes: u64,
    floor: Floor,
    segments: BTreeMap<u32, Weight>,
}

impl Ledger {
    /// All files, by their first number.
    pub(crate) fn segments(&self) -> &BTreeMap<u32, Weight> {
        &self.segments
    }

    pub(crate) fn floor(&self) -> Floor {
        self.floor
    }

    pub(crate) fn live(&self) -> u64 {
        self.segments.values().map(|segment| segment.live).sum()
    }

    pub(crate) fn length(&self) -> u64 {
        self.segments.values().map(|segment| segment.length).sum()
    }

    /// A file of `length` bytes is begun.
    pub(crate) fn begin(&mut self, first: u32, last: u32, length: u64) {
        self.segments.insert(first, Weight { last, length, live: length, sealed: false });
    }

    /// `length` bytes that are no record of an object were put into a file.
    pub(crate) fn grow(&mut self, first: u32, length: usize) {
        if let Some(segment) = self.segments.get_mut(&first) {
            segment.length += length as u64;
        }
    }

    /// A file is on the disk with its seal.
    pub(crate) fn seal(&mut self, first: u32) {
        if let Some(segment) = self.segments.get_mut(&first) {
            segment.sealed = true;
        }
    }

    /// An object of the list: no event.
    pub(crate) fn list(&mut self, entry: Entry) {
        self.weigh(&entry);
        self.settle_one(&entry);
    }

    /// An event.
    pub(crate) fn event(&mut self, entry: Entry) {
        self.weigh(&entry);
        if entry.sequence <= self.floor.sequence {
            self.settle_one(&entry);
        } else {
            self.recent_bytes += u64::from(entry.weight);
            self.recent.push_back(entry);
        }
    }

    /// Settles the events that are in sealed files and not among the last `history` bytes.
    pub(crate) fn settle(&mut self, history: u64) {
        while let Some(entry) = self.recent.front().copied() {
            let sealed = self.holder(entry.segment).is_some_and(|segment| segment.sealed);
            if self.recent_bytes <= history || !sealed {
                break;
            }
            self.settle_front(Floor { sequence: entry.sequence, version: entry.version });
        }
    }

    /// Settles all events up to a floor, which a file says or the end of a list is.
    pub(crate) fn settle_to(&mut self, floor: Floor) {
        while self.recent.front().is_some_and(|entry| entry.sequence <= floor.sequence) {
            self.settle_front(floor);
        }
        if floor.sequence > self.floor.sequence {
            self.floor = floor;
        }
    }

    fn settle_front(&mut self, floor: Floor) {
        if let Some(entry) = self.recent.pop_front() {
            self.recent_bytes -= u64::from(entry.weight);
            if floor.sequence > self.floor.sequence {
                self.floor = floor;
            }
            self.settle_one(&entry);
        }
    }

    fn settle_one(&mut self, entry: &Entry) {
        let before = self.settled.remove(&entry.key);
        let copies = before.as_ref().map_or(0, |before| before.copies) + 1;
        if let Some(before) = before {
            self.lighten(before.segment, before.weight);
        }
        let mut weight = entry.weight;
        if let Some(without_body) = entry.gone {
            // Alone it says nothing that the log without it does not say.
            let needed = if copies == 1 { 0 } else { without_body.min(weight) };
            self.lighten(entry.segment, weight - needed);
            weight = needed;
        }
        let Entry { key, sequence, segment, gone, .. } = *entry;
        self.settled.insert(key, Settled { sequence, segment, weight, gone: gone.is_some(), copies });
    }

    fn weigh(&mut self, entry: &Entry) {
        if let Some(segment) = self.holder(entry.segment) {
            segment.length += u64::from(entry.weight);
            segment.live += u64::from(entry.weight);
        }
    }

    fn lighten(&mut self, segment: u32, weight: u32) {
        if let Some(segment) = self.holder(segment) {
            segment.live = segment.live.saturating_sub(u64::from(weight));
        }
    }

    /// The file that holds what was written into the file `segment`.
    fn holder(&mut self, segment: u32) -> Option<&mut Weight> {
        self.segments.range_mut(..=segment).next_back().map(|(_, weight)| weight)
    }

    /// What becomes of a record of an object.
    pub(crate) fn verdict(&self, key: KeyHash, sequence: u64, kind: Kind) -> Verdict {
        let Some(settled) = self.settled.get(&key) else { return Verdict::Keep };
        match sequence.cmp(&settled.sequence) {
            std::cmp::Ordering::Less => Verdict::Leave,
            std::cmp::Ordering::Greater => Verdict::Keep,
            std::cmp::Ordering::Equal if !settled.gone => Verdict::Keep,
            std::cmp::Ordering::Equal if settled.copies == 1 => Verdict::Forget,
            std::cmp::Ordering::Equal if kind == Kind::Gone => Verdict::Keep,
            std::cmp::Ordering::Equal => Verdict::KeepGone,
        }
    }

    /// Files were rewritten into one of `weight`, without the records `left` (dead) and `forgotten` (gone).
    pub(crate) fn rewritten(&mut self, first: u32, weight: Weight, left: &[KeyHash], forgotten: &[KeyHash]) {
        self.segments.retain(|number, _| !(first..=weight.last).contains(number));
        self.segments.insert(first, weight);
        for key in left {
            let Some(settled) = self.settled.get_mut(key) else { continue };
            settled.copies -= 1;
            if settled.copies == 1 && settled.gone {
                let (segment, weight) = (settled.segment, std::mem::take(&mut settled.weight));
                self.lighten(segment, weight);
            }
        }
        for key in forgotten {
            self.settled.remove(key);
        }
    }
}

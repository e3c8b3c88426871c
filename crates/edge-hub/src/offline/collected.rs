//! What is collected of answers that are handed on and kept, until the disk has it. All of it together takes no more memory than so much,
//! however many ask at once; what goes beyond is handed on and not kept.
//!
//! Who asks and does not read would keep the others' from being kept: where there is no room, what is collected longest gives way.

use std::{
    io,
    ops::Deref,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use flate2::read::GzDecoder;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::coding::{Coding, LARGEST};

/// How many bytes all may have: one of the largest, and some beside it.
const ALL: usize = LARGEST + LARGEST / 2;

/// By how much one grows at most: what is allocated is not much more than what is there.
const STEP: usize = 1 << 20;

/// How long the head is, at most, that is put before what the hub asked for itself: some headers.
const HEAD: usize = 8 << 10;

/// How long one may be on its way before it gives way.
const PATIENCE: Duration = Duration::from_secs(10);

static ROOM: Room = Room::new(ALL);

/// How much may be collected at once.
#[derive(Debug)]
pub(super) struct Room {
    most: usize,
    taken: AtomicUsize,
    /// What is on its way, and since when; the oldest first.
    passing: Mutex<Vec<(Instant, Weak<Slot>)>>,
}

type Slot = Mutex<Option<Collected>>;

/// What has passed so far of an answer; nothing, if it is not collected.
#[derive(Debug)]
pub(super) struct Passing(Arc<Slot>);

/// Bytes that were collected.
#[derive(Debug)]
pub struct Collected {
    room: &'static Room,
    /// How long it may become.
    most: usize,
    bytes: Vec<u8>,
    /// What it has of the room.
    taken: usize,
}

impl Room {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0), passing: Mutex::new(Vec::new()) }
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.most);
        let take = || self.taken.fetch_update(Relaxed, Relaxed, fits).is_ok();
        while !take() {
            if !self.give_way() {
                return false;
            }
        }
        true
    }

    /// Lets go of what has been on its way for longest, if for so long.
    fn give_way(&self) -> bool {
        let mut passing = self.passing.lock();
        passing.retain(|(_, slot)| slot.strong_count() > 0);
        for (begun, slot) in passing.iter() {
            if begun.elapsed() < PATIENCE {
                return false;
            }
            // Not who asks for room, nor who is being served just now: those are locked.
            let slot = slot.upgrade();
            if slot.is_some_and(|slot| slot.try_lock().is_some_and(|mut slot| slot.take().is_some())) {
                return true;
            }
        }
        false
    }
}

impl Passing {
    /// An answer of which nothing has passed, and which is not kept if it is longer than `most`.
    pub(super) fn new(most: usize) -> Self {
        Self::in_room(&ROOM, most)
    }

    pub(super) fn in_room(room: &'static Room, most: usize) -> Self {
        let slot = Arc::new(Mutex::new(Some(Collected::new(room, most))));
        let mut passing = room.passing.lock();
        passing.retain(|(_, slot)| slot.strong_count() > 0);
        passing.push((Instant::now(), Arc::downgrade(&slot)));
        Self(slot)
    }

    /// This has passed.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut slot = self.0.lock();
        if slot.as_mut().is_some_and(|collected| !collected.push(bytes)) {
            *slot = None;
        }
    }

    /// Nothing of it is to be kept.
    pub(super) fn forget(&self) {
        *self.0.lock() = None;
    }

    /// All that has passed.
    pub(super) fn take(&self) -> Option<Collected> {
        self.0.lock().take()
    }
}

impl Collected {
    fn new(room: &'static Room, most: usize) -> Self {
        Self { room, most, bytes: Vec::new(), taken: 0 }
    }

    /// What the hub asked for itself, one at a time: there is always room for it, and for a head.
    pub(super) fn own(bytes: &[u8]) -> Self {
        Self::own_in(&ROOM, bytes)
    }

    fn own_in(room: &'static Room, bytes: &[u8]) -> Self {
        let taken = bytes.len() + HEAD;
        room.taken.fetch_add(taken, Relaxed);
        let mut own = Vec::with_capacity(taken);
        own.extend_from_slice(bytes);
        Self { room, most: LARGEST, bytes: own, taken }
    }

    /// Whether there was room for these, which come next.
    fn push(&mut self, next: &[u8]) -> bool {
        let (length, needed) = (self.bytes.len(), self.bytes.len() + next.len());
        if needed > self.most || !self.reserve(needed, length.min(STEP)) {
            return false;
        }
        self.bytes.extend_from_slice(next);
        true
    }

    /// Puts what is to come before it; whether there was room.
    pub(super) fn put_before(&mut self, first: &[u8]) -> bool {
        let fits = self.reserve(self.bytes.len() + first.len(), 0);
        if fits {
            self.bytes.splice(..0, first.iter().copied());
        }
        fits
    }

    /// Takes room for so many bytes, and `more` if there are not so many yet.
    fn reserve(&mut self, needed: usize, more: usize) -> bool {
        if needed <= self.taken {
            return true;
        }
        let wanted = needed.max(self.bytes.len() + more);
        if !self.room.take(wanted - self.taken) {
            return false;
        }
        self.taken = wanted;
        self.bytes.reserve_exact(wanted - self.bytes.len());
        true
    }

    /// What it is without its coding, if it is whole, not too long, and there is room for it.
    pub(super) fn plain(self, coding: Coding) -> Option<Self> {
        match coding {
            Coding::Plain => Some(self),
            Coding::Gzip => {
                let mut plain = Self::new(self.room, self.most);
                io::copy(&mut GzDecoder::new(&*self.bytes), &mut plain).ok()?;
                Some(plain)
            }
        }
    }
}

impl io::Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.push(bytes) { Ok(bytes.len()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Deref for Collected {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Collected {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.taken, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const PIECE: usize = 1 << 10;

    /// A room of its own, for as long as the tests run.
    fn room(most: usize) -> &'static Room {
        Box::leak(Box::new(Room::new(most)))
    }

    fn taken(room: &Room) -> usize {
        room.taken.load(Relaxed)
    }

    #[test]
    fn what_the_hub_asked_for_itself_has_room_for_its_head() {
        static FULL: Room = Room::new(4);
        let mut own = Collected::own_in(&FULL, b"document");
        assert!(own.put_before(b"head "));
        assert_eq!(&*own, b"head document");
        drop(own);
        assert_eq!(FULL.taken.load(Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_is_collected_at_once_fits_the_room() {
        let room = room(64 * PIECE);
        let all: Vec<_> = (0..100).map(|_| Passing::in_room(room, LARGEST)).collect();
        for _ in 0..3 {
            for passing in &all {
                passing.push(&[7; PIECE]);
            }
            assert!(taken(room) <= 64 * PIECE, "{}", taken(room));
        }
        let kept: Vec<_> = all.iter().filter_map(Passing::take).collect();
        assert!((10..30).contains(&kept.len()), "{} of 100", kept.len());
        assert!(kept.iter().all(|collected| **collected == [7; 3 * PIECE]), "whole or not at all");
        assert!(taken(room) > 0, "what is not on the disk counts still");
        drop(kept);
        assert_eq!(taken(room), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_gives_way() {
        let room = room(4 * PIECE);
        let silent = Passing::in_room(room, LARGEST);
        silent.push(&[1; 4 * PIECE]);
        let soon = Passing::in_room(room, LARGEST);
        soon.push(&[2; PIECE]);
        assert!(soon.take().is_none(), "there is no room, and it has not been there for long");
        tokio::time::advance(PATIENCE).await;
        let later = Passing::in_room(room, LARGEST);
        later.push(&[3; 4 * PIECE]);
        silent.push(&[1; PIECE]);
        assert!(silent.take().is_none(), "it is not collected any more");
        assert_eq!(later.take().map(|collected| collected.len()), Some(4 * PIECE));
    }

    #[tokio::test]
    async fn what_is_unpacked_has_to_fit_as_well() {
        let gzip = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let room = room(8 * PIECE);
        let collected = |packed: &[u8], most: usize| {
            let passing = Passing::in_room(room, most);
            passing.push(packed);
            passing.take()
        };
        let plain = collected(&gzip(&[0; 2 * PIECE]), LARGEST).unwrap().plain(Coding::Gzip).unwrap();
        assert_eq!(*plain, [0; 2 * PIECE]);
        assert!(taken(room) >= 2 * PIECE);
        drop(plain);
        assert!(collected(&gzip(&[0; 9 * PIECE]), LARGEST).unwrap().plain(Coding::Gzip).is_none(), "a bomb");
        assert!(collected(&gzip(&[0; 2 * PIECE]), PIECE).unwrap().plain(Coding::Gzip).is_none(), "too long");
        assert!(collected(&gzip(b"text")[1..], PIECE).unwrap().plain(Coding::Gzip).is_none());
        assert!(collected(&[0; 2], 1).is_none());
        assert_eq!(taken(room), 0);
    }

    #[tokio::test]
    async fn a_head_comes_before_it() {
        let room = room(PIECE);
        let passing = Passing::in_room(room, LARGEST);
        passing.push(b"body");
        let mut collected = passing.take().unwrap();
        assert!(collected.put_before(b"head "));
        assert_eq!(&*collected, b"head body");
        assert!(!collected.put_before(&[0; PIECE]), "there is no room");
    }
}

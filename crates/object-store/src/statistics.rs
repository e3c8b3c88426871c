//! What the store counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that logs and blobs share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    given: AtomicU64,
    written: AtomicU64,
}

impl Counters {
    /// The caller gave so many bytes of keys and bodies.
    pub(crate) fn given(&self, bytes: usize) {
        self.given.fetch_add(bytes as u64, Relaxed);
    }

    /// So many bytes were written into files.
    pub(crate) fn wrote(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn read(&self) -> (u64, u64) {
        (self.given.load(Relaxed), self.written.load(Relaxed))
    }
}

/// What the store did since it was opened, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of keys and bodies that were given to it.
    pub given: u64,
    /// Bytes that it wrote into files, with all that it wrote again. The disk rounds each write up to its blocks.
    pub written: u64,
    /// Bytes in the files of logs.
    pub length: u64,
    /// Bytes of them that are needed.
    pub live: u64,
    /// Files of logs.
    pub files: u64,
    /// Bytes that wait for [`crate::Store::sync`].
    pub backlog: u64,
    /// Calls of [`crate::Store::sync`] that had something to do and succeeded.
    pub syncs: u64,
}

impl Statistics {
    /// Bytes written for each byte given, in thousandths; `None` before the first.
    pub fn written_per_given(&self) -> Option<u64> {
        (self.written * 1000).checked_div(self.given)
    }
}

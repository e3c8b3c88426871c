//! When bytes of a client last passed: who waits for nothing is the first to give way.
//!
//! Noted for each piece that passes, so it costs a look at the kernel's coarse clock, which is some milliseconds old, and a store.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// When bytes last passed, in milliseconds of the machine's own time.
#[derive(Debug, Default)]
pub struct LastUse(AtomicU64);

impl LastUse {
    /// Some pass now.
    pub(crate) fn note(&self) {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        // Never negative: it counts from the machine's start.
        let millis = now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000;
        self.0.store(millis, Ordering::Relaxed);
    }

    /// When.
    pub(crate) fn at(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// They passed then.
    #[cfg(test)]
    pub(crate) fn set(&self, at: u64) {
        self.0.store(at, Ordering::Relaxed);
    }
}

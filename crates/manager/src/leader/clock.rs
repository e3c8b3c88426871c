//! The steady clock that leadership is measured on: instants, and the one place that reads them.
//!
//! The clock is `CLOCK_BOOTTIME`. The usual monotonic clock stands still while a machine is suspended, so a leader
//! that slept through its deadline would believe itself in time; this one goes on. A machine whose hypervisor stops
//! every guest clock cannot know that it slept, whatever clock it reads: there the resourceVersion of what is written
//! is the remaining guard.

use std::{fmt, sync::Arc, time::Duration};

/// An instant on one process's steady clock: the time since some fixed point. Instants of two processes do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The instant `since_start` after the clock's fixed point.
    pub const fn new(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// The instant `duration` later; the end of time if that is out of range.
    #[must_use]
    pub const fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// How long it is from `earlier` to this instant; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A steady clock, shared by everyone who judges the same leadership.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// The time since the machine's start, suspended time included.
    pub fn boot() -> Self {
        Self::from_fn(|| {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            // The kernel's boot clock is never negative and its nanoseconds stay below 10^9.
            Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
        })
    }

    /// A clock that asks `read`, which must never go back.
    pub fn from_fn(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The present instant.
    pub fn now(&self) -> Moment {
        Moment((self.0)())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_advances_with_time() {
        let clock = Clock::boot();
        let start = clock.now();
        std::thread::sleep(Duration::from_millis(20));
        let passed = clock.now().since(start);
        assert!(passed >= Duration::from_millis(20), "{passed:?}");
        assert!(passed < Duration::from_secs(20), "{passed:?}");
    }

    #[test]
    fn arithmetic_saturates() {
        let late = Moment::new(Duration::MAX);
        assert_eq!(late.after(Duration::from_secs(1)), late);
        assert_eq!(Moment::new(Duration::ZERO).since(late), Duration::ZERO);
    }
}

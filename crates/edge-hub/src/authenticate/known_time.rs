//! The time of day as far as it is known: the machine's clock, which is behind after a reboot of a board without a battery until some server tells it,
//! or when the newest token was issued that the cluster signed, if that is later. Whoever issues tokens dates none ahead.

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::offline::documents::unix_seconds;

/// Seconds since 1970.
#[derive(Debug, Default)]
pub struct KnownTime {
    /// A time that has been, and when that was learnt.
    been: Mutex<Option<(i64, Instant)>>,
}

impl KnownTime {
    /// The time; it is never before one that has been.
    pub fn now(&self) -> i64 {
        self.now_by(clock())
    }

    fn now_by(&self, clock: i64) -> i64 {
        self.been.lock().map_or(clock, |been| reached(been).max(clock))
    }

    /// It has been that time.
    pub fn has_been(&self, time: i64) {
        self.is_within(time, i64::MAX);
    }

    /// An API server that can be asked says of a token of this time that it is good now: so that has begun, and is not over. Where it would be by what was
    /// known before, that was of an API server whose clock is ahead, and counts no more.
    pub fn is_within(&self, begin: i64, end: i64) {
        let mut been = self.been.lock();
        if been.is_none_or(|been| reached(been) < begin || reached(been) >= end) {
            *been = Some((begin, Instant::now()));
        }
    }
}

/// The machine's clock, in Unix seconds.
pub(super) fn clock() -> i64 {
    i64::try_from(unix_seconds()).unwrap_or(i64::MAX)
}

/// What a time has come to since it was learnt.
fn reached((been, at): (i64, Instant)) -> i64 {
    been.saturating_add(i64::try_from(at.elapsed().as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_behind_counts_for_nothing_until_it_is_not() {
        let time = KnownTime::default();
        assert_eq!(time.now_by(1000), 1000);
        let newest = time.now() + 3000;
        time.has_been(newest);
        assert_eq!(time.now_by(1000), newest);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(time.now_by(1060), newest + 60);
        // An older token teaches nothing.
        time.has_been(newest);
        assert_eq!(time.now_by(1060), newest + 60);
        assert_eq!(time.now_by(newest + 100), newest + 100);
        // One that is good for long says nothing of how late it is.
        time.is_within(newest - 2000, newest + 9000);
        assert_eq!(time.now_by(1060), newest + 60);
        time.is_within(newest + 70, newest + 9000);
        assert_eq!(time.now_by(1060), newest + 70);
        // One whose clock was ahead is corrected by another that can be asked.
        time.is_within(newest - 2000, newest + 70);
        assert_eq!(time.now_by(1060), newest - 2000);
    }
}

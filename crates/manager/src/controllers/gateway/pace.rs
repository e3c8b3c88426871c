//! How often an object is written that does not stay as it was written: somebody else undoes it, or an admission rule does; and how soon again one
//! whose write failed and can wait. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// So many writes in a row are not held back: a gateway may go and come back a few times within half a minute.
const FREE: u32 = 8;

/// How long the next one waits then.
const WAIT: Duration = Duration::from_secs(2);

/// After how long without a write all is forgotten.
const QUIET: Duration = Duration::from_secs(30);

/// How long to wait after a failure: first and longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How long to wait after a failure before which there were so many in a row.
pub(super) fn retry(failures: u32) -> Duration {
    RETRY.0.saturating_mul(1 << failures.min(5)).min(RETRY.1)
}

/// What was written, and when.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    written: HashMap<String, Written>,
    /// How many writes of an object failed in a row, and when the next one is due.
    failed: HashMap<String, (u32, Instant)>,
}

/// The writes of one object.
#[derive(Debug)]
struct Written {
    /// How many in a row there were with the last one, and when that was.
    last: (u32, Instant),
    /// The same without the last one, which may be taken back.
    before: Option<(u32, Instant)>,
}

impl Paces {
    /// Notes a write of `object`, or says when it is due.
    pub(crate) fn admit(&mut self, object: &str, now: Instant) -> Result<(), Instant> {
        if let Some((_, due)) = self.failed.get(object).filter(|(_, due)| now < *due) {
            return Err(*due);
        }
        let before = self.written.get(object).map(|written| written.last);
        let (row, last) = before.unwrap_or((0, now));
        let row = if now.saturating_duration_since(last) >= QUIET { 0 } else { row };
        if row >= FREE && now < last + WAIT {
            return Err(last + WAIT);
        }
        let last = (row.saturating_add(1), now);
        self.written.insert(object.to_owned(), Written { last, before });
        Ok(())
    }

    /// The write that was noted last is not made after all: it neither counts nor keeps the next one waiting.
    pub(crate) fn retract(&mut self, object: &str) {
        let before = self.written.remove(object).and_then(|written| written.before);
        if let Some(last) = before {
            self.written.insert(object.to_owned(), Written { last, before: None });
        }
    }

    /// Notes that a write failed, and says when the next one is due.
    pub(crate) fn fail(&mut self, object: &str, now: Instant) -> Instant {
        let (failures, due) = self.failed.entry(object.to_owned()).or_insert((0, now));
        *due = now + retry(*failures);
        *failures = failures.saturating_add(1);
        *due
    }

    /// Notes that a write did not fail.
    pub(crate) fn succeed(&mut self, object: &str) {
        self.failed.remove(object);
    }

    /// Forgets what was not written of late.
    pub(crate) fn tidy(&mut self, now: Instant) {
        self.failed.retain(|_, (_, due)| now.saturating_duration_since(*due) < QUIET);
        self.written.retain(|_, written| now.saturating_duration_since(written.last.1) < QUIET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_writes_are_free_and_many_wait() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut paces = Paces::default();
        for _ in 0..FREE {
            assert_eq!(paces.admit("a", start), Ok(()));
        }
        assert_eq!(paces.admit("a", at(1)), Err(at(2)));
        assert_eq!(paces.admit("b", at(1)), Ok(()), "another object");
        assert_eq!(paces.admit("a", at(2)), Ok(()));
        assert_eq!(paces.admit("a", at(3)), Err(at(4)));
        assert_eq!(paces.admit("a", at(32)), Ok(()));
        assert_eq!(paces.admit("a", at(32)), Ok(()), "all is forgotten");
        // What is not written after all is none of the row.
        for _ in 1..FREE * 2 {
            assert_eq!(paces.admit("c", at(40)), Ok(()));
            paces.retract("c");
        }
        for _ in 0..FREE {
            assert_eq!(paces.admit("d", at(40)), Ok(()));
        }
        assert_eq!(paces.admit("d", at(41)), Err(at(42)));
        for seconds in [42, 43, 43, 44] {
            assert_eq!(paces.admit("d", at(seconds)), Ok(()), "none has been written since");
            paces.retract("d");
        }
        assert_eq!(paces.admit("d", at(44)), Ok(()));
        assert_eq!(paces.admit("d", at(45)), Err(at(46)));
        paces.retract("nobody");
        paces.tidy(at(74));
        assert!(paces.written.is_empty());
    }

    #[test]
    fn what_failed_waits_longer_each_time() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut paces = Paces::default();
        let mut now = start;
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(paces.admit("a", now), Ok(()));
            // It took its time to fail.
            let due = now + Duration::from_secs(10 + seconds);
            assert_eq!(paces.fail("a", now + Duration::from_secs(10)), due);
            assert_eq!(paces.admit("a", due.checked_sub(Duration::from_millis(1)).unwrap()), Err(due));
            assert_eq!(paces.admit("b", now), Ok(()), "another object");
            paces.succeed("b");
            paces.tidy(due);
            now = due;
        }
        paces.succeed("a");
        assert_eq!(paces.fail("a", at(200)), at(201), "it begins anew");
        paces.tidy(at(230));
        assert_eq!(paces.failed.len(), 1);
        paces.tidy(at(231));
        assert!(paces.failed.is_empty());
    }
}

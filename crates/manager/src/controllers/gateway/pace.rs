//! How often an object is written that does not stay as it was written: somebody else undoes it, or an admission rule does. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// So many writes in a row are not held back: a gateway may go and come back a few times within half a minute.
const FREE: u32 = 8;

/// How long the next one waits then.
const WAIT: Duration = Duration::from_secs(2);

/// After how long without a write all is forgotten.
const QUIET: Duration = Duration::from_secs(30);

/// What was written, and when.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    written: HashMap<String, (u32, Instant)>,
}

impl Paces {
    /// Notes a write of `object`, or says when it is due.
    pub(crate) fn admit(&mut self, object: &str, now: Instant) -> Result<(), Instant> {
        let (row, last) = self.written.get(object).copied().unwrap_or((0, now));
        let row = if now.saturating_duration_since(last) >= QUIET { 0 } else { row };
        if row >= FREE && now < last + WAIT {
            return Err(last + WAIT);
        }
        self.written.insert(object.to_owned(), (row.saturating_add(1), now));
        Ok(())
    }

    /// A write that was noted is not made after all.
    pub(crate) fn retract(&mut self, object: &str) {
        if let Some((row, _)) = self.written.get_mut(object) {
            *row = row.saturating_sub(1);
        }
    }

    /// Forgets what was not written of late.
    pub(crate) fn tidy(&mut self, now: Instant) {
        self.written.retain(|_, (_, last)| now.saturating_duration_since(*last) < QUIET);
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
        paces.retract("nobody");
        paces.tidy(at(70));
        assert!(paces.written.is_empty());
    }
}

//! How much a link carries: looked at when a stream is to be opened and at each PING's answer, so it costs the bytes themselves
//! nothing, and no task. Pure but for the time, which comes in.

use std::time::Duration;

use tokio::time::Instant;

/// Between two looks that count: what many callers ask at once is worked out once.
const SPACING: Duration = Duration::from_millis(250);

/// What passed between the last two looks, as bytes a second.
#[derive(Debug)]
pub(crate) struct Load {
    looked: Instant,
    total: u64,
    per_second: u64,
}

impl Load {
    /// Of a link that begins `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self { looked: now, total: 0, per_second: 0 }
    }

    /// The load at `now`, when `total` bytes have passed in all. Soon after a look it is at least what came since: a copy that has just
    /// begun is seen at once.
    pub(crate) fn at(&mut self, now: Instant, total: u64) -> u64 {
        let (elapsed, passed) =
            (now.saturating_duration_since(self.looked), total.saturating_sub(self.total));
        if elapsed < SPACING {
            return self.per_second.max(passed);
        }
        let per_second = u128::from(passed) * 1000 / elapsed.as_millis();
        let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
        *self = Self { looked: now, total, per_second };
        per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_seen_when_it_begins_and_forgotten_when_it_is_over() {
        let began = Instant::now();
        let mut load = Load::new(began);
        for (millis, total, expected) in [
            (0, 0, 0),
            // Before the next look: what has come so far.
            (100, 5_000, 5_000),
            (250, 5_000, 20_000),
            // Looks in between change nothing: the last one counts.
            (300, 5_000, 20_000),
            (400, 105_000, 100_000),
            (1250, 1_005_000, 1_000_000),
            (5250, 1_005_000, 0),
            (5300, 1_005_000, 0),
        ] {
            assert_eq!(load.at(began + Duration::from_millis(millis), total), expected, "after {millis} ms");
        }
    }
}

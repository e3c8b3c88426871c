//! The longest time in which somebody who asks all the time was shown nothing new: pure.

use std::time::Duration;

/// What one way of looking has shown. Times are those of a steady clock.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// When it last showed something new, and how new that was.
    last: Option<(Duration, i64)>,
    longest: Duration,
}

impl Progress {
    /// It showed a state of `stamp` at that time, which counts if that is newer than all before: an old state is no progress, whoever tells it.
    pub(super) fn saw(&mut self, at: Duration, stamp: i64) {
        if self.last.is_some_and(|(_, newest)| stamp <= newest) {
            return;
        }
        self.longest = self.longest(at);
        self.last = Some((at, stamp));
    }

    /// From now on the longest time is counted anew. What is under way counts from where it began: something new that was shown before.
    pub(super) fn begin(&mut self) -> Duration {
        std::mem::take(&mut self.longest)
    }

    /// Whether it showed something newer than `stamp`.
    pub(super) fn is_past(&self, stamp: i64) -> bool {
        self.last.is_some_and(|(_, newest)| newest > stamp)
    }

    /// The longest time from something new to the next, that which is under way at `now` among them.
    pub(super) fn longest(&self, now: Duration) -> Duration {
        let under_way = self.last.map(|(at, _)| now.saturating_sub(at)).unwrap_or_default();
        self.longest.max(under_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Something new each 40 ms, but between `from` and `to`.
    fn with_a_gap(from: u32, to: u32) -> Progress {
        let mut progress = Progress::default();
        for at in (0..5_000).step_by(40).filter(|at| *at <= from || *at >= to) {
            progress.saw(at * MS, i64::from(at));
        }
        progress
    }

    #[test]
    fn a_gap_is_as_long_as_it_is_however_short() {
        for (from, to, gap) in
            [(1_000, 1_040, 40), (1_000, 1_200, 200), (1_000, 1_960, 960), (400, 3_600, 3_200)]
        {
            assert_eq!(with_a_gap(from, to).longest(4_960 * MS), gap * MS);
        }
    }

    #[test]
    fn what_is_old_is_no_progress() {
        let mut progress = with_a_gap(2_000, 5_000);
        assert!(progress.is_past(1_999) && !progress.is_past(2_000));
        // A standby that answered by a copy of before would be taken for one that knows.
        for at in [2_040, 2_080, 2_500] {
            progress.saw(at * MS, 2_000);
            progress.saw(at * MS, 1_000);
        }
        assert!(!progress.is_past(2_000));
        progress.saw(2_600 * MS, 2_001);
        assert_eq!(progress.longest(2_600 * MS), 600 * MS);
    }

    #[test]
    fn what_was_before_is_forgotten_and_what_is_under_way_is_not() {
        let mut progress = with_a_gap(1_000, 2_000);
        assert_eq!(progress.begin(), 1_000 * MS);
        progress.saw(5_000 * MS, 5_000);
        assert_eq!(progress.longest(5_000 * MS), 40 * MS);
        progress.begin();
        assert_eq!(progress.longest(5_700 * MS), 700 * MS, "nothing came yet");
        progress.saw(5_900 * MS, 5_900);
        progress.saw(5_940 * MS, 5_940);
        assert_eq!(progress.longest(5_940 * MS), 900 * MS);
        // Nothing was ever shown.
        assert_eq!(Progress::default().longest(9 * MS), Duration::ZERO);
    }
}

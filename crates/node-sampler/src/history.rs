//! What counters were some time ago, for averages over a window: a bounded number of readings, evenly spaced. Pure.

use std::collections::VecDeque;

/// Readings that a window is made of; its true length is off by one part of so many at most.
const PARTS: u64 = 30;

/// Readings of counters over a window.
#[derive(Debug)]
pub(crate) struct History<T> {
    readings: VecDeque<(u64, T)>,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self { readings: VecDeque::new() }
    }
}

impl<T: Copy> History<T> {
    /// A reading at `now` milliseconds; kept if the last one is long enough ago.
    pub(crate) fn push(&mut self, now: u64, window: u64, reading: T) {
        let is_due = self.readings.back().is_none_or(|(last, _)| now.saturating_sub(*last) >= window / PARTS);
        if is_due {
            self.readings.push_back((now, reading));
        }
        // One that is just beyond the window is where the window begins.
        while self.readings.get(1).is_some_and(|(second, _)| now.saturating_sub(*second) >= window) {
            self.readings.pop_front();
        }
        while self.readings.len() > 2 * usize::try_from(PARTS).unwrap_or(usize::MAX) {
            self.readings.pop_front();
        }
    }

    /// The reading with which the window begins, and how long ago it was, in milliseconds: more than 0.
    pub(crate) fn begin(&self, now: u64) -> Option<(u64, T)> {
        let (at, reading) = self.readings.front()?;
        let passed = now.checked_sub(*at).filter(|passed| *passed > 0)?;
        Some((passed, *reading))
    }

    /// A reading as it was kept.
    pub(crate) fn put(&mut self, at: u64, reading: T) {
        self.readings.push_back((at, reading));
    }

    /// The reading at this place, the oldest first, and its time.
    pub(crate) fn get(&self, place: usize) -> Option<(u64, T)> {
        self.readings.get(place).copied()
    }

    /// The last one.
    pub(crate) fn last(&self) -> Option<(u64, T)> {
        self.readings.back().copied()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.readings.len()
    }

    pub(crate) fn clear(&mut self) {
        self.readings.clear();
    }
}

/// How much a counter grew; absent if it is, or if it went back.
pub(crate) fn grown(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    now?.checked_sub(before?)
}

/// `delta · scale / per`, rounded down.
pub(crate) fn rate(delta: u64, scale: u64, per: u64) -> Option<u64> {
    u64::try_from((u128::from(delta) * u128::from(scale)).checked_div(u128::from(per))?).ok()
}

#[cfg(test)]
mod tests {
    use super::History;

    #[test]
    fn the_window_is_kept_and_no_more() {
        let mut history = History::default();
        for second in 0..4_000_u64 {
            history.push(second * 1_000, 300_000, second);
            assert!(history.readings.len() <= 32, "{}", history.readings.len());
        }
        let (passed, at) = history.begin(3_999_000).unwrap();
        assert!((300_000..=310_000).contains(&passed), "{passed}");
        assert_eq!(passed, (3_999 - at) * 1_000);
    }

    #[test]
    fn a_window_that_has_just_begun_is_as_long_as_it_is() {
        let mut history = History::default();
        assert_eq!(history.begin(5), None);
        history.push(1_000, 300_000, 'a');
        assert_eq!(history.begin(1_000), None);
        assert_eq!(history.begin(3_000), Some((2_000, 'a')));
        history.clear();
        assert_eq!(history.begin(3_000), None);
    }
}

//! The last half hour of a quantity, second by second, and exact percentiles of it. Pure.

use std::collections::VecDeque;

/// Seconds that are kept: the longest window of Koordinator's.
pub const SECONDS: usize = 1_800;

/// In place of a second of which nothing is known.
const ABSENT: u64 = u64::MAX;

/// One value a second, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    slots: VecDeque<u64>,
}

/// Mean and percentiles of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Mean, rounded down.
    pub avg: u64,
    /// Nearest rank: the value at place ⌈n·p⌉ of the n known ones in order.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 95 %.
    pub p95: u64,
    /// 99 %.
    pub p99: u64,
}

/// The value at place ⌈n·p⌉ of `values` in order; they are moved about. `None` of none.
pub fn nearest_rank(values: &mut [u64], percent: usize) -> Option<u64> {
    let place = (values.len() * percent).div_ceil(100).max(1) - 1;
    (place < values.len()).then(|| *values.select_nth_unstable(place).1)
}

impl Ring {
    /// The value of the next second; `None`: not known.
    pub fn push(&mut self, value: Option<u64>) {
        if self.slots.len() == SECONDS {
            self.slots.pop_front();
        }
        self.slots.push_back(value.unwrap_or(ABSENT));
    }

    /// So many seconds went by of which nothing is known.
    pub fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds.min(SECONDS as u64) {
            self.push(None);
        }
    }

    /// The mean of what is known of the last `seconds`.
    pub fn mean(&self, seconds: usize) -> Option<u64> {
        let (mut sum, mut count) = (0_u128, 0_u128);
        for value in self.known(seconds) {
            sum += u128::from(value);
            count += 1;
        }
        u64::try_from(sum.checked_div(count)?).ok()
    }

    /// Figures of the last `seconds`, if at least half of them are known.
    pub fn figures(&self, seconds: usize, scratch: &mut Vec<u64>) -> Option<Figures> {
        scratch.clear();
        scratch.extend(self.known(seconds));
        if scratch.is_empty() || scratch.len() * 2 < seconds {
            return None;
        }
        let avg = self.mean(seconds)?;
        // From the highest down: what was put beyond a place stays beyond it.
        let length = scratch.len();
        let mut rest = &mut scratch[..];
        let mut of = |percent: usize| {
            let rank = (length * percent).div_ceil(100).max(1);
            let whole = std::mem::take(&mut rest);
            let value = *whole.select_nth_unstable(rank - 1).1;
            rest = &mut whole[..rank];
            value
        };
        let [p99, p95, p90, p50] = [99, 95, 90, 50].map(&mut of);
        Some(Figures { avg, p50, p90, p95, p99 })
    }

    fn known(&self, seconds: usize) -> impl Iterator<Item = u64> {
        let newest = self.slots.len().saturating_sub(seconds.min(SECONDS));
        self.slots.range(newest..).copied().filter(|value| *value != ABSENT)
    }

    /// For the checkpoint: 0 is absent, and everything else one more than it is.
    pub fn store(&self) -> Vec<u64> {
        self.slots.iter().map(|value| value.wrapping_add(1)).collect()
    }

    /// What [`Ring::store`] gave.
    pub fn restore(stored: &[u64]) -> Self {
        let newest = stored.len().saturating_sub(SECONDS);
        Self { slots: stored[newest..].iter().map(|value| value.wrapping_sub(1)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Figures, Ring, SECONDS};
    use proptest::prelude::*;

    /// As the definition says it.
    fn naive(values: &[Option<u64>], seconds: usize) -> Option<Figures> {
        let newest = values.len().saturating_sub(seconds);
        let mut known: Vec<u64> = values[newest..].iter().flatten().copied().collect();
        known.sort_unstable();
        if known.is_empty() || known.len() * 2 < seconds {
            return None;
        }
        let rank = |percent: usize| {
            let place = (known.len() * percent).div_ceil(100);
            known[place - 1]
        };
        let avg = known.iter().sum::<u64>() / known.len() as u64;
        Some(Figures { avg, p50: rank(50), p90: rank(90), p95: rank(95), p99: rank(99) })
    }

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let of = |values: std::ops::RangeInclusive<u64>| {
            let mut ring = Ring::default();
            values.for_each(|value| ring.push(Some(value)));
            ring
        };
        let scratch = &mut Vec::new();
        let ten = Figures { avg: 5, p50: 5, p90: 9, p95: 10, p99: 10 };
        assert_eq!(of(1..=10).figures(10, scratch), Some(ten));
        let hundred = Figures { avg: 50, p50: 50, p90: 90, p95: 95, p99: 99 };
        assert_eq!(of(1..=100).figures(100, scratch), Some(hundred));
        // Half of the window is enough, less is not.
        assert_eq!(of(1..=10).figures(20, scratch), Some(ten));
        assert_eq!(of(1..=10).figures(21, scratch), None);
        assert_eq!(Ring::default().figures(0, scratch), None);
        assert_eq!(Ring::default().mean(300), None);
    }

    #[test]
    fn a_gap_ages_what_is_known() {
        let mut ring = Ring::default();
        (0..300).for_each(|_| ring.push(Some(7)));
        ring.pass(150);
        assert_eq!(ring.figures(300, &mut Vec::new()).map(|figures| figures.p99), Some(7));
        ring.pass(1);
        assert_eq!(ring.figures(300, &mut Vec::new()), None);
        ring.pass(u64::MAX);
        assert_eq!(ring.mean(SECONDS), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        #[test]
        fn figures_are_those_of_a_sort(
            values in prop::collection::vec(prop::option::weighted(0.8, 0_u64..1_000), 0..2_500),
            seconds in prop::sample::select(vec![1_usize, 2, 60, 300, 600, 1_800])
        ) {
            let mut ring = Ring::default();
            for value in &values {
                ring.push(*value);
            }
            prop_assert_eq!(ring.figures(seconds, &mut Vec::new()), naive(&values, seconds));
            prop_assert_eq!(Ring::restore(&ring.store()), ring);
        }
    }
}

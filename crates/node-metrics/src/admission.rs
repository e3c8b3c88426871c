//! Which reports are shed when more come than can be taken: pure. The longer a node was not heard, the emptier the bucket may be that it
//! still takes from, so that a shed node is among the first to be taken next time, whoever else is loud.

use std::time::Duration;

/// After so many intervals of silence a node may take the last token.
const PATIENCE: u64 = 4;

/// One report costs so many parts of a token.
const COST: u64 = 1_000_000;

/// How long nodes are asked to report half as often after something was shed.
const RELIEF: Duration = Duration::from_secs(30);

/// A bucket of tokens, one for a report.
#[derive(Debug)]
pub struct Admission {
    rate: u64,
    tokens: u64,
    filled: Duration,
    shed: Option<Duration>,
}

/// Whether a report is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It is.
    Taken,
    /// Not now.
    Shed {
        /// After so many seconds.
        retry_after: u64,
    },
}

impl Admission {
    /// Takes `rate` reports a second, and as many at once.
    pub fn new(rate: u32) -> Self {
        let rate = u64::from(rate.max(1));
        Self { rate, tokens: rate * COST, filled: Duration::ZERO, shed: None }
    }

    /// Decides on a report at `now` of a node that is to report each `interval` and was heard `silent` ago (`None`: never).
    pub fn admit(&mut self, now: Duration, silent: Option<Duration>, interval: Duration) -> Admitted {
        let most = self.rate * COST;
        let passed = now.saturating_sub(self.filled).as_micros();
        let fresh = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(self.rate);
        self.tokens = self.tokens.saturating_add(fresh).min(most);
        self.filled = self.filled.max(now);
        // In thousandths of the patience; nobody who was never heard waits.
        let patience = interval.as_millis().max(1).saturating_mul(PATIENCE.into());
        let waited = silent.map_or(1_000, |silent| silent.as_millis().saturating_mul(1_000) / patience);
        // A quarter is for all: a node whose delta was refused sends a full report at once.
        let floor = most / 4 * 3 / 1_000 * (1_000 - u64::try_from(waited).unwrap_or(1_000).min(1_000));
        if self.tokens >= floor.max(COST) {
            self.tokens -= COST;
            return Admitted::Taken;
        }
        self.shed = Some(now);
        Admitted::Shed { retry_after: (interval.as_secs() / 2).max(1) }
    }

    /// The interval that nodes are asked for: twice theirs for a while after something was shed.
    pub fn interval(&self, now: Duration, interval: Duration) -> Duration {
        let strained = self.shed.is_some_and(|shed| now.saturating_sub(shed) < RELIEF);
        if strained { interval * 2 } else { interval }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[test]
    fn the_longer_unheard_come_first() {
        let mut admission = Admission::new(8);
        let now = Duration::from_secs(100);
        let mut after =
            |seconds: Option<u64>| admission.admit(now, seconds.map(Duration::from_secs), INTERVAL);
        for _ in 0..4 {
            assert_eq!(after(Some(10)), Admitted::Taken);
        }
        assert_eq!(after(Some(10)), Admitted::Shed { retry_after: 5 }, "four of eight tokens are left");
        for _ in 0..2 {
            assert_eq!(after(Some(20)), Admitted::Taken);
        }
        assert_eq!(after(Some(20)), Admitted::Shed { retry_after: 5 });
        for seconds in [Some(40), None] {
            assert_eq!(after(seconds), Admitted::Taken);
        }
        assert_eq!(after(None), Admitted::Shed { retry_after: 5 });
    }

    /// At three times what can be taken, every node gets through at least each few intervals: nobody starves.
    #[test]
    fn nobody_starves_at_three_times_the_rate() {
        let (nodes, mut admission) = (300_usize, Admission::new(10));
        let mut last = vec![None; nodes];
        for tick in 0..20_000_u64 {
            let now = Duration::from_millis(tick * 33);
            let node = usize::try_from(tick).unwrap() % nodes;
            let silent = last[node].map(|at: Duration| now.saturating_sub(at));
            if admission.admit(now, silent, INTERVAL) == Admitted::Taken {
                last[node] = Some(now);
            }
        }
        let end = Duration::from_mins(11);
        let worst = last.iter().map(|at| end.saturating_sub(at.expect("never taken"))).max().unwrap();
        assert!(worst < 8 * INTERVAL, "{worst:?}");
    }

    #[test]
    fn nodes_slow_down_for_a_while() {
        let mut admission = Admission::new(1);
        let now = Duration::from_secs(1);
        assert_eq!(admission.interval(now, INTERVAL), INTERVAL);
        admission.admit(now, None, INTERVAL);
        admission.admit(now, None, INTERVAL);
        assert_eq!(admission.interval(now, INTERVAL), 2 * INTERVAL);
        assert_eq!(admission.interval(now + RELIEF, INTERVAL), INTERVAL);
    }
}

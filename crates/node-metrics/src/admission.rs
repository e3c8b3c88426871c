//! Which reports are shed when more come than can be taken: pure. The longer a node was not heard, the emptier the bucket may be that it
//! still takes from, so that a shed node is among the first to be taken next time. Who asks out of turn has no such claim, whatever it was
//! told before, so that nobody who is loud keeps others out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// After so many intervals of silence a node may take the last token.
const PATIENCE: u64 = 4;

/// Who asks again within this part of its interval asks out of turn: a node that was shed waits for half of it.
const TURN: u32 = 4;

/// One report costs so many parts of a token.
const COST: u64 = 1_000_000;

/// How long nodes are asked to report half as often after something was shed.
const RELIEF: Duration = Duration::from_secs(30);

/// Who has not asked for so long is forgotten: longer than any interval of reports.
const MEMORY: Duration = Duration::from_mins(20);

/// A bucket of tokens, one for a report, and who asked when.
#[derive(Debug)]
pub struct Admission {
    rate: u64,
    tokens: u64,
    filled: Duration,
    shed: Option<Duration>,
    epoch: u64,
    /// When each node last asked in this term, whatever it was told. Of Nodes alone, so there are no more of them.
    asked: HashMap<Arc<str>, Duration>,
    forgot: Duration,
}

/// Who would report.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The name in the certificate.
    pub name: &'a Arc<str>,
    /// The leader's term.
    pub epoch: u64,
    /// Whether there is such a Node.
    pub is_node: bool,
    /// How long ago it was heard in this term (`None`: never).
    pub silent: Option<Duration>,
    /// How often it is to report.
    pub interval: Duration,
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
        let (filled, forgot) = (Duration::ZERO, Duration::ZERO);
        Self { rate, tokens: rate * COST, filled, shed: None, epoch: 0, asked: HashMap::new(), forgot }
    }

    /// Decides on a report at `now`. The first of each node to a leader takes no token: they come all at once, from those who lost the one
    /// before, and until they are in the leader knows too little.
    pub fn admit(&mut self, now: Duration, asking: &Asking<'_>) -> Admitted {
        let most = self.rate * COST;
        let passed = now.saturating_sub(self.filled).as_micros();
        let fresh = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(self.rate);
        self.tokens = self.tokens.saturating_add(fresh).min(most);
        self.filled = self.filled.max(now);
        let Asking { silent, interval, is_node, .. } = *asking;
        let asked = self.asks(now, asking);
        if is_node && asked.is_none() && silent.is_none() {
            return Admitted::Taken;
        }
        let in_turn = is_node && asked.is_none_or(|asked| now.saturating_sub(asked) >= interval / TURN);
        // In thousandths of the patience; nobody who was never heard waits.
        let patience = interval.as_millis().max(1).saturating_mul(PATIENCE.into());
        let waited = silent.map_or(1_000, |silent| silent.as_millis().saturating_mul(1_000) / patience);
        let waited = u64::try_from(waited).unwrap_or(1_000).min(1_000) * u64::from(in_turn);
        // A quarter is for all: a node whose delta was refused sends a full report at once.
        let floor = most / 4 * 3 / 1_000 * (1_000 - waited);
        if self.tokens >= floor.max(COST) {
            self.tokens -= COST;
            return Admitted::Taken;
        }
        // Who asks out of turn is no reason for all to report less often.
        if in_turn {
            self.shed = Some(now);
        }
        Admitted::Shed { retry_after: (interval.as_secs() / 2).max(1) }
    }

    /// Notes that somebody asks, and returns when it did before.
    fn asks(&mut self, now: Duration, asking: &Asking<'_>) -> Option<Duration> {
        if self.epoch != asking.epoch {
            self.epoch = asking.epoch;
            self.asked.clear();
        }
        if now.saturating_sub(self.forgot) > MEMORY {
            self.forgot = now;
            self.asked.retain(|_, asked| now.saturating_sub(*asked) <= MEMORY);
        }
        if !asking.is_node {
            return None;
        }
        if let Some(asked) = self.asked.get_mut(asking.name) {
            return Some(std::mem::replace(asked, now));
        }
        self.asked.insert(Arc::clone(asking.name), now)
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

    /// A node that asks, and was heard so long ago.
    fn asking(name: &Arc<str>, silent: Option<Duration>) -> Asking<'_> {
        Asking { name, epoch: 1, is_node: true, silent, interval: INTERVAL }
    }

    fn name(number: usize) -> Arc<str> {
        format!("n{number}").into()
    }

    #[test]
    fn the_longer_unheard_come_first() {
        let mut admission = Admission::new(8);
        let now = Duration::from_secs(100);
        let mut names = 0;
        let mut after = |seconds: u64| {
            names += 1;
            admission.admit(now, &asking(&name(names), Some(Duration::from_secs(seconds))))
        };
        for _ in 0..4 {
            assert_eq!(after(10), Admitted::Taken);
        }
        assert_eq!(after(10), Admitted::Shed { retry_after: 5 }, "four of eight tokens are left");
        for _ in 0..2 {
            assert_eq!(after(20), Admitted::Taken);
        }
        assert_eq!(after(20), Admitted::Shed { retry_after: 5 });
        for _ in 0..2 {
            assert_eq!(after(40), Admitted::Taken);
        }
        assert_eq!(after(40), Admitted::Shed { retry_after: 5 });
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
            if admission.admit(now, &asking(&name(node), silent)) == Admitted::Taken {
                last[node] = Some(now);
            }
        }
        let end = Duration::from_mins(11);
        let worst = last.iter().map(|at| end.saturating_sub(at.expect("never taken"))).max().unwrap();
        assert!(worst < 8 * INTERVAL, "{worst:?}");
    }

    /// One that is never heard, as its reports are refused, and one whose Node there is not: each asks ten times as often as can be taken.
    #[test]
    fn nobody_who_is_loud_keeps_others_out() {
        for is_node in [true, false] {
            let (loud, nodes) = (Arc::from("loud"), 50);
            let mut admission = Admission::new(10);
            let mut taken_of_loud = 0;
            for tick in 0..12_000_u64 {
                let now = Duration::from_millis(tick * 10);
                let is_taken =
                    admission.admit(now, &Asking { is_node, ..asking(&loud, None) }) == Admitted::Taken;
                taken_of_loud += u32::from(is_taken);
                // Fifty nodes, each 10 s after its last report: half of what can be taken.
                let of_others = usize::try_from(tick).unwrap();
                if of_others.is_multiple_of(20) {
                    let other = name(of_others / 20 % nodes);
                    let admitted = admission.admit(now, &asking(&other, Some(INTERVAL)));
                    assert_eq!(admitted, Admitted::Taken, "{other} at {now:?}, is_node: {is_node}");
                }
                assert_eq!(admission.interval(now, INTERVAL), INTERVAL, "nobody else reports less often");
            }
            assert!((100..=700).contains(&taken_of_loud), "what others leave: {taken_of_loud}");
        }
    }

    /// All nodes of a large cluster come to a new leader within half a second, more than are taken in one otherwise.
    #[test]
    fn each_node_is_taken_once_by_a_new_leader() {
        let (nodes, mut admission) = (5_000, Admission::new(2_000));
        for epoch in [1, 2] {
            let begin = Duration::from_secs(100 * epoch);
            for node in 0..nodes {
                let now = begin + Duration::from_micros(100) * u32::try_from(node).unwrap();
                let name = name(node);
                let first = Asking { epoch, ..asking(&name, None) };
                assert_eq!(admission.admit(now, &first), Admitted::Taken, "{node} in term {epoch}");
            }
            assert_eq!(admission.interval(begin, INTERVAL), INTERVAL, "no reason to report less often");
            let mut admit =
                |node: usize| admission.admit(begin, &Asking { epoch, ..asking(&name(node), None) });
            let taken = (0..nodes).filter(|node| admit(*node) == Admitted::Taken).count();
            assert!(taken <= 2_000, "{taken} a second time");
        }
    }

    #[test]
    fn nodes_slow_down_for_a_while() {
        let mut admission = Admission::new(1);
        let now = Duration::from_secs(1);
        assert_eq!(admission.interval(now, INTERVAL), INTERVAL);
        for node in 0..2 {
            admission.admit(now, &asking(&name(node), Some(INTERVAL)));
        }
        assert_eq!(admission.interval(now, INTERVAL), 2 * INTERVAL);
        assert_eq!(admission.interval(now + RELIEF, INTERVAL), INTERVAL);
    }

    #[test]
    fn who_asks_no_more_is_forgotten() {
        let mut admission = Admission::new(1);
        for node in 0..100 {
            admission.admit(Duration::from_secs(1), &asking(&name(node), None));
        }
        assert_eq!(admission.asked.len(), 100);
        let mut later = Duration::from_secs(2);
        for _ in 0..3 {
            later += MEMORY;
            admission.admit(later, &asking(&name(0), Some(INTERVAL)));
        }
        assert_eq!(admission.asked.len(), 1);
    }
}

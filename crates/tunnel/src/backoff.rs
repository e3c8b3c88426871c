//! How long to wait before a link is dialled again. Pure: the random number and the times come in.
//!
//! Full jitter: anything between nothing and a ceiling that doubles, so that ten thousand nodes that lost a gateway do not
//! come back together.
//!
//! That spares who answers. Where nobody answers, because the line is cut, there is nobody to spare, and how soon a node is back is how soon it
//! tries after the line is there again: so it tries every second or so, and of a cut that lasts ever more rarely, by a share of its length. Too
//! many that come back at a time a gateway refuses, which is an answer.

use std::time::Duration;

/// The bounds of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The ceiling of the first wait.
    pub first: Duration,
    /// The highest ceiling, whoever answers.
    pub longest: Duration,
    /// A link that was up for so long counts as having worked.
    pub healthy: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            healthy: Duration::from_mins(1),
        }
    }
}

/// How often it is tried soon again that another gateway answered: behind a balancer that takes each in turn, or any by chance, that is
/// enough for many. One that sends a client always to the same goes on.
const SOON: u32 = 16;

/// What part of the time that nobody has answered passes until the next try.
const SHARE: u32 = 20;

/// How soon one that has not answered is asked once more, beside the first question: the kernel waits twice as long each time. Nobody has answered
/// for `outage`.
pub(crate) fn once_more(outage: Duration) -> Duration {
    (outage / SHARE).max(Duration::from_secs(1))
}

/// Failures in a row, and answers of others in a row, which are none.
#[derive(Debug, Clone)]
pub struct Backoff {
    limits: Limits,
    failures: u32,
    others: u32,
}

impl Backoff {
    /// No failure yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, failures: 0, others: 0 }
    }

    /// An attempt failed, or a link broke that was up for `lasted`. Gives how long to wait; `random` is in 0..1.
    pub fn failed(&mut self, lasted: Duration, random: f64) -> Duration {
        if lasted >= self.limits.healthy {
            self.failures = 0;
        }
        if !lasted.is_zero() {
            self.others = 0;
        }
        let ceiling = self.ceiling();
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(random.clamp(0.0, 1.0))
    }

    /// Another gateway than the wanted one answered at the address that they share. Gives how long to wait: about the first ceiling, and
    /// after many tries about the highest. `random` is in 0..1.
    pub fn other_answered(&mut self, random: f64) -> Duration {
        let about = if self.others < SOON { self.limits.first } else { self.limits.longest };
        self.others = self.others.saturating_add(1);
        about.mul_f64(random.clamp(0.0, 1.0).midpoint(1.0))
    }

    /// Nobody has answered for `outage`. Gives how long to wait; `random` is in 0..1.
    pub fn unanswered(&self, outage: Duration, random: f64) -> Duration {
        let ceiling = (outage / SHARE).max(self.limits.first).min(self.limits.longest);
        ceiling.mul_f64(random.clamp(0.0, 1.0))
    }

    fn ceiling(&self) -> Duration {
        let doubled =
            2_u32.checked_pow(self.failures).and_then(|factor| self.limits.first.checked_mul(factor));
        doubled.map_or(self.limits.longest, |ceiling| ceiling.min(self.limits.longest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ceilings_double_to_the_longest_and_health_forgets() {
        let mut backoff = Backoff::new(Limits::default());
        let waits: Vec<_> = (0..8).map(|_| backoff.failed(Duration::ZERO, 1.0).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        assert_eq!(backoff.failed(Duration::from_secs(59), 1.0).as_millis(), 30000);
        assert_eq!(backoff.failed(Duration::from_mins(1), 1.0).as_millis(), 500);
    }

    #[test]
    fn answers_of_others_are_no_failures() {
        let mut backoff = Backoff::new(Limits::default());
        for _ in 0..SOON {
            assert_eq!(backoff.other_answered(1.0).as_millis(), 500);
        }
        assert_eq!(backoff.other_answered(1.0).as_millis(), 30_000);
        assert_eq!(backoff.other_answered(0.0).as_millis(), 15_000);
        // The wanted one is away, too; then it answered.
        assert_eq!(backoff.failed(Duration::ZERO, 1.0).as_millis(), 500);
        assert_eq!(backoff.other_answered(1.0).as_millis(), 30_000);
        assert_eq!(backoff.failed(Duration::from_secs(1), 1.0).as_millis(), 1000);
        assert_eq!(backoff.other_answered(0.0).as_millis(), 250);
    }

    proptest! {
        /// Whatever happens: a share of the ceiling as the dice say, which doubles with each failure in a row up to the longest, and begins
        /// anew after a link that was up for long enough.
        #[test]
        fn waits_are_a_share_of_what_the_failures_in_a_row_say(
            steps in proptest::collection::vec((0_u64..200_000, 0.0_f64..1.0, any::<bool>()), 0..200),
        ) {
            let limits = Limits::default();
            let mut backoff = Backoff::new(limits);
            let mut in_a_row = 0;
            for (lasted, random, answered) in steps {
                let lasted = Duration::from_millis(lasted);
                if !answered {
                    // Of the line, and not of the gateway.
                    prop_assert!(backoff.unanswered(lasted, random) <= limits.longest);
                    continue;
                }
                in_a_row = if lasted >= limits.healthy { 0 } else { in_a_row };
                let ceiling = 30.0_f64.min(0.5 * 2_f64.powi(in_a_row));
                in_a_row += 1;
                let wait = backoff.failed(lasted, random).as_secs_f64();
                prop_assert!((wait - ceiling * random).abs() < 1e-6, "{wait} of {ceiling}");
            }
        }

        /// A line that is cut for so long, and dialled as the agent does: after it is there again the next question comes within two seconds if that was
        /// no more than twenty, and within an eighth of its length, or what an attempt and a wait may last, if it was more.
        #[test]
        fn a_line_that_is_there_again_is_noticed_soon(
            cut in 0_u64..3_600_000, dice in proptest::collection::vec(0.0_f64..1.0, 64),
        ) {
            const ATTEMPT: Duration = Duration::from_secs(10);
            let (limits, cut) = (Limits::default(), Duration::from_millis(cut));
            let backoff = Backoff::new(limits);
            let mut dice = dice.iter().cycle();
            let mut now = Duration::ZERO;
            let asked = 'asked: loop {
                let (spacing, ends) = (once_more(now), now + ATTEMPT);
                while now < ends {
                    if now >= cut {
                        break 'asked now;
                    }
                    now += spacing;
                }
                now = ends + backoff.unanswered(ends, *dice.next().unwrap());
            };
            let short = Duration::from_secs(2);
            let bound = if cut <= Duration::from_secs(20) { short } else { (cut / 8).max(short) };
            let late = asked.abs_diff(cut);
            prop_assert!(late <= bound.min(ATTEMPT + limits.longest), "asked {late:?} after a cut of {cut:?}");
        }
    }
}

//! How long to wait before a link is dialled again. Pure: the random number and the times come in.
//!
//! Full jitter: anything between nothing and a ceiling that doubles, so that ten thousand nodes that lost a gateway do not
//! come back together.
//!
//! That spares a gateway that answers. Where none does there is none to spare, and how soon a node is back is how soon it tries after the way
//! is there again. Of that there are two kinds:
//! - Silence: the line is cut. It is tried every second or so, and of a cut that lasts ever more rarely, by a share of its length.
//! - Absence: somebody on the way says that there is no gateway: a kernel by RST, a proxy by 502, a resolver, a balancer that has none behind it.
//!   That costs them little, but they are there and may be asked by many: waits double as after a refusal, and are never short for long.
//!
//! Either way a gateway that is there again is asked within fifteen seconds, unless it was away for more than an hour. Too many that come back
//! at a time it refuses, which is an answer.

use std::time::Duration;

/// The bounds of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The ceiling of the first wait.
    pub first: Duration,
    /// The highest ceiling, whoever answers.
    pub longest: Duration,
    /// The highest ceiling where no gateway is there, until it was away for long.
    pub away: Duration,
    /// A link that was up for so long counts as having worked.
    pub healthy: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            away: Duration::from_secs(8),
            healthy: Duration::from_mins(1),
        }
    }
}

/// How often it is tried soon again that another gateway answered: behind a balancer that takes each in turn, or any by chance, that is
/// enough for many. One that sends a client always to the same goes on.
const SOON: u32 = 16;

/// What part of the time that nobody has answered passes until the next try.
const SHARE: u32 = 20;

/// What part of the time that no gateway was there the ceiling is once that is more than [`Limits::away`]: after an hour.
const SHARE_OF_LONG: u32 = 450;

/// How soon one that has not answered is asked once more, beside the first question: the kernel waits twice as long each time. Nobody has answered
/// for `outage`.
pub(crate) fn once_more(outage: Duration) -> Duration {
    (outage / SHARE).clamp(Duration::from_secs(1), Duration::from_secs(5))
}

/// Why there is no link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// Nobody answers, or no more.
    Silence,
    /// Somebody says that no gateway is there; or there was a link, which broke.
    Absence,
    /// A gateway does not want it, or is none.
    Refusal,
}

/// Refusals in a row, absences in a row, and answers of others in a row, which are neither.
#[derive(Debug, Clone)]
pub struct Backoff {
    limits: Limits,
    failures: u32,
    absences: u32,
    others: u32,
}

impl Backoff {
    /// No failure yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, failures: 0, absences: 0, others: 0 }
    }

    /// A gateway refused, and there was no link. Gives how long to wait; `random` is in 0..1.
    pub fn refused(&mut self, random: f64) -> Duration {
        let ceiling = self.ceiling(self.failures, self.limits.longest);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(random.clamp(0.0, 1.0))
    }

    /// No gateway was there, for `outage` now, as an attempt found out that took so long. Gives how long to wait: between half of the ceiling and
    /// the whole of it, less what the attempt took; `random` is in 0..1.
    pub fn absent(&mut self, outage: Duration, took: Duration, random: f64) -> Duration {
        let ceiling = self.ceiling(self.absences, self.longest_away(outage));
        self.absences = self.absences.saturating_add(1);
        let left = ceiling.saturating_sub(took).max(ceiling / 4);
        left.mul_f64(random.clamp(0.0, 1.0).midpoint(1.0))
    }

    /// There was a link, for so long. What came before is forgotten if that was long enough.
    pub fn was_up(&mut self, lasted: Duration) {
        self.others = 0;
        self.failures = 0;
        if lasted >= self.limits.healthy {
            self.absences = 0;
        }
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
        let ceiling = (outage / SHARE).clamp(self.limits.first, self.longest_away(outage));
        ceiling.mul_f64(random.clamp(0.0, 1.0))
    }

    /// The highest ceiling where no gateway has been there for `outage`.
    fn longest_away(&self, outage: Duration) -> Duration {
        (outage / SHARE_OF_LONG).clamp(self.limits.away.min(self.limits.longest), self.limits.longest)
    }

    fn ceiling(&self, in_a_row: u32, longest: Duration) -> Duration {
        let doubled = 2_u32.checked_pow(in_a_row).and_then(|factor| self.limits.first.checked_mul(factor));
        doubled.map_or(longest, |ceiling| ceiling.min(longest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ceilings_double_to_the_longest_and_a_link_forgets() {
        let mut backoff = Backoff::new(Limits::default());
        let mut waits = |number| (0..number).map(|_| backoff.refused(1.0).as_millis()).collect::<Vec<_>>();
        assert_eq!(waits(8), [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        backoff.was_up(Duration::from_secs(1));
        assert_eq!(backoff.refused(1.0).as_millis(), 500);
    }

    #[test]
    fn who_is_away_is_asked_often_enough_but_not_at_once_for_ever() {
        let mut backoff = Backoff::new(Limits::default());
        let at_once = |backoff: &mut Backoff, outage| backoff.absent(outage, Duration::ZERO, 1.0).as_millis();
        let waits: Vec<_> = (0..6).map(|_| at_once(&mut backoff, Duration::ZERO)).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!(backoff.absent(Duration::ZERO, Duration::ZERO, 0.0).as_millis(), 4000);
        // An attempt that took long was a wait, too.
        assert_eq!(backoff.absent(Duration::ZERO, Duration::from_secs(5), 1.0).as_millis(), 3000);
        assert_eq!(backoff.absent(Duration::ZERO, Duration::from_secs(10), 1.0).as_millis(), 2000);
        // A gateway that takes links and breaks them is as one that is away; a link that lasts shows that it is not.
        backoff.was_up(Duration::from_secs(59));
        assert_eq!(at_once(&mut backoff, Duration::ZERO), 8000);
        backoff.was_up(Duration::from_mins(1));
        assert_eq!(at_once(&mut backoff, Duration::ZERO), 500);
        // It does not return with the longest wait of a refusal, nor that with its own.
        assert_eq!(backoff.refused(1.0).as_millis(), 500);
        let mut gone = Backoff::new(Limits::default());
        let after =
            |gone: &mut Backoff, hours| (0..9).map(|_| at_once(gone, Duration::from_hours(hours))).max();
        assert_eq!([1, 2, 5].map(|hours| after(&mut gone, hours)), [Some(8000), Some(16_000), Some(30_000)]);
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
        assert_eq!(backoff.absent(Duration::ZERO, Duration::ZERO, 1.0).as_millis(), 500);
        assert_eq!(backoff.other_answered(1.0).as_millis(), 30_000);
        backoff.was_up(Duration::from_secs(1));
        assert_eq!(backoff.other_answered(0.0).as_millis(), 250);
    }

    proptest! {
        /// Whatever happens: a share of the ceiling as the dice say, which doubles with each refusal in a row up to the longest, and begins
        /// anew after a link; absences have a ceiling of their own, and are never waited for less than half of it.
        #[test]
        fn waits_are_a_share_of_what_the_failures_in_a_row_say(
            steps in proptest::collection::vec((0_u64..200_000, 0.0_f64..1.0, 0..4), 0..200),
        ) {
            let limits = Limits::default();
            let mut backoff = Backoff::new(limits);
            let (mut refusals, mut absences) = (0, 0);
            for (time, random, what) in steps {
                let time = Duration::from_millis(time);
                match what {
                    0 => prop_assert!(backoff.unanswered(time, random) <= limits.away),
                    1 => {
                        backoff.was_up(time);
                        refusals = 0;
                        absences = if time >= limits.healthy { 0 } else { absences };
                    }
                    2 => {
                        let ceiling = 8.0_f64.min(0.5 * 2_f64.powi(absences));
                        absences += 1;
                        let wait = backoff.absent(time, Duration::ZERO, random).as_secs_f64();
                        prop_assert!((ceiling / 2.0..=ceiling).contains(&wait), "{wait} of {ceiling}");
                    }
                    _ => {
                        let ceiling = 30.0_f64.min(0.5 * 2_f64.powi(refusals));
                        refusals += 1;
                        let wait = backoff.refused(random).as_secs_f64();
                        prop_assert!((wait - ceiling * random).abs() < 1e-6, "{wait} of {ceiling}");
                    }
                }
            }
        }

        /// A gateway that is away for up to an hour, as somebody says after a time that attempts take: it is asked within fifteen seconds after it
        /// is there, and until then no more often than each four seconds, but for the first few times.
        #[test]
        fn a_gateway_that_is_there_again_is_asked_soon_and_was_not_pestered(
            away in 0_u64..3_600_000,
            dice in proptest::collection::vec((0_u64..=10_000, 0.0_f64..1.0), 64),
            at_once in any::<bool>(),
        ) {
            let away = Duration::from_millis(away);
            let mut backoff = Backoff::new(Limits::default());
            let mut dice = dice.iter().cycle();
            let (mut now, mut asked) = (Duration::ZERO, 0_u32);
            while now < away {
                asked += 1;
                let (took, random) = *dice.next().unwrap();
                let took = if at_once { Duration::ZERO } else { Duration::from_millis(took) };
                now += took;
                now += backoff.absent(now, took, random);
            }
            let late = now.abs_diff(away);
            prop_assert!(late <= Duration::from_secs(15), "asked {late:?} after it was away for {away:?}");
            let often = 6 + away.as_secs() / 4;
            prop_assert!(u64::from(asked) <= often || !at_once, "{asked} times in {away:?}");
        }

        /// A line that is cut for so long, and dialled as the agent does: after it is there again the next question comes within two seconds if that was
        /// no more than twenty, and within an eighth of its length, or fourteen seconds, if it was more.
        #[test]
        fn a_line_that_is_there_again_is_noticed_soon(
            cut in 0_u64..3_600_000, dice in proptest::collection::vec(0.0_f64..1.0, 64),
        ) {
            const ATTEMPT: Duration = Duration::from_secs(10);
            let cut = Duration::from_millis(cut);
            let backoff = Backoff::new(Limits::default());
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
            prop_assert!(late <= bound.min(Duration::from_secs(14)), "asked {late:?} after a cut of {cut:?}");
        }
    }
}

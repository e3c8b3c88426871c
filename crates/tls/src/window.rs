//! When a certificate is to be renewed: pure, from its validity, the wall clock and a jitter, all given.
//!
//! The wall clock counts and not a timer, because validity is in wall-clock time and a timer drifts when a machine
//! sleeps. Callers look again every few minutes and so follow steps of the clock.

use std::time::Duration;

use jiff::Timestamp;

use crate::digest::Sha256Digest;

/// From when until when a certificate is valid, both inclusive (RFC 5280, 4.1.2.5), to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first moment at which it is valid.
    pub not_before: Timestamp,
    /// The last moment at which it is valid.
    pub not_after: Timestamp,
}

/// Where in its life a certificate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Not valid before a moment that is still to come: it was made under a clock that ran ahead.
    NotYetValid,
    /// Valid, and nothing is to be done before `renew_at`.
    Fresh {
        /// When to renew.
        renew_at: Timestamp,
    },
    /// Valid, but it is time for the next one.
    Renew,
    /// No longer valid.
    Expired,
}

/// How much earlier than at two thirds of its life a certificate is renewed: so many 65536ths of a tenth of its life.
/// Spreads the renewals of certificates that were made together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jitter(pub u16);

impl Jitter {
    /// Renew at two thirds exactly.
    pub const NONE: Self = Self(0);

    /// A jitter that is a certificate's own: random among certificates and constant for one, so that asking twice
    /// gives one answer.
    pub fn of(fingerprint: &Sha256Digest) -> Self {
        let [high, low, ..] = *fingerprint.as_bytes();
        Self(u16::from_be_bytes([high, low]))
    }
}

impl Validity {
    /// When a certificate of this validity is to be renewed: at two thirds of its life, less the jitter.
    pub fn renew_at(&self, jitter: Jitter) -> Timestamp {
        let life = (self.not_after.as_second() - self.not_before.as_second()).max(0);
        let early = i128::from(life) * i128::from(jitter.0) / (10 << 16);
        // A tenth of a life that is an i64 is an i64.
        let early = i64::try_from(early).unwrap_or(life);
        let second = self.not_before.as_second() + life / 3 * 2 + life % 3 * 2 / 3 - early;
        Timestamp::from_second(second).unwrap_or(self.not_after)
    }

    /// Where in its life a certificate of this validity is.
    pub fn window(&self, now: Timestamp, jitter: Jitter) -> Window {
        let renew_at = self.renew_at(jitter);
        if now > self.not_after {
            Window::Expired
        } else if now < self.not_before {
            Window::NotYetValid
        } else if now >= renew_at {
            Window::Renew
        } else {
            Window::Fresh { renew_at }
        }
    }

    /// Whether it is valid at `now`.
    pub fn contains(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// How long it is from `now` until `then`; zero if that is past.
pub fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn table() {
        let validity = Validity { not_before: at(1000), not_after: at(1900) };
        let cases = [
            (999, Jitter::NONE, Window::NotYetValid),
            (1000, Jitter::NONE, Window::Fresh { renew_at: at(1600) }),
            (1599, Jitter::NONE, Window::Fresh { renew_at: at(1600) }),
            (1600, Jitter::NONE, Window::Renew),
            (1900, Jitter::NONE, Window::Renew),
            (1901, Jitter::NONE, Window::Expired),
            (1554, Jitter(1 << 15), Window::Fresh { renew_at: at(1555) }),
            (1555, Jitter(1 << 15), Window::Renew),
        ];
        for (now, jitter, expected) in cases {
            assert_eq!(validity.window(at(now), jitter), expected, "now {now}, {jitter:?}");
        }
    }

    #[test]
    fn a_certificate_without_a_life_is_never_fresh() {
        let validity = Validity { not_before: at(10), not_after: at(10) };
        assert_eq!(validity.window(at(10), Jitter::NONE), Window::Renew);
        let reversed = Validity { not_before: at(10), not_after: at(5) };
        assert_eq!(reversed.window(at(7), Jitter::NONE), Window::Expired);
    }

    #[test]
    fn until_the_past_is_zero() {
        assert_eq!(until(at(10), at(12)), Duration::from_secs(2));
        assert_eq!(until(at(10), at(9)), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn windows_follow_each_other(
            start in -62_135_596_800_i64..150_000_000_000,
            life in 0_i64..40_000_000_000,
            jitter: u16,
            first in -100_000_i64..45_000_000_000,
            later in 0_i64..45_000_000_000,
        ) {
            fn rank(window: Window) -> u8 {
                match window {
                    Window::NotYetValid => 0,
                    Window::Fresh { .. } => 1,
                    Window::Renew => 2,
                    Window::Expired => 3,
                }
            }
            let validity = Validity { not_before: at(start), not_after: at(start + life) };
            let jitter = Jitter(jitter);
            let (now, then) = (at(start + first), at(start + first + later));
            prop_assert!(rank(validity.window(now, jitter)) <= rank(validity.window(then, jitter)));
        }

        #[test]
        fn renewal_is_between_half_and_two_thirds_of_a_life(
            start in -62_135_596_800_i64..200_000_000_000,
            life in 0_i64..40_000_000_000,
            jitter: u16,
        ) {
            let validity = Validity { not_before: at(start), not_after: at(start + life) };
            let renew_at = validity.renew_at(Jitter(jitter)).as_second() - start;
            prop_assert!(renew_at * 2 >= life - 2, "{renew_at} of {life}");
            prop_assert!(renew_at * 3 <= life * 2, "{renew_at} of {life}");
        }

        #[test]
        fn valid_windows_are_those_that_contain_now(
            now in 0_i64..4000, start in 0_i64..2000, life in 0_i64..2000, jitter: u16,
        ) {
            let validity = Validity { not_before: at(start), not_after: at(start + life) };
            let valid = matches!(validity.window(at(now), Jitter(jitter)), Window::Fresh { .. } | Window::Renew);
            prop_assert_eq!(valid, validity.contains(at(now)));
        }
    }
}

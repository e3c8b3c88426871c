//! What to do about the hub's own certificate: pure, from what there is and the time.

use std::time::Duration;

use jiff::Timestamp;
use tls::window::{Jitter, Validity, until};

/// What the hub begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    /// Its own certificate.
    Own,
    /// The kubelet's, or another that was given.
    Given,
    /// None, and why.
    Nothing(String),
}

/// What there is to decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Situation {
    /// The own certificate that is in the files, usable or expired, and its jitter.
    pub(super) own: Option<(Validity, Jitter)>,
    /// Whether the kubelet's certificate can be used.
    pub(super) given: bool,
    /// Whether there is a bootstrap token.
    pub(super) token: bool,
    /// Whether a new certificate was asked for by an operator.
    pub(super) forced: bool,
}

/// With what to ask for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum With {
    /// The own certificate, which is still valid.
    Own,
    /// The kubelet's.
    Given,
    /// The bootstrap token.
    Token,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing for so long.
    Rest(Duration),
    /// Ask for the next certificate.
    Ask(With),
    /// Nothing can be done before somebody brings a token.
    Stuck {
        /// Whether there was a certificate.
        expired: bool,
    },
}

/// The longest rest: by then the clock may have been set, or a file been put there.
pub(super) const LONGEST: Duration = Duration::from_mins(1);

/// When a certificate is to be renewed: at 70 to 90 % of its life, each certificate at a moment of its own.
pub(super) fn renew_at(validity: Validity, jitter: Jitter) -> Timestamp {
    let start = validity.not_before.as_second();
    let life = i128::from((validity.not_after.as_second() - start).max(0));
    let after = life * 7 / 10 + life * i128::from(jitter.0) * 2 / (10 << 16);
    // Within a life that is an i64.
    let second = start.saturating_add(i64::try_from(after).unwrap_or(i64::MAX));
    Timestamp::from_second(second).unwrap_or(validity.not_after)
}

/// The next step.
pub(super) fn next(situation: Situation, now: Timestamp) -> Step {
    let Situation { own, given, token, forced } = situation;
    match own {
        // A clock that stands before its beginning is wrong, as after a start without a battery: the server's clock counts.
        Some((validity, jitter)) if now <= validity.not_after => {
            let at = renew_at(validity, jitter);
            if forced || at <= now { Step::Ask(With::Own) } else { Step::Rest(until(now, at).min(LONGEST)) }
        }
        _ if given => Step::Ask(With::Given),
        _ if token => Step::Ask(With::Token),
        _ => Step::Stuck { expired: own.is_some() },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn own() -> (Validity, Jitter) {
        (Validity { not_before: at(1000), not_after: at(2000) }, Jitter(1 << 15))
    }

    #[test]
    fn table() {
        let rest = |seconds| Step::Rest(Duration::from_secs(seconds));
        let cases = [
            (None, false, false, false, 0, Step::Stuck { expired: false }),
            (None, false, true, false, 0, Step::Ask(With::Token)),
            (None, true, true, false, 0, Step::Ask(With::Given)),
            (Some(own()), true, true, false, 1000, rest(60)),
            (Some(own()), true, true, false, 1790, rest(10)),
            (Some(own()), true, true, false, 1800, Step::Ask(With::Own)),
            (Some(own()), true, true, true, 1000, Step::Ask(With::Own)),
            (Some(own()), true, true, false, 2000, Step::Ask(With::Own)),
            // Expired.
            (Some(own()), true, true, false, 2001, Step::Ask(With::Given)),
            (Some(own()), false, true, true, 2001, Step::Ask(With::Token)),
            (Some(own()), false, false, false, 2001, Step::Stuck { expired: true }),
            // A clock that is behind.
            (Some(own()), true, true, false, 0, rest(60)),
        ];
        for (own, given, token, forced, now, expected) in cases {
            let situation = Situation { own, given, token, forced };
            assert_eq!(next(situation, at(now)), expected, "{situation:?} at {now}");
        }
    }

    proptest! {
        #[test]
        fn renewal_is_between_70_and_90_percent(start in 0_i64..4_000_000_000, life in 0_i64..400_000_000, jitter: u16) {
            let validity = Validity { not_before: at(start), not_after: at(start + life) };
            let after = renew_at(validity, Jitter(jitter)).as_second() - start;
            prop_assert!(after * 10 >= life * 7 - 10 && after * 10 <= life * 9, "{after} of {life}");
        }

        #[test]
        fn no_rest_ends_after_the_certificate(now in 0_i64..4000, start in 0_i64..2000, life in 0_i64..2000, jitter: u16) {
            let validity = Validity { not_before: at(start), not_after: at(start + life) };
            let situation = Situation { own: Some((validity, Jitter(jitter))), given: false, token: false, forced: false };
            if let Step::Rest(rest) = next(situation, at(now)) {
                let end = now + i64::try_from(rest.as_secs()).unwrap();
                prop_assert!(end <= start + life && !rest.is_zero());
            }
        }
    }
}

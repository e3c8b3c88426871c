//! How fresh an answer must be, and whether what is held may be the answer. Pure: ages come in as parameters.

use std::{fmt, str::FromStr, time::Duration};

/// The freshness policy of a resource, for reads that ask for the most recent state (`resourceVersion` unset).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Always ask the API server; without a link there is no answer.
    Strict,
    /// Answer from what is held while the link proved alive within this time.
    Bounded(Duration),
    /// Answer from what is held, whatever its age.
    Any,
}

/// The policy is none of the three.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no freshness policy: write strict, any, or bounded:SECONDS")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let unknown = || UnknownPolicy(text.to_owned());
        match text.split_once(':') {
            None if text == "strict" => Ok(Self::Strict),
            None if text == "any" => Ok(Self::Any),
            Some(("bounded", seconds)) => {
                let seconds: u32 = seconds.trim_end_matches('s').parse().map_err(|_| unknown())?;
                Ok(Self::Bounded(Duration::from_secs(seconds.into())))
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strict => formatter.write_str("strict"),
            Self::Bounded(within) => write!(formatter, "bounded:{}", within.as_secs()),
            Self::Any => formatter.write_str("any"),
        }
    }
}

/// What is known of the subscription's freshness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age {
    /// Whether there is a link and the upstream watch runs over it; for a read of the most recent state, whether it has told what happened
    /// during a cut as well.
    pub watching: bool,
    /// How long ago upstream last gave a sign of life.
    pub proved: Duration,
}

/// What to do with a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Answer from what is held. `stale`: say in the answer how old that may be.
    Held {
        /// The age to be told, if the answer may be out of date.
        stale: Option<Duration>,
    },
    /// Ask the API server.
    Forward,
    /// There is no answer: 503.
    Unavailable,
    /// There is none yet: 429, to be asked again.
    NotYet,
}

/// Whether a read of the most recent state may be answered from what is held. `link` says whether the API server can be asked.
pub fn most_recent(policy: Policy, age: Age, link: bool) -> Verdict {
    match policy {
        Policy::Strict if link => Verdict::Forward,
        Policy::Strict => Verdict::Unavailable,
        Policy::Bounded(within) if age.watching && age.proved <= within => Verdict::Held { stale: None },
        // The link is there and the watch is not, or is silent: asking is better than an old answer.
        Policy::Bounded(_) if link => Verdict::Forward,
        Policy::Bounded(_) => Verdict::Held { stale: Some(age.proved) },
        Policy::Any => any(age),
    }
}

/// The same for a read that has waited for the first list, which was asked for that long ago; `since`: after the read came, so that nothing is
/// more recent. One that took longer than the policy allows says so: over a thin line the same once more for each reader would be no more recent
/// when it is there. `None`: the list does not decide it.
pub fn first_list(policy: Policy, since: bool, ago: Duration) -> Option<Verdict> {
    match policy {
        _ if since => Some(Verdict::Held { stale: None }),
        Policy::Strict => None,
        Policy::Bounded(within) => Some(Verdict::Held { stale: Some(ago).filter(|ago| *ago > within) }),
        Policy::Any => Some(Verdict::Held { stale: None }),
    }
}

/// The same for a read that the API server must not answer by itself, since its reader is shown what is held through a filter. `asked`: how
/// long ago it came. Strict is what is known to be current since: the API server gave a sign of life over the connection of its watch.
pub fn most_recent_held(policy: Policy, age: Age, asked: Duration) -> Verdict {
    let within = match policy {
        Policy::Strict => asked,
        Policy::Bounded(within) => within,
        Policy::Any => return any(age),
    };
    match policy {
        _ if age.watching && age.proved <= within => Verdict::Held { stale: None },
        Policy::Strict => Verdict::Unavailable,
        Policy::Bounded(_) | Policy::Any => Verdict::Held { stale: Some(age.proved) },
    }
}

/// A read that takes any version (`resourceVersion=0`), or one that is at least what the client saw.
pub fn any(age: Age) -> Verdict {
    Verdict::Held { stale: (!age.watching).then_some(age.proved) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_list_is_as_old_as_its_first_page() {
        let bounded = Policy::Bounded(Duration::from_secs(10));
        let held = |stale: Option<u64>| Some(Verdict::Held { stale: stale.map(Duration::from_secs) });
        for (policy, since, ago, expected) in [
            (Policy::Strict, true, 60, held(None)),
            (Policy::Strict, false, 1, None),
            (bounded, true, 60, held(None)),
            (bounded, false, 10, held(None)),
            (bounded, false, 11, held(Some(11))),
            (Policy::Any, false, 3600, held(None)),
        ] {
            assert_eq!(
                first_list(policy, since, Duration::from_secs(ago)),
                expected,
                "{policy} {since} {ago}"
            );
        }
    }

    #[test]
    fn policies_are_read_and_written() {
        for text in ["strict", "any", "bounded:10"] {
            assert_eq!(text.parse::<Policy>().map(|policy| policy.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "bounded", "bounded:", "bounded:-1", "Strict", "any:1"] {
            assert!(text.parse::<Policy>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_most_recent_state_is_asked_for_where_it_can_be() {
        let seconds = Duration::from_secs;
        let age = |watching, proved| Age { watching, proved: seconds(proved) };
        let held = |stale: Option<u64>| Verdict::Held { stale: stale.map(seconds) };
        let bounded = Policy::Bounded(seconds(10));
        let cases = [
            (Policy::Strict, age(true, 0), true, Verdict::Forward),
            (Policy::Strict, age(false, 0), false, Verdict::Unavailable),
            (bounded, age(true, 3), true, held(None)),
            (bounded, age(true, 11), true, Verdict::Forward),
            (bounded, age(false, 3), true, Verdict::Forward),
            (bounded, age(false, 3600), false, held(Some(3600))),
            (Policy::Any, age(true, 3600), true, held(None)),
            (Policy::Any, age(false, 7), true, held(Some(7))),
            (Policy::Any, age(false, 7), false, held(Some(7))),
        ];
        for (policy, age, link, expected) in cases {
            assert_eq!(most_recent(policy, age, link), expected, "{policy} {age:?} link={link}");
        }
        let cases = [
            (Policy::Strict, age(true, 2), held(None)),
            (Policy::Strict, age(true, 3), Verdict::Unavailable),
            (Policy::Strict, age(false, 0), Verdict::Unavailable),
            (bounded, age(true, 3), held(None)),
            (bounded, age(true, 11), held(Some(11))),
            (bounded, age(false, 3), held(Some(3))),
            (Policy::Any, age(true, 3600), held(None)),
            (Policy::Any, age(false, 7), held(Some(7))),
        ];
        for (policy, age, expected) in cases {
            assert_eq!(most_recent_held(policy, age, seconds(2)), expected, "{policy} {age:?}");
        }
    }
}

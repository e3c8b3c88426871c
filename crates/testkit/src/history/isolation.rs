//! Who may not read is shown nothing: what sessions saw, and when, against the times at which their user had no right to it.

use tokio::time::Instant;

use super::{Guarantee, Observation, Request, Session, Violation};

/// A time in which a user must not see a resource: it begins when whoever serves it had to know that the right is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Who.
    pub user: String,
    /// What of.
    pub resource: String,
    /// Since when.
    pub from: Instant,
    /// Until the right was given back.
    pub until: Option<Instant>,
}

impl Denial {
    fn is_of(&self, session: &Session) -> bool {
        (&self.user, &self.resource) == (&session.user, &session.resource)
    }

    fn holds_at(&self, time: Instant) -> bool {
        self.from <= time && self.until.is_none_or(|until| time < until)
    }

    /// Whether it holds at any time between `began` and `ended`.
    fn meets(&self, began: Instant, ended: Option<Instant>) -> bool {
        ended.is_none_or(|ended| self.from < ended) && self.until.is_none_or(|until| began < until)
    }
}

/// Checks that no session was shown anything but errors while its user was denied the resource, and that none of its watches was open.
pub fn check_isolated(denials: &[Denial], sessions: &[Session]) -> Result<(), Violation> {
    for (index, session) in sessions.iter().enumerate() {
        for denial in denials.iter().filter(|denial| denial.is_of(session)) {
            let violation = |observation, found| Violation {
                guarantee: Guarantee::Isolation,
                session: index,
                observation,
                expected: format!(
                    "nothing for {} from {:?} until {:?}",
                    denial.user, denial.from, denial.until
                ),
                found,
            };
            for (at, (observation, time)) in session.observations.iter().zip(&session.times).enumerate() {
                if !matches!(observation, Observation::Error { .. }) && denial.holds_at(*time) {
                    return Err(violation(at, format!("{observation:?} at {time:?}")));
                }
            }
            if let Some((began, ended)) = session.open
                && !matches!(session.request, Request::List(_))
                && denial.meets(began, ended)
            {
                let found = format!("a watch that was open from {began:?} until {ended:?}");
                return Err(violation(session.observations.len(), found));
            }
        }
    }
    Ok(())
}

//! Who asks for the most recent state is shown what was written a while before, or is told that it may be old.
//!
//! A link that is cut is no excuse: what is shown without a word is said to be recent.

use std::time::Duration;

use tokio::time::Instant;

use super::{Doubtful, Guarantee, ListAt, Model, Observation, Request, Session, Violation, expected};

/// That the cluster has acknowledged a write, and all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// When, or later.
    pub at: Instant,
    /// How many times the cluster had gone back.
    pub epoch: usize,
    /// The version it had come to.
    pub version: u64,
}

/// What there was to know for who answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freshness {
    /// How old may be what is shown without a word.
    pub bound: Duration,
    /// What was acknowledged, in its order.
    pub acknowledged: Vec<Acknowledged>,
    /// When the API server itself did not tell what there was: its cache lagged, or it was being restored.
    pub untold: Vec<Doubtful>,
}

impl Freshness {
    /// What has to be shown to who asked at `began` and was answered at `answered`.
    fn due(&self, resource: &str, began: Instant, answered: Instant) -> Option<Acknowledged> {
        let is_untold = |one: &Doubtful| {
            one.resource.as_ref().is_none_or(|of| of == resource)
                && one.from <= answered
                && one.until.is_none_or(|until| began <= until)
        };
        if self.untold.iter().any(is_untold) {
            return None;
        }
        let due = self.acknowledged.iter().rev().find(|one| one.at + self.bound < began)?;
        let last = self.acknowledged.iter().rev().find(|one| one.at <= answered)?;
        // What went back since then is not there any more.
        (last.epoch == due.epoch).then_some(*due)
    }
}

/// The version of the state that a read of the most recent one was shown, and by which observation.
fn shown(session: &Session) -> Option<(usize, u64)> {
    let version = |observation: &Observation| match (&session.request, observation) {
        (Request::List(ListAt::MostRecent), Observation::Page { rv, .. })
        | (Request::WatchInitial { at_least: None, .. }, Observation::Bookmark { rv, initial_end: true }) => {
            Some(*rv)
        }
        _ => None,
    };
    session.observations.iter().enumerate().find_map(|(at, observation)| Some((at, version(observation)?)))
}

/// Checks that whoever asked for the most recent state, and was not told that it may be old, was shown everything that had been acknowledged
/// longer before than the bound; says how many had something to be shown. A watch without the mark of its state's end says no version.
pub fn check_fresh(model: &Model, freshness: &Freshness, sessions: &[Session]) -> Result<usize, Violation> {
    let mut bound = 0;
    for (index, session) in sessions.iter().enumerate().filter(|(_, session)| !session.is_old) {
        let Some((at, version)) = shown(session) else { continue };
        let Some(answered) = session.times.get(at) else { continue };
        let Some(due) = freshness.due(&session.resource, session.began, *answered) else { continue };
        let Some(epoch) = model.epochs.get(due.epoch) else { continue };
        bound += usize::from(epoch.revisions.first().is_some_and(|first| first.rv <= due.version));
        let missed = expected(epoch, &session.scope, version).into_iter().next();
        if let Some(missed) = missed.filter(|missed| missed.rv <= due.version) {
            return Err(Violation {
                guarantee: Guarantee::Fresh,
                session: index,
                observation: at,
                expected: format!(
                    "{:?} {} at {}, as {} was acknowledged by {:?}",
                    missed.change, missed.key, missed.rv, due.version, due.at
                ),
                found: format!("the state at {version} for who asked at {:?}, without a word", session.began),
            });
        }
    }
    Ok(bound)
}

//! Who was told a version can go on from it: 410 needs a reason.
//!
//! What counts as one is no cache's to say: that the API server itself no longer knows what came after that version, that what
//! stands before it had cause to doubt what it held, or that it was restarted and more has happened than it has to keep on its disk.
//!
//! A restart goes on from the last change that was shown, which must be on the disk. That nothing else happened up to a version,
//! which a bookmark says, need not be: an idle cluster would have the disk written without end. So whoever was shown such a version
//! has none that is known if, after a restart, the API server no longer knows what came after the change before it.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{Epoch, Guarantee, Model, Observation, Request, Session, Violation, version};

/// The code of what has expired.
const GONE: u16 = 410;

/// From then on the API server does not know what of a resource came after versions below this one: it was compacted, or the resource was
/// defined anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgotten {
    /// What of; all, if it is none.
    pub resource: Option<String>,
    /// Since when.
    pub since: Instant,
    /// What is below.
    pub below: u64,
}

/// A time in which whatever is held may turn out not to be what the API server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubtful {
    /// What of; all, if it is none.
    pub resource: Option<String>,
    /// Since when.
    pub from: Instant,
    /// Until when; still, if it is none.
    pub until: Option<Instant>,
}

/// Everything that explains that a version has expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reasons {
    /// What the API server does not know either.
    pub forgotten: Vec<Forgotten>,
    /// When there was a doubt.
    pub doubtful: Vec<Doubtful>,
    /// When what stands before the API server was restarted: what it goes on with is on its disk.
    pub restarts: Vec<Instant>,
    /// How many changes of a resource it has to know after a restart.
    pub kept: usize,
}

/// A version, and when a client was shown it.
#[derive(Debug, Clone, Copy)]
struct Told {
    version: u64,
    at: Instant,
    /// How many restores had been noticed then, at least.
    epoch: usize,
}

impl Told {
    /// The times that the version may be of.
    fn epochs(self, model: &Model) -> impl Iterator<Item = &Epoch> {
        model.epochs.iter().skip(self.epoch)
    }

    /// The last change up to the version: what a disk has at least.
    fn stored(self, model: &Model) -> u64 {
        let last = |epoch: &Epoch| {
            let upto = epoch.revisions.partition_point(|revision| revision.rv <= self.version);
            epoch.revisions[..upto].last().map_or(0, |revision| revision.rv)
        };
        self.epochs(model).map(last).min().unwrap_or(0)
    }
}

impl Reasons {
    fn explain(&self, model: &Model, resource: &str, told: Told, until: Instant) -> bool {
        let is_of = |of: &Option<String>| of.as_ref().is_none_or(|of| of == resource);
        let restarted = self.restarts.iter().any(|at| told.at <= *at && *at <= until);
        let known = if restarted { told.stored(model) } else { told.version };
        let forgot = |one: &Forgotten| is_of(&one.resource) && one.since <= until && known < one.below;
        let doubted = |one: &Doubtful| {
            is_of(&one.resource) && one.from <= until && one.until.is_none_or(|end| told.at <= end)
        };
        let since = |revisions: &[super::Revision]| {
            revisions.len() - revisions.partition_point(|revision| revision.rv <= told.version)
        };
        let is_long = || told.epochs(model).any(|epoch| since(&epoch.revisions) > self.kept);
        self.forgotten.iter().any(forgot) || self.doubtful.iter().any(doubted) || (restarted && is_long())
    }
}

/// Checks that no watch of these sessions was told without a reason that what its client had been shown before has expired; says of how many
/// resumptions that would have been wrong. What was handed on says nothing. The sessions must be of clients that read what comes when it comes.
pub fn check_expired(model: &Model, reasons: &Reasons, sessions: &[Session]) -> Result<usize, Violation> {
    let mut clients = BTreeMap::<(&str, &str), Told>::new();
    let mut resumed = 0;
    for (index, session) in sessions.iter().enumerate() {
        let client = (session.client.as_str(), session.resource.as_str());
        if session.handed_on {
            clients.remove(&client);
            continue;
        }
        let mut told = match session.request {
            Request::WatchAfter(version) => {
                clients.get(&client).copied().filter(|told| told.version == version)
            }
            Request::List(_) | Request::WatchInitial { .. } => None,
        };
        let shown = |version, time: &Instant| Some(Told { version, at: *time, epoch: session.epoch });
        for (at, (observation, time)) in session.observations.iter().zip(&session.times).enumerate() {
            let explained = |told: Told| reasons.explain(model, &session.resource, told, *time);
            // Each watch that goes on counts once.
            resumed += usize::from(at == 0 && told.is_some_and(|told| !explained(told)));
            match observation {
                Observation::Error { code: GONE, message }
                    if !matches!(session.request, Request::List(_)) =>
                {
                    if let Some(told) = told.filter(|told| !explained(*told)) {
                        return Err(Violation {
                            guarantee: Guarantee::Resumable,
                            session: index,
                            observation: at,
                            expected: format!(
                                "what came after {}, which was shown at {:?}",
                                told.version, told.at
                            ),
                            found: format!("{GONE} at {time:?}: {message}"),
                        });
                    }
                }
                Observation::Error { .. } => {}
                Observation::Page { rv, .. } | Observation::Bookmark { rv, .. } => {
                    told = shown(*rv, time);
                }
                // The state that a watch begins with is in no order.
                Observation::Event(..)
                    if told.is_none() && matches!(session.request, Request::WatchInitial { .. }) => {}
                Observation::Event(_, object) => told = shown(version(object), time),
            }
        }
        if let Some(told) = told {
            clients.insert(client, told);
        }
    }
    Ok(resumed)
}

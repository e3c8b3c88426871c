//! One candidate's memory between requests: what it saw, what it holds, when it may try again. Pure: the driver and
//! the simulation feed it instants and answers, and it says what to send.
//!
//! At most one request is under way at a time. After an answer that leaves the store's state unknown the Lease is read
//! before anything is written.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::Lease,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use super::{
    clock::Moment,
    lease::{self, Decision, Held, Loss, Observation},
    owner,
    timing::Timing,
};

/// So long a holder is asked for whose connection ended, though its renewal is not late.
const DOUBT: Duration = Duration::from_secs(1);

/// Whose holder is asked for, and where. An answer is about this record and no later one.
#[derive(Clone, Debug)]
pub(super) struct Inquiry {
    record: Lease,
    /// Where the holder listens if it lives.
    pub(super) at: SocketAddr,
}

impl Inquiry {
    /// Whether both are about the same record.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        lease::same_record(&self.record, &other.record)
    }
}

/// What the driver has to do for a candidate.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Read the Lease and report it with [`Candidate::seen`] or [`Candidate::failed`].
    Read,
    /// Create the Lease (it has no resourceVersion) or replace exactly the version it names, and report with
    /// [`Candidate::written`], [`Candidate::refused`] or [`Candidate::failed`].
    Write(Box<Lease>),
    /// Nothing before this instant, unless the Lease changes.
    Wait(Moment),
    /// The leadership is over, and with it the process.
    Lost(Loss),
}

/// A candidate for the leadership, or the leader.
#[derive(Debug)]
pub(super) struct Candidate {
    me: String,
    namespace: String,
    name: String,
    timing: Timing,
    /// Whom the Lease shall belong to.
    owner: Option<OwnerReference>,
    observation: Option<Observation>,
    /// The observation may be out of date: an answer was lost or refused, or it is older than a retry period.
    reread: bool,
    read_at: Moment,
    /// After a failed request: do not send another one before.
    not_before: Option<Moment>,
    held: Option<Held>,
    /// So long it leaves a free Lease to others.
    handicap: Duration,
    /// Where it listens as long as it lives, and nobody else does.
    at: Option<SocketAddr>,
    /// Until then the holder is asked for in any case.
    doubted_until: Option<Moment>,
}

impl Candidate {
    /// A candidate that knows nothing yet. `me` must be unlike every other candidate's identity, those of earlier
    /// processes included.
    pub(super) fn new(
        me: String,
        namespace: String,
        name: String,
        timing: Timing,
        owner: Option<OwnerReference>,
    ) -> Self {
        Self {
            owner,
            me,
            namespace,
            name,
            timing,
            observation: None,
            reread: true,
            read_at: Moment::new(Duration::ZERO),
            not_before: None,
            held: None,
            handicap: Duration::ZERO,
            at: None,
            doubted_until: None,
        }
    }

    /// Says in the Lease where it listens, from its start to its end: others may take its being refused there for its end. No other
    /// process that lives may listen there.
    #[must_use]
    pub(super) const fn listening(mut self, at: Option<SocketAddr>) -> Self {
        self.at = at;
        self
    }

    /// From here on it takes a Lease only that has been free for so long: others would lead better.
    pub(super) const fn set_handicap(&mut self, handicap: Duration) {
        self.handicap = handicap;
    }

    /// The leadership that this candidate has, whether or not its time is up.
    pub(super) const fn held(&self) -> Option<Held> {
        self.held
    }

    /// Who holds the Lease, as last seen.
    pub(super) fn holder(&self) -> Option<&str> {
        self.observation.as_ref().and_then(Observation::holder)
    }

    /// The resourceVersion last seen, from which a watch continues.
    pub(super) fn resource_version(&self) -> Option<&str> {
        self.observation.as_ref()?.lease()?.metadata.resource_version.as_deref()
    }

    /// What to do at `now`. `wall` is the time of day for the record.
    pub(super) fn step(&self, now: Moment, wall: Timestamp) -> Step {
        if self.held.is_some_and(|held| now >= held.expires_at) {
            return Step::Lost(Loss::Expired);
        }
        if let Some(not_before) = self.not_before.filter(|not_before| now < *not_before) {
            return Step::Wait(not_before);
        }
        let Some(observation) = self.observation.as_ref().filter(|_| !self.reread) else {
            return Step::Read;
        };
        let fresh = || Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        };
        let free_for_us = observation.free_at().after(self.handicap);
        let decision = match lease::decide(observation, self.held, &self.me, now, wall, &self.timing, fresh) {
            Decision::Acquire(_) if now < free_for_us => Decision::Wait(free_for_us),
            decision => decision,
        };
        match decision {
            Decision::Acquire(mut lease) | Decision::Renew(mut lease) => {
                if let Some(owner) = &self.owner {
                    owner::adopt(&mut lease, owner);
                }
                lease::say_where(&mut lease, &self.me, self.at);
                Step::Write(lease)
            }
            Decision::Lost(loss) => Step::Lost(loss),
            Decision::Wait(until) if self.held.is_some() => Step::Wait(until),
            // Standbys look again each retry period even while a watch runs: watches fall silent.
            Decision::Wait(until) => match self.read_at.after(self.timing.retry_period()) {
                look if look <= now => Step::Read,
                look => {
                    // From when it is overdue its holder is asked for.
                    let (overdue, wake) = (observation.overdue_at(), until.min(look));
                    Step::Wait(if now < overdue { wake.min(overdue) } else { wake })
                }
            },
        }
    }

    /// The Lease was read, or a watch showed it, at `now`. `None`: there is none.
    ///
    /// While leading, only for reads that no cache answered: a watch may lag behind the own writes.
    pub(super) fn seen(&mut self, lease: Option<Lease>, now: Moment) {
        let mut observation =
            Observation::next(self.observation.as_ref(), lease, &self.me, now, &self.timing);
        if self.at.is_some() && observation.lease().and_then(lease::said_where) == self.at {
            // Of a process that was here before this one.
            observation.found_gone();
        }
        self.observation = Some(observation);
        self.reread = false;
        self.read_at = now;
        self.not_before = None;
    }

    /// A connection to the holder ended at `now`: it may be gone.
    pub(super) const fn doubted(&mut self, now: Moment) {
        self.doubted_until = Some(now.after(DOUBT));
    }

    /// Whom to ask for at `now`, as the Lease would be free if it were gone: a holder whose renewal is late, or that is
    /// [`doubted`](Self::doubted). Asking goes on as long as this says the same.
    pub(super) fn inquiry(&self, now: Moment) -> Option<Inquiry> {
        let observation = self.observation.as_ref().filter(|_| self.held.is_none())?;
        let is_doubted = self.doubted_until.is_some_and(|until| now < until);
        let is_due = is_doubted || now >= observation.overdue_at();
        let would_help = now.max(observation.overdue_at()) < observation.free_at();
        let record = observation.lease().filter(|_| is_due && would_help)?;
        Some(Inquiry { at: lease::said_where(record)?, record: record.clone() })
    }

    /// Nobody listens where `inquiry` asked; if the record is still the one that it was about, its holder is gone.
    pub(super) fn gone(&mut self, inquiry: &Inquiry) {
        if let Some(observation) = &mut self.observation
            && observation.lease().is_some_and(|lease| lease::same_record(lease, &inquiry.record))
        {
            observation.found_gone();
        }
    }

    /// The write sent at `sent` succeeded and left `lease`; the answer came at `now`.
    pub(super) fn written(&mut self, lease: Lease, sent: Moment, now: Moment) {
        self.seen(Some(lease), now);
        self.held = Some(Held::since(sent, &self.timing));
    }

    /// Leaves the Lease without an owner from here on, and says whether it was to have one: not every server lets us set
    /// it, and to lead is more important.
    pub(super) fn disown(&mut self) -> bool {
        self.owner.take().is_some()
    }

    /// The write was refused because the Lease is not what it was.
    pub(super) const fn refused(&mut self) {
        self.reread = true;
    }

    /// The request sent at `sent` failed, or its answer did not come: it may have been carried out, or still be.
    pub(super) const fn failed(&mut self, sent: Moment) {
        self.reread = true;
        self.not_before = Some(sent.after(self.timing.retry_period()));
    }

    /// Gives the leadership up: from here on nothing is held, and the Lease to write is returned, if there is one to
    /// give up.
    pub(super) fn release(&mut self, now: Moment, wall: Timestamp) -> Option<Lease> {
        let held = self.held.take()?;
        let lease = self.observation.as_ref()?.lease()?;
        let mine = now < held.expires_at && self.holder() == Some(&self.me);
        mine.then(|| lease::released(lease.clone(), wall))
    }
}

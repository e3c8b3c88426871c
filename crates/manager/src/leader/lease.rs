//! What a candidate does about the Lease, decided from what it saw and when: no request, no clock, no state.
//!
//! Two rules keep leaders apart. A holder's leadership ends `renew_deadline` after the moment its last successful
//! renewal was *sent*, on its own steady clock. Everybody else leaves the Lease alone until it has not changed for
//! `lease_duration` since *they saw* it change, on theirs. The renewal is stored after it was sent and before it is
//! seen, so the first span is over before the second, however far apart the clocks are set; the timestamps in the
//! record are for people and are never compared with a clock. Writes carry the resourceVersion that was judged, so a
//! renewal that was not seen makes them fail.
//!
//! A holder that is known to be gone is not waited for ([`Observation::found_gone`]). That nobody listens at its address, which is how it
//! becomes known, may be a mistake (somebody rejects connections on the way, the address is another's). So it counts only of a
//! record that should have been renewed, and a renewal makes it void: who renews keeps the Lease, whatever is said of it. Where the
//! word is wrong and renewals are late as well, two lead until the one that was given up sends its next renewal, which fails.

use std::net::SocketAddr;
use std::time::Duration;

use api::annotations::{LEASE_ADDRESS, LEASE_DURATION};
use jiff::{Timestamp, Unit};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};

use super::{clock::Moment, timing::Timing};

/// How long a released lease is valid, as Kubernetes' own components write it; the field must be positive.
const RELEASED_SECONDS: i32 = 1;

/// A record that did not change for this part of its term should have been renewed: [`Timing::enduring`] does so in good time before.
const OVERDUE: u32 = 4;

/// The state of the Lease as last seen, and when that state stops keeping others off.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Observation {
    lease: Option<Lease>,
    free_at: Moment,
    /// A holder that lives has renewed it by then.
    overdue_at: Moment,
}

impl Observation {
    /// Takes in the Lease as seen at `now`: `None` if there is none.
    ///
    /// The wait for a record that did not change goes on; for a changed one it begins anew. A held Lease that
    /// disappears keeps its holder's rights for a whole term: the holder may not have noticed yet. A candidate that
    /// has never seen one does not wait.
    #[must_use]
    pub(super) fn next(
        previous: Option<&Self>,
        lease: Option<Lease>,
        me: &str,
        now: Moment,
        timing: &Timing,
    ) -> Self {
        let begin = |term: Duration| (now.after(term), now.after(term / OVERDUE));
        let (free_at, overdue_at) = match (previous, &lease) {
            (Some(previous), Some(lease))
                if previous.lease.as_ref().is_some_and(|old| same_record(old, lease)) =>
            {
                (previous.free_at, previous.overdue_at)
            }
            (_, Some(lease)) => begin(term(lease, me, timing)),
            (Some(Self { lease: Some(deleted), .. }), None) => begin(term(deleted, me, timing)),
            (Some(Self { lease: None, free_at, overdue_at }), None) => (*free_at, *overdue_at),
            (None, None) => (now, now),
        };
        Self { lease, free_at, overdue_at }
    }

    /// Whoever holds the state seen is gone: it keeps nobody off any more, once it should have changed. Void when it changes.
    pub(super) fn found_gone(&mut self) {
        self.free_at = self.free_at.min(self.overdue_at);
    }

    /// When it should have changed.
    pub(super) const fn overdue_at(&self) -> Moment {
        self.overdue_at
    }

    /// When the state seen stops keeping others off.
    pub(super) const fn free_at(&self) -> Moment {
        self.free_at
    }

    /// The Lease as seen, if there was one.
    pub(super) const fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Who holds the Lease, if anyone does.
    pub(super) fn holder(&self) -> Option<&str> {
        self.lease.as_ref().and_then(holder)
    }
}

/// A leadership that has been won and not yet lost, as far as its holder knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// When the last renewal that succeeded was sent.
    pub(super) renewed_at: Moment,
    /// When the leadership ends unless it is renewed.
    pub(super) expires_at: Moment,
}

impl Held {
    /// The leadership given by a write that was sent at `sent` and succeeded.
    #[must_use]
    pub(super) const fn since(sent: Moment, timing: &Timing) -> Self {
        Self { renewed_at: sent, expires_at: sent.after(timing.renew_deadline()) }
    }
}

/// Why a leader leads no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// No renewal succeeded in time.
    #[error("no renewal of the lease succeeded within the renew deadline")]
    Expired,
    /// The record names another holder, or none.
    #[error("the lease is held by {holder:?} now")]
    Superseded {
        /// Whom the record names.
        holder: String,
    },
    /// Somebody deleted the Lease; another may create it at any time.
    #[error("the lease was deleted")]
    Deleted,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    /// Write this Lease to become the leader.
    Acquire(Box<Lease>),
    /// Write this Lease to remain the leader.
    Renew(Box<Lease>),
    /// Nothing before this instant, unless the Lease changes.
    Wait(Moment),
    /// The leadership is over.
    Lost(Loss),
}

/// Decides what candidate `me` does at `now`, having seen `observation`; `held` is the leadership it has.
///
/// `wall` is the time of day for the record's timestamps. `fresh` is the Lease to start from when there is none: a
/// name and a namespace.
pub(super) fn decide(
    observation: &Observation,
    held: Option<Held>,
    me: &str,
    now: Moment,
    wall: Timestamp,
    timing: &Timing,
    fresh: impl FnOnce() -> Lease,
) -> Decision {
    let holder = observation.holder();
    if let Some(held) = held {
        return match &observation.lease {
            _ if now >= held.expires_at => Decision::Lost(Loss::Expired),
            None => Decision::Lost(Loss::Deleted),
            Some(_) if holder != Some(me) => {
                Decision::Lost(Loss::Superseded { holder: holder.unwrap_or_default().to_owned() })
            }
            Some(_) if now < held.renewed_at.after(timing.retry_period()) => {
                Decision::Wait(held.renewed_at.after(timing.retry_period()))
            }
            Some(lease) => Decision::Renew(Box::new(claimed(lease.clone(), me, wall, timing))),
        };
    }
    if now < observation.free_at {
        return Decision::Wait(observation.free_at);
    }
    let lease = observation.lease.clone().unwrap_or_else(fresh);
    Decision::Acquire(Box::new(claimed(lease, me, wall, timing)))
}

/// The Lease with `me` as its holder, renewed at `wall`. What others put into it stays.
fn claimed(mut lease: Lease, me: &str, wall: Timestamp, timing: &Timing) -> Lease {
    let existed = lease.metadata.resource_version.is_some();
    let renewal = holder(&lease) == Some(me);
    let spec = lease.spec.get_or_insert_default();
    let renew_time = later_than(wall, spec.renew_time.as_ref());
    if !renewal || spec.acquire_time.is_none() {
        spec.acquire_time = Some(renew_time.clone());
    }
    if !renewal && existed {
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    }
    spec.lease_transitions.get_or_insert(0);
    spec.holder_identity = Some(me.to_owned());
    // `Timing` checked the range.
    spec.lease_duration_seconds = i32::try_from(timing.whole_seconds()).ok();
    spec.renew_time = Some(renew_time);
    say_precisely(&mut lease, me, timing);
    lease
}

/// Says beside the record's whole seconds, which are for others' eyes, how long the lease lasts where that is no whole number.
fn say_precisely(lease: &mut Lease, me: &str, timing: &Timing) {
    let duration = timing.lease_duration();
    if duration.subsec_nanos() == 0 {
        if let Some(annotations) = &mut lease.metadata.annotations {
            annotations.remove(LEASE_DURATION);
        }
        return;
    }
    let said = format!("{}ms {me}", duration.as_millis());
    lease.metadata.annotations.get_or_insert_default().insert(LEASE_DURATION.to_owned(), said);
}

/// What [`say_precisely`] said, if it was this holder that said it, and of this record.
fn said_precisely(lease: &Lease, holder: &str, seconds: u64) -> Option<Duration> {
    let said = lease.metadata.annotations.as_ref()?.get(LEASE_DURATION)?;
    let (millis, by) = said.split_once("ms ")?;
    let duration = Duration::from_millis(millis.parse().ok()?);
    (by == holder
        && duration > Duration::from_secs(seconds.checked_sub(1)?)
        && duration <= Duration::from_secs(seconds))
    .then_some(duration)
}

/// Says beside the record where `me`, who claims it, listens, if anybody could ask there.
pub(super) fn say_where(lease: &mut Lease, me: &str, at: Option<SocketAddr>) {
    if let Some(at) = at {
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(LEASE_ADDRESS.to_owned(), format!("{at} {me}"));
    } else if let Some(annotations) = &mut lease.metadata.annotations {
        annotations.remove(LEASE_ADDRESS);
    }
}

/// What [`say_where`] said, if it was the holder that said it.
pub(super) fn said_where(lease: &Lease) -> Option<SocketAddr> {
    let said = lease.metadata.annotations.as_ref()?.get(LEASE_ADDRESS)?;
    let (at, by) = said.split_once(' ')?;
    at.parse().ok().filter(|_| holder(lease) == Some(by))
}

/// The Lease given up by its holder: anyone may take it at once.
#[must_use]
pub(super) fn released(mut lease: Lease, wall: Timestamp) -> Lease {
    let spec = lease.spec.get_or_insert_default();
    let now = later_than(wall, spec.renew_time.as_ref());
    *spec = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(RELEASED_SECONDS),
        acquire_time: Some(now.clone()),
        renew_time: Some(now),
        ..spec.clone()
    };
    lease
}

/// `wall` in the record's microseconds, but always after `previous`. A time of day that stands still or is set back
/// would otherwise make a renewal that nobody can tell from its predecessor.
fn later_than(wall: Timestamp, previous: Option<&MicroTime>) -> MicroTime {
    let wall = wall.round(Unit::Microsecond).unwrap_or(wall);
    let earliest = previous.and_then(|time| time.0.checked_add(Duration::from_micros(1)).ok());
    MicroTime(earliest.map_or(wall, |earliest| earliest.max(wall)))
}

/// Whether two sightings show the same state, so that its age goes on. Metadata that others write does not count; a
/// Lease that was deleted and created again does.
pub(super) fn same_record(a: &Lease, b: &Lease) -> bool {
    a.metadata.uid == b.metadata.uid && a.spec == b.spec
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// How long a record keeps `me` off, from when it was first seen. The holder's own figure counts: its configuration
/// may differ from ours. Without a usable one, ours.
fn term(lease: &Lease, me: &str, timing: &Timing) -> Duration {
    match holder(lease) {
        None => Duration::ZERO,
        // Ours although we do not lead: the answer to our request was lost.
        Some(holder) if holder == me => Duration::ZERO,
        Some(holder) => lease
            .spec
            .as_ref()
            .and_then(|spec| u64::try_from(spec.lease_duration_seconds?).ok())
            .filter(|seconds| *seconds > 0)
            .map_or(timing.lease_duration(), |seconds| {
                said_precisely(lease, holder, seconds).unwrap_or(Duration::from_secs(seconds))
            }),
    }
}

#[cfg(test)]
#[path = "lease/tests.rs"]
mod tests;

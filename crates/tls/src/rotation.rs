//! Rotation of an authority and its server certificate without one failed handshake: a pure state machine. Given what
//! is stored, what has been seen for how long, and the time, [`plan`] names the next single write, or how long to rest.
//! It does no I/O, reads no clock and holds no key.
//!
//! Two rules make it safe, and the order in [`plan`] follows from them:
//! 1. A certificate is served only when its authority has been trusted everywhere for the settle time: clients read the
//!    bundle late (the API server through its informer).
//! 2. An authority leaves the bundle only when for the settle time the stored certificate has been one by the current
//!    authority: replicas pick up the stored certificate late. That holds for authorities that are published and not
//!    stored as well: if the store is lost or replaced, what was trusted stays so until a new certificate took over.
//!
//! The settle time is measured on the monotonic clock of the process that watches ([`Sightings`]), never by stored
//! wall-clock stamps, so a step of the clock cannot shorten it. A new leader starts to measure anew, which only makes
//! it slower. Every action is one guarded write, so a crash between two actions leaves a state like any other. For two
//! leaders at once to be safe, a caller must read the leaf first, then the bundles, then the authorities, and make each
//! write conditional on the version read; `simulation` tests just that.

mod sightings;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;

pub use self::sightings::Sightings;
use crate::{
    certificate::Certificate,
    digest::Sha256Digest,
    window::{Jitter, Validity, Window, until},
};

/// The longest rest: the wall clock may step meanwhile, so it is looked at this often.
pub const RECHECK: Duration = Duration::from_mins(5);

/// An authority, as far as decisions need it. Its identity is its certificate's fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority {
    /// Fingerprint of its certificate.
    pub id: Sha256Digest,
    /// Of its certificate.
    pub validity: Validity,
}

impl From<&Certificate> for Authority {
    fn from(certificate: &Certificate) -> Self {
        Self { id: certificate.fingerprint(), validity: certificate.validity() }
    }
}

impl Authority {
    fn window(&self, now: Timestamp) -> Window {
        self.validity.window(now, Jitter::of(&self.id))
    }
}

/// The stored server certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf {
    /// Its fingerprint.
    pub id: Sha256Digest,
    /// Which authority signed it: any of the stored ones, or one that is only in the published bundles.
    pub issuer: Sha256Digest,
    /// Its validity.
    pub validity: Validity,
    /// Whether it is for just the names that are configured.
    pub names_match: bool,
}

/// Everything that is stored, as observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The authority that issues; `None` if there is none, or its key cannot be used.
    pub current: Option<Authority>,
    /// The authority that will issue once it is trusted everywhere.
    pub next: Option<Authority>,
    /// Authorities that issue no more and are still trusted.
    pub retired: Vec<Sha256Digest>,
    /// The server certificate; `None` if there is none, it cannot be used, or its issuer is nowhere to be found.
    pub leaf: Option<Leaf>,
    /// What each place of publication trusts; a place whose bundle cannot be read trusts nothing.
    pub published: Vec<Vec<Sha256Digest>>,
    /// Whether someone asked for a rotation that has not begun.
    pub forced: bool,
}

impl Stored {
    /// What is to be published: every authority that is stored, without duplicates, the one that issues first.
    pub fn bundle(&self) -> Vec<Sha256Digest> {
        let issuing = [self.current, self.next].into_iter().flatten().map(|authority| authority.id);
        let mut bundle: Vec<Sha256Digest> = Vec::new();
        for id in issuing.chain(self.retired.iter().copied()) {
            if !bundle.contains(&id) {
                bundle.push(id);
            }
        }
        bundle
    }

    /// Whether every place of publication trusts `id`. True where nothing is published at all: then nobody can be late.
    pub fn is_trusted_everywhere(&self, id: &Sha256Digest) -> bool {
        self.published.iter().all(|bundle| bundle.contains(id))
    }

    fn is_published(&self, strangers: Strangers) -> bool {
        let wanted = self.bundle();
        self.published.iter().all(|bundle| {
            let exact = strangers == Strangers::Keep || bundle.iter().all(|id| wanted.contains(id));
            exact && wanted.iter().all(|id| bundle.contains(id))
        })
    }
}

/// Why an authority is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// There was none.
    Missing,
    /// The one there is nears its end, or is not valid.
    Age,
    /// Someone asked for it.
    Forced,
}

/// What a rest waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Until everyone trusts the authority that is to issue.
    BundleSettling,
    /// Until every replica serves the new certificate.
    LeafSettling,
    /// Nothing is to be done before a certificate ages.
    Fresh,
}

/// What becomes of published authorities that are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strangers {
    /// They stay: replicas may serve certificates by them.
    Keep,
    /// They go.
    Drop,
}

/// The next single write, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make an authority and store it as the one that issues. Nothing else that is stored changes.
    CreateCurrent,
    /// Make an authority and store it as the next one, in place of any next one. The write also records a forced
    /// rotation as begun.
    CreateNext(Cause),
    /// Make every place of publication trust [`Stored::bundle`].
    PublishBundle {
        /// What a place trusts that is not stored: to be kept, because it may still be in use, or to go.
        strangers: Strangers,
    },
    /// Make the next authority the one that issues, and retire the one that was.
    Promote,
    /// Issue a server certificate by the current authority and store it.
    IssueLeaf,
    /// Stop to store the retired authorities.
    Retire,
    /// Nothing for now: look again after `at_most`, or when anything changes.
    Wait {
        /// For how long.
        at_most: Duration,
        /// What for.
        rest: Rest,
    },
}

/// When something is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The wall clock: what validity is measured by.
    pub wall: Timestamp,
    /// Time since any fixed moment of the process, on a clock that never steps: what settling is measured by.
    pub monotonic: Duration,
}

/// Decides what to do next. `seen` must have recorded `stored` (see [`Sightings::record`]).
pub fn plan(stored: &Stored, seen: &Sightings, settle: Duration, now: Moment) -> Action {
    let Some(current) = stored.current else {
        // A next authority without a current one is what remains of a damaged store; it can issue as well.
        return if stored.next.is_some() { Action::Promote } else { Action::CreateCurrent };
    };
    let current_window = current.window(now.wall);
    let current_valid = current.validity.contains(now.wall);

    let served_by_current = stored.leaf.is_some_and(|leaf| leaf.issuer == current.id);
    // How long until nothing but certificates by the current authority is served anywhere.
    let unsettled =
        if served_by_current { seen.unserved_for(&current.id, settle, now.monotonic) } else { Some(settle) };
    let strangers = if unsettled.is_some() { Strangers::Keep } else { Strangers::Drop };
    if !stored.is_published(strangers) {
        return Action::PublishBundle { strangers };
    }

    let mut rest = Resting { at_most: RECHECK, rest: Rest::Fresh };
    if current_valid {
        match stored.leaf {
            None => return Action::IssueLeaf,
            Some(leaf) if served_by_current => match leaf.validity.window(now.wall, Jitter::of(&leaf.id)) {
                Window::Expired | Window::NotYetValid => return Action::IssueLeaf,
                _ if !leaf.names_match => return Action::IssueLeaf,
                // One that lives as long as its authority gains nothing from being replaced by it.
                Window::Renew if leaf.validity.not_after < current.validity.not_after => {
                    return Action::IssueLeaf;
                }
                Window::Renew => {}
                Window::Fresh { renew_at } => rest.shorten(until(now.wall, renew_at), Rest::Fresh),
            },
            Some(_) => match seen.untrusted_for(&current.id, settle, now.monotonic) {
                None => return Action::IssueLeaf,
                Some(remaining) => rest.shorten(remaining, Rest::BundleSettling),
            },
        }
    }

    // One rotation at a time, unless the current authority is of no use.
    if served_by_current || !current_valid {
        match (stored.next, current_window) {
            (Some(next), _) => match next.window(now.wall) {
                // It never issued, so nobody misses it.
                Window::Expired | Window::NotYetValid | Window::Renew => {
                    return Action::CreateNext(Cause::Age);
                }
                Window::Fresh { .. } => match seen.untrusted_for(&next.id, settle, now.monotonic) {
                    None => return Action::Promote,
                    Some(remaining) => rest.shorten(remaining, Rest::BundleSettling),
                },
            },
            (None, _) if stored.forced => return Action::CreateNext(Cause::Forced),
            (None, Window::Fresh { renew_at }) => rest.shorten(until(now.wall, renew_at), Rest::Fresh),
            (None, Window::Renew | Window::Expired | Window::NotYetValid) => {
                return Action::CreateNext(Cause::Age);
            }
        }
    }

    let superfluous = !stored.retired.is_empty() || !stored.is_published(Strangers::Drop);
    match unsettled {
        None if !stored.retired.is_empty() => return Action::Retire,
        Some(remaining) if served_by_current && superfluous => rest.shorten(remaining, Rest::LeafSettling),
        _ => {}
    }
    Action::Wait { at_most: rest.at_most, rest: rest.rest }
}

/// The shortest of the rests so far.
struct Resting {
    at_most: Duration,
    rest: Rest,
}

impl Resting {
    fn shorten(&mut self, at_most: Duration, rest: Rest) {
        if at_most < self.at_most {
            *self = Self { at_most, rest };
        }
    }
}

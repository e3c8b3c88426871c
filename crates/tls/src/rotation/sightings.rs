//! For how long the watching process has seen what it sees, on its own monotonic clock. Lost with the process or with
//! leadership, on purpose: who was not looking cannot know.

use std::{collections::BTreeMap, time::Duration};

use super::Stored;
use crate::digest::Sha256Digest;

/// Since when each stored authority has been trusted everywhere, and since when the stored certificate has been by the
/// authority it is by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sightings {
    trusted: BTreeMap<Sha256Digest, Duration>,
    served: Option<(Sha256Digest, Duration)>,
}

impl Sightings {
    /// Takes in an observation that was complete at `monotonic`.
    pub fn record(&mut self, stored: &Stored, monotonic: Duration) {
        let bundle = stored.bundle();
        self.trusted.retain(|id, _| bundle.contains(id) && stored.is_trusted_everywhere(id));
        for id in bundle {
            if stored.is_trusted_everywhere(&id) {
                self.trusted.entry(id).or_insert(monotonic);
            }
        }
        self.served = stored.leaf.map(|leaf| match self.served {
            Some((issuer, since)) if issuer == leaf.issuer => (issuer, since),
            _ => (leaf.issuer, monotonic),
        });
    }

    /// How long until `id` has been trusted everywhere for `settle`; `None` if it has.
    pub(super) fn untrusted_for(
        &self,
        id: &Sha256Digest,
        settle: Duration,
        now: Duration,
    ) -> Option<Duration> {
        match self.trusted.get(id) {
            Some(since) => remaining(*since, settle, now),
            None => Some(settle),
        }
    }

    /// How long until certificates by others than `issuer` have been gone for `settle`; `None` if they have.
    pub(super) fn unserved_for(
        &self,
        issuer: &Sha256Digest,
        settle: Duration,
        now: Duration,
    ) -> Option<Duration> {
        match self.served {
            Some((served, since)) if served == *issuer => remaining(since, settle, now),
            _ => Some(settle),
        }
    }
}

fn remaining(since: Duration, settle: Duration, now: Duration) -> Option<Duration> {
    // Strictly more than `settle`: who is late by just that much may read at this very moment.
    settle.checked_sub(now.saturating_sub(since)).map(|left| left.saturating_add(Duration::from_millis(1)))
}

//! Verdicts remembered for a minute, by the digest of the token and never the token. Bounded, so that made-up tokens
//! cannot fill the memory. Pure: time comes in as a parameter.

use std::{collections::HashMap, time::Duration};

use tls::digest::Sha256Digest;
use tokio::time::Instant;

use super::Verdict;

/// How long a verdict holds: also how long a revoked token still works.
pub(super) const LIFE: Duration = Duration::from_mins(1);

/// How many verdicts are remembered. Scrapers are few; the rest is noise.
pub(super) const CAPACITY: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Verdicts {
    entries: HashMap<Sha256Digest, (Verdict, Instant)>,
}

impl Verdicts {
    /// The verdict on a token, if there is one that still holds.
    pub(super) fn get(&self, token: &Sha256Digest, now: Instant) -> Option<Verdict> {
        self.entries.get(token).filter(|(_, until)| now < *until).map(|(verdict, _)| *verdict)
    }

    /// Remembers a verdict. When there is no room, those that no longer hold go, and then the oldest; refusals before
    /// permissions, so that noise displaces only noise.
    pub(super) fn insert(&mut self, token: Sha256Digest, verdict: Verdict, now: Instant) {
        if self.entries.len() >= CAPACITY && !self.entries.contains_key(&token) {
            self.entries.retain(|_, (_, until)| now < *until);
        }
        if self.entries.len() >= CAPACITY && !self.entries.contains_key(&token) {
            let order = |(_, (verdict, until)): &(&Sha256Digest, &(Verdict, Instant))| {
                (*verdict == Verdict::Allowed, *until)
            };
            if let Some(oldest) = self.entries.iter().min_by_key(order).map(|(token, _)| *token) {
                self.entries.remove(&oldest);
            }
        }
        self.entries.insert(token, (verdict, now + LIFE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> Sha256Digest {
        Sha256Digest::of(&number.to_be_bytes())
    }

    #[test]
    fn a_verdict_holds_for_a_minute() {
        let now = Instant::now();
        let mut verdicts = Verdicts::default();
        verdicts.insert(token(1), Verdict::Forbidden, now);
        assert_eq!(verdicts.get(&token(1), now + LIFE - Duration::from_secs(1)), Some(Verdict::Forbidden));
        assert_eq!(verdicts.get(&token(1), now + LIFE), None);
        assert_eq!(verdicts.get(&token(2), now), None);
        verdicts.insert(token(1), Verdict::Allowed, now + LIFE);
        assert_eq!(verdicts.get(&token(1), now + LIFE), Some(Verdict::Allowed));
    }

    #[test]
    fn noise_displaces_only_noise() {
        let now = Instant::now();
        let mut verdicts = Verdicts::default();
        verdicts.insert(token(0), Verdict::Allowed, now);
        for number in 1..10 * CAPACITY {
            verdicts.insert(token(number), Verdict::Unauthenticated, now + Duration::from_millis(1));
            assert!(verdicts.entries.len() <= CAPACITY);
        }
        assert_eq!(verdicts.get(&token(0), now), Some(Verdict::Allowed));
        verdicts.insert(token(usize::MAX), Verdict::Unauthenticated, now + 2 * LIFE);
        assert_eq!(verdicts.entries.len(), 1, "what no longer holds goes first");
    }
}

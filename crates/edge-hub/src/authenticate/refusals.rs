//! Tokens that the API server refused, for the time without a link. Pure: time comes in as a parameter.

use std::collections::{BTreeMap, HashMap};

use tls::digest::Sha256Digest;

use crate::make_room::make_room;

/// How many are kept. When there are more, what expires first of whoever has most goes, and all that nobody signed is one owner's: nobody makes
/// the hub forget what became of another's token.
const KEPT: usize = 1024;

struct Refusal {
    /// Whose the token is, if one of the cluster's keys says so; else it would not pass without a link.
    signed_for: Option<Box<str>>,
    /// Unix seconds.
    expiry: i64,
}

/// As they are stored: by the token's digest and whose it is, when it expires (Unix seconds).
type Stored = BTreeMap<String, u64>;

/// What was refused and has not expired: a signature says nothing against that.
#[derive(Default)]
pub(super) struct Refusals {
    all: HashMap<Sha256Digest, Refusal>,
    /// Whether others would pass by their signature than at the last export.
    changed: bool,
}

impl Refusals {
    /// The API server refused this. A token that has expired, or does not say when, passes nowhere without a link: it is not kept.
    pub(super) fn note(
        &mut self,
        token: Sha256Digest,
        signed_for: Option<Box<str>>,
        expiry: Option<i64>,
        now: i64,
    ) {
        let Some(expiry) = expiry.filter(|expiry| *expiry > now) else { return };
        let is_new = !self.all.contains_key(&token);
        if is_new {
            let is_over = |refusal: &Refusal| refusal.expiry <= now;
            make_room(&mut self.all, KEPT, is_over, |_, refusal| (&refusal.signed_for, refusal.expiry));
        }
        self.changed |= is_new && signed_for.is_some();
        self.all.insert(token, Refusal { signed_for, expiry });
    }

    /// The API server takes it again.
    pub(super) fn forget(&mut self, token: &Sha256Digest) {
        self.changed |= self.all.remove(token).is_some_and(|refusal| refusal.signed_for.is_some());
    }

    /// Whether it was refused last.
    pub(super) fn hold(&self, token: &Sha256Digest) -> bool {
        self.all.contains_key(token)
    }

    /// What an earlier run exported; nothing, if it cannot be read.
    pub(super) fn restore(stored: &[u8], now: i64) -> Self {
        let stored: Stored = serde_json::from_slice(stored).unwrap_or_default();
        let mut refusals = Self::default();
        for (name, expiry) in stored {
            if let Some((token, whose)) = name.split_once(' ')
                && let Some(token) = Sha256Digest::from_hexadecimal(token)
            {
                refusals.note(token, Some(whose.into()), i64::try_from(expiry).ok(), now);
            }
        }
        refusals.changed = false;
        refusals
    }

    /// Those that would pass without a link by their signature, which is what a restart must not forget, if there are others than at the last call.
    pub(super) fn export(&mut self) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let stored = |(token, refusal): (&Sha256Digest, &Refusal)| {
            let whose = refusal.signed_for.as_ref()?;
            Some((format!("{token} {whose}"), u64::try_from(refusal.expiry).ok()?))
        };
        serde_json::to_vec(&self.all.iter().filter_map(stored).collect::<Stored>()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 2_000_000_000;

    fn token(name: &str) -> Sha256Digest {
        Sha256Digest::of(name.as_bytes())
    }

    #[test]
    fn who_is_refused_ever_more_drives_out_nobody_elses() {
        let mut refusals = Refusals::default();
        for n in 0..2 * KEPT {
            refusals.note(token(&format!("without end {n}")), None, None, NOW);
            refusals.note(token(&format!("junk {n}")), None, Some(i64::MAX), NOW);
        }
        refusals.note(token("revoked"), Some("pod".into()), Some(NOW + 60), NOW);
        for n in 0..2 * KEPT {
            refusals.note(token(&format!("more junk {n}")), None, Some(i64::MAX), NOW);
        }
        assert!(refusals.hold(&token("revoked")));
        for n in 0..2 * KEPT {
            refusals.note(token(&format!("own {n}")), Some("many".into()), Some(NOW + 3600), NOW);
        }
        assert!(refusals.hold(&token("revoked")), "nor by tokens that are signed");
        assert!(refusals.hold(&token(&format!("own {}", 2 * KEPT - 1))), "new ones are kept");
        assert_eq!(refusals.all.len(), KEPT);
    }

    #[test]
    fn what_has_expired_makes_room_and_what_is_taken_again_is_forgotten() {
        let mut refusals = Refusals::default();
        for n in 0..KEPT {
            refusals.note(token(&n.to_string()), None, Some(NOW + 1), NOW);
        }
        refusals.note(token("late"), None, Some(NOW + 9), NOW + 1);
        assert_eq!(refusals.all.len(), 1);
        refusals.note(token("expired"), None, Some(NOW + 1), NOW + 1);
        assert!(!refusals.hold(&token("expired")) && refusals.hold(&token("late")));
        refusals.forget(&token("late"));
        assert!(!refusals.hold(&token("late")));
    }

    #[test]
    fn what_passes_by_its_signature_is_refused_after_a_restart_too() {
        let mut refusals = Refusals::default();
        refusals.note(token("junk"), None, Some(NOW + 9), NOW);
        refusals.note(token("short"), Some("pod".into()), Some(NOW + 1), NOW);
        refusals.note(token("revoked"), Some("pod".into()), Some(NOW + 9), NOW);
        let stored = refusals.export().unwrap();
        assert!(refusals.export().is_none(), "nothing new to write");
        let mut after = Refusals::restore(&stored, NOW + 1);
        assert!(after.hold(&token("revoked")) && !after.hold(&token("junk")) && !after.hold(&token("short")));
        assert!(after.export().is_none(), "it is stored");
        after.forget(&token("revoked"));
        assert_eq!(after.export().unwrap(), b"{}");
    }
}

//! What the disk did not give back as it was given, and was not written since: whose it is, and what is wrong. That is known over restarts, as a
//! damaged file is only found once: the next start would show a hub that was never told of anything.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use tracing::debug;

/// How long that is told over restarts of what nobody fetched: what nobody asks for is let go after that time, too.
const TOLD: Duration = Duration::from_hours(24 * 7);

/// One that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Problem {
    what: String,
    /// When it was found, in Unix seconds.
    since: u64,
}

/// All that cannot be read, by the subscription or document, or by the file where that does not say whose it is.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    by_name: BTreeMap<String, Problem>,
    /// Files that do not say whose they are: of those nobody could ever say that it was written anew, so they are told until the process ends.
    files: BTreeMap<String, String>,
    /// Whether there are others than at the last export.
    changed: bool,
}

impl Unreadable {
    /// Those that [`Unreadable::export`] gave before a restart at `now`.
    pub(super) fn restore(&mut self, stored: &[u8], now: u64) {
        let earlier: BTreeMap<String, Problem> = serde_json::from_slice(stored).unwrap_or_else(|error| {
            debug!(%error, "which files were damaged before is not known any more");
            BTreeMap::new()
        });
        for (name, problem) in earlier {
            if now.saturating_sub(problem.since) < TOLD.as_secs() {
                self.by_name.entry(name).or_insert(problem);
            } else {
                self.changed = true;
            }
        }
    }

    /// All that are to be told over a restart, if there are others than at the last call.
    pub(super) fn export(&mut self) -> Option<Vec<u8>> {
        let changed = std::mem::take(&mut self.changed);
        changed.then(|| serde_json::to_vec(&self.by_name).unwrap_or_default())
    }

    /// What was exported could not be written: it is to be exported again.
    pub(super) fn not_exported(&mut self) {
        self.changed = true;
    }

    /// Something is wrong with that subscription or document. Says whether that is new.
    pub(super) fn note(&mut self, name: &str, what: String, now: u64) -> bool {
        let is_new = !self.by_name.contains_key(name);
        if is_new {
            self.by_name.insert(name.to_owned(), Problem { what, since: now });
            self.changed = true;
        }
        is_new
    }

    /// Something is wrong with a file that does not say whose it is.
    pub(super) fn note_file(&mut self, path: String, what: String) {
        self.files.insert(path, what);
    }

    /// Nothing is wrong with it any more.
    pub(super) fn forget(&mut self, name: &str) {
        self.changed |= self.by_name.remove(name).is_some();
    }

    /// `name: what is wrong`.
    pub(super) fn list(&self) -> Vec<String> {
        let named = self.by_name.iter().map(|(name, Problem { what, .. })| (name, what));
        named.chain(&self.files).map(|(whose, what)| format!("{whose}: {what}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 2_000_000_000;

    #[test]
    fn what_is_damaged_is_told_over_restarts_until_it_is_there_again_or_nobody_wants_it() {
        let mut found = Unreadable::default();
        assert!(found.note("pods", "damaged".to_owned(), NOW) && found.note("keys", "short".to_owned(), NOW));
        assert!(!found.note("pods", "damaged again".to_owned(), NOW + 1), "it is told already");
        found.note_file("/x".to_owned(), "no name".to_owned());
        assert_eq!(found.list(), ["keys: short", "pods: damaged", "/x: no name"]);
        let stored = found.export().unwrap();
        assert!(found.export().is_none(), "nothing new to write");

        let restored = |later: u64| {
            let mut next = Unreadable::default();
            next.restore(&stored, NOW + later);
            next
        };
        assert_eq!(restored(60).list(), ["keys: short", "pods: damaged"]);
        assert!(restored(60).export().is_none(), "it stands on the disk");
        let mut late = restored(TOLD.as_secs());
        assert!(late.list().is_empty() && late.export().is_some());

        let mut next = restored(60);
        next.forget("pods");
        next.forget("never heard of");
        assert_eq!(next.list(), ["keys: short"]);
        let stored = next.export().unwrap();
        next.not_exported();
        assert_eq!(next.export().unwrap(), stored);
    }

    #[test]
    fn nonsense_is_nothing() {
        let mut next = Unreadable::default();
        next.restore(b"[1", NOW);
        assert!(next.list().is_empty());
    }
}

//! Reports that were asked for, are known, and are not there: how often the watches begin anew for each. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the watches have to tell of one, before they begin anew once more for it; each time twice as long as before, as a list may take longer than
/// that and would be broken off.
const AGAIN: Duration = Duration::from_secs(5);

/// The longest of these waits.
const AGAIN_MOST: Duration = Duration::from_mins(5);

/// Those that are not there, by the nodes' names.
#[derive(Debug, Default)]
pub(super) struct Absences(BTreeMap<String, Absence>);

#[derive(Debug)]
struct Absence {
    /// The version at which the report is known.
    seen: String,
    /// When the watches have had their time, and how much that was.
    until: Instant,
    wait: Duration,
}

impl Absences {
    /// The report of `node`, known at version `seen`, is not there at `now`. Says whether the watches are to begin anew for it.
    pub(super) fn note(&mut self, node: &str, seen: &str, now: Instant) -> bool {
        let wait = match self.0.get(node).filter(|absence| absence.seen == seen) {
            Some(absence) if now < absence.until => return false,
            Some(absence) => (absence.wait * 2).min(AGAIN_MOST),
            None => AGAIN,
        };
        self.0.insert(node.to_owned(), Absence { seen: seen.to_owned(), until: now + wait, wait });
        true
    }

    /// Forgets all but those that are known at that version still.
    pub(super) fn retain(&mut self, is_at: impl Fn(&str, &str) -> bool) {
        self.0.retain(|node, absence| is_at(node, &absence.seen));
    }

    #[cfg(test)]
    pub(super) fn nodes(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

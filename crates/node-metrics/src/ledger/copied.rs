//! What a standby takes over from the leader's ledger: the same versions, and no others.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Change, Ledger, Reselected, Selectable, Stored};

impl<T: Selectable> Ledger<T> {
    /// Sets a value at the version that another ledger gave it, in which it came to be at `added`; nothing happens if a later one is known.
    pub fn copy(&mut self, name: &Arc<str>, value: T, (version, added): (u64, u64)) {
        if self.live.get(name).is_some_and(|before| before.version >= version) {
            return;
        }
        self.set(Stored { name: Arc::clone(name), version, added, value });
        self.last = self.last.max(version);
    }

    /// Selectors choose otherwise since then, as another ledger says.
    pub fn copy_reselection(&mut self, how: Arc<Reselected<T::Head>>) {
        self.last = self.last.max(how.version);
        self.reselect(how);
    }

    /// Takes a value away at the version at which it went from another ledger.
    pub fn copy_removal(&mut self, name: &str, version: u64) {
        if self.live.get(name).is_some_and(|before| before.version <= version) {
            self.bury(name, version);
        }
        self.last = self.last.max(version);
    }

    /// Nothing else happened up to `version` in the ledger that is copied: all of it is known.
    pub fn copy_progress(&mut self, version: u64) {
        self.last = self.last.max(version);
        self.complete = self.complete.max(version);
    }

    /// Versions up to this one were told of, not all that is below it.
    pub fn copy_reach(&mut self, version: u64) {
        self.last = self.last.max(version);
    }

    /// The names that are not in `names` were gone before `version`, at which a whole list was copied.
    pub fn copied_whole(&mut self, names: &BTreeSet<Arc<str>>, version: u64) {
        let gone: Vec<Arc<str>> = self.live.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            if let Some(stored) = self.live.remove(&name) {
                self.order.remove(&stored.version);
            }
        }
        self.copy_progress(version);
        self.oldest = self.oldest.max(version);
        let tombstones: Vec<u64> = self
            .order
            .iter()
            .filter(|(_, change)| matches!(change, Change::Gone { .. }))
            .map(|(at, _)| *at)
            .collect();
        for at in tombstones {
            self.order.remove(&at);
        }
        self.tombstones = 0;
        self.reselections.clear();
        self.reselections_from = version;
    }
}

//! Two ledgers that are one: of each NodeMetric its NodeLoad is kept, which changes seldom. It has the version of the NodeMetric with
//! which it changed, so the two never disagree, and whoever copies the one has the other.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use crate::ledger::{Ledger, Reselected, Stored};
use crate::load::LoadRecord;
use crate::record::{Head, Record};

/// NodeMetrics, and NodeLoads that follow them.
#[derive(Debug, Default)]
pub(crate) struct Books {
    metrics: Ledger<Record>,
    loads: Ledger<LoadRecord>,
    /// Names whose NodeLoad has changed, as a leader says, since the NodeMetric that is held of them, perhaps to and fro.
    stirred: BTreeSet<Arc<str>>,
}

impl Deref for Books {
    type Target = Ledger<Record>;

    fn deref(&self) -> &Self::Target {
        &self.metrics
    }
}

impl Books {
    /// The NodeLoads.
    pub(crate) fn loads(&self) -> &Ledger<LoadRecord> {
        &self.loads
    }

    pub(crate) fn set_ceiling(&mut self, ceiling: u64) {
        self.metrics.set_ceiling(ceiling);
    }

    pub(crate) fn begin_above(&mut self, version: u64) {
        self.metrics.begin_above(version);
        self.loads.begin_above(version);
    }

    /// All under new versions, above those that another may have told of.
    pub(crate) fn restamp(&mut self) {
        self.metrics.restamp(Record::again);
        for stored in self.metrics.values() {
            if let Some((load, added)) =
                self.loads.get(&stored.name).map(|load| (load.value.again(), load.added))
            {
                self.loads.copy(&stored.name, load, (stored.version, added));
            }
        }
        self.loads.copy_progress(self.metrics.last());
    }

    pub(crate) fn put(&mut self, name: &Arc<str>, record: Record, wall_micros: u64) -> Arc<Stored<Record>> {
        let stored = self.metrics.put(name, record, wall_micros);
        if let Some(how) = self.metrics.reselected_at(stored.version).map(Arc::clone) {
            self.reselect_load(&how);
        }
        self.settle(name);
        stored
    }

    /// A NodeMetric of the leader is selected otherwise since then, and so may be its NodeLoad.
    pub(crate) fn copy_reselection(&mut self, how: Reselected<Head>) {
        let how = Arc::new(how);
        self.reselect_load(&how);
        self.stirred.insert(Arc::clone(&how.name));
        self.metrics.copy_reselection(how);
    }

    pub(crate) fn forget_reselections(&mut self) {
        self.metrics.forget_reselections();
        self.loads.forget_reselections();
    }

    fn reselect_load(&mut self, how: &Reselected<Head>) {
        let Reselected { name, version, added, before, after } = how;
        if before.state != after.state {
            let (name, before, after) = (Arc::clone(name), before.state, after.state);
            let how = Reselected { name, version: *version, added: *added, before, after };
            self.loads.copy_reselection(Arc::new(how));
        }
    }

    pub(crate) fn remove(&mut self, name: &str, wall_micros: u64) -> Option<(u64, Arc<Stored<Record>>)> {
        let removed = self.metrics.remove(name, wall_micros);
        if let Some((version, _)) = &removed {
            self.loads.copy_removal(name, *version);
            self.loads.copy_progress(*version);
        }
        removed
    }

    pub(crate) fn copy(&mut self, name: &Arc<str>, record: Record, at: (u64, u64)) {
        self.metrics.copy(name, record, at);
        self.settle(name);
    }

    pub(crate) fn copy_removal(&mut self, name: &str, version: u64) {
        self.stirred.remove(name);
        self.metrics.copy_removal(name, version);
        self.loads.copy_removal(name, version);
    }

    pub(crate) fn copy_progress(&mut self, version: u64) {
        self.metrics.copy_progress(version);
        self.loads.copy_progress(version);
    }

    pub(crate) fn copied_whole(&mut self, names: &BTreeSet<Arc<str>>, version: u64) {
        self.stirred.clear();
        self.metrics.copied_whole(names, version);
        self.loads.copied_whole(names, version);
    }

    /// The NodeLoad follows, if a client would see a difference.
    fn settle(&mut self, name: &Arc<str>) {
        let Some(stored) = self.metrics.get(name) else { return };
        let load = LoadRecord::of(&stored.value);
        let (version, added) = (stored.version, stored.added);
        let stirred = self.stirred.remove(name);
        if self.loads.get(name).is_none_or(|known| stirred || !known.value.is_same(&load)) {
            self.loads.copy(name, load, (version, added));
        }
        self.loads.copy_reach(self.metrics.last());
        self.loads.copy_progress(self.metrics.complete());
    }
}

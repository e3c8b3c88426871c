//! The store of a replica that follows: a copy of the leader's state, as it is told of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Origin, Phase, Store};
use crate::freshness::Now;
use crate::record::Record;

impl Store {
    /// Whether a whole state of the leader has been copied since this replica began to follow.
    pub fn is_copied(&self) -> bool {
        self.copied
    }

    /// Takes in a whole list of the leader, which is so at `version`.
    pub fn copy_list(&mut self, now: Now, records: Vec<(Arc<str>, u64, Record)>, version: u64) {
        if self.phase != Phase::Following {
            return;
        }
        let names: BTreeSet<Arc<str>> = records.iter().map(|(name, ..)| Arc::clone(name)).collect();
        for (name, at, record) in records {
            self.ledger.copy(&name, record, at);
        }
        self.ledger.copied_whole(&names, version);
        self.copied = true;
        self.origin = Origin::Served;
        self.copied_at = Some(now.steady);
    }

    /// Takes in one change of the leader.
    pub fn copy_change(&mut self, now: Now, name: &Arc<str>, version: u64, record: Option<Record>) {
        if self.phase != Phase::Following {
            return;
        }
        self.copied_at = Some(now.steady);
        match record {
            Some(record) => self.ledger.copy(name, record, version),
            None => self.ledger.copy_removal(name, version),
        }
    }

    /// The stream of the leader broke in a way that something may be missing: the next copy is a whole one.
    pub fn forget_copy(&mut self) {
        self.copied = false;
    }

    /// Nothing else happened up to `version`.
    pub fn copy_progress(&mut self, now: Now, version: u64) {
        if self.phase == Phase::Following {
            self.copied_at = Some(now.steady);
            self.ledger.copy_progress(version);
        }
    }
}

//! The store of a replica that follows: a copy of the leader's state, as it is told of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Origin, Phase, Reselections, Store};
use crate::freshness::Now;
use crate::ledger::Reselected;
use crate::record::{Head, Record};

/// A version of the leader.
#[derive(Debug)]
pub struct Copied {
    /// The name.
    pub name: Arc<str>,
    /// Its version.
    pub version: u64,
    /// When it came to be; 0 if the leader does not tell.
    pub added: u64,
    /// What it is.
    pub record: Record,
}

impl Store {
    /// Whether a whole state of the leader has been copied since this replica began to follow.
    pub fn is_copied(&self) -> bool {
        self.copied
    }

    /// A stream of the leader begins, which tells how that changes by which selectors choose, or does not.
    pub fn copy_begins(&mut self, tells_reselections: bool) {
        self.reselections = match self.reselections {
            _ if !tells_reselections => Reselections::Untold,
            Reselections::Told => Reselections::Told,
            Reselections::Missed | Reselections::Untold => Reselections::Missed,
        };
    }

    /// Takes in a whole list of the leader, which is so at `version`.
    pub fn copy_list(&mut self, now: Now, records: Vec<Copied>, version: u64) {
        if self.phase != Phase::Following {
            return;
        }
        let names: BTreeSet<Arc<str>> = records.iter().map(|copied| Arc::clone(&copied.name)).collect();
        for Copied { name, version, added, record } in records {
            self.ledger.copy(&name, record, (version, added));
        }
        self.ledger.copied_whole(&names, version);
        self.copied = true;
        if self.reselections == Reselections::Missed {
            self.reselections = Reselections::Told;
        }
        self.origin = Origin::Served;
        self.copied_at = Some(now.steady);
        self.complete_at = Some(now.steady);
    }

    /// Takes in a version of the leader.
    pub fn copy_record(&mut self, now: Now, copied: Copied) {
        if self.phase == Phase::Following {
            self.copied_at = Some(now.steady);
            let Copied { name, version, added, record } = copied;
            self.ledger.copy(&name, record, (version, added));
        }
    }

    /// One is gone from the leader since `version`.
    pub fn copy_removal(&mut self, now: Now, name: &str, version: u64) {
        if self.phase == Phase::Following {
            self.copied_at = Some(now.steady);
            self.ledger.copy_removal(name, version);
        }
    }

    /// One of the leader is selected otherwise since then.
    pub fn copy_reselection(&mut self, now: Now, how: Reselected<Head>) {
        if self.phase == Phase::Following {
            self.copied_at = Some(now.steady);
            self.ledger.copy_reselection(how);
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
            self.complete_at = Some(now.steady);
            self.ledger.copy_progress(version);
        }
    }
}

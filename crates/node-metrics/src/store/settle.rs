//! Objects and Nodes agree: one for each Node that is not hidden, none without.

use std::sync::Arc;

use api::slo::freshness::{Freshness, FreshnessState};

use super::{Phase, Store, Tracked};
use crate::freshness::{Now, Silence};
use crate::record::Record;

impl Store {
    /// Whether it knows which Nodes there are: what is none then has none.
    pub fn knows_nodes(&self) -> bool {
        self.nodes_listed
    }

    /// Objects whose Node is not known. A new leader may know of a Node later than the one before did, so it must look whether it is
    /// there before its object goes ([`Store::no_node`]).
    pub fn orphans(&self) -> Vec<Arc<str>> {
        if self.phase == Phase::Following || !self.nodes_listed {
            return Vec::new();
        }
        let names = self.ledger.values().map(|stored| &stored.name);
        names.filter(|name| !self.nodes.contains_key(*name)).cloned().collect()
    }

    /// There is no Node of this name, as the API server says; its object goes unless a Node has come meanwhile.
    pub fn no_node(&mut self, now: Now, name: &str) {
        if self.phase != Phase::Following && !self.nodes.contains_key(name) {
            self.ledger.remove(name, now.micros());
        }
    }

    /// Makes an object for each Node that has none and is not hidden.
    pub(super) fn settle(&mut self, now: Now) {
        if !self.nodes_listed {
            return;
        }
        let names: Vec<Arc<str>> = self.nodes.keys().cloned().collect();
        for name in names {
            self.settle_node(&name, now);
        }
        self.warm(now);
    }

    /// The same for those alone whose object somebody has deleted.
    pub(super) fn settle_missing(&mut self, now: Now) {
        let missing = self.nodes.keys().filter(|name| self.ledger.get(name).is_none());
        for name in missing.cloned().collect::<Vec<_>>() {
            self.settle_node(&name, now);
        }
    }

    pub(super) fn settle_node(&mut self, name: &Arc<str>, now: Now) {
        let Some(Tracked { facts, silence, .. }) = self.nodes.get(name) else { return };
        let spec = &facts.policy.spec;
        let record = match self.ledger.get(name) {
            None if *silence == Some(Silence::Hidden) => return,
            None => {
                let state = match silence {
                    None => FreshnessState::NeverReported,
                    Some(Silence::Expired | Silence::Hidden) => FreshnessState::Expired,
                    Some(Silence::Fresh | Silence::Stale) => FreshnessState::Unknown,
                };
                Record::of_node(name, &facts.uid, facts.created.as_ref(), Arc::clone(spec))
                    .with_freshness(Freshness { state, ..Freshness::default() })
            }
            Some(stored) if *stored.value.spec != **spec => stored.value.with_spec(Arc::clone(spec)),
            Some(_) => return,
        };
        self.ledger.put(name, record, now.micros());
    }
}

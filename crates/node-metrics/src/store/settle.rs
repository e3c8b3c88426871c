//! Objects and Nodes agree: one for each Node that is not hidden, none without.

use std::sync::Arc;
use std::time::Duration;

use api::slo::freshness::{Freshness, FreshnessState};

use super::{NodeFacts, Phase, Store, Tracked};
use crate::freshness::{Now, Rules, Silence};
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

    /// Takes away the object of the Node of this UID, which is gone, unless it is known to be that of another.
    pub(super) fn remove_of(&mut self, now: Now, name: &str, node_uid: &str) {
        let held = self.ledger.get(name).filter(|_| self.phase != Phase::Following);
        if held.is_some_and(|held| held.value.is_of_node(node_uid) != Some(false)) {
            self.ledger.remove(name, now.micros());
        }
    }

    /// Objects of Nodes in whose place there is another Node of that name.
    pub(super) fn of_former_nodes(&self) -> Vec<Arc<str>> {
        let former = self.nodes.iter().filter(|(name, tracked)| {
            self.ledger.get(name).is_some_and(|held| is_of_a_former(&held.value, &tracked.facts, false))
        });
        former.map(|(name, _)| Arc::clone(name)).collect()
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
        let Some(tracked) = self.nodes.get_mut(name) else { return };
        let Tracked { facts, silence, settled, .. } = tracked;
        let spec = &facts.policy.spec;
        // What somebody else writes over it stays until another is wanted: two who each insist would write for ever.
        let is_another = settled.as_ref() != Some(spec);
        *settled = Some(Arc::clone(spec));
        let record = match self.ledger.get(name) {
            None if *silence == Some(Silence::Hidden) => return,
            None => {
                let freshness = Freshness { state: without_report(*silence), ..Freshness::default() };
                Record::of_node(name, &facts.uid, facts.created.as_ref(), Arc::clone(spec))
                    .with_freshness(freshness)
            }
            Some(stored) if is_another && *stored.value.spec != **spec => {
                stored.value.with_spec(Arc::clone(spec))
            }
            Some(_) => return,
        };
        self.ledger.put(name, record, now.micros());
    }

    /// The state of an object that a client makes, or takes the status from, whose node is silent so. One that was out of view has its grace once
    /// more: else it would be in view for good, or gone before the client could write a status.
    pub(super) fn state_of_made(&mut self, name: &str, now: Now) -> FreshnessState {
        let Some(tracked) = self.nodes.get_mut(name) else { return FreshnessState::Unknown };
        if tracked.silence == Some(Silence::Hidden) {
            tracked.silence = Some(Silence::Expired);
            tracked.heard = now.steady;
        }
        without_report(tracked.silence)
    }
}

/// Whether an object is that of a Node which was there before this one. That of a later one is not: the watch of Nodes lags behind the copy, and
/// will tell. `unknown`: what is taken for so where nothing tells whose it is.
pub(super) fn is_of_a_former(record: &Record, facts: &NodeFacts, unknown: bool) -> bool {
    let is_later = || record.created() > facts.created.as_ref().map(|created| created.0);
    record.is_of_node(&facts.uid).map_or(unknown, |is_its| !is_its && !is_later())
}

/// Whether an object is to go now that there is this Node, where this replica knew `former` by its name, if any.
pub(super) fn is_replaced(record: &Record, former: Option<&NodeFacts>, facts: &NodeFacts) -> bool {
    // Times of objects that clients make are this replica's, and those of Nodes the API server's: of one that is known to be the former's they say nothing.
    let created = |facts: &NodeFacts| facts.created.as_ref().map(|created| created.0);
    let is_its = |former: &NodeFacts| {
        record.is_of_node(&former.uid) == Some(true) && created(former) <= created(facts)
    };
    former.is_some_and(is_its) || is_of_a_former(record, facts, former.is_some())
}

/// What earlier leaders knew of a node: by its object, if there is one, and by what they said in the Node's condition. `lag`: so long before this leadership its
/// copy had all objects.
pub(super) fn known_before(
    object: Option<FreshnessState>,
    facts: &NodeFacts,
    rules: Rules,
    lag: Option<Duration>,
) -> Option<Silence> {
    // The object of a node of which it was said that it is silent had been there for that long.
    let went = |lag| {
        facts.condition == Some(Silence::Expired)
            && rules.judge(lag, facts.policy.interval) < Silence::Expired
    };
    match object {
        Some(FreshnessState::Fresh) => Some(Silence::Fresh),
        Some(FreshnessState::Stale) => Some(Silence::Stale),
        Some(FreshnessState::Expired) => Some(Silence::Expired),
        Some(FreshnessState::NeverReported) => None,
        // It went out of view, and the leader had no time to say so.
        None if lag.is_some_and(went) => Some(Silence::Hidden),
        Some(FreshnessState::Unknown) | None => facts.condition,
    }
}

/// The state of an object without a status.
fn without_report(silence: Option<Silence>) -> FreshnessState {
    match silence {
        None => FreshnessState::NeverReported,
        Some(Silence::Expired | Silence::Hidden) => FreshnessState::Expired,
        Some(Silence::Fresh | Silence::Stale) => FreshnessState::Unknown,
    }
}

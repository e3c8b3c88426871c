//! From the links that are wanted and those there are to what to do. Pure.
//!
//! Only what differs is touched. A link that is no longer wanted while one like it is stays until that one is registered, so
//! new addresses and certificates change over without a moment in which there is none.

use std::collections::{BTreeMap, BTreeSet};

use crate::{protocol::Class, route::Direction};

/// What makes two links the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey {
    /// The gateway it leads to: a node, or a name for all behind one address.
    pub gateway: String,
    /// Who asks over it.
    pub direction: Direction,
    /// For which traffic.
    pub class: Class,
    /// `host:port` that is dialled.
    pub address: String,
    /// The generation of the credentials it was made with.
    pub generation: u64,
}

/// How far a link has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// It is dialled, or waits to be dialled again.
    Connecting,
    /// Both sides agreed on it.
    Registered,
    /// It takes no new streams.
    Draining,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Start these.
    pub dial: Vec<LinkKey>,
    /// Let these finish their streams, and take no new ones.
    pub drain: Vec<LinkKey>,
    /// Give these up; they have no streams.
    pub abandon: Vec<LinkKey>,
}

/// What to do about `actual` where `desired` is wanted.
pub fn plan(desired: &BTreeSet<LinkKey>, actual: &BTreeMap<LinkKey, LinkState>) -> Plan {
    let mut plan = Plan::default();
    plan.dial.extend(desired.iter().filter(|key| !actual.contains_key(key)).cloned());
    for (key, state) in actual {
        if desired.contains(key) {
            continue;
        }
        match state {
            LinkState::Connecting => plan.abandon.push(key.clone()),
            LinkState::Registered if awaits_successor(key, desired, actual) => {}
            LinkState::Registered => plan.drain.push(key.clone()),
            LinkState::Draining => {}
        }
    }
    plan
}

/// Whether what takes a link's place is wanted and none of it is there yet.
fn awaits_successor(
    key: &LinkKey,
    desired: &BTreeSet<LinkKey>,
    actual: &BTreeMap<LinkKey, LinkState>,
) -> bool {
    let mut successors = desired
        .iter()
        .filter(|other| {
            other.gateway == key.gateway && other.direction == key.direction && other.class == key.class
        })
        .peekable();
    successors.peek().is_some() && !successors.any(|other| actual.get(other) == Some(&LinkState::Registered))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(gateway: &str, address: &str, generation: u64) -> LinkKey {
        LinkKey {
            gateway: gateway.into(),
            direction: Direction::Reverse,
            class: Class::Interactive,
            address: address.into(),
            generation,
        }
    }

    #[test]
    fn a_new_address_is_up_before_the_old_one_goes() {
        let (old, new, other) = (key("g", "a:1", 1), key("g", "b:1", 1), key("h", "c:1", 1));
        let desired = BTreeSet::from([new.clone(), other.clone()]);
        let mut actual =
            BTreeMap::from([(old.clone(), LinkState::Registered), (other.clone(), LinkState::Registered)]);
        let first = plan(&desired, &actual);
        assert_eq!(first, Plan { dial: vec![new.clone()], ..Plan::default() });
        actual.insert(new.clone(), LinkState::Connecting);
        assert_eq!(plan(&desired, &actual), Plan::default());
        actual.insert(new, LinkState::Registered);
        assert_eq!(plan(&desired, &actual), Plan { drain: vec![old.clone()], ..Plan::default() });
        // A gateway that is gone has no successor to wait for.
        assert_eq!(
            plan(&BTreeSet::new(), &BTreeMap::from([(old.clone(), LinkState::Registered)])).drain,
            [old]
        );
    }

    fn keys() -> impl Strategy<Value = BTreeSet<LinkKey>> {
        proptest::collection::btree_set(
            (0_u8..3, 0_u8..2, 0_u64..2).prop_map(|(gateway, address, generation)| {
                key(&gateway.to_string(), &address.to_string(), generation)
            }),
            0..6,
        )
    }

    /// Does what a plan says; connections come up for all but those to an address that does not answer.
    fn apply(plan: Plan, actual: &mut BTreeMap<LinkKey, LinkState>, dead: &str) {
        for key in plan.drain {
            assert_eq!(actual.insert(key, LinkState::Draining), Some(LinkState::Registered));
        }
        for key in plan.abandon {
            assert_eq!(actual.remove(&key), Some(LinkState::Connecting));
        }
        for (key, state) in actual.iter_mut() {
            if *state == LinkState::Connecting && key.address != dead {
                *state = LinkState::Registered;
            }
        }
        for key in plan.dial {
            assert_eq!(actual.insert(key, LinkState::Connecting), None);
        }
    }

    proptest! {
        /// Over any row of changes: what is wanted and there is left alone, a gateway that stays wanted and had a link
        /// always has one, and the end is what was wanted last.
        #[test]
        fn links_come_to_what_is_wanted(rows in proptest::collection::vec(keys(), 1..6)) {
            let mut actual = BTreeMap::new();
            for desired in &rows {
                for _ in 0..4 {
                    let before = actual.clone();
                    let todo = plan(desired, &actual);
                    for key in desired {
                        prop_assert!(!todo.drain.contains(key) && !todo.abandon.contains(key));
                    }
                    apply(todo, &mut actual, "none");
                    for gateway in desired.iter().map(|key| &key.gateway) {
                        let up = |links: &BTreeMap<LinkKey, LinkState>| links
                            .iter()
                            .any(|(key, state)| key.gateway == *gateway && *state == LinkState::Registered);
                        prop_assert!(!up(&before) || up(&actual), "{gateway} lost its last link");
                    }
                    actual.retain(|_, state| *state != LinkState::Draining);
                }
                let there: BTreeSet<_> = actual.keys().cloned().collect();
                prop_assert_eq!(&there, desired);
                prop_assert_eq!(plan(desired, &actual), Plan::default());
            }
        }
    }
}

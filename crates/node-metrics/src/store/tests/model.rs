//! Two replicas, their nodes and an informer, over any order of events.

use proptest::prelude::*;

use super::*;
use crate::ledger::Change;

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Remove(u8),
    Report(u8),
    Pass(u64),
    Follow,
    Read,
    /// The new leader's clock is behind, and its watch of Nodes does not know of the last one yet.
    TakeOver {
        clock_back: u64,
        late: Option<u8>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u8..4).prop_map(Step::Add),
        1 => (0u8..4).prop_map(Step::Remove),
        6 => (0u8..4).prop_map(Step::Report),
        3 => (1u64..40).prop_map(Step::Pass),
        3 => Just(Step::Follow),
        3 => Just(Step::Read),
        1 => (0u64..1_000, prop::option::of(0u8..4))
            .prop_map(|(clock_back, late)| Step::TakeOver { clock_back, late }),
    ]
}

/// Two replicas, the nodes, and one informer.
struct World {
    leader: Store,
    standby: Store,
    heard: Option<u64>,
    nodes: BTreeMap<String, u32>,
    seconds: u64,
    clock_back: u64,
    ceiling: u64,
    seq: u64,
    informer: BTreeMap<String, String>,
    told: Option<u64>,
    /// Of each object the highest version that the informer has seen.
    highest: BTreeMap<String, u64>,
    /// Nodes that were removed, or silent for so long that they were declared gone.
    gone: BTreeSet<String>,
    /// When each node last reported.
    heard_of: BTreeMap<String, u64>,
}

impl World {
    fn now(&self) -> Now {
        let Now { steady, wall } = at(self.seconds);
        Now {
            steady,
            wall: wall
                .checked_sub(jiff::SignedDuration::from_secs(self.clock_back.try_into().unwrap()))
                .unwrap(),
        }
    }

    fn both(&mut self, change: impl Fn(&mut Store, Now)) {
        let now = self.now();
        change(&mut self.leader, now);
        change(&mut self.standby, now);
    }

    fn follow(&mut self) {
        let now = self.now();
        let ledger = self.leader.ledger();
        let copied = |stored: &crate::ledger::Stored<Record>| {
            let body: Bytes = record::object(stored, VERSION, |_| {}).unwrap().body().clone();
            Record::from_json(body).unwrap().0
        };
        if self.leader.phase() != Phase::Serving {
            return;
        }
        match self.heard.filter(|heard| ledger.is_known(*heard)) {
            None => {
                let list = ledger.values().map(|s| (Arc::clone(&s.name), s.version, copied(s))).collect();
                self.standby.copy_list(now, list, ledger.last());
            }
            Some(heard) => {
                for change in ledger.after(heard, usize::MAX).0 {
                    match change {
                        Change::Live(s) => {
                            self.standby.copy_change(now, &s.name, s.version, Some(copied(&s)));
                        }
                        Change::Gone { version, last } => {
                            if last.added > heard {
                                self.standby.copy_change(now, &last.name, last.version, Some(copied(&last)));
                            }
                            self.standby.copy_change(now, &last.name, version, None);
                        }
                    }
                }
            }
        }
        self.heard = Some(ledger.last());
    }

    /// The informer looks: it hears what is new, or lists anew, or is turned away.
    fn read(&mut self) {
        if self.leader.phase() != Phase::Serving {
            return;
        }
        let ledger = self.leader.ledger();
        if let Some(told) = self.told {
            assert!(ledger.last() >= told, "versions went back: {} after {told}", ledger.last());
        }
        let highest = &mut self.highest;
        let mut see = |stored: &crate::ledger::Stored<Record>| {
            let before = highest.insert(stored.name.to_string(), stored.version).unwrap_or(0);
            assert!(
                before <= stored.version,
                "{} went back from {before} to {}",
                stored.name,
                stored.version
            );
        };
        let deleted = match self.told.filter(|told| ledger.is_known(*told)) {
            None => {
                ledger.values().for_each(|stored| see(stored));
                let listed: BTreeMap<_, _> =
                    ledger.values().map(|s| (s.name.to_string(), s.value.uid().to_owned())).collect();
                let before = std::mem::replace(&mut self.informer, listed);
                before.into_keys().filter(|name| !self.informer.contains_key(name)).collect()
            }
            Some(told) => {
                let mut deleted = Vec::new();
                for change in ledger.after(told, usize::MAX).0 {
                    match change {
                        Change::Live(s) => {
                            see(&s);
                            self.informer.insert(s.name.to_string(), s.value.uid().to_owned());
                        }
                        Change::Gone { last, .. } => {
                            if last.added <= told {
                                deleted.push(last.name.to_string());
                            }
                            self.informer.remove(&*last.name);
                        }
                    }
                }
                deleted
            }
        };
        for name in deleted {
            assert!(self.gone.contains(&name), "DELETED of {name}, which was never gone");
        }
        self.told = Some(ledger.last());
        for name in self.nodes.keys().filter(|name| !self.gone.contains(*name)) {
            assert!(self.informer.contains_key(name), "{name} is missing from what is served");
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Add(n) => {
                let name = format!("n{n}");
                if !self.nodes.contains_key(&name) {
                    let uid = u32::try_from(self.seq).unwrap();
                    self.nodes.insert(name.clone(), uid);
                    self.both(|store, now| store.node_applied(now, facts(&name, uid, None)));
                }
            }
            Step::Remove(n) => {
                let name = format!("n{n}");
                if self.nodes.remove(&name).is_some() {
                    self.heard_of.remove(&name);
                    self.gone.insert(name.clone());
                    self.both(|store, now| store.node_deleted(now, &name));
                }
            }
            Step::Report(n) => {
                self.seq += 1;
                let name = format!("n{n}");
                let (now, report) = (self.now(), report(&name, 1, self.seq));
                if let Outcome::Judged { verdict, .. } = self.leader.report(now, report.clone()) {
                    assert_eq!(verdict, Verdict::Take);
                    let last = self.leader.ledger().last();
                    let again = self.leader.report(now, report);
                    assert!(matches!(again, Outcome::Judged { verdict: Verdict::Drop, .. }));
                    assert_eq!(self.leader.ledger().last(), last, "a duplicate changes nothing");
                    self.heard_of.insert(name, self.seconds);
                }
            }
            Step::Pass(seconds) => {
                for _ in 0..seconds {
                    self.seconds += 1;
                    let now = self.now();
                    self.leader.tick(now);
                }
                let limit = 60 + GRACE.as_secs();
                let gone = self.heard_of.iter().filter(|(_, at)| self.seconds - **at > limit);
                self.gone.extend(gone.map(|(name, _)| name.clone()));
                let now = self.now();
                for name in self.leader.orphans() {
                    if !self.nodes.contains_key(&*name) {
                        self.leader.no_node(now, &name);
                    }
                }
                for (name, wanted) in self.leader.conditions() {
                    let uid = self.nodes[&*name];
                    self.both(|store, now| store.node_applied(now, facts(&name, uid, Some(wanted))));
                }
            }
            Step::Follow => self.follow(),
            Step::Read => self.read(),
            Step::TakeOver { clock_back, late } => {
                let late = late.map(|n| format!("n{n}")).filter(|_| self.leader.phase() == Phase::Serving);
                let late = late.and_then(|name| Some((*self.nodes.get(&name)?, name)));
                if let Some((_, name)) = &late {
                    self.follow();
                    let now = self.now();
                    self.standby.node_deleted(now, name);
                }
                self.clock_back = clock_back;
                let now = self.now();
                std::mem::swap(&mut self.leader, &mut self.standby);
                // The old leader is dead; another process follows from nothing.
                self.standby = store();
                for (name, uid) in &self.nodes {
                    self.standby.node_applied(now, facts(name, *uid, None));
                }
                let names = self.nodes.keys().map(|name| Arc::from(name.as_str())).collect();
                self.standby.nodes_listed(now, &names);
                self.leader.promote(now, self.ceiling);
                self.ceiling += 1_000_000_000_000;
                self.leader.set_ceiling(self.ceiling);
                self.heard = None;
                if let Some((uid, name)) = late {
                    self.read();
                    self.leader.node_applied(now, facts(&name, uid, None));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn an_informer_never_sees_what_is_not_so(steps in prop::collection::vec(step(), 1..80)) {
        let ceiling = at(0).micros() + 1_000_000_000_000;
        let mut world = World {
            leader: leading(&[]),
            standby: store(),
            heard: None,
            nodes: BTreeMap::new(),
            seconds: 0,
            clock_back: 0,
            ceiling,
            seq: 0,
            informer: BTreeMap::new(),
            told: None,
            highest: BTreeMap::new(),
            gone: BTreeSet::new(),
            heard_of: BTreeMap::new(),
        };
        world.leader.set_ceiling(ceiling);
        world.standby.nodes_listed(at(0), &BTreeSet::new());
        for step in &steps {
            world.step(step);
        }
        world.read();
        world.step(&Step::Pass(1));
        let left: Vec<_> = world.leader.ledger().values().map(|stored| stored.name.to_string()).collect();
        prop_assert!(left.iter().all(|name| world.nodes.contains_key(name)), "{left:?} without a Node");
    }
}

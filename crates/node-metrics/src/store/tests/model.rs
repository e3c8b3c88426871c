//! Two replicas, their nodes and informers, over any order of events.

use proptest::prelude::*;

use super::*;
use crate::ledger::place::{News, Place};
use crate::ledger::{Change, Reselected, Selectable, Stored};
use crate::record::Head;

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Remove(u8),
    Report(u8),
    /// So many seconds, and whether conditions are written at the end of them.
    Pass(u64, bool),
    Follow,
    /// Some turns, and whether the stream ends in the middle of the last.
    FollowSome(usize, bool),
    Read,
    /// Which informer, and as of the stream.
    ReadSome(usize, usize, bool),
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
        3 => (prop_oneof![2 => 1u64..40, 1 => 60u64..160], any::<bool>())
            .prop_map(|(seconds, written)| Step::Pass(seconds, written)),
        3 => Just(Step::Follow),
        2 => (1usize..3, any::<bool>()).prop_map(|(turns, cut)| Step::FollowSome(turns, cut)),
        3 => Just(Step::Read),
        3 => (0usize..2, 1usize..3, any::<bool>()).prop_map(|(n, turns, cut)| Step::ReadSome(n, turns, cut)),
        1 => (0u64..1_000, prop::option::of(0u8..4))
            .prop_map(|(clock_back, late)| Step::TakeOver { clock_back, late }),
    ]
}

/// How much is told at a time.
const BATCH: usize = 2;

/// A client that holds all objects, or those that are fresh: by name their versions, up to where it was told, and its watch while that lasts.
#[derive(Default)]
struct Informer {
    selects: bool,
    held: BTreeMap<String, u64>,
    told: Option<u64>,
    watch: Option<Place>,
    /// A watch of it ended while it caught up, and it has not caught up since.
    cut: bool,
    /// Of each object the highest version that it has seen.
    highest: BTreeMap<String, u64>,
}

impl Informer {
    fn selects(&self, head: &Head) -> bool {
        !self.selects || head.state == FreshnessState::Fresh
    }

    fn holds(&self, stored: &Stored<Record>) -> bool {
        self.selects(&stored.value.head())
    }

    fn is_known(&self, ledger: &Ledger<Record>, told: u64) -> bool {
        if self.selects { ledger.is_known_to_selectors(told) } else { ledger.is_known(told) }
    }

    fn see(&mut self, name: &str, version: u64) {
        let before = self.highest.insert(name.to_owned(), version).unwrap_or(0);
        assert!(before <= version, "{name} went back from {before} to {version}");
    }

    /// Reads some turns, to the middle of the last if it is `cut`; says what was deleted.
    fn read(&mut self, ledger: &Ledger<Record>, turns: usize, cut: bool) -> Vec<String> {
        let mut deleted = Vec::new();
        let Some(mut seen) = self.told.filter(|told| self.is_known(ledger, *told)) else {
            let list: BTreeMap<_, _> = ledger
                .values()
                .filter(|stored| self.holds(stored))
                .map(|stored| (stored.name.to_string(), stored.version))
                .collect();
            for (name, version) in &list {
                self.see(name, *version);
            }
            let before = std::mem::replace(&mut self.held, list);
            deleted.extend(before.into_keys().filter(|name| !self.held.contains_key(name)));
            (self.told, self.cut) = (Some(ledger.last()), false);
            self.watch = Some(Place::whole(ledger.last()));
            return deleted;
        };
        let mut place = self.watch.take().unwrap_or_else(|| Place::resumed(seen));
        for turn in 1..=turns {
            let (changes, told) = ledger.after(place.told(), BATCH);
            for change in &changes {
                let selects = |head: &Head| Ok::<_, std::convert::Infallible>(self.selects(head));
                let Ok(Some(news)) = place.news(change, selects) else { continue };
                let name = change.name().to_string();
                assert!(change.version() > seen, "versions went back in a watch");
                seen = change.version();
                self.see(&name, seen);
                self.told = Some(seen);
                if news != News::Deleted {
                    self.held.insert(name, seen);
                } else if self.held.remove(&name).is_some() {
                    deleted.push(name);
                } else {
                    assert!(self.cut, "DELETED of {name}, which was not there");
                }
                if cut && turn == turns {
                    self.cut = true;
                    return deleted;
                }
            }
            place.reach(told, ledger.last());
            if place.is_whole() {
                (self.told, self.cut) = (Some(told), false);
                break;
            }
        }
        self.watch = Some(place);
        deleted
    }

    /// Whether it knows all; then that must be so.
    fn is_whole(&self, ledger: &Ledger<Record>) -> bool {
        let whole = self.watch.as_ref().is_some_and(Place::is_whole);
        if whole {
            let selected = ledger.values().filter(|stored| self.holds(stored));
            let truth: Vec<_> = selected.map(|stored| stored.name.to_string()).collect();
            assert_eq!(self.held.keys().cloned().collect::<Vec<_>>(), truth, "selects: {}", self.selects);
        }
        whole
    }
}

/// Two replicas, the nodes, and two informers.
struct World {
    leader: Store,
    standby: Store,
    /// The standby's stream: up to where it heard, and when it knew all.
    stream: Option<(u64, u64)>,
    nodes: BTreeMap<String, u32>,
    seconds: u64,
    clock_back: u64,
    ceiling: u64,
    seq: u64,
    informers: [Informer; 2],
    /// Nodes that were removed, or silent for so long that they were declared gone.
    gone: BTreeSet<String>,
    /// When each node last reported.
    heard_of: BTreeMap<String, u64>,
    /// What the Nodes' conditions say.
    conditions: BTreeMap<String, Silence>,
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

    fn facts(&self, name: &str) -> NodeFacts {
        facts(name, self.nodes[name], self.conditions.get(name).copied())
    }

    fn both(&mut self, change: impl Fn(&mut Store, Now)) {
        let now = self.now();
        change(&mut self.leader, now);
        change(&mut self.standby, now);
    }

    fn follow(&mut self, turns: usize, cut: bool) {
        let now = self.now();
        let ledger = self.leader.ledger();
        let copied = |stored: &Stored<Record>| {
            let body: Bytes = record::object(stored, VERSION, |_| {}).unwrap().body().clone();
            let record = Record::from_json(body).unwrap().0;
            let Stored { name, version, added, .. } = stored;
            Copied { name: Arc::clone(name), version: *version, added: *added, record }
        };
        if self.leader.phase() != Phase::Serving {
            return;
        }
        let complete = self.standby.is_copied().then(|| self.standby.ledger().complete());
        let place = self.stream.take().or(complete.map(|complete| (complete, complete)));
        let Some((mut heard, mut knew_all)) = place.filter(|(heard, _)| ledger.is_known_to_selectors(*heard))
        else {
            let list = ledger.values().map(|stored| copied(stored)).collect();
            self.standby.copy_begins(true);
            self.standby.copy_list(now, list, ledger.last());
            self.stream = Some((ledger.last(), ledger.last()));
            return;
        };
        for turn in 1..=turns {
            let (changes, told) = ledger.after(heard, BATCH);
            for change in changes {
                match change {
                    Change::Live(stored) => self.standby.copy_record(now, copied(&stored)),
                    Change::Reselected { how, .. } => {
                        let Reselected { name, version, added, before, after } = &*how;
                        let (name, before, after) = (Arc::clone(name), before.clone(), after.clone());
                        let how = Reselected { name, version: *version, added: *added, before, after };
                        self.standby.copy_reselection(now, how);
                    }
                    Change::Gone { version, last } => {
                        if last.version > knew_all {
                            self.standby.copy_record(now, copied(&last));
                        }
                        self.standby.copy_removal(now, &last.name, version);
                    }
                }
                if cut && turn == turns {
                    return;
                }
            }
            heard = told;
            if told >= ledger.last() {
                self.standby.copy_progress(now, told);
                knew_all = told;
                break;
            }
        }
        self.stream = Some((heard, knew_all));
    }

    /// What is out of view, as the copy knows, and of which no more was said than that it is silent.
    fn hidden(&mut self) -> Vec<String> {
        let is_whole = |world: &Self| {
            let (leader, standby) = (&world.leader, &world.standby);
            standby.is_copied() && standby.ledger().complete() == leader.ledger().last()
        };
        if is_whole(self) {
            // Leaders say now and then that nothing is new.
            self.follow(usize::MAX, false);
        }
        let is_served = self.leader.phase() == Phase::Serving && is_whole(self);
        let is_hidden = |name: &&String| {
            let is_said = self.conditions.get(*name) == Some(&Silence::Expired);
            is_served && is_said && self.leader.ledger().get(name).is_none()
        };
        self.nodes.keys().filter(is_hidden).cloned().collect()
    }

    /// An informer looks: it hears what is new, or lists anew, or is turned away.
    fn read(&mut self, which: usize, turns: usize, cut: bool) {
        if self.leader.phase() != Phase::Serving {
            return;
        }
        let ledger = self.leader.ledger();
        let informer = &mut self.informers[which];
        let told = informer.told.unwrap_or_default();
        assert!(ledger.last() >= told, "versions went back: {} after {told}", ledger.last());
        let deleted = informer.read(ledger, turns, cut);
        let whole = informer.is_whole(ledger);
        if informer.selects {
            return;
        }
        for name in deleted {
            assert!(self.gone.contains(&name), "DELETED of {name}, which was never gone");
        }
        for name in self.nodes.keys().filter(|name| whole && !self.gone.contains(*name)) {
            assert!(informer.held.contains_key(name), "{name} is missing from what is served");
        }
    }

    fn read_all(&mut self) {
        for which in 0..self.informers.len() {
            self.read(which, usize::MAX, false);
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
                if let Some(uid) = self.nodes.remove(&name) {
                    let uid = facts(&name, uid, None).uid;
                    self.heard_of.remove(&name);
                    self.conditions.remove(&name);
                    self.gone.insert(name.clone());
                    self.both(|store, now| store.node_deleted(now, &name, &uid));
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
            Step::Pass(seconds, written) => {
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
                let conditions = if written { wanted(&self.leader) } else { Vec::new() };
                for (name, wanted) in conditions {
                    self.conditions.insert(name.to_string(), wanted);
                    let facts = self.facts(&name);
                    self.both(|store, now| store.node_applied(now, facts.clone()));
                }
            }
            Step::Follow => self.follow(usize::MAX, false),
            Step::FollowSome(turns, cut) => self.follow(turns, cut),
            Step::Read => self.read_all(),
            Step::ReadSome(which, turns, cut) => self.read(which, turns, cut),
            Step::TakeOver { clock_back, late } => {
                let late = late.map(|n| format!("n{n}")).filter(|_| self.leader.phase() == Phase::Serving);
                let late = late.filter(|name| self.nodes.contains_key(name));
                if let Some(name) = &late {
                    self.follow(usize::MAX, false);
                    let now = self.now();
                    let uid = self.facts(name).uid;
                    self.standby.node_deleted(now, name, &uid);
                }
                let hidden = self.hidden();
                self.clock_back = clock_back;
                let now = self.now();
                std::mem::swap(&mut self.leader, &mut self.standby);
                // The old leader is dead; another process follows from nothing.
                self.standby = store();
                for name in self.nodes.keys() {
                    let facts = self.facts(name);
                    self.standby.node_applied(now, facts);
                }
                let names = self.nodes.keys().map(|name| Arc::from(name.as_str())).collect();
                self.standby.nodes_listed(now, &names);
                self.leader.promote(now, self.ceiling);
                self.ceiling += 1_000_000_000_000;
                self.leader.set_ceiling(self.ceiling);
                self.stream = None;
                for informer in &mut self.informers {
                    let caught_up = informer.watch.take().is_some_and(|place| place.is_whole());
                    informer.cut |= !caught_up;
                }
                if let Some(name) = late {
                    self.read_all();
                    let facts = self.facts(&name);
                    self.leader.node_applied(now, facts);
                }
                for name in hidden.iter().filter(|_| self.leader.is_warm()) {
                    assert!(self.leader.ledger().get(name).is_none(), "{name} was out of view");
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
            stream: None,
            nodes: BTreeMap::new(),
            seconds: 0,
            clock_back: 0,
            ceiling,
            seq: 0,
            informers: [false, true].map(|selects| Informer { selects, ..Informer::default() }),
            gone: BTreeSet::new(),
            heard_of: BTreeMap::new(),
            conditions: BTreeMap::new(),
        };
        world.leader.set_ceiling(ceiling);
        world.standby.nodes_listed(at(0), &BTreeSet::new());
        for step in &steps {
            world.step(step);
        }
        world.read_all();
        world.step(&Step::Pass(1, true));
        let left: Vec<_> = world.leader.ledger().values().map(|stored| stored.name.to_string()).collect();
        prop_assert!(left.iter().all(|name| world.nodes.contains_key(name)), "{left:?} without a Node");
    }
}

use std::collections::BTreeMap;

use bytes::Bytes;
use node_report::{NodeUsage, Report, Resources};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::ledger::Change;
use crate::policy::Policies;
use crate::record::{self, Status};

const VERSION: &str = "slo.koordinator.sh/v1beta1";
const GRACE: Duration = Duration::from_secs(100);

fn facts(name: &str, uid: u32, condition: Option<Silence>) -> NodeFacts {
    NodeFacts {
        name: name.into(),
        uid: format!("uid-{name}-{uid}"),
        created: None,
        allocatable: Allocatable { cpu_milli: 4_000, memory_bytes: 8 << 30 },
        ready: true,
        condition,
        policy: Policies::default().of(&BTreeMap::new()),
    }
}

fn store() -> Store {
    Store::new(Settings { rules: Rules { grace: GRACE, ..Rules::default() } })
}

fn at(seconds: u64) -> Now {
    let wall = Timestamp::new(1_790_000_000 + i64::try_from(seconds).unwrap(), 0).unwrap();
    Now { steady: Duration::from_secs(seconds), wall }
}

fn report(node: &str, incarnation: u64, seq: u64) -> Report {
    let usage = Resources { cpu_milli: Some(1_250), memory_bytes: Some(2 << 30) };
    let usage = Some(NodeUsage { usage: Some(usage), ..NodeUsage::default() });
    Report { node: node.to_owned(), incarnation, seq, usage, sampled_at_ms: 5, ..Report::default() }
}

/// A store that leads over these nodes since 0 s.
fn leading(names: &[&str]) -> Store {
    let mut store = store();
    for name in names {
        store.node_applied(at(0), facts(name, 0, None));
    }
    store.nodes_listed(at(0), &names.iter().map(|name| Arc::from(*name)).collect());
    store.promote(at(0), 0);
    store
}

fn value(store: &Store, name: &str) -> Value {
    let stored = store.ledger().get(name).unwrap();
    serde_json::from_slice(record::object(stored, VERSION, |_| {}).unwrap().body()).unwrap()
}

#[test]
fn readers_wait_for_ninety_nine_of_a_hundred_nodes() {
    let names: Vec<String> = (0..200).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut store = leading(&names);
    for name in &names[..197] {
        store.report(at(1), report(name, 1, 0));
    }
    assert_eq!(store.phase(), Phase::Warming { since: Duration::ZERO });
    store.report(at(1), report(names[197], 1, 0));
    assert_eq!(store.phase(), Phase::Serving);
    assert_eq!(store.ledger().len(), 200, "the objects of the others are there, without a status");
}

#[test]
fn the_silent_are_declared_gone_at_last() {
    let mut store = leading(&["a", "b"]);
    store.report(at(1), report("a", 1, 0));
    store.tick(at(60));
    assert!(matches!(store.phase(), Phase::Warming { .. }));
    store.tick(at(61));
    assert_eq!(store.phase(), Phase::Serving);
}

#[test]
fn each_step_of_silence_is_one_change() {
    let mut store = leading(&["a"]);
    store.report(at(0), report("a", 1, 0));
    let mut changes = Vec::new();
    let mut last = store.ledger().last();
    for second in 1..400 {
        store.tick(at(second));
        if store.ledger().last() != last {
            last = store.ledger().last();
            let state = store.ledger().get("a").map(|stored| stored.value.freshness.state);
            changes.push((second, state));
        }
    }
    let expected = [(26, Some(FreshnessState::Stale)), (61, Some(FreshnessState::Expired)), (161, None)];
    assert_eq!(changes, expected);
    assert_eq!(store.conditions(), [("a".into(), Silence::Hidden)]);
    // Back at the first report, of any number.
    store.report(at(400), report("a", 2, 0));
    assert_eq!(value(&store, "a")["status"]["freshness"]["state"], "Fresh");
    assert_eq!(store.conditions(), [("a".into(), Silence::Fresh)]);
}

#[test]
fn a_node_is_judged_by_the_interval_that_it_was_told() {
    let every = |seconds: u64| {
        let text = format!(r#"{{"metricReportIntervalSeconds": {seconds}}}"#);
        NodeFacts {
            policy: Policies::parse(Some(&text), None).unwrap().of(&BTreeMap::new()),
            ..facts("a", 0, None)
        }
    };
    let mut store = leading(&["a"]);
    store.node_applied(at(0), every(300));
    store.report(at(0), report("a", 1, 0));
    store.node_applied(at(1), every(10));
    for second in 2..=300 {
        store.tick(at(second));
    }
    assert_eq!(value(&store, "a")["status"]["freshness"]["state"], "Fresh", "it obeys what it was told");
    // Nor does an answer to a report that is not taken make it late at once.
    let delta = Report { base_seq: Some(7), ..report("a", 1, 8) };
    store.report(at(300), delta);
    store.ask_for("a", Duration::from_secs(10));
    store.tick(at(301));
    assert_eq!(value(&store, "a")["status"]["freshness"]["state"], "Fresh");
    // From here on it knows.
    store.report(at(302), report("a", 1, 9));
    store.tick(at(327));
    assert_eq!(value(&store, "a")["status"]["freshness"]["state"], "Fresh");
    store.tick(at(328));
    assert_eq!(value(&store, "a")["status"]["freshness"]["state"], "Stale");
}

#[test]
fn a_nodes_clock_counts_for_nothing() {
    for skew in [-300_000_i64, 0, 300_000] {
        let mut store = leading(&["a"]);
        let sampled_at_ms = at(0).wall.as_millisecond() + skew;
        store.report(at(0), Report { sampled_at_ms, ..report("a", 1, 0) });
        store.tick(at(25));
        assert_eq!(value(&store, "a")["status"]["freshness"]["state"], "Fresh");
        store.tick(at(26));
        assert_eq!(value(&store, "a")["status"]["freshness"]["state"], "Stale");
    }
}

#[test]
fn reports_are_judged() {
    let mut store = leading(&["a"]);
    let verdict = |outcome: Outcome| match outcome {
        Outcome::Judged { verdict, reply } => (verdict, reply.held),
        other => panic!("{other:?}"),
    };
    let delta = Report { base_seq: Some(4), ..report("a", 7, 5) };
    assert_eq!(verdict(store.report(at(1), delta.clone())), (Verdict::NeedFull, None));
    assert_eq!(verdict(store.report(at(1), report("a", 7, 4))), (Verdict::Take, Some((7, 4))));
    assert_eq!(verdict(store.report(at(1), delta.clone())), (Verdict::Take, Some((7, 5))));
    let before = store.ledger().last();
    assert_eq!(verdict(store.report(at(1), delta)), (Verdict::Drop, Some((7, 5))));
    assert_eq!(store.ledger().last(), before, "a duplicate changes nothing");
    assert_eq!(store.report(at(1), report("b", 1, 0)), Outcome::Unknown);
    let ahead = Report { epoch: Some(store.epoch() + 1), ..report("a", 7, 6) };
    assert_eq!(store.report(at(1), ahead), Outcome::Superseded);
    let other = Report { node_uid: "other".to_owned(), base_seq: Some(5), ..report("a", 7, 6) };
    assert_eq!(verdict(store.report(at(1), other)).0, Verdict::NeedFull);
    store.demote(at(2));
    assert_eq!(store.report(at(1), report("a", 7, 6)), Outcome::NotLeading);
}

#[test]
fn a_policy_reaches_spec_and_answer() {
    let mut store = leading(&["a"]);
    let policies = Policies::parse(Some(r#"{"metricReportIntervalSeconds": 60}"#), None).unwrap();
    store.node_applied(at(1), NodeFacts { policy: policies.of(&BTreeMap::new()), ..facts("a", 0, None) });
    let object = value(&store, "a");
    assert_eq!(object["spec"]["metricCollectPolicy"]["reportIntervalSeconds"], 60);
    assert_eq!(object["metadata"]["generation"], 2);
    let Outcome::Judged { reply, .. } = store.report(at(2), report("a", 1, 0)) else { panic!("not judged") };
    assert_eq!(reply.policy.interval.as_secs(), 60);
}

#[test]
fn what_a_client_writes_counts_as_a_report_if_it_is_a_status() {
    let mut store = leading(&["a"]);
    store.report(at(0), report("a", 1, 0));
    let stored = store.ledger().get("a").unwrap().version;
    let Value::Object(mut draft) = value(&store, "a") else { panic!("no object") };
    draft["metadata"]["labels"] = serde_json::json!({"x": "y"});
    let labelled = store.write(at(30), &"a".into(), Some(stored), &draft, VERSION).unwrap();
    assert!(matches!(labelled.value.status, Status::Reported(_)), "the report is kept");
    assert!(matches!(
        store.write(at(30), &"a".into(), Some(stored), &draft, VERSION),
        Err(WriteError::Conflict)
    ));
    store.tick(at(30));
    draft["status"] = serde_json::json!({"podsMetric": [{"name": "p"}]});
    let version = store.ledger().get("a").unwrap().version;
    store.write(at(31), &"a".into(), Some(version), &draft, VERSION).unwrap();
    let object = value(&store, "a");
    assert_eq!(object["status"]["podsMetric"][0]["name"], "p");
    assert_eq!(object["status"]["freshness"]["state"], "Fresh");
    assert_eq!(object["metadata"]["labels"]["x"], "y");
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Remove(u8),
    Report(u8),
    Pass(u64),
    Follow,
    Read,
    TakeOver { clock_back: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u8..4).prop_map(Step::Add),
        1 => (0u8..4).prop_map(Step::Remove),
        6 => (0u8..4).prop_map(Step::Report),
        3 => (1u64..40).prop_map(Step::Pass),
        3 => Just(Step::Follow),
        3 => Just(Step::Read),
        1 => (0u64..1_000).prop_map(|clock_back| Step::TakeOver { clock_back }),
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
        let deleted = match self.told.filter(|told| ledger.is_known(*told)) {
            None => {
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
                for (name, wanted) in self.leader.conditions() {
                    let uid = self.nodes[&*name];
                    self.both(|store, now| store.node_applied(now, facts(&name, uid, Some(wanted))));
                }
            }
            Step::Follow => self.follow(),
            Step::Read => self.read(),
            Step::TakeOver { clock_back } => {
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
            gone: BTreeSet::new(),
            heard_of: BTreeMap::new(),
        };
        world.leader.set_ceiling(ceiling);
        world.standby.nodes_listed(at(0), &BTreeSet::new());
        for step in &steps {
            world.step(step);
        }
        world.read();
    }
}

#[test]
fn a_copy_counts_while_it_is_fresh() {
    for (takes_over_at, serves) in [(30, true), (600, false)] {
        let mut leader = leading(&["a", "b"]);
        for name in ["a", "b"] {
            leader.report(at(0), report(name, 1, 0));
        }
        let mut standby = store();
        let copied = |stored: &crate::ledger::Stored<Record>| {
            let body: Bytes = record::object(stored, VERSION, |_| {}).unwrap().body().clone();
            (Arc::clone(&stored.name), stored.version, Record::from_json(body).unwrap().0)
        };
        standby.copy_list(
            at(1),
            leader.ledger().values().map(|s| copied(s)).collect(),
            leader.ledger().last(),
        );
        for name in ["a", "b"] {
            standby.node_applied(at(1), facts(name, 0, None));
        }
        standby.nodes_listed(at(1), &["a".into(), "b".into()].into());
        standby.promote(at(takes_over_at), leader.ledger().last() + 1_000_000_000);
        assert_eq!(standby.phase() == Phase::Serving, serves, "after {takes_over_at} s");
        for name in ["a", "b"] {
            standby.report(at(takes_over_at), report(name, 1, 1));
        }
        assert_eq!(standby.phase(), Phase::Serving);
    }
}

#[test]
fn a_node_that_never_reported_says_so() {
    let mut store = store();
    store.node_applied(at(0), facts("never", 0, None));
    store.node_applied(at(0), facts("before", 0, Some(Silence::Fresh)));
    store.node_applied(at(0), facts("ceased", 0, Some(Silence::Expired)));
    store.nodes_listed(at(0), &["never", "before", "ceased"].map(Arc::<str>::from).into());
    store.promote(at(0), 0);
    let state = |store: &Store, name: &str| value(store, name)["status"]["freshness"]["state"].clone();
    assert_eq!(state(&store, "never"), "NeverReported");
    assert_eq!(state(&store, "before"), "Unknown", "it reported to an earlier leader");
    assert_eq!(state(&store, "ceased"), "Expired");
    assert!(!store.ledger().get("never").unwrap().value.has_status());
    // A copy of it is not taken for something that the node told.
    let never = store.ledger().get("never").unwrap();
    let body: Bytes = record::object(never, VERSION, |_| {}).unwrap().body().clone();
    let copy = Record::from_json(body).unwrap().0;
    assert!(!copy.has_status());
    assert_eq!(copy.freshness.state, FreshnessState::NeverReported);
    store.report(at(1), report("never", 1, 0));
    assert_eq!(state(&store, "never"), "Fresh");
    assert_eq!(store.states().get(&FreshnessState::NeverReported), None);
}

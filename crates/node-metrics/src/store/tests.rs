use std::collections::BTreeMap;

use bytes::Bytes;
use node_report::{NodeUsage, Report, Resources};
use serde_json::Value;

use super::*;
use crate::policy::Policies;
use crate::record::{self, Status};
use crate::render::Allocatable;

mod identity;
mod model;

const VERSION: &str = "slo.koordinator.sh/v1beta1";
const GRACE: Duration = Duration::from_secs(100);

fn facts(name: &str, uid: u32, condition: Option<Silence>) -> NodeFacts {
    NodeFacts {
        uid: format!("uid-{name}-{uid}"),
        allocatable: Allocatable { cpu_milli: 4_000, memory_bytes: 8 << 30 },
        condition,
        ..NodeFacts::alive(name)
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

/// What conditions should say and do not.
fn wanted(store: &Store) -> Vec<(Arc<str>, Silence)> {
    store.conditions().into_iter().map(|(name, Transition { now, .. })| (name, now)).collect()
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

/// A node of an hour between its reports keeps nobody waiting who does not wait for it; nor does any longer than its hub.
#[test]
fn only_those_that_are_missing_are_waited_for() {
    let hourly = Policies::parse(Some(r#"{"metricReportIntervalSeconds": 3600}"#), None).unwrap();
    let hourly = |name: &str| NodeFacts { policy: hourly.of(&BTreeMap::new()), ..facts(name, 0, None) };
    let serving_after = |missing: NodeFacts| {
        let mut store = store();
        let dead = NodeFacts { ready: false, ..hourly("dead") };
        let names = ["reports", "dead", "missing"].map(Arc::<str>::from);
        for node in [hourly("reports"), dead, missing] {
            store.node_applied(at(0), node);
        }
        store.nodes_listed(at(0), &names.into());
        store.promote(at(0), 0);
        store.report(at(1), report("reports", 1, 0));
        (1..10_000).find(|second| {
            store.tick(at(*second));
            store.phase() == Phase::Serving
        })
    };
    assert_eq!(
        serving_after(facts("missing", 0, None)),
        Some(61),
        "six intervals of the one that is missing"
    );
    assert_eq!(serving_after(hourly("missing")), Some(3_601), "six of the longest between reports of a hub");
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
    assert_eq!(wanted(&store), [("a".into(), Silence::Hidden)]);
    // Back at the first report, of any number.
    store.report(at(400), report("a", 2, 0));
    assert_eq!(value(&store, "a")["status"]["freshness"]["state"], "Fresh");
    assert_eq!(wanted(&store), [("a".into(), Silence::Fresh)]);
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
    // No hub waits for longer than ten minutes, whatever is asked of it.
    for (wanted, asked, stale_after) in [(599, 599, 1_497), (86_400, 86_400, 1_500), (400, 800, 1_500)] {
        let mut store = leading(&["a"]);
        store.node_applied(at(0), every(wanted));
        store.report(at(0), report("a", 1, 0));
        store.ask_for("a", Duration::from_secs(asked));
        let state = |store: &Store| value(store, "a")["status"]["freshness"]["state"].clone();
        store.tick(at(stale_after));
        assert_eq!(state(&store), "Fresh", "{wanted}, {asked}");
        store.tick(at(stale_after + 1));
        assert_eq!(state(&store), "Stale", "{wanted}, {asked}");
    }
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
    store.demote();
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
    draft["status"] =
        serde_json::json!({"podsMetric": [{"name": "p"}], "updateTime": "2001-01-01T00:00:00Z"});
    let version = store.ledger().get("a").unwrap().version;
    store.write(at(31), &"a".into(), Some(version), &draft, VERSION).unwrap();
    let object = value(&store, "a");
    assert_eq!(object["status"]["podsMetric"][0]["name"], "p");
    assert_eq!(object["status"]["updateTime"], at(31).wall.to_string(), "the server's, not the writer's");
    assert_eq!(object["status"]["freshness"]["state"], "Fresh");
    assert_eq!(object["metadata"]["labels"]["x"], "y");
}

#[test]
fn a_copy_counts_while_it_is_fresh() {
    for (takes_over_at, serves) in [(30, true), (600, false)] {
        let mut leader = leading(&["a", "b"]);
        for name in ["a", "b"] {
            leader.report(at(0), report(name, 1, 0));
        }
        let mut standby = copied_to_standby(&leader, 1, &["a", "b"]);
        standby.promote(at(takes_over_at), leader.ledger().last() + 1_000_000_000);
        assert_eq!(standby.phase() == Phase::Serving, serves, "after {takes_over_at} s");
        for name in ["a", "b"] {
            standby.report(at(takes_over_at), report(name, 1, 1));
        }
        assert_eq!(standby.phase(), Phase::Serving);
    }
}

/// What `leader` would copy to a standby that knows these nodes, at `seconds`.
fn copied_to_standby(leader: &Store, seconds: u64, names: &[&str]) -> Store {
    let mut standby = store();
    copy_whole(leader, &mut standby, seconds);
    for name in names {
        standby.node_applied(at(seconds), facts(name, 0, None));
    }
    standby.nodes_listed(at(seconds), &names.iter().map(|name| Arc::from(*name)).collect());
    standby
}

/// All that `leader` has.
fn copy_whole(leader: &Store, standby: &mut Store, seconds: u64) {
    let copied = |stored: &crate::ledger::Stored<Record>| {
        let body: Bytes = record::object(stored, VERSION, |_| {}).unwrap().body().clone();
        let record = Record::from_json(body).unwrap().0;
        Copied { name: Arc::clone(&stored.name), version: stored.version, added: stored.added, record }
    };
    let ledger = leader.ledger();
    standby.copy_list(at(seconds), ledger.values().map(|s| copied(s)).collect(), ledger.last());
}

#[test]
fn a_warm_leader_serves_at_once_what_the_one_before_served() {
    let mut leader = leading(&["reports", "never"]);
    leader.report(at(1), report("reports", 1, 0));
    leader.tick(at(61));
    assert_eq!(leader.phase(), Phase::Serving, "the one that never reports is declared gone");
    leader.report(at(61), report("reports", 1, 1));
    let mut standby = copied_to_standby(&leader, 62, &["reports", "never"]);
    standby.promote(at(63), leader.ledger().last() + 1_000_000);
    assert_eq!(standby.phase(), Phase::Serving);
    assert_eq!(value(&standby, "never")["status"]["freshness"]["state"], "NeverReported");
    // A leader that did so and is followed by itself, too.
    standby.tick(at(64));
    standby.demote();
    standby.promote(at(65), standby.ledger().last());
    assert_eq!(standby.phase(), Phase::Serving);
}

/// A process that stood still hears of the end of its leadership only when it goes on: what it holds is of the time before.
#[test]
fn a_leader_that_stood_still_is_no_fresh_copy_of_itself() {
    for (stood_still_for, serves) in [(2, true), (600, false)] {
        let mut leader = leading(&["a", "b"]);
        for name in ["a", "b"] {
            leader.report(at(0), report(name, 1, 0));
        }
        leader.tick(at(1));
        let goes_on = 1 + stood_still_for;
        leader.demote();
        leader.promote(at(goes_on), leader.ledger().last() + 1_000_000_000);
        assert_eq!(leader.phase() == Phase::Serving, serves, "after {stood_still_for} s");
        for name in ["a", "b"] {
            leader.report(at(goes_on), report(name, 1, 1));
        }
        assert_eq!(leader.phase(), Phase::Serving);
    }
}

#[test]
fn what_nobody_served_is_waited_for() {
    let leader = leading(&[]);
    let mut standby = copied_to_standby(&leader, 1, &["new"]);
    for second in 2..4 {
        // The second time it holds an object, which it made itself and told nobody.
        standby.promote(at(second), leader.ledger().last() + 1_000_000 * second);
        assert!(matches!(standby.phase(), Phase::Warming { .. }));
        assert!(standby.ledger().get("new").is_some());
        standby.demote();
    }
    standby.promote(at(5), leader.ledger().last() + 9_000_000);
    standby.report(at(5), report("new", 1, 0));
    assert_eq!(standby.phase(), Phase::Serving);
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

#[test]
fn where_no_node_is_alive_nothing_is_known() {
    let mut store = store();
    for name in ["a", "b"] {
        store.node_applied(at(0), NodeFacts { ready: false, ..facts(name, 0, None) });
    }
    store.nodes_listed(at(0), &["a".into(), "b".into()].into());
    store.promote(at(0), 0);
    assert_eq!(store.phase(), Phase::Warming { since: Duration::ZERO });
    store.tick(at(61));
    assert_eq!(store.phase(), Phase::Serving);
    assert_eq!(leading(&[]).phase(), Phase::Serving, "without Nodes there is nothing to wait for");
}

#[test]
fn an_object_is_that_of_a_node() {
    let mut store = leading(&["a"]);
    let draft = serde_json::json!({"metadata": {"name": "other"}, "status": {"podsMetric": [{"name": "p"}]}});
    let Value::Object(draft) = draft else { panic!("no object") };
    let refused = store.write(at(1), &"other".into(), None, &draft, VERSION);
    assert!(matches!(refused, Err(WriteError::NoNode(name)) if name == "other"));
    // What is deleted of a Node that is there comes back, whether it reports or not.
    let before = store.ledger().get("a").unwrap().version;
    store.erase(at(1), "a", before).unwrap();
    assert!(store.ledger().get("a").is_none());
    store.tick(at(2));
    assert_eq!(value(&store, "a")["status"]["freshness"]["state"], "NeverReported");
    let version = store.ledger().get("a").unwrap().version;
    assert!(version > before + 1, "{version}");
    store.tick(at(3));
    assert_eq!(store.ledger().get("a").unwrap().version, version);
}

/// A node whose object somebody deleted and that dies before its next report is one that ceased to report.
#[test]
fn silence_goes_on_where_an_object_was_deleted() {
    let mut store = leading(&["a"]);
    store.report(at(0), report("a", 1, 0));
    store.node_applied(at(0), facts("a", 0, Some(Silence::Fresh)));
    let version = store.ledger().get("a").unwrap().version;
    store.erase(at(5), "a", version).unwrap();
    let mut states = Vec::new();
    for second in 6..400 {
        store.tick(at(second));
        let state = store.ledger().get("a").map(|stored| stored.value.freshness.state);
        if states.last().is_none_or(|(_, last)| *last != state) {
            states.push((second, state));
        }
    }
    let expected = [
        (6, Some(FreshnessState::Unknown)),
        (26, Some(FreshnessState::Stale)),
        (61, Some(FreshnessState::Expired)),
        (161, None),
    ];
    assert_eq!(states, expected);
    assert_eq!(wanted(&store), [("a".into(), Silence::Hidden)]);
}

#[test]
fn who_makes_an_object_of_a_node_out_of_view_sees_it_expired_and_go_again() {
    let mut store = leading(&["a", "new"]);
    store.report(at(0), report("a", 1, 0));
    (1..=200).for_each(|second| store.tick(at(second)));
    assert!(store.ledger().get("a").is_none(), "out of view");
    let Value::Object(draft) = serde_json::json!({"metadata": {"name": "a"}, "spec": {}}) else { panic!() };
    store.write(at(200), &"a".into(), None, &draft, VERSION).unwrap();
    assert_eq!(value(&store, "a")["status"]["freshness"]["state"], "Expired");
    let gone = (201..1_000).find(|second| {
        store.tick(at(*second));
        store.ledger().get("a").is_none()
    });
    assert_eq!(gone, Some(361), "six intervals and the grace later");
    // One that never reported says so, whoever made its object.
    let version = store.ledger().get("new").unwrap().version;
    store.erase(at(361), "new", version).unwrap();
    store.write(at(361), &"new".into(), None, &draft, VERSION).unwrap();
    assert_eq!(value(&store, "new")["status"]["freshness"]["state"], "NeverReported");
}

#[test]
fn what_was_out_of_view_stays_so_where_nobody_had_time_to_say_it() {
    for late in [false, true] {
        let mut leader = leading(&["a", "b"]);
        for name in ["a", "b"] {
            leader.report(at(0), report(name, 1, 0));
        }
        for second in 1..=170 {
            leader.tick(at(second));
            leader.report(at(second), report("b", 1, second));
        }
        assert!(leader.ledger().get("a").is_none());
        // The Node says no more than that reports have ceased.
        let of_a = || facts("a", 0, Some(Silence::Expired));
        let mut standby = copied_to_standby(&leader, 170, &["b"]);
        if !late {
            standby.node_applied(at(170), of_a());
        }
        standby.promote(at(171), leader.ledger().last() + 1_000_000);
        standby.node_applied(at(171), of_a());
        for second in 171..400 {
            assert!(standby.ledger().get("a").is_none(), "late: {late}, {second} s");
            standby.tick(at(second));
        }
        assert!(wanted(&standby).contains(&("a".into(), Silence::Hidden)));
        standby.report(at(400), report("a", 1, 1));
        assert_eq!(value(&standby, "a")["status"]["freshness"]["state"], "Fresh");
    }
}

#[test]
fn the_age_is_that_of_the_last_report_whoever_took_it() {
    let mut leader = leading(&["a"]);
    leader.report(at(10), report("a", 1, 0));
    let mut standby = copied_to_standby(&leader, 20, &["a"]);
    standby.promote(at(30), leader.ledger().last() + 1_000_000);
    standby.tick(at(56));
    let freshness = value(&standby, "a")["status"]["freshness"].clone();
    assert_eq!((&freshness["state"], &freshness["ageSeconds"]), (&"Stale".into(), &46.into()));
    standby.report(at(60), report("a", 1, 1));
    standby.tick(at(86));
    assert_eq!(value(&standby, "a")["status"]["freshness"]["ageSeconds"], 26);
}

#[test]
fn a_spec_that_somebody_else_writes_stays_until_another_is_wanted() {
    let mut store = leading(&["a"]);
    store.report(at(0), report("a", 1, 0));
    let Value::Object(mut draft) = value(&store, "a") else { panic!("no object") };
    draft["spec"] = serde_json::json!({"theirs": true});
    let version = store.ledger().get("a").unwrap().version;
    store.write(at(1), &"a".into(), Some(version), &draft, VERSION).unwrap();
    // The Node changes, as it does every few minutes.
    store.node_applied(at(2), NodeFacts { ready: false, ..facts("a", 0, None) });
    store.node_applied(at(3), facts("a", 0, Some(Silence::Fresh)));
    assert_eq!(value(&store, "a")["spec"], draft["spec"]);
    let another = Policies::parse(Some(r#"{"metricReportIntervalSeconds": 60}"#), None).unwrap();
    store.node_applied(at(4), NodeFacts { policy: another.of(&BTreeMap::new()), ..facts("a", 0, None) });
    assert_eq!(value(&store, "a")["spec"]["metricCollectPolicy"]["reportIntervalSeconds"], 60);
}

#[test]
fn a_clock_that_leaps_stays_below_the_ceiling() {
    let mut store = leading(&["a"]);
    let ceiling = at(0).micros() + 120_000_000;
    store.set_ceiling(ceiling);
    for seq in 0..1_000 {
        store.report(at(86_400), report("a", 1, seq));
    }
    assert!(store.ledger().last() < ceiling - 9_000_000);
}

#[test]
fn what_was_copied_is_told_under_a_version_of_its_own() {
    let mut leader = leading(&["a"]);
    leader.report(at(0), report("a", 1, 0));
    let stored = leader.ledger().get("a").unwrap();
    let body: Bytes = record::object(stored, VERSION, |_| {}).unwrap().body().clone();
    let mut standby = store();
    standby.node_applied(at(1), facts("a", 0, None));
    standby.nodes_listed(at(1), &["a".into()].into());
    let record = Record::from_json(body).unwrap().0;
    let copied = Copied { name: "a".into(), version: stored.version, added: stored.added, record };
    standby.copy_list(at(1), vec![copied], stored.version);
    let floor = stored.version + 1_000_000_000;
    standby.promote(at(2), floor);
    let (mut before, after) = (value(&leader, "a"), value(&standby, "a"));
    let told: u64 = after["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(told > floor && told == standby.ledger().get("a").unwrap().version, "{told}");
    assert_eq!(standby.loads().get("a").unwrap().version, told);
    before["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"].clone();
    assert_eq!(before, after);
}

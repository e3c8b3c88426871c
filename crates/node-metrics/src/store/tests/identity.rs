//! Whose object it is, where Nodes come, go and are replaced while the lead changes hands.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use crate::ledger::Change;

/// A Node of this number, which was made so many seconds after the beginning.
fn node(name: &str, number: u32, made: u64) -> NodeFacts {
    NodeFacts { created: Some(Time(at(made).wall)), ..facts(name, number, None) }
}

fn listed(store: &mut Store, seconds: u64, names: &[&str]) {
    store.nodes_listed(at(seconds), &names.iter().map(|name| Arc::from(*name)).collect());
}

/// What happened to a name after `told`: whether it was deleted, each time.
fn news(store: &Store, told: u64, name: &str) -> Vec<bool> {
    let (changes, _) = store.ledger().after(told, usize::MAX);
    let of_name = changes.iter().filter(|change| &**change.name() == name);
    let deleted = |change: &Change<Record>| match change {
        Change::Live(_) => Some(false),
        Change::Gone { .. } => Some(true),
        Change::Reselected { .. } => None,
    };
    of_name.filter_map(deleted).collect()
}

/// A leader over Node `n` that reports, and what a standby copied of it.
fn leader_and_standby() -> (Store, Store) {
    let mut leader = store();
    leader.node_applied(at(0), node("n", 1, 0));
    listed(&mut leader, 0, &["n"]);
    leader.promote(at(0), 0);
    leader.report(at(10), report("n", 1, 0));
    let standby = copied_to_standby(&leader, 10, &[]);
    (leader, standby)
}

#[test]
fn a_list_of_nodes_that_began_before_a_node_came_takes_nothing_away() {
    let (leader, _) = leader_and_standby();
    let mut standby = store();
    // The pages of its list come while it takes over; the last of them is of a moment before the Node.
    copy_whole(&leader, &mut standby, 10);
    standby.node_applied(at(11), node("other", 1, 0));
    standby.promote(at(12), leader.ledger().last() + 1_000_000);
    let told = standby.ledger().last();
    listed(&mut standby, 13, &["other"]);
    assert_eq!(standby.orphans(), ["n".into()], "whether it is there is asked");
    standby.node_applied(at(14), node("n", 1, 0));
    assert_eq!(news(&standby, told, "n"), [false; 0]);
    // What was known and is not in a later list is gone at once.
    listed(&mut standby, 15, &["other"]);
    assert_eq!(news(&standby, told, "n"), [true]);
}

#[test]
fn the_object_of_a_node_that_was_replaced_meanwhile_is_not_taken_over() {
    // Whether its watch knows the former one, and whether it hears of the next one late.
    for (known, late) in [(true, false), (true, true), (false, true)] {
        let (leader, mut standby) = leader_and_standby();
        if known {
            standby.node_applied(at(11), node("n", 1, 0));
        }
        listed(&mut standby, 11, &["n"]);
        let floor = leader.ledger().last() + 1_000_000;
        let replace = |store: &mut Store| {
            if known {
                store.node_deleted(at(12), "n", "uid-n-1");
            }
            store.node_applied(at(12), node("n", 2, 11));
        };
        if !late {
            replace(&mut standby);
        }
        standby.promote(at(12), floor);
        if late {
            replace(&mut standby);
        }
        let object = value(&standby, "n");
        assert_eq!(object["status"], json!({"freshness": {"state": "NeverReported"}}), "{known}, {late}");
        assert_eq!(object["metadata"]["uid"], record::uid("uid-n-2"), "{known}, {late}");
        assert_eq!(object["metadata"]["creationTimestamp"], at(11).wall.to_string(), "{known}, {late}");
        standby.report(at(13), report("n", 2, 0));
        assert_eq!(standby.phase(), Phase::Serving);
    }
}

#[test]
fn the_object_of_a_later_node_outlives_what_a_watch_tells_late_of_the_former() {
    for listed_anew in [false, true] {
        let (mut leader, _) = leader_and_standby();
        leader.node_deleted(at(20), "n", "uid-n-1");
        leader.node_applied(at(20), node("n", 2, 20));
        leader.report(at(21), report("n", 1, 0));
        let mut standby = copied_to_standby(&leader, 21, &[]);
        standby.node_applied(at(21), node("n", 1, 0));
        listed(&mut standby, 21, &["n"]);
        standby.promote(at(22), leader.ledger().last() + 1_000_000);
        let told = standby.ledger().last();
        if listed_anew {
            listed(&mut standby, 23, &[]);
        } else {
            standby.node_deleted(at(23), "n", "uid-n-1");
        }
        assert_eq!(standby.orphans(), ["n".into()]);
        standby.node_applied(at(24), node("n", 2, 20));
        assert_eq!(news(&standby, told, "n"), [false; 0]);
        assert_eq!(value(&standby, "n")["metadata"]["uid"], record::uid("uid-n-2"));
        // Once more, and it is the Node's own end.
        standby.node_deleted(at(25), "n", "uid-n-1");
        assert_eq!(news(&standby, told, "n"), [false; 0]);
        standby.node_deleted(at(25), "n", "uid-n-2");
        assert_eq!(news(&standby, told, "n"), [true]);
    }
}

#[test]
fn what_a_client_makes_is_known_to_be_of_its_node() {
    let (mut leader, _) = leader_and_standby();
    let version = leader.ledger().get("n").unwrap().version;
    leader.erase(at(11), "n", version).unwrap();
    let uid = "5b0e8d3a-64f5-4c11-9d7e-0c6a8f6a4f5e";
    let draft = json!({"metadata": {"name": "n", "uid": uid}, "spec": {}});
    let Value::Object(draft) = draft else { panic!("no object") };
    leader.write(at(11), &"n".into(), None, &draft, VERSION).unwrap();
    let made = leader.ledger().get("n").unwrap();
    assert_eq!(made.value.is_of_node("uid-n-1"), Some(true));
    assert_eq!(made.value.is_of_node("uid-n-2"), Some(false));
    let (its, of_node) = (made.value.uid().to_owned(), record::uid("uid-n-1"));
    assert!(its != of_node && its[..18] == of_node[..18] && its[18..] == uid[18..], "{its}");
    // The Node that takes the other's place was made before that, by the clock of the API server, which is behind ours.
    leader.node_applied(at(13), node("n", 2, 10));
    assert_eq!(value(&leader, "n")["metadata"]["uid"], record::uid("uid-n-2"));
    // One of chance, which leaders of an earlier release let clients have, says nothing, and so is taken over.
    let copied = json!({"metadata": {"name": "n", "uid": uid, "resourceVersion": "1"}});
    let record = Record::from_json(copied.to_string().into()).unwrap().0;
    assert_eq!(record.is_of_node("uid-n-1"), None);
    let mut standby = store();
    standby.copy_list(at(11), vec![Copied { name: "n".into(), version: 1, added: 1, record }], 1);
    standby.node_applied(at(11), node("n", 2, 11));
    listed(&mut standby, 11, &["n"]);
    standby.promote(at(12), 1);
    assert_eq!(standby.ledger().get("n").unwrap().value.uid(), uid);
}

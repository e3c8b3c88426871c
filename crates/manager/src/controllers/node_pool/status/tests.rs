use std::sync::Arc;

use api::{LeaderEndpoint, NetworkMode, NodePoolSpec};

use super::*;
use crate::nodes::NodeView;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 5);

fn pool(host_network: bool) -> NodePool {
    let mut pool = NodePool::new("shop", NodePoolSpec::default());
    pool.spec.network_mode = host_network.then_some(NetworkMode::HostNetwork);
    pool.metadata.generation = Some(3);
    pool
}

fn node(name: &str, ready: bool) -> Arc<NodeView> {
    Arc::new(NodeView { name: name.to_owned(), ready, ..NodeView::default() })
}

fn status_of(pool: &NodePool, observed: &Observed, applied: &Applied) -> NodePoolStatus {
    compute(pool, observed, &Election::default(), applied, NOW)
}

fn condition<'a>(status: &'a NodePoolStatus, type_: &str) -> &'a Condition {
    status.conditions.iter().find(|condition| condition.type_ == type_).unwrap()
}

#[test]
fn an_empty_pool_counts_zero() {
    let status = status_of(&pool(false), &Observed::default(), &Applied::default());
    assert_eq!((status.ready_node_num, status.unready_node_num, status.observed_generation), (0, 0, Some(3)));
    let value = whole(&status);
    assert_eq!((&value["readyNodeNum"], &value["nodes"]), (&json!(0), &json!([])));
    assert_eq!(value["leaderEndpoints"], Value::Null, "what is no longer said must be removed");
    assert_eq!(condition(&status, conditions::READY).status, "True");
}

#[test]
fn nodes_are_counted_and_sorted() {
    let members = vec![node("c", true), node("a", false), node("b", true)];
    let observed = Observed { members, ..Observed::default() };
    let status = status_of(&pool(false), &observed, &Applied::default());
    assert_eq!((status.ready_node_num, status.unready_node_num), (2, 1));
    assert_eq!(status.nodes, ["a", "b", "c"]);
    assert!(status.conditions.iter().all(|c| c.type_ != conditions::NETWORK_MODE_ENFORCED));
}

#[test]
fn nodes_are_not_said_to_be_synced_before_they_were_seen_to_be() {
    let members = || vec![node("a", true)];
    let overwritten =
        || Observed { members: members(), overwritten: ["a".to_owned()].into(), ..Observed::default() };
    let seen = || Observed { members: members(), ..Observed::default() };
    let stale = || Applied { stale: true, ..Applied::default() };
    let said = |pool: &NodePool, observed: &Observed, applied: &Applied| {
        condition(&status_of(pool, observed, applied), conditions::NODES_SYNCED).status.clone()
    };
    let mut pool = pool(false);
    assert_eq!(said(&pool, &overwritten(), &Applied::default()), "Unknown");
    assert_eq!(said(&pool, &seen(), &stale()), "Unknown");
    assert_eq!(said(&pool, &seen(), &Applied::default()), "True");
    // Once it was true of this spec, a node that changes beside us takes nothing from it; of the next one it is not known again.
    pool.status = Some(status_of(&pool, &seen(), &Applied::default()));
    assert_eq!(said(&pool, &overwritten(), &stale()), "True");
    pool.metadata.generation = Some(4);
    assert_eq!(said(&pool, &overwritten(), &Applied::default()), "Unknown");
}

#[test]
fn failures_name_their_nodes_and_are_bounded() {
    let members: Vec<_> = (0..200).map(|i| node(&format!("n{i:03}"), true)).collect();
    let failures = members.iter().map(|node| (node.name.clone(), "x".repeat(10_000))).collect();
    let applied = Applied { failures, ..Applied::default() };
    let status = status_of(&pool(false), &Observed { members, ..Observed::default() }, &applied);
    let synced = condition(&status, conditions::NODES_SYNCED);
    assert_eq!((synced.status.as_str(), synced.reason.as_str()), ("False", "NodesFailed"));
    assert!(
        synced.message.starts_with("200 of 200 nodes could not be synced: n000: xxx"),
        "{}",
        synced.message
    );
    assert!(synced.message.ends_with("and 190 more") && synced.message.len() < 5000);
    assert_eq!(condition(&status, conditions::READY).status, "False");
}

#[test]
fn pods_that_break_the_network_mode_are_named() {
    let observed = Observed { violators: Some(vec!["default/web-1 on n1".into()]), ..Observed::default() };
    let status = status_of(&pool(true), &observed, &Applied::default());
    let enforced = condition(&status, conditions::NETWORK_MODE_ENFORCED);
    assert_eq!(enforced.status, "False");
    assert!(enforced.message.contains("default/web-1 on n1"), "{}", enforced.message);
    let repaired = Observed { violators: Some(vec![]), ..Observed::default() };
    let repaired = status_of(&pool(true), &repaired, &Applied::default());
    assert_eq!(condition(&repaired, conditions::NETWORK_MODE_ENFORCED).status, "True");
    let unlisted = status_of(&pool(true), &Observed::default(), &Applied::default());
    assert_eq!(condition(&unlisted, conditions::NETWORK_MODE_ENFORCED).status, "Unknown");
    assert_eq!(condition(&unlisted, conditions::READY).status, "Unknown");
}

#[test]
fn a_transition_time_stays_until_the_status_of_the_condition_changes() {
    let mut pool = pool(false);
    let first = status_of(&pool, &Observed::default(), &Applied::default());
    pool.status = Some(first.clone());
    let later = Timestamp::constant(1_800_000_100, 0);
    let same = compute(&pool, &Observed::default(), &Election::default(), &Applied::default(), later);
    assert_eq!(same, first, "nothing changed, so nothing is written");
    let applied = Applied { failures: [("n1".into(), "no".into())].into(), ..Applied::default() };
    let broken = compute(&pool, &Observed::default(), &Election::default(), &applied, later);
    assert_eq!(condition(&broken, conditions::NODES_SYNCED).last_transition_time, Time(later));
}

#[test]
fn too_few_leaders_are_said() {
    let mut pool = pool(false);
    pool.spec.enable_leader_election = true;
    let leader = LeaderEndpoint { node_name: "a".into(), address: "10.0.0.1".into() };
    let election = Election { wanted: 2, leaders: vec![leader], changed: true };
    let status = compute(&pool, &Observed::default(), &election, &Applied::default(), NOW);
    assert_eq!(
        (status.leader_num, condition(&status, conditions::LEADER_READY).status.as_str()),
        (1, "False")
    );
    assert!(status.leader_last_elected_time.is_some());
}

#[test]
fn events_tell_changes_only() {
    let unknown = status_of(&pool(true), &Observed::default(), &Applied::default());
    let with = |violators: Vec<String>| {
        let observed = Observed { violators: Some(violators), ..Observed::default() };
        status_of(&pool(true), &observed, &Applied::default())
    };
    let (good, bad) = (with(vec![]), with(vec!["a/b on n".into()]));
    let reasons = |before: Option<&NodePoolStatus>, after: &NodePoolStatus| -> Vec<String> {
        changes(before, after).into_iter().map(|event| event.reason).collect()
    };
    assert_eq!(reasons(None, &good), [""; 0]);
    assert_eq!(reasons(Some(&good), &good), [""; 0]);
    assert_eq!(reasons(Some(&good), &unknown), [""; 0]);
    assert_eq!(reasons(Some(&unknown), &good), [""; 0]);
    assert_eq!(reasons(Some(&unknown), &bad), ["PodsWithoutHostNetwork"]);
    assert_eq!(reasons(Some(&good), &bad), ["PodsWithoutHostNetwork"]);
    assert_eq!(reasons(Some(&bad), &bad), [""; 0]);
    assert_eq!(reasons(Some(&bad), &good), ["AllPodsHostNetwork"]);
}

#[test]
fn what_could_not_be_written_is_said_and_told() {
    let applied = Applied { errors: vec!["leader-hub-shop: forbidden".into()], ..Applied::default() };
    let good = status_of(&pool(false), &Observed::default(), &Applied::default());
    let bad = status_of(&pool(false), &Observed::default(), &applied);
    let ready = condition(&bad, conditions::READY);
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "WritesFailed"));
    assert!(ready.message.contains("leader-hub-shop: forbidden"), "{}", ready.message);
    let reasons =
        |before, after| changes(Some(before), after).into_iter().map(|e| e.reason).collect::<Vec<_>>();
    assert_eq!(reasons(&good, &bad), ["WritesFailed"]);
    assert_eq!(reasons(&bad, &bad), [""; 0]);
}

#[test]
fn a_node_that_left_and_cannot_be_released_is_named() {
    let failures: std::collections::BTreeMap<_, _> = [("n2".to_owned(), "unreadable".to_owned())].into();
    let applied = Applied { failures, ..Applied::default() };
    let observed =
        Observed { members: vec![node("n1", true)], leavers: vec![node("n2", true)], ..Observed::default() };
    let status = status_of(&pool(false), &observed, &applied);
    let synced = condition(&status, conditions::NODES_SYNCED);
    assert_eq!(synced.status, "False");
    assert_eq!(synced.message, "1 nodes that left the pool could not be released: n2: unreadable");
    assert_eq!(status.nodes, ["n1"]);
}

#[test]
fn a_contested_node_is_no_failure_and_is_named() {
    let mut patches = Vec::new();
    let patch = super::super::plan::NodePatch {
        node: "n1".to_owned(),
        resource_version: "1".to_owned(),
        labels: [("zone".to_owned(), Some("z1".to_owned()))].into(),
        annotations: [].into(),
        taints: None,
        taint_changes: [].into(),
    };
    let mut contests = super::super::contest::Contests::default();
    let now = std::time::Instant::now();
    for _ in 0..6 {
        contests.note_written(&patch, now);
    }
    patches.push(patch);
    let wanted = super::super::ownership::Attributes {
        labels: [("zone".to_owned(), "z1".to_owned())].into(),
        ..Default::default()
    };
    let contested = contests.review("shop", &wanted, &mut patches, ["n1"].into_iter(), now);
    let applied = Applied { contested, ..Applied::default() };
    let status = status_of(&pool(false), &Observed::default(), &applied);
    let synced = condition(&status, conditions::NODES_SYNCED);
    assert_eq!((synced.status.as_str(), synced.reason.as_str()), ("False", "Contested"));
    assert!(synced.message.starts_with("n1: label zone is changed again and again"), "{}", synced.message);
    assert_eq!(condition(&status, conditions::READY).reason, "Contested");
}

#[test]
fn a_pool_of_too_many_nodes_says_that_its_hubs_are_not_told_of_them() {
    let of = |nodes: usize| {
        let node = |number| NodeView {
            name: format!("n{number}"),
            internal_ip: Some("10.0.0.1".to_owned()),
            ..NodeView::default()
        };
        let observed =
            Observed { members: (0..nodes).map(node).map(Arc::new).collect(), ..Observed::default() };
        let status = status_of(&pool(false), &observed, &Applied::default());
        let said = condition(&status, conditions::NODES_SYNCED);
        (said.status.clone(), said.message.clone())
    };
    assert_eq!(of(1024), ("True".to_owned(), "1024 of 1024 nodes carry what the pool says".to_owned()));
    let (status, message) = of(1025);
    assert!(
        status == "True" && message.contains("which are 1025, more than 1024: make more pools"),
        "{message}"
    );
}

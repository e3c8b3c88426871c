//! Gateways that are connected by some of their active endpoints alone.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

impl World {
    fn replicas_of_the_shop(&mut self, replicas: i32) {
        self.spec(1, |spec| spec.proxy_config.replicas = replicas);
    }

    /// The status of the shop is that, and its endpoints are active.
    fn was_told(&mut self, active: &[&str], reason: &str, message: &str) {
        let active = active.iter().map(|node| json!({ "nodeName": node, "type": "proxy" }));
        let condition = json!({
            "type": "Connected", "status": "True", "reason": reason, "message": message, "lastTransitionTime": "2027-01-01T00:00:00Z",
        });
        let status = json!({ "activeEndpoints": active.collect::<Vec<_>>(), "conditions": [condition] });
        Arc::make_mut(&mut self.observed.gateways[1]).status = Some(serde_json::from_value(status).unwrap());
    }

    /// Condition `Connected` of the Gateway at that place, so many seconds later.
    fn later(&mut self, seconds: u32, index: usize) -> (bool, &'static str, String) {
        self.observed.now += SECOND * seconds;
        self.observed.time += SECOND * seconds;
        let connected = self.plan().verdicts[index].connected.clone();
        (connected.holds, connected.reason, connected.message)
    }
}

/// What is done, and what is said for half a minute, and then.
type Said<'a> = (&'a str, fn(&mut World), [&'a str; 2]);

#[test]
fn an_active_edge_endpoint_without_a_link_is_told_of() {
    let cases: [Said<'_>; 4] = [
        (
            "its hub",
            |_| {},
            [
                "a via c1, c2",
                "a via c1, c2; without a link is b since 2027-01-15T08:00:00Z at least: `edge-hub status` on the node says where it dials \
                 in vain, and why (is --tunnel on?)",
            ],
        ),
        (
            "its node",
            |w| w.nodes[1].ready = false,
            [
                "a via c1, c2",
                "a via c1, c2; without a link is b since 2027-01-15T08:00:00Z at least: the node is not ready (kubectl get nodes)",
            ],
        ),
        (
            "its power",
            |w| w.misses("c1", "b"),
            [
                "a via c1, c2",
                "a via c1, c2; without a link is b since 2027-01-15T08:00:00Z at least: it answered no more over its last link; \
                 `edge-hub status` on the node says more",
            ],
        ),
        (
            "one link is enough",
            |w| w.hub("c2", Liveness::Alive, &["a", "b"]),
            ["a, b via c1, c2", "a, b via c1, c2"],
        ),
    ];
    for (what, change, [at_once, then]) in cases {
        let mut world = world();
        world.replicas_of_the_shop(2);
        world.hub("c1", Liveness::Alive, &["a", "b"]);
        world.hub("c2", Liveness::Alive, &["a", "b"]);
        assert_eq!(world.later(0, 1), (true, "Connected", "a, b via c1, c2".to_owned()));
        world.hub("c1", Liveness::Alive, &["a"]);
        world.hub("c2", Liveness::Alive, &["a"]);
        change(&mut world);
        assert_eq!(world.later(0, 1), (true, "Connected", at_once.to_owned()), "{what}");
        let reason = if at_once == then { "Connected" } else { "PartlyConnected" };
        assert_eq!(world.later(10, 1).1, "Connected", "{what}: it is given the time to dial anew");
        // Gateways say for ten seconds whose last link they gave up.
        world.observed.hubs.values_mut().for_each(|hub| hub.silent.clear());
        assert_eq!(world.later(19, 1).1, "Connected", "{what}: it is given the time to dial anew");
        assert_eq!(world.later(1, 1), (true, reason, then.to_owned()), "{what}");
        // It stands as it is while it lasts, and is written once.
        assert_eq!(world.later(600, 1), (true, reason, then.to_owned()), "{what}");
        world.hub("c2", Liveness::Alive, &["a", "b"]);
        assert_eq!(world.later(1, 1).1, "Connected", "{what}");
    }
}

#[test]
fn too_many_nodes_do_not_hide_who_is_without_a_link() {
    let mut world = world();
    world.replicas_of_the_shop(2);
    world.hub("c1", Liveness::Alive, &["a"]);
    let template = world.nodes[1].clone();
    world.nodes.extend((0..1100).map(|number| NodeView {
        name: format!("n{number}"),
        ready: false,
        ..template.clone()
    }));
    assert_eq!(world.later(0, 1).1, "TooManyNodes");
    let (holds, reason, message) = world.later(30, 1);
    assert_eq!((holds, reason), (false, "TooManyNodes"));
    assert!(
        message.contains("with a Gateway; without a link is b since 2027-01-15T08:00:00Z at least:"),
        "{message}"
    );
}

#[test]
fn it_is_looked_at_in_time_and_one_that_gives_way_is_not_told_of() {
    let mut world = world();
    world.replicas_of_the_shop(2);
    world.hub("c1", Liveness::Alive, &["a"]);
    let until = world.observed.now + SECOND * 30;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| *last < until) {
        let due = world.plan().look_at.unwrap();
        world.observed.now = due;
        seen.push(due);
    }
    assert_eq!((seen.last(), world.later(0, 1).1), (Some(&until), "PartlyConnected"));
    // There is a third one, which takes its place.
    let mut world = self::world();
    let third = NodeView { name: "b2".to_owned(), ..world.nodes[1].clone() };
    world.nodes.insert(2, third);
    world.replicas_of_the_shop(2);
    world.hub("c1", Liveness::Alive, &["a"]);
    assert_eq!(world.later(0, 1).1, "Connected");
    assert_eq!(world.later(15, 1).1, "Connected");
    world.hub("c1", Liveness::Alive, &["a", "b2"]);
    assert_eq!(world.later(60, 1), (true, "Connected", "a, b2 via c1".to_owned()));
}

/// A hub of the cloud lives, and edge nodes come to the other one alone.
#[test]
fn an_exposed_endpoint_to_which_nobody_comes_is_told_of() {
    let started = |public: &str| {
        let mut world = world();
        world.spec(0, |spec| public.clone_into(&mut spec.endpoints[1].public_ip));
        world.hub("c1", Liveness::Alive, &["a", "solo"]);
        world.hub("c2", Liveness::Alive, &[]);
        assert_eq!(world.later(0, 0).1, "Accepting");
        world
    };
    let accepted =
        "links of a, solo are accepted by c1, c2; without a link is c2 since 2027-01-15T08:00:00Z at least";
    for (public, why) in [
        ("192.0.2.2", "does TCP 192.0.2.2:443 answer from outside, and lead to it?"),
        ("", "there is no address at which nodes could dial it, see condition Exposed"),
    ] {
        let mut world = started(public);
        assert_eq!(world.later(30, 0), (true, "PartlyConnected", format!("{accepted}: {why}")));
    }
    // Nobody comes to any: that is another matter.
    let mut world = started("192.0.2.2");
    world.hub("c1", Liveness::Alive, &[]);
    assert_eq!(world.later(30, 0).1, "NoLinks");
    // It does not live: `Elected` says so.
    let mut world = started("192.0.2.2");
    world.hub("c2", Liveness::Dead, &[]);
    assert_eq!(world.later(30, 0).1, "Accepting");
    world.hub("c2", Liveness::Alive, &["a"]);
    assert_eq!(world.later(30, 0).1, "Accepting");
}

/// Who has seen nothing yet does not take back what the last one told, and tells of no other sooner than of any.
#[test]
fn a_new_leader_goes_on_with_what_was_told() {
    let why = "at least: the node is not ready (kubectl get nodes)";
    let named = |node: &str| format!("a via c1; without a link is {node} since 2027-01-01T00:00:00Z {why}");
    for (reason, message, expected) in [
        ("PartlyConnected", named("b"), "PartlyConnected"),
        ("PartlyConnected", named(&format!("x since 2027-01-01T00:00:00Z {why}; b")), "PartlyConnected"),
        ("PartlyConnected", named("bb"), "Connected"),
        ("PartlyConnected", named("b.b"), "Connected"),
        ("Connected", named("b"), "Connected"),
    ] {
        let mut world = world();
        world.replicas_of_the_shop(2);
        world.hub("c1", Liveness::Alive, &["a"]);
        world.was_told(&["a", "b"], reason, &message);
        assert_eq!(world.later(0, 1).1, expected, "{message}");
        assert_eq!(world.later(29, 1).1, expected, "{message}");
        assert_eq!(world.later(1, 1).1, "PartlyConnected", "{message}");
    }
}

/// The message is written anew each half minute at most, and may name one that has had a link since.
#[test]
fn what_was_told_long_ago_is_no_sign_of_how_long() {
    for (linked, expected) in [("b", "Connected"), ("a", "PartlyConnected")] {
        let mut world = world();
        world.replicas_of_the_shop(2);
        world.hub("c1", Liveness::Alive, &["a"]);
        assert_eq!((world.later(0, 1).1, world.later(40, 1).1), ("Connected", "PartlyConnected"));
        let message = world.later(0, 1).2;
        world.was_told(&["a", "b"], "PartlyConnected", &message);
        world.hub("c1", Liveness::Alive, &["a", linked]);
        world.later(1, 1);
        world.hub("c1", Liveness::Alive, &["a"]);
        assert_eq!(world.later(1, 1).1, expected);
        assert_eq!(world.later(30, 1).1, "PartlyConnected");
    }
}

/// It dials for the first time when it is elected, and has the same half minute for it as any.
#[test]
fn who_takes_the_place_of_one_that_was_told_of_is_not_told_of_at_once() {
    let mut world = world();
    world.replicas_of_the_shop(2);
    world.hub("c1", Liveness::Alive, &["a"]);
    assert_eq!(world.later(0, 1).1, "Connected");
    let (_, reason, message) = world.later(30, 1);
    assert_eq!(reason, "PartlyConnected");
    world.was_told(&["a", "b"], reason, &message);
    let third = NodeView { name: "b2".to_owned(), ..world.nodes[1].clone() };
    world.nodes.insert(2, third);
    let plan = world.plan();
    assert_eq!((active(&plan, 1), plan.verdicts[1].connected.reason), (vec!["a", "b2"], "Connected"));
    assert_eq!(world.later(14, 1), (true, "Connected", "a via c1".to_owned()));
}

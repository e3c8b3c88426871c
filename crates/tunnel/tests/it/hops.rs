//! How many nodes a stream may pass: as many as there are on the longest way, and no more if it goes in circles.

use std::{net::SocketAddr, sync::Arc};

use tokio::{sync::watch, task::JoinSet};
use tunnel::{
    protocol::{Class, MAX_HOPS, OpenError},
    route::Direction,
    view::{Domain, View},
};

use crate::world::{Hub, World, ask, echo, links, only, refused, view};

/// Has a hub dial a gateway for one link of this direction.
fn dials(hub: &mut Hub, gateway: &str, address: SocketAddr, direction: Direction) {
    let wanted = only(links(gateway, address, hub.credentials.generation()), direction, Class::Interactive);
    hub.desired.send_replace(wanted);
    hub.dial();
}

/// The endpoint of the one pool has a link to one gateway alone, and that of the other to the other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_an_ordinary_node_passes_both_gateways() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let [mut c1, mut c2, mut a1] = ["c1", "c2", "a1"].map(|name| world.hub(name, true));
    let [mut a2, mut solo] = ["a2", "solo"].map(|name| world.hub(name, false));
    let (first, second) = (c1.listen().await, c2.listen().await);
    dials(&mut a2, "a1", a1.listen().await, Direction::Forward);
    dials(&mut a1, "c1", first, Direction::Forward);
    dials(&mut c1, "c2", second, Direction::Forward);
    dials(&mut solo, "c2", second, Direction::Reverse);
    for (hub, expected) in [(&a2, 1), (&a1, 2), (&c1, 2), (&c2, 2), (&solo, 1)] {
        hub.links(expected).await;
    }
    let target = format!("solo:{}", echo(&mut tasks).await);
    for _ in 0..10 {
        ask(&mut a2.connect(&target).await.unwrap(), b"there").await.unwrap();
    }
    for hub in [&a1, &c1, &c2, &solo] {
        assert_eq!(hub.stats.snapshot().opened, 10, "{}", hub.name);
        assert!(refused(hub).is_empty(), "{}: {:?}", hub.name, refused(hub));
    }
}

/// Each of two gateways has it that the other one is elected and it is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_goes_in_circles_ends() {
    let world = World::new();
    let elected = |node: &str| {
        let mut seen: View = view();
        seen.gateways.get_mut(&Domain::Cloud).unwrap().endpoints = [node.to_owned()].into();
        watch::Sender::new(Arc::new(seen))
    };
    let (of_c1, of_c2) = (elected("c2"), elected("c1"));
    let mut c1 = world.hub_that_sees(of_c1.subscribe(), "c1", true);
    let mut c2 = world.hub_that_sees(of_c2.subscribe(), "c2", true);
    let (first, second) = (c1.listen().await, c2.listen().await);
    dials(&mut c1, "c2", second, Direction::Forward);
    dials(&mut c2, "c1", first, Direction::Forward);
    c1.links(2).await;
    c2.links(2).await;
    assert_eq!(c1.connect("solo:1024").await.err(), Some(OpenError::Loop));
    let passed = |hub: &Hub| refused(hub).get("loop").copied().unwrap_or_default();
    // The last is the one that sees that there were too many.
    assert_eq!(passed(&c1) + passed(&c2), u64::from(MAX_HOPS) + 1);
    assert_eq!(refused(&c1).len() + refused(&c2).len(), 2);
}

//! Who stands for a pool changes: what becomes of the links and streams of those who did.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tunnel::{
    connector::Upstream,
    destination::{Callers, Destination, Rule},
    protocol::{Class, OpenError},
    view::{Domain, View},
};

use crate::world::{World, ask, echo, eventually, links, view};

/// A port of all nodes, for these.
fn rule(port: u16, from: Callers) -> Rule {
    Rule { to: Destination::Nodes { domain: None }, ports: vec![port..=port], from }
}

/// Asks over a stream until it is cut, which it is within half a minute of `began`.
async fn is_cut(stream: &mut Upstream, question: &[u8], began: Instant) {
    while ask(stream, question).await.is_ok() {
        assert!(began.elapsed() < Duration::from_secs(30), "it has no deadline");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Whoever loses an election finishes what it does, and so does one that is another's now; what it asked for itself and might not any more has the deadline
/// then.
#[tokio::test(flavor = "multi_thread")]
async fn streams_to_a_node_outlive_an_election_and_a_move() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.drain = Duration::from_secs(4);
    let (cloud, edge) = world.pair().await;
    let [port, for_all] = [echo(&mut tasks).await, echo(&mut tasks).await];
    let mut changed = view();
    let pool = changed.domain_of("a1").unwrap();
    let ours = Callers::Of([pool.clone(), Domain::Cloud].into());
    changed.destinations = vec![rule(port, ours), rule(for_all, Callers::All)];
    world.view.send_replace(Arc::new(changed.clone()));
    let mut down = cloud.connect(&format!("a1:{port}")).await.unwrap();
    let mut up = edge.connect(&format!("c1:{port}")).await.unwrap();
    let mut still = edge.connect(&format!("c1:{for_all}")).await.unwrap();
    edge.desired.send_replace([].into());
    changed.gateways.get_mut(&pool).unwrap().endpoints = ["a2".into()].into();
    world.view.send_replace(Arc::new(changed.clone()));
    cloud.links(2).await;
    sleep(Duration::from_secs(5)).await;
    ask(&mut down, b"after").await.unwrap();
    ask(&mut up, b"after").await.unwrap();
    changed.nodes.get_mut("a1").unwrap().pool = Some("b".into());
    world.view.send_replace(Arc::new(changed));
    ask(&mut up, b"soon").await.unwrap();
    let began = Instant::now();
    is_cut(&mut up, b"moved", began).await;
    sleep(world.limits.drain).await;
    ask(&mut still, b"moved").await.unwrap();
    ask(&mut down, b"moved").await.unwrap();
    drop(still);
    cloud.links(1).await;
}

/// As where its pool's Gateway goes, and it stands for itself from then on; the gateway may see it before the node does, or after.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_domain_is_reached_over_the_links_that_it_has() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.drain = Duration::from_secs(2);
    let (cloud, edge) = world.pair().await;
    let links = cloud.table.snapshot().len();
    let port = echo(&mut tasks).await;
    let [of_pool, of_node] = [echo(&mut tasks).await, echo(&mut tasks).await];
    let mut before = view();
    let pool = before.domain_of("a1").unwrap();
    before.destinations = vec![
        rule(port, Callers::All),
        rule(of_pool, Callers::Of([pool].into())),
        rule(of_node, Callers::Of([Domain::Solo("a1".to_owned())].into())),
    ];
    world.view.send_replace(Arc::new(before.clone()));
    let (there, back) = (format!("a1:{port}"), format!("c1:{port}"));
    let mut down = cloud.connect(&there).await.unwrap();
    let mut up = edge.connect(&format!("c1:{of_pool}")).await.unwrap();
    let mut for_all = edge.connect(&back).await.unwrap();
    let mut later = Vec::new();
    for (pool, next) in [(None, of_node), (Some("a".to_owned()), of_pool)] {
        let mut changed = before.clone();
        changed.nodes.get_mut("a1").unwrap().pool = pool;
        world.view.send_replace(Arc::new(changed));
        for _ in 0..10 {
            later.push(cloud.connect(&there).await.unwrap());
            later.push(edge.connect(&back).await.unwrap());
            sleep(Duration::from_millis(10)).await;
        }
        // What it asked for by other rules.
        let began = Instant::now();
        is_cut(&mut up, b"before", began).await;
        up = edge.connect(&format!("c1:{next}")).await.unwrap();
    }
    sleep(world.limits.drain).await;
    ask(&mut down, b"still").await.unwrap();
    // What it may ask for as well by the rules that hold.
    ask(&mut for_all, b"still").await.unwrap();
    for stream in &mut later {
        ask(stream, b"still").await.unwrap();
    }
    ask(&mut cloud.connect(&there).await.unwrap(), b"new").await.unwrap();
    ask(&mut up, b"new").await.unwrap();
    assert_eq!(cloud.table.snapshot().len(), links);
    assert_eq!(cloud.stats.snapshot().links_registered, u64::try_from(links).unwrap());
}

/// Elected, not elected, elected again, of which the edge saw nothing: its links are what they were, with the streams that they had.
#[tokio::test(flavor = "multi_thread")]
async fn links_of_a_node_that_is_elected_again_take_streams_again() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let mut cloud = world.hub("c1", true);
    let mut wanted = links("c1", cloud.listen().await, 1);
    wanted.retain(|key| key.class == Class::Interactive);
    let sees = tokio::sync::watch::Sender::new(Arc::new(view()));
    let mut edge = world.hub_that_sees(sees.subscribe(), "a1", false);
    edge.desired.send_replace(wanted);
    edge.dial();
    cloud.links(2).await;
    edge.links(2).await;
    let port = echo(&mut tasks).await;
    let (there, back) = (format!("a1:{port}"), format!("c1:{port}"));
    let mut down = cloud.connect(&there).await.unwrap();
    let mut up = edge.connect(&back).await.unwrap();
    let mut nobody = view();
    let pool = nobody.domain_of("a1").unwrap();
    nobody.gateways.get_mut(&pool).unwrap().endpoints.clear();
    for _ in 0..3 {
        world.view.send_replace(Arc::new(nobody.clone()));
        eventually("links are closed to new streams", || {
            cloud.table.snapshot().iter().all(|link| link.draining)
        })
        .await;
        assert_eq!(cloud.connect(&there).await.err(), Some(OpenError::NoLink));
        assert_eq!(edge.connect(&back).await.err(), Some(OpenError::NoLink));
        world.view.send_replace(Arc::new(view()));
        eventually("links are open again", || cloud.table.snapshot().iter().all(|link| !link.draining)).await;
        ask(&mut cloud.connect(&there).await.unwrap(), b"down").await.unwrap();
        ask(&mut edge.connect(&back).await.unwrap(), b"up").await.unwrap();
    }
    ask(&mut down, b"still").await.unwrap();
    ask(&mut up, b"still").await.unwrap();
    assert_eq!(cloud.stats.snapshot().links_registered, 2);
    // Without streams they go.
    drop((down, up));
    world.view.send_replace(Arc::new(nobody));
    cloud.links(0).await;
    world.view.send_replace(Arc::new(view()));
    cloud.links(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lost_an_election_drains_and_who_is_gone_is_cut() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    let mut live = cloud.connect(&format!("a1:{port}")).await.unwrap();
    ask(&mut live, b"before").await.unwrap();
    edge.desired.send_replace([].into());
    let mut lost = view();
    let pool = lost.domain_of("a1").unwrap();
    lost.gateways.get_mut(&pool).unwrap().endpoints = ["a2".into()].into();
    world.view.send_replace(Arc::new(lost.clone()));
    cloud.links(1).await;
    assert_eq!(cloud.connect(&format!("a1:{port}")).await.err(), Some(OpenError::NoLink));
    ask(&mut live, b"after").await.unwrap();
    lost.nodes.remove("a1");
    world.view.send_replace(Arc::new(lost));
    cloud.links(0).await;
    assert!(ask(&mut live, b"gone").await.is_err());
}

/// Deleted and made again, as by `kubectl replace --force`: for a moment no Gateway names the node that an edge has links to.
#[tokio::test(flavor = "multi_thread")]
async fn streams_over_a_gateway_that_is_gone_and_back_have_no_deadline() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.drain = Duration::from_secs(5);
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let sees = tokio::sync::watch::Sender::new(Arc::new(view()));
    let mut edge = world.hub_that_sees(sees.subscribe(), "a1", false);
    edge.desired.send_replace(links("c1", address, 1));
    edge.dial();
    cloud.links(4).await;
    edge.links(4).await;
    let port = echo(&mut tasks).await;
    let mut down = cloud.connect(&format!("a1:{port}")).await.unwrap();
    let mut up = edge.connect(&format!("c1:{port}")).await.unwrap();
    let mut without = view();
    without.nodes.remove("c1");
    edge.desired.send_replace([].into());
    sees.send_replace(Arc::new(without.clone()));
    // Those without streams are gone, so that it was seen.
    cloud.links(2).await;
    sleep(Duration::from_millis(500)).await;
    sees.send_replace(Arc::new(view()));
    sleep(world.limits.drain + Duration::from_secs(2)).await;
    ask(&mut down, b"still").await.unwrap();
    ask(&mut up, b"still").await.unwrap();
    // One that stays away has the deadline.
    let began = Instant::now();
    sees.send_replace(Arc::new(without));
    for stream in [&mut down, &mut up] {
        is_cut(stream, b"soon", began).await;
    }
    assert!(began.elapsed() > world.limits.drain / 2, "it had none");
}

/// The endpoint of a pool knows the nodes that Gateways name: one that is in none any more is a node all the same.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_named_no_more_where_not_all_nodes_are_known_keeps_its_streams() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.drain = Duration::from_secs(3);
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let [port, of_pool] = [echo(&mut tasks).await, echo(&mut tasks).await];
    let mut named = View { is_partial: true, ..view() };
    let pool = named.domain_of("a1").unwrap();
    named.destinations = vec![rule(port, Callers::All), rule(of_pool, Callers::Of([pool].into()))];
    world.view.send_replace(Arc::new(named.clone()));
    let sees = tokio::sync::watch::Sender::new(Arc::new(named.clone()));
    let mut edge = world.hub_that_sees(sees.subscribe(), "a1", false);
    edge.desired.send_replace(links("c1", address, 1));
    edge.dial();
    cloud.links(4).await;
    edge.links(4).await;
    let back = format!("c1:{port}");
    let mut down = cloud.connect(&format!("a1:{port}")).await.unwrap();
    let mut up = edge.connect(&back).await.unwrap();
    let mut by_right = edge.connect(&format!("c1:{of_pool}")).await.unwrap();
    let mut unnamed = named.clone();
    unnamed.nodes.remove("a1");
    let closed = || cloud.table.snapshot().iter().all(|link| link.draining);
    world.view.send_replace(Arc::new(unnamed.clone()));
    eventually("links are closed to new streams", closed).await;
    assert_eq!(edge.connect(&back).await.err(), Some(OpenError::NoLink));
    for stream in [&mut down, &mut up, &mut by_right] {
        ask(stream, b"at once").await.unwrap();
    }
    // Named again in time: nothing has a deadline.
    world.view.send_replace(Arc::new(named));
    eventually("links are open again", || !cloud.table.snapshot().iter().any(|link| link.draining)).await;
    sleep(world.limits.drain + Duration::from_secs(1)).await;
    ask(&mut by_right, b"still").await.unwrap();
    ask(&mut edge.connect(&back).await.unwrap(), b"new").await.unwrap();
    // And not: what it asked for by the right of its pool has one.
    world.view.send_replace(Arc::new(unnamed));
    let began = Instant::now();
    is_cut(&mut by_right, b"soon", began).await;
    sleep(world.limits.drain).await;
    ask(&mut down, b"still").await.unwrap();
    ask(&mut up, b"still").await.unwrap();
}

/// A Gateway is made anew under another name: the edge's links to it are those of before, and what the cloud may ask over them, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_whose_domain_has_another_name_is_still_the_clouds() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let port = echo(&mut tasks).await;
    let named = |name: &str| {
        let mut seen: View = view();
        let gateway = seen.gateways.remove(&Domain::Cloud).unwrap();
        let domain = Domain::Pool(name.to_owned());
        for node in ["c1", "c2"] {
            seen.nodes.get_mut(node).unwrap().pool = Some(name.to_owned());
        }
        seen.gateways.insert(domain.clone(), gateway);
        seen.destinations = Rule::nodes(&[port], seen.domain_of("a1").as_ref(), [domain]).collect();
        Arc::new(seen)
    };
    let sees = tokio::sync::watch::Sender::new(named("cloud"));
    let mut edge = world.hub_that_sees(sees.subscribe(), "a1", false);
    edge.desired.send_replace(links("c1", address, 1));
    edge.dial();
    cloud.links(4).await;
    edge.links(4).await;
    let target = format!("a1:{port}");
    ask(&mut cloud.connect(&target).await.unwrap(), b"before").await.unwrap();
    sees.send_replace(named("centre"));
    ask(&mut cloud.connect(&target).await.unwrap(), b"after").await.unwrap();
    assert_eq!(edge.stats.snapshot().links_registered, 4);
}

//! What faults do to links and streams.

use std::time::Duration;

use testkit::wan::{Wan, Weather};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
    time::{Instant, timeout},
};
use tunnel::{
    protocol::{Class, OpenError},
    relay::relay,
    route::Direction,
};

use crate::world::{
    Hub, SOON, World, ask, destination, echo, eventually, links, only, quick_to_notice, refused, view,
};

/// A gateway and an agent with a bad link between them; one reverse link.
pub(crate) async fn over(world: &World, weather: Weather) -> (Hub, Hub, Wan) {
    let mut gateway = world.hub("c1", true);
    let wan = Wan::start(gateway.listen().await, 7, weather).await.unwrap();
    let mut agent = world.hub("a1", false);
    let generation = agent.credentials.generation();
    let wanted = only(links("c1", wan.address(), generation), Direction::Reverse, Class::Interactive);
    agent.desired.send_replace(wanted);
    agent.dial();
    gateway.links(1).await;
    agent.links(1).await;
    (gateway, agent, wan)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_breaks_ends_its_streams_and_comes_back() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge, wan) = over(&world, Weather::CLEAR).await;
    let port = echo(&mut tasks).await;
    let mut stream = cloud.connect(&format!("a1:{port}")).await.unwrap();
    ask(&mut stream, b"x").await.unwrap();
    wan.cut();
    let end = timeout(SOON, stream.read_u8()).await.unwrap();
    assert!(end.is_err());
    cloud.links(1).await;
    eventually("another connection", || wan.accepted() == 2).await;
    let until = Instant::now() + SOON;
    let mut stream = loop {
        match cloud.connect(&format!("a1:{port}")).await {
            Ok(stream) => break stream,
            Err(error) => assert!(error == OpenError::NoLink && Instant::now() < until),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    ask(&mut stream, b"y").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nat_that_forgets_is_noticed() {
    let world = World::with(view(), quick_to_notice());
    let (cloud, edge, wan) = over(&world, Weather::CLEAR).await;
    wan.rebind();
    eventually("both ends notice", || {
        cloud.stats.snapshot().links_dead >= 1 && edge.stats.snapshot().links_dead >= 1
    })
    .await;
    assert!(edge.table.silent().is_empty(), "over a link of the cloud it does not ask");
    eventually("a new link", || edge.table.snapshot().len() == 1 && cloud.table.snapshot().len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_in_one_direction_is_noticed_by_both() {
    for weather in
        [Weather { silent_up: true, ..Weather::CLEAR }, Weather { silent_down: true, ..Weather::CLEAR }]
    {
        let world = World::with(view(), quick_to_notice());
        let (cloud, edge, wan) = over(&world, Weather::CLEAR).await;
        wan.set(weather);
        eventually("both ends notice", || {
            cloud.table.snapshot().is_empty() && edge.table.snapshot().is_empty()
        })
        .await;
        // Who asks can tell why the link is gone. Where what the edge sends arrives, its farewell may come before the silence is noticed.
        let silent = cloud.table.silent();
        assert!(silent == ["a1".to_owned()].into() || !weather.silent_up && silent.is_empty(), "{silent:?}");
        wan.set(Weather::CLEAR);
        eventually("a new link", || cloud.table.snapshot().len() == 1).await;
        assert!(cloud.table.silent().is_empty(), "it has a link");
        let changes = cloud.table.changes();
        wan.cut();
        eventually("it is gone, or there is another", || changes.has_changed().unwrap()).await;
        assert!(cloud.table.silent().is_empty(), "the one that broke is not the one that fell silent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_broke_did_not_fall_silent() {
    let world = World::new();
    let (cloud, _edge, wan) = over(&world, Weather::CLEAR).await;
    let changes = cloud.table.changes();
    wan.cut();
    eventually("it is gone, or there is another", || changes.has_changed().unwrap()).await;
    assert!(cloud.table.silent().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn loss_and_delay_break_nothing() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let weather = Weather {
        delay: Duration::from_millis(20),
        jitter: Duration::from_millis(20),
        loss_per_million: 5_000,
        ..Weather::CLEAR
    };
    let (cloud, _edge, _wan) = over(&world, weather).await;
    let port = echo(&mut tasks).await;
    let mut stream = cloud.connect(&format!("a1:{port}")).await.unwrap();
    let sent: Vec<u8> = (0..2_000_000_u32).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect();
    let (mut from, mut to) = tokio::io::split(&mut stream);
    let mut got = Vec::new();
    let (written, read) = tokio::join!(
        async {
            to.write_all(&sent).await?;
            to.shutdown().await
        },
        from.read_to_end(&mut got)
    );
    written.unwrap();
    read.unwrap();
    assert!(got == sent, "bytes differ");
}

/// Two gateways: when the link of one is gone or says nothing, streams are opened over the other.
#[tokio::test(flavor = "multi_thread")]
async fn another_gateway_takes_over_before_the_first_byte() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    // Half of it for each of the two.
    world.limits.open = Duration::from_secs(8);
    let (mut c1, mut c2, mut edge) = (world.hub("c1", true), world.hub("c2", true), world.hub("a1", false));
    let wan = Wan::start(c1.listen().await, 3, Weather::CLEAR).await.unwrap();
    let generation = edge.credentials.generation();
    let mut wanted = only(links("c1", wan.address(), generation), Direction::Forward, Class::Interactive);
    wanted.extend(only(links("c2", c2.listen().await, generation), Direction::Forward, Class::Interactive));
    edge.desired.send_replace(wanted);
    edge.dial();
    edge.links(2).await;
    let port = echo(&mut tasks).await;
    let target = format!("c1:{port}");
    // Both are used: each stream goes where there are fewer.
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(edge.connect(&target).await.unwrap());
    }
    assert_eq!((c1.stats.snapshot().opened, c2.stats.snapshot().opened), (5, 5));
    // One falls silent: nobody knows yet, and the stream is opened all the same.
    wan.rebind();
    held.push(timeout(SOON, edge.connect(&target)).await.unwrap().unwrap());
    held.push(timeout(SOON, edge.connect(&target)).await.unwrap().unwrap());
    assert!(c2.stats.snapshot().opened >= 7);
    let mut last = held.pop().unwrap();
    ask(&mut last, b"there").await.unwrap();
}

/// While one link is asked the other ends: no stream is opened over what is about to close.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_ends_meanwhile_is_not_asked() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (mut c1, mut c2, mut edge) = (world.hub("c1", true), world.hub("c2", true), world.hub("a1", false));
    let wan = Wan::start(c1.listen().await, 3, Weather::CLEAR).await.unwrap();
    let first = only(links("c1", wan.address(), 1), Direction::Forward, Class::Interactive);
    let second = only(links("c2", c2.listen().await, 1), Direction::Forward, Class::Interactive);
    edge.desired.send_replace(first.union(&second).cloned().collect());
    edge.dial();
    edge.links(2).await;
    let target = format!("c1:{}", echo(&mut tasks).await);
    // One over each. With that over the first gone the first is the better.
    let one = edge.connect(&target).await.unwrap();
    let over_first = c1.stats.snapshot().opened == 1;
    let other = edge.connect(&target).await.unwrap();
    let (over_first, over_second) = if over_first { (one, other) } else { (other, one) };
    drop(over_first);
    let streams = |peer: &str| {
        edge.table.snapshot().iter().find(|link| link.peer == peer).map_or(0, |link| link.streams)
    };
    eventually("its stream is over", || streams("c1") == 0).await;
    wan.rebind();
    let (connector, request) = (edge.connector.clone(), crate::world::request(&target));
    let connecting = tasks.spawn(async move {
        let _ = connector.connect(&request).await;
    });
    eventually("the first is asked", || streams("c1") == 1).await;
    drop((over_second, connecting));
    edge.desired.send_replace(first);
    edge.links(1).await;
    eventually("the second was tried", || edge.stats.snapshot().retried == 1).await;
    eventually("and is given up", || refused(&edge).contains_key("no_link")).await;
    assert_eq!(c2.stats.snapshot().opened, 1);
}

/// Both links to the pool are silent: there is time left for the sibling, which has others.
#[tokio::test(flavor = "multi_thread")]
async fn a_sibling_is_asked_while_there_is_time() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    // A third of it would be more than anybody waits.
    world.limits.open = SOON * 6;
    let (mut c1, mut c2, mut edge) = (world.hub("c1", true), world.hub("c2", true), world.hub("a1", false));
    let wan = Wan::start(c1.listen().await, 3, Weather::CLEAR).await.unwrap();
    let sibling = c2.listen().await;
    let mut wanted = links("c1", wan.address(), 1);
    wanted.extend(links("c2", sibling, 1));
    wanted.retain(|key| key.direction == Direction::Reverse);
    edge.desired.send_replace(wanted);
    edge.dial();
    c1.desired.send_replace(only(links("c2", sibling, 1), Direction::Forward, Class::Interactive));
    c1.dial();
    c1.links(3).await;
    c2.links(3).await;
    let port = echo(&mut tasks).await;
    wan.rebind();
    let opened = timeout(SOON, c1.connect(&format!("a1:{port}"))).await.unwrap();
    ask(&mut opened.unwrap(), b"by the sibling").await.unwrap();
    assert_eq!(c1.stats.snapshot().retried, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_cuts_no_stream_and_takes_no_new_one() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    let mut live = cloud.connect(&format!("a1:{port}")).await.unwrap();
    let mut other = edge.connect(&format!("c1:{port}")).await.unwrap();
    ask(&mut live, b"before").await.unwrap();
    ask(&mut other, b"before").await.unwrap();
    // The gateway is told to end.
    cloud.shutdown.cancel();
    eventually("links drain", || cloud.table.snapshot().iter().all(|link| link.draining)).await;
    assert_eq!(cloud.connect(&format!("a1:{port}")).await.err(), Some(OpenError::NoLink));
    eventually("idle links are gone", || cloud.table.snapshot().len() == 2).await;
    eventually("the edge knows", || edge.table.snapshot().iter().all(|link| link.draining || !link.asking))
        .await;
    ask(&mut live, b"while draining").await.unwrap();
    ask(&mut other, b"while draining").await.unwrap();
    assert_eq!(edge.connect(&format!("c1:{port}")).await.err(), Some(OpenError::NoLink));
    drop((live, other));
    cloud.links(0).await;
    edge.links(0).await;
}

/// A stream that nobody reads holds no other back, on the same link.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_streams_hold_nobody_back() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge, _wan) = over(&world, Weather::CLEAR).await;
    let flood = destination(&mut tasks, |mut client| async move {
        let data = vec![0; 64 * 1024];
        while client.write_all(&data).await.is_ok() {}
    })
    .await;
    // Lines of one byte, which HTTP/2 would take for an attack.
    let trickle = destination(&mut tasks, |mut client| async move {
        while client.write_all(b".").await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let port = echo(&mut tasks).await;
    let mut stalled = Vec::new();
    for _ in 0..25 {
        for port in [flood, trickle] {
            // A client that never reads.
            let (client, mut served) = tokio::io::duplex(1024);
            let mut upstream = cloud.connect(&format!("a1:{port}")).await.unwrap();
            tasks.spawn(async move {
                let _ = relay(&mut served, &mut upstream, Vec::new()).await;
            });
            stalled.push(client);
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut stream = timeout(SOON, cloud.connect(&format!("a1:{port}"))).await.unwrap().unwrap();
    let mut waits = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        timeout(SOON, ask(&mut stream, b"hello")).await.unwrap().unwrap();
        waits.push(began.elapsed());
    }
    waits.sort();
    // The middle one: a busy machine holds some back as well.
    assert!(waits[waits.len() / 2] < Duration::from_millis(250), "{waits:?}");
    assert_eq!(cloud.table.snapshot().len(), 1);
    assert_eq!(cloud.table.snapshot()[0].streams, 51);
    assert_eq!(cloud.stats.snapshot().links_registered, 1);
}

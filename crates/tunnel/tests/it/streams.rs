//! What a stream does that a TCP connection would do.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    task::JoinSet,
    time::timeout,
};
use tunnel::{
    connector::{Request, Unvouched},
    destination::{Callers, Destination, Rule},
    protocol::{Class, Limits, OpenError},
    relay::Pipe,
    route::Direction,
    view::{Domain, GatewayState, Node},
};

use crate::world::{
    SOON, World, ask, destination, echo, eventually, limits, only, own_address, refused, request,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_both_ways() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    // Cloud to edge, to the gateway node and past it; edge to cloud.
    for (from, target) in [(&cloud, "a1"), (&cloud, "a2"), (&edge, "c1"), (&edge, "c2")] {
        let mut stream = from.connect(&format!("{target}:{port}")).await.unwrap();
        for turn in 0_u8..50 {
            assert_eq!(ask(&mut stream, &[turn; 100]).await.unwrap(), [turn; 100]);
        }
    }
    let status = cloud.table.snapshot();
    assert!(status.iter().all(|link| link.peer == "a1"));
    eventually("streams end", || cloud.table.snapshot().iter().all(|link| link.streams == 0)).await;
    eventually("round trips", || cloud.table.snapshot().iter().all(|link| link.round_trip.is_some())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_direction_ends_by_itself() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge) = world.pair().await;
    // Answers only after the end of the question: `wc -c`.
    let port = destination(&mut tasks, |mut client| async move {
        let mut question = Vec::new();
        client.read_to_end(&mut question).await.unwrap();
        client.write_all(question.len().to_string().as_bytes()).await.unwrap();
    })
    .await;
    let mut stream = cloud.connect(&format!("a1:{port}")).await.unwrap();
    stream.write_all(&vec![1; 300_000]).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "300000");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_is_a_reset() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge) = world.pair().await;
    let (heard, mut told) = tokio::sync::mpsc::channel(4);
    let port = destination(&mut tasks, move |mut client| {
        let heard = heard.clone();
        async move {
            let mut first = [0];
            client.read_exact(&mut first).await.unwrap();
            if first[0] == b'r' {
                // The destination breaks the connection.
                client.abort();
                return;
            }
            client.write_all(&first).await.unwrap();
            let end = client.read(&mut first).await.map_err(|error| error.kind());
            heard.send(end).await.unwrap();
        }
    })
    .await;
    let mut stream = cloud.connect(&format!("a1:{port}")).await.unwrap();
    stream.write_all(b"r").await.unwrap();
    let error = timeout(SOON, stream.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    // And the client breaks it.
    let mut stream = cloud.connect(&format!("a1:{port}")).await.unwrap();
    // The byte has to be there before the reset takes all with it.
    ask(&mut stream, b"c").await.unwrap();
    stream.abort();
    let end = timeout(SOON, told.recv()).await.unwrap().unwrap();
    assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset));
    drop(stream);
    eventually("streams end", || edge.table.snapshot().iter().all(|link| link.streams == 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_says_why() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let mut view = crate::world::view();
    // The edge does not let in what the cloud lets out.
    view.destinations.push(Rule {
        to: Destination::Name { pattern: "nowhere.invalid".into(), domain: Domain::Pool("a".into()) },
        ports: vec![80..=80],
        from: Callers::All,
    });
    world.view.send_replace(view.into());
    let (cloud, edge) = world.pair().await;
    let open = echo(&mut tasks).await;
    // Bound, so that no other test gets it, and nobody listens.
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.bind((own_address(), 0).into()).unwrap();
    let closed = reserved.local_addr().unwrap().port();
    let check = async |target: String, expected| {
        assert_eq!(cloud.connect(&target).await.err(), expected, "{target}");
    };
    check(format!("a1:{open}"), None).await;
    check(format!("a1:{closed}"), Some(OpenError::Unreachable)).await;
    check("a1:22".into(), Some(OpenError::NotAllowed)).await;
    check("169.254.169.254:8080".into(), Some(OpenError::NotAllowed)).await;
    check("nobody:10250".into(), Some(OpenError::Unknown)).await;
    check("nowhere.invalid:80".into(), Some(OpenError::Unknown)).await;
    check("solo:10250".into(), Some(OpenError::NoLink)).await;
    let expected = [("no_link", 1), ("not_allowed", 2), ("unknown", 2), ("unreachable", 1)];
    assert_eq!(refused(&cloud), expected.into());
    assert_eq!(refused(&edge), [("unknown", 1), ("unreachable", 2)].into());
}

/// The way between two nodes of a pool is closed, and its endpoint has another.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_the_pool_that_does_not_take_a_dial_is_reached_over_a_link_that_there_is() {
    let mut seen = crate::world::view();
    let third = seen.nodes["a2"].clone();
    seen.nodes.insert("a3".into(), third);
    let limits = Limits { dial: Duration::from_millis(300), ..limits() };
    let (world, mut tasks) = (World::with(seen.clone(), limits), JoinSet::new());
    let mut endpoint = world.hub("a1", true);
    // Nobody has this address (RFC 5737).
    seen.nodes.get_mut("a3").unwrap().addresses = vec!["192.0.2.1".parse().unwrap()];
    let views = tokio::sync::watch::Sender::new(Arc::new(seen));
    let mut ordinary = world.hub_that_sees(views.subscribe(), "a2", false);
    let port = echo(&mut tasks).await;
    let target = format!("a3:{port}");
    let error = ordinary.connect(&target).await.err().unwrap();
    assert!(matches!(error, OpenError::Timeout | OpenError::Unreachable), "{error}");
    let links = crate::world::links("a1", endpoint.listen().await, 1);
    ordinary.desired.send_replace(only(links, Direction::Forward, Class::Interactive));
    ordinary.dial();
    ordinary.links(1).await;
    endpoint.links(1).await;
    let mut stream = ordinary.connect(&target).await.unwrap();
    assert_eq!(ask(&mut stream, b"by the endpoint").await.unwrap(), b"by the endpoint");
    // Of what the endpoint does not reach either the own dial tells.
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.bind((own_address(), 0).into()).unwrap();
    let closed = reserved.local_addr().unwrap().port();
    assert_eq!(ordinary.connect(&format!("a3:{closed}")).await.err(), Some(error));
    assert_eq!(refused(&endpoint), [("unreachable", 1)].into());
}

/// The status of a Gateway names so many nodes of a pool and no more: its endpoint may know fewer than the gateway that asks it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_its_endpoint_does_not_know_is_unknown_at_once() {
    let world = World::new();
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let mut smaller = crate::world::view();
    smaller.nodes.remove("a2");
    let sees = tokio::sync::watch::Sender::new(Arc::new(smaller));
    let mut edge = world.hub_that_sees(sees.subscribe(), "a1", false);
    edge.desired.send_replace(crate::world::links("c1", address, 1));
    edge.dial();
    cloud.links(4).await;
    edge.links(4).await;
    for caller in [&cloud, &edge] {
        assert_eq!(caller.connect("a2:10250").await.err(), Some(OpenError::Unknown), "{}", caller.name);
    }
    // Once by the cloud, and once on the way of the edge's own: never in circles.
    assert_eq!(refused(&edge), [("unknown", 3)].into());
    assert_eq!(refused(&cloud), [("unknown", 2)].into());
}

/// A node of the cloud says itself where it is. Whoever came in where nobody is asked is not led there, be it by this gateway or by another one
/// that it asks for him.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_known_is_not_led_where_a_node_of_the_cloud_says() {
    let mut seen = crate::world::view();
    let pool = Domain::Pool("y".into());
    for (name, pool) in [("c3", None), ("y1", Some("y")), ("y2", Some("y"))] {
        let node = Node { pool: pool.map(str::to_owned), ..seen.nodes["c2"].clone() };
        seen.nodes.insert(name.into(), node);
    }
    let endpoints = ["y1".to_owned()].into();
    seen.gateways.insert(pool, GatewayState { exposed: true, endpoints, ..GatewayState::default() });
    let (world, mut tasks) = (World::with(seen, limits()), JoinSet::new());
    let (mut here, mut there) = (world.hub("c1", true), world.hub("y1", true));
    here.desired.send_replace(only(
        crate::world::links("y1", there.listen().await, 1),
        Direction::Forward,
        Class::Interactive,
    ));
    here.dial();
    here.links(1).await;
    let port = echo(&mut tasks).await;
    for (node, expected) in [
        ("c1", None),
        ("c2", None),
        ("y1", None),
        ("c3", Some(OpenError::NotAllowed)),
        ("y2", Some(OpenError::NotAllowed)),
    ] {
        let known = request(&format!("{node}:{port}"));
        assert_eq!(here.connector.connect(&known).await.err(), None, "{node}");
        let source = IpAddr::from([192, 0, 2, 1]).into();
        let unvouched = Some(Unvouched { listener: "test", source });
        let said = here.connector.connect(&Request { unvouched, ..known }).await;
        assert_eq!(said.err(), expected, "{node}");
    }
}

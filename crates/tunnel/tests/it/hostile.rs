//! Peers that speak nonsense: no panic, no link, and those who behave are served on.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use testkit::api_server::pki::Authority;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tunnel::{
    destination::Rule,
    ingress::arrival::Arrival,
    protocol::{ALPN_FORWARD, ALPN_REVERSE, HELLO_PATH, OpenError, VERSION},
    route::Direction,
    view::{Domain, Node, Place},
};

use crate::world::{
    GATEWAY_NAME, SOON, World, ask, echo, eventually, leaf, limits, links, own_address, refused, view,
};

/// A TLS connection with a node's certificate, to say over it what one likes.
pub(crate) async fn raw(
    authority: &Authority,
    node: &str,
    address: std::net::SocketAddr,
    alpn: Option<&[u8]>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    let shown = leaf(authority, node, false);
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![shown.certificate], shown.key)
        .unwrap();
    config.alpn_protocols = alpn.into_iter().map(<[u8]>::to_vec).collect();
    let name = ServerName::try_from(GATEWAY_NAME).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(address).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_after_the_handshake_becomes_no_link() {
    let mut world = World::new();
    world.limits.handshake = Duration::from_secs(5);
    let (mut cloud, mut tasks) = (world.hub("c1", true), JoinSet::new());
    let address = cloud.listen().await;
    // Neither of the two names: a handshake alert, or the end.
    for alpn in [None, Some(&b"http/1.1"[..])] {
        if let Ok(mut connection) = raw(&world.authority, "a1", address, alpn).await {
            let mut rest = Vec::new();
            let _ = timeout(SOON, connection.read_to_end(&mut rest)).await.unwrap();
        }
    }
    let frame = |length: u32, kind: u8, flags: u8, stream: u32| {
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame
    };
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let settings = frame(0, 4, 0, 0);
    let with = |more: &[u8]| [preface.clone(), settings.clone(), more.to_vec()].concat();
    let mut many_headers = with(&[]);
    // HEADERS that never end, in CONTINUATION frames.
    many_headers.extend(frame(4, 1, 0, 1));
    many_headers.extend([0x82, 0x86, 0x84, 0x41]);
    for _ in 0..2000 {
        many_headers.extend(frame(1024, 9, 0, 1));
        many_headers.extend([0x40; 1024]);
    }
    let cases: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0; 100_000],
        preface.clone(),
        with(&[0xff; 5000]),
        with(&frame(0x00ff_ffff, 0, 0, 1)),
        with(&[frame(1, 1, 4, 1), vec![0xff]].concat()),
        with(&frame(0, 8, 0, 0)),
        with(&frame(4, 8, 0, 9)),
        many_headers,
    ];
    let say = async |alpn: &'static [u8], case: &[u8]| {
        let mut connection = raw(&world.authority, "a1", address, Some(alpn)).await.unwrap();
        let _ = connection.write_all(case).await;
        let mut rest = Vec::new();
        // Whatever it answers, it ends: at the latest when nobody registered in time.
        let _ = timeout(SOON, connection.read_to_end(&mut rest)).await.expect("no end");
    };
    // Side by side, because some of them end by that limit.
    let both = [ALPN_FORWARD, ALPN_REVERSE];
    let all = both.into_iter().flat_map(|alpn| cases.iter().map(move |case| (alpn, case)));
    futures::future::join_all(all.map(|(alpn, case)| say(alpn, case))).await;
    assert!(cloud.table.snapshot().is_empty());
    assert_eq!(cloud.stats.snapshot().links_registered, 0);
    // Those who behave are served.
    let mut edge = world.hub("a1", false);
    edge.desired.send_replace(links("c1", address, 1));
    edge.dial();
    cloud.links(4).await;
    let port = echo(&mut tasks).await;
    let mut stream = cloud.connect(&format!("a1:{port}")).await.unwrap();
    ask(&mut stream, b"well").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_bounded_in_number_and_time() {
    let mut world = World::new();
    // A quarter for each source, and all come from one.
    world.limits.waiting = 16;
    world.limits.first_byte = Duration::from_secs(1);
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut edge = world.hub("a1", false);
    edge.desired.send_replace(links("c1", address, 1));
    edge.dial();
    // Beside four that say nothing, while the others are sent away.
    cloud.links(4).await;
    eventually("silent ones are given up", || cloud.stats.snapshot().links_failed >= 20).await;
}

/// Whoever says something and no more has a handshake begun for it, with all the time that one may take.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_stall_keep_nobody_else_out() {
    let mut world = World::new();
    world.limits.pending = 8;
    world.limits.handshake = SOON;
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let mut stalled = Vec::new();
    for said in 0..40 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut connection = socket.connect(address).await.unwrap();
        // The first byte of a record is all of it, or some say nothing at all.
        if said % 4 > 0 {
            connection.write_all(&[22]).await.unwrap();
        }
        stalled.push(connection);
    }
    let mut edge = world.hub("a1", false);
    edge.desired.send_replace(links("c1", address, 1));
    edge.dial();
    timeout(world.limits.handshake / 2, cloud.links(4)).await.unwrap();
    for connection in &mut stalled[1..4] {
        let waited = timeout(Duration::from_millis(1), connection.read_u8()).await;
        assert!(waited.is_err(), "nobody was stalled: {waited:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A ClientHello, damaged, cut or split anyhow: the way in answers or ends, and never panics.
    #[test]
    fn any_first_message_is_survived(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        pieces in 1_usize..40,
        whole in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            let cloud = world.hub("c1", true);
            let mut hello = crate::ways_in::client_hello("a1");
            for (at, byte) in damage {
                let at = at.index(hello.len());
                hello[at] = byte;
            }
            if !whole {
                hello.truncate(cut.index(hello.len()));
            }
            let (mut client, server) = tokio::io::duplex(100_000);
            let ingress = cloud.ingress();
            let served = tokio::spawn(async move { tunnel::ingress::sni::serve_sni(&ingress, server, "test", &Arrival::uncounted(), 10250).await });
            for piece in hello.chunks(hello.len().div_ceil(pieces).max(1)) {
                // It may have ended before.
                let _ = client.write_all(piece).await;
                tokio::task::yield_now().await;
            }
            let _ = client.shutdown().await;
            timeout(SOON, served).await.expect("no end").expect("a panic");
        });
    }
}

/// A peer is who its certificate says, whatever it says of itself: it registers nobody else, and asks as nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_gives_another_name_is_who_its_certificate_says() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let port = echo(&mut tasks).await;
    let said = "solo";
    let hello = format!(
        r#"{{"protocol":{VERSION},"instance":"{said}","class":"interactive","node":"{said}","peer":"{said}","domain":"{said}"}}"#
    );
    // Over a reverse link it answers, over a forward link it asks.
    let connection = raw(&world.authority, "a1", address, Some(ALPN_REVERSE)).await.unwrap();
    let mut server = h2::server::handshake(connection).await.unwrap();
    let answer = hello.clone();
    tasks.spawn(async move {
        let (_, mut respond) = server.accept().await.unwrap().unwrap();
        let mut response = http::Response::new(());
        response.headers_mut().insert("isthmus-node", http::HeaderValue::from_static(said));
        let mut body = respond.send_response(response, false).unwrap();
        body.send_data(answer.into(), true).unwrap();
        // Whatever it is asked for it does not give.
        while let Some(Ok((_, mut respond))) = server.accept().await {
            let refused = http::Response::builder().status(http::StatusCode::IM_A_TEAPOT).body(()).unwrap();
            let _ = respond.send_response(refused, true);
        }
    });
    cloud.links(1).await;
    let connection = raw(&world.authority, "a1", address, Some(ALPN_FORWARD)).await.unwrap();
    let (mut client, driven) = h2::client::handshake(connection).await.unwrap();
    tasks.spawn(async move { drop(driven.await) });
    let uri = format!("https://{said}{HELLO_PATH}");
    let request = http::Request::post(uri).header("isthmus-node", said).body(()).unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    body.send_data(hello.into(), true).unwrap();
    assert_eq!(response.await.unwrap().status(), http::StatusCode::OK);
    cloud.links(2).await;
    let links = cloud.table.snapshot();
    assert!(links.iter().all(|link| link.peer == "a1"), "{links:?}");
    assert_eq!(cloud.table.connected(), ["a1".to_owned()].into());
    assert_eq!(cloud.connect(&format!("{said}:{port}")).await.err(), Some(OpenError::NoLink));
}

/// What a peer sends over streams that wait for their destination is held nowhere: it is refused, and they have their places back.
#[tokio::test(flavor = "multi_thread")]
async fn who_sends_before_it_has_the_stream_is_refused() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let connection = raw(&world.authority, "a1", address, Some(ALPN_FORWARD)).await.unwrap();
    let (mut client, driven) = h2::client::handshake(connection).await.unwrap();
    tasks.spawn(async move { drop(driven.await) });
    let request = http::Request::post(format!("https://x{HELLO_PATH}")).body(()).unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    let hello = format!(r#"{{"protocol":{VERSION},"instance":"x","class":"bulk"}}"#);
    body.send_data(hello.into(), true).unwrap();
    assert_eq!(response.await.unwrap().status(), http::StatusCode::OK);
    // A destination that takes no connection, so that what goes there waits as long as a dial may take.
    let full = TcpSocket::new_v4().unwrap();
    full.bind((own_address(), 0).into()).unwrap();
    let port = full.local_addr().unwrap().port();
    let full = full.listen(1).unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..8 {
        waiting.spawn(TcpStream::connect((own_address(), port)));
    }
    sleep(Duration::from_millis(300)).await;
    let connect = || {
        let request = http::Request::connect(format!("c1:{port}")).header("isthmus-hops", 0);
        request.body(()).unwrap()
    };
    // Who says nothing, or only that it will say nothing, waits.
    let (silent, _open) = client.send_request(connect(), false).unwrap();
    let (closed, _) = client.send_request(connect(), true).unwrap();
    let began = Instant::now();
    for _ in 0..64 {
        let (response, mut body) = client.send_request(connect(), false).unwrap();
        body.send_data(vec![0; 32 * 1024].into(), false).unwrap();
        let response = timeout(SOON, response).await.unwrap().unwrap();
        assert_eq!(response.status(), http::StatusCode::BAD_REQUEST);
    }
    assert!(began.elapsed() < world.limits.dial, "it waited for the destination");
    assert_eq!(refused(&cloud), [("malformed", 64)].into());
    for response in [silent, closed] {
        assert_eq!(response.await.unwrap().status(), http::StatusCode::GATEWAY_TIMEOUT);
    }
    drop((full, waiting));
}

/// A peer that holds a stream on each link and drains it, and makes another, ends at a number.
#[tokio::test(flavor = "multi_thread")]
async fn links_that_drain_are_bounded_too() {
    const MOST: usize = 6;
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    (world.limits.links_of_a_peer, world.limits.links_of_a_peer_in_all) = (2, MOST);
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let mut held = Vec::new();
    for made in 1..=MOST {
        let connection = raw(&world.authority, "a1", address, Some(ALPN_REVERSE)).await.unwrap();
        let mut server = h2::server::handshake(connection).await.unwrap();
        let drain = Arc::new(tokio::sync::Notify::new());
        let told = drain.clone();
        tasks.spawn(async move {
            let (_, mut respond) = server.accept().await.unwrap().unwrap();
            let mut body = respond.send_response(http::Response::new(()), false).unwrap();
            let hello = format!(r#"{{"protocol":{VERSION},"instance":"x","class":"interactive"}}"#);
            body.send_data(hello.into(), true).unwrap();
            let (_, mut respond) = server.accept().await.unwrap().unwrap();
            let _stream: h2::SendStream<bytes::Bytes> =
                respond.send_response(http::Response::new(()), false).unwrap();
            loop {
                tokio::select! {
                    next = server.accept() => if next.is_none() { return },
                    () = told.notified() => server.graceful_shutdown(),
                }
            }
        });
        cloud.links(made).await;
        held.push(cloud.connect("a1:10250").await.unwrap());
        drain.notify_one();
        eventually("it drains", || cloud.table.count("a1") == 0).await;
    }
    let mut one_more = raw(&world.authority, "a1", address, Some(ALPN_REVERSE)).await.unwrap();
    let mut rest = Vec::new();
    let _ = timeout(SOON, one_more.read_to_end(&mut rest)).await.expect("one more link");
    assert!(rest.is_empty(), "one more link was begun");
    assert_eq!(cloud.table.snapshot().len(), MOST);
    // The end of one makes room.
    held.pop();
    cloud.links(MOST - 1).await;
}

/// Whoever has a node's key may ask the gateway for anything: it goes by what that node speaks for, and the cloud reaches all as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_key_opens_nothing_on_other_nodes() {
    let (mut honest, mut pretended, mut tasks) = (view(), view(), JoinSet::new());
    let port = echo(&mut tasks).await;
    // A cloud node; one of the edge whose Node was deleted, and which registered anew without a label; and one that is listed as the cloud's
    // endpoint, and not elected. What they believe makes them ask for their neighbours, too.
    for node in ["worker", "box", "spare"] {
        let is = |place| Node { place, ..pretended.nodes["solo"].clone() };
        let (cloud, edge) = (is(Place::Cloud), is(Place::Edge));
        honest.nodes.insert(node.to_owned(), cloud);
        pretended.nodes.insert(node.to_owned(), edge);
    }
    honest.gateways.get_mut(&Domain::Cloud).unwrap().listed = ["c1", "c2", "spare"].map(str::to_owned).into();
    let exposed = honest.exposed().map(|(domain, _)| domain.clone()).collect::<Vec<_>>();
    let cloud_domain = honest.domain_of("c1");
    honest.destinations = Rule::nodes(&[port], cloud_domain.as_ref(), exposed).collect();
    let world = World::with(honest, limits());
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    // Who stole the keys believes that everything is allowed.
    let believes = tokio::sync::watch::Sender::new(Arc::new(pretended));
    let hub = |name, directions: &[Direction]| {
        let mut hub = world.hub_that_sees(believes.subscribe(), name, false);
        let mut wanted = links("c1", address, hub.credentials.generation());
        wanted.retain(|link| directions.contains(&link.direction));
        hub.desired.send_replace(wanted);
        hub.dial();
        hub
    };
    let both = [Direction::Reverse, Direction::Forward];
    let (pool, solo) = (hub("a1", &both), hub("solo", &both));
    let [worker, again, spare] = ["worker", "box", "spare"].map(|name| hub(name, &[Direction::Forward]));
    cloud.links(14).await;
    for (hub, links) in [(&pool, 4), (&solo, 4), (&worker, 2), (&again, 2), (&spare, 2)] {
        hub.links(links).await;
    }
    let everyone = ["a1", "a2", "solo", "c1", "c2", "spare"];
    for (thief, targets) in [
        (&pool, &["solo", "c1", "c2"][..]),
        (&solo, &["a1", "a2", "c1"]),
        (&worker, &everyone),
        (&again, &everyone),
    ] {
        for target in targets {
            let opened = thief.connect(&format!("{target}:{port}")).await;
            assert_eq!(opened.err(), Some(OpenError::NotAllowed), "{} to {target}", thief.name);
        }
    }
    assert_eq!(refused(&cloud), [("not_allowed", 18)].into());
    // Who is listed may stand for the cloud at any time.
    let mut stream = spare.connect(&format!("a2:{port}")).await.unwrap();
    assert_eq!(ask(&mut stream, b"who").await.unwrap(), b"who");
    for target in ["a1", "a2", "solo"] {
        let mut stream = cloud.connect(&format!("{target}:{port}")).await.unwrap();
        assert_eq!(ask(&mut stream, b"who").await.unwrap(), b"who");
    }
}

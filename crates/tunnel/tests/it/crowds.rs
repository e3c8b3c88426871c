//! Crowds of clients that nobody vouches for: at each way in by TCP, on the links that they are served over, and in the log.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tunnel::{
    connector::{Request, Unvouched},
    ending::Ending,
    ingress::{
        Ingress,
        arrival::{ARRIVING_MAX, Arrival},
        http::{Form, serve_http},
        listen,
        sni::serve_sni,
    },
    protocol::OpenError,
    route::Direction,
};

use crate::{
    ways_in::client_hello,
    world::{
        GATEWAY_NAME, Hub, SOON, World, ask, destination, echo, eventually, leaf, limits, links, refused,
        request, view,
    },
};

/// A way in that does not ask who comes.
fn of_anybody(hub: &Hub) -> Ingress {
    Ingress { vouched: false, ..hub.ingress() }
}

async fn from(source: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
    timeout(SOON, socket.connect(to)).await.expect("nobody accepts").unwrap()
}

async fn bound() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn never() -> Ending {
    Ending::at(CancellationToken::new())
}

/// Many of one source say a byte and no more. Those beyond its share are sent away while the others stall; and whoever comes from elsewhere is served.
async fn crowd<F: Future<Output = ()>>(address: SocketAddr, first: u8, honest: impl FnOnce(TcpStream) -> F) {
    const MORE: usize = 50;
    let share = ARRIVING_MAX / 4;
    let (mut stalled, mut ends) = (Vec::new(), JoinSet::new());
    for _ in 0..share + MORE {
        let mut client = from("127.0.0.2", address).await;
        let _ = client.write_all(&[first]).await;
        let (mut read, write) = client.into_split();
        stalled.push(write);
        ends.spawn(async move { read.read_u8().await.is_err() });
    }
    let ended = timeout(Duration::from_secs(5), async {
        for _ in 0..MORE {
            assert!(ends.join_next().await.unwrap().unwrap(), "something was answered");
        }
    });
    ended.await.expect("all stall");
    assert_eq!(ends.len(), share, "nobody stalls");
    timeout(SOON, honest(from("127.0.0.1", address).await)).await.expect("another is kept out");
    drop(stalled);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_stall_at_a_way_in_keep_nobody_else_out() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    let connect = format!("CONNECT a1:{port} HTTP/1.1\r\nHost: x\r\n\r\n");
    let get = format!("GET / HTTP/1.1\r\nHost: a1:{port}\r\nConnection: close\r\n\r\n");

    // TLS by the server's name.
    let ((listener, address), ingress) = (bound().await, of_anybody(&cloud));
    tasks.spawn(listen::tcp(listener, never(), SOON, move |client, peer, arrival| {
        let ingress = ingress.clone();
        async move { serve_sni(&ingress, client, &peer, &arrival, port).await }
    }));
    let hello = async |mut client: TcpStream| {
        let hello = client_hello("a1");
        assert_eq!(ask(&mut client, &hello).await.unwrap(), hello);
    };
    crowd(address, 22, hello).await;

    // Plain HTTP by `Host`, and a proxy's.
    let web = destination(&mut tasks, |mut client| async move {
        let _ = client.read(&mut [0; 1024]).await;
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    })
    .await;
    let get = get.replace(&port.to_string(), &web.to_string());
    for (form, question) in [(Form::Host([web].into()), get), (Form::Proxy, connect.clone())] {
        let ((listener, address), ingress) = (bound().await, of_anybody(&cloud));
        tasks.spawn(listen::tcp(listener, never(), SOON, move |client, peer, arrival| {
            let (ingress, form) = (ingress.clone(), form.clone());
            async move { serve_http(&ingress, client, &peer, &arrival, &form, &never()).await }
        }));
        let asked = async |mut client: TcpStream| {
            client.write_all(question.as_bytes()).await.unwrap();
            let mut status = [0; 12];
            client.read_exact(&mut status).await.unwrap();
            assert_eq!(&status, b"HTTP/1.1 200");
        };
        crowd(address, b'G', asked).await;
    }

    // A proxy for clients with TLS.
    let shown = leaf(&world.authority, "c1", true);
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![shown.certificate], shown.key)
        .unwrap();
    let ((listener, address), ingress) = (bound().await, cloud.ingress());
    tasks.spawn(listen::tls(listener, Arc::new(config), never(), SOON, move |client, peer, arrival| {
        let ingress = ingress.clone();
        async move { serve_http(&ingress, client, &peer, &arrival, &Form::Proxy, &never()).await }
    }));
    let asked = async |client: TcpStream| {
        let mut roots = RootCertStore::empty();
        roots.add(world.authority.certificate().clone()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from(GATEWAY_NAME).unwrap();
        let mut client = TlsConnector::from(Arc::new(config)).connect(name, client).await.unwrap();
        client.write_all(connect.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        client.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    };
    crowd(address, 22, asked).await;
}

/// Before its first request a connection has a short time, and one that is kept as long as between two scrapes.
#[tokio::test(start_paused = true)]
async fn the_first_head_is_not_waited_for_as_long_as_the_next() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let cloud = world.hub("c1", true);
    let mut client = |first: &'static str| {
        let (client, server) = duplex(64 * 1024);
        let ingress = of_anybody(&cloud);
        tasks.spawn(async move {
            let form = Form::Host([9100].into());
            serve_http(&ingress, server, "test", &Arrival::uncounted(), &form, &never()).await;
        });
        async move {
            let (mut client, mut rest) = (client, Vec::new());
            client.write_all(first.as_bytes()).await.unwrap();
            let began = Instant::now();
            client.read_to_end(&mut rest).await.unwrap();
            (began.elapsed().as_secs(), String::from_utf8(rest).unwrap())
        }
    };
    assert_eq!(client("GET / HTTP/1.1\r\n").await, (15, String::new()));
    assert_eq!(client("").await.0, 15);
    let (kept, answer) = client("GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").await;
    assert!((60..70).contains(&kept) && answer.starts_with("HTTP/1.1 404 "), "{kept} s: {answer}");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let cloud = world.hub("c1", true);
    for form in [Form::Proxy, Form::Host([9100].into())] {
        let (mut client, server) = duplex(64 * 1024);
        let ingress = of_anybody(&cloud);
        tasks.spawn(async move {
            serve_http(&ingress, server, "test", &Arrival::uncounted(), &form, &never()).await;
        });
        let head = format!("GET / HTTP/1.1\r\nHost: a1\r\nX: {}", "x".repeat(17 * 1024));
        client.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(SOON, client.read_to_end(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&answer));
    }
}

fn unvouched(target: &str, source: [u8; 4]) -> Request {
    let of = Unvouched { listener: "test", source: std::net::IpAddr::from(source).into() };
    Request { unvouched: Some(of), ..request(target) }
}

/// Opens streams until there is no more for this source, and reads of each until it ends. Gives those that are open, by what they end with.
async fn fill(hub: &Hub, wanted: &Request) -> (JoinSet<()>, OpenError) {
    let mut held = JoinSet::new();
    loop {
        match hub.connector.connect(wanted).await {
            Ok(mut stream) => drop(held.spawn(async move {
                let _ = stream.read(&mut [0]).await;
            })),
            Err(error) => return (held, error),
        }
    }
}

/// Waits until so many are left.
async fn left(held: &mut JoinSet<()>, expected: usize) {
    while held.len() > expected {
        timeout(SOON, held.join_next()).await.expect("they stay");
    }
    sleep(Duration::from_millis(50)).await;
    assert!(held.try_join_next().is_none() && held.len() == expected, "{} of {expected}", held.len());
}

/// Clients that nobody knows hold all the streams that they can get: those that are known are served still. One source has all of it, as a
/// Prometheus needs that keeps a connection to each of its targets, until another comes: then they have the same.
#[tokio::test(flavor = "multi_thread")]
async fn whom_nobody_vouches_for_leaves_streams_to_others() {
    const STREAMS: u32 = 16;
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.streams = STREAMS;
    let (cloud, edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    let target = format!("a1:{port}");
    let of = |source| unvouched(&target, source);
    // Of two links that carry 16 each, two of which are for others.
    let (mut first, error) = fill(&cloud, &of([192, 0, 2, 1])).await;
    assert_eq!((first.len(), error), (28, OpenError::Crowded));
    // Who is known has the rest.
    let mut known = Vec::new();
    for _ in 0..4 {
        let mut stream = cloud.connect(&target).await.unwrap();
        assert_eq!(ask(&mut stream, b"known").await.unwrap(), b"known");
        known.push(stream);
    }
    assert_eq!(cloud.connect(&target).await.err(), Some(OpenError::NoLink));
    drop(known);
    // A second and a third source have as much as the first.
    let (mut second, error) = fill(&cloud, &of([192, 0, 2, 2])).await;
    assert_eq!((second.len(), error), (14, OpenError::Crowded));
    left(&mut first, 14).await;
    left(&mut second, 14).await;
    let (mut third, error) = fill(&cloud, &of([192, 0, 2, 3])).await;
    assert_eq!((third.len(), error), (8, OpenError::Crowded));
    left(&mut first, 10).await;
    left(&mut second, 10).await;
    left(&mut third, 8).await;
    // What ends makes room.
    second.shutdown().await;
    eventually("streams end", || {
        edge.table.snapshot().iter().map(|link| link.streams).sum::<usize>() == first.len() + third.len()
    })
    .await;
    let (more, _) = fill(&cloud, &of([192, 0, 2, 3])).await;
    assert_eq!(more.len(), 10);
    left(&mut first, 10).await;
}

/// A session that is older than all that its source keeps open goes on, whatever comes in over it or goes out.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_use_is_not_cut_for_another() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.streams = 16;
    let (cloud, _edge) = world.pair().await;
    let echoes = format!("a1:{}", echo(&mut tasks).await);
    let speaker = destination(&mut tasks, |mut client| async move {
        while client.write_all(b".").await.is_ok() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let source = [192, 0, 2, 1];
    let mut followed = cloud.connector.connect(&unvouched(&format!("a1:{speaker}"), source)).await.unwrap();
    let mut session = cloud.connector.connect(&unvouched(&echoes, source)).await.unwrap();
    let (mut kept, _) = fill(&cloud, &unvouched(&echoes, source)).await;
    assert_eq!(kept.len(), 26);
    // Longer than the clock is old by which it is noted.
    sleep(Duration::from_millis(100)).await;
    assert_eq!(ask(&mut session, b"key").await.unwrap(), b"key");
    followed.read_exact(&mut [0; 20]).await.unwrap();
    let (other, _) = fill(&cloud, &unvouched(&echoes, [192, 0, 2, 2])).await;
    assert_eq!(other.len(), 14);
    left(&mut kept, 12).await;
    assert_eq!(ask(&mut session, b"key").await.unwrap(), b"key");
    followed.read_exact(&mut [0; 20]).await.unwrap();
}

/// Of an answer that its client does not read: nobody asks the stream for more then, and it goes all the same.
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_nothing_gives_its_stream_to_another() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.streams = 16;
    let (cloud, edge) = world.pair().await;
    let port = destination(&mut tasks, |mut client| async move {
        let _ = client.read(&mut [0; 1024]).await;
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await;
        while client.write_all(&[0; 8 * 1024]).await.is_ok() {}
    })
    .await;
    let (listener, address) = bound().await;
    let (ingress, form) = (of_anybody(&cloud), Form::Host([port].into()));
    tasks.spawn(listen::tcp(listener, never(), SOON, move |client, peer, arrival| {
        let (ingress, form) = (ingress.clone(), form.clone());
        async move { serve_http(&ingress, client, &peer, &arrival, &form, &never()).await }
    }));
    let streams = || edge.table.snapshot().iter().map(|link| link.streams).sum::<usize>();
    let mut stalled = Vec::new();
    for _ in 0..28 {
        let mut client = from("127.0.0.2", address).await;
        client.write_all(format!("GET / HTTP/1.1\r\nHost: a1:{port}\r\n\r\n").as_bytes()).await.unwrap();
        stalled.push(client);
    }
    eventually("all have a stream", || streams() == 28).await;
    // Until all that may wait for the clients does.
    sleep(Duration::from_secs(1)).await;
    let (held, error) = fill(&cloud, &unvouched(&format!("a1:{port}"), [192, 0, 2, 2])).await;
    assert_eq!((held.len(), error), (14, OpenError::Crowded));
    eventually("those that were sent away have none", || streams() <= 28).await;
    // What is kept for those who are known is there for them.
    for _ in 0..4 {
        drop(cloud.connect(&format!("a1:{port}")).await.unwrap());
    }
}

/// Where there are too many: 503 by HTTP, and the end of TLS.
#[tokio::test(flavor = "multi_thread")]
async fn who_finds_no_place_is_told() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    // All of it is for others.
    world.limits.streams = 1;
    let (cloud, _edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    let (mut client, server) = duplex(64 * 1024);
    let (ingress, form) = (of_anybody(&cloud), Form::Host([port].into()));
    tasks.spawn(async move {
        serve_http(&ingress, server, "test", &Arrival::uncounted(), &form, &never()).await;
    });
    client.write_all(b"GET / HTTP/1.1\r\nHost: a1\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("isthmus-reason: crowded"), "{answer}");
    let (mut client, server) = duplex(64 * 1024);
    let ingress = of_anybody(&cloud);
    tasks.spawn(async move { serve_sni(&ingress, server, "test", &Arrival::uncounted(), port).await });
    client.write_all(&client_hello("a1")).await.unwrap();
    assert_eq!(timeout(SOON, client.read_to_end(&mut Vec::new())).await.unwrap().unwrap(), 0);
    assert_eq!(refused(&cloud), [("crowded", 2)].into());
}

/// One shop opens all the streams to another that it can get: the cloud reaches that all the same, and clients that nobody knows have their part.
#[tokio::test(flavor = "multi_thread")]
async fn one_shop_does_not_shut_the_cloud_out_of_another() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.streams = 16;
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let [mut edge, mut other] = ["a1", "solo"].map(|name| world.hub(name, false));
    for hub in [&mut edge, &mut other] {
        hub.desired.send_replace(links("c1", address, hub.credentials.generation()));
        hub.dial();
    }
    cloud.links(8).await;
    let target = format!("a1:{}", echo(&mut tasks).await);
    // Whatever it says of its clients.
    let mut held = JoinSet::new();
    let mut error = None;
    for client in 0..32 {
        match other.connector.connect(&unvouched(&target, [192, 0, 2, client])).await {
            Ok(mut stream) => drop(held.spawn(async move {
                let _ = stream.read(&mut [0]).await;
            })),
            Err(failed) => error = Some(failed),
        }
    }
    assert_eq!((held.len(), error), (28, Some(OpenError::Crowded)));
    let mut known = cloud.connect(&target).await.unwrap();
    assert_eq!(ask(&mut known, b"known").await.unwrap(), b"known");
    let (unknown, _) = fill(&cloud, &unvouched(&target, [192, 0, 2, 200])).await;
    assert_eq!(unknown.len(), 14);
    left(&mut held, 14).await;
}

/// One shop has a gateway dial as much as it can get: another's streams are dialled all the same, and so are those of the gateway's own clients.
#[tokio::test(flavor = "multi_thread")]
async fn one_shop_does_not_use_up_the_connections_of_a_gateway() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.dialled_for_peers = 8;
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let [mut edge, mut other] = ["a1", "solo"].map(|name| world.hub(name, false));
    for hub in [&mut edge, &mut other] {
        hub.desired.send_replace(links("c1", address, hub.credentials.generation()));
        hub.dial();
    }
    cloud.links(8).await;
    let target = format!("c1:{}", echo(&mut tasks).await);
    let (mut first, error) = fill(&edge, &request(&target)).await;
    assert_eq!((first.len(), error), (8, OpenError::Crowded));
    let (second, error) = fill(&other, &request(&target)).await;
    assert_eq!((second.len(), error), (4, OpenError::Crowded));
    left(&mut first, 4).await;
    let mut own = cloud.connect(&target).await.unwrap();
    assert_eq!(ask(&mut own, b"own").await.unwrap(), b"own");
}

/// A node of a pool has the pool's endpoint dial as much as it can get, and says nothing of its clients, or of each another thing: its neighbour's streams
/// are dialled all the same.
#[tokio::test(flavor = "multi_thread")]
async fn one_node_does_not_use_up_the_connections_of_its_pools_endpoint() {
    let (mut honest, mut tasks) = (view(), JoinSet::new());
    for name in ["a3", "a4"] {
        honest.nodes.insert(name.to_owned(), honest.nodes["a2"].clone());
    }
    // An ordinary node dials its neighbours by itself; who stole its key believes that it has to ask.
    let mut believed = honest.clone();
    believed.nodes.get_mut("a4").unwrap().pool = Some("b".to_owned());
    let believed = tokio::sync::watch::Sender::new(Arc::new(believed));
    let mut world = World::with(honest, limits());
    world.limits.dialled_for_peers = 8;
    let mut endpoint = world.hub("a1", true);
    let address = endpoint.listen().await;
    let [mut greedy, mut other] =
        ["a2", "a3"].map(|name| world.hub_that_sees(believed.subscribe(), name, false));
    for hub in [&mut greedy, &mut other] {
        let mut wanted = links("a1", address, hub.credentials.generation());
        wanted.retain(|link| link.direction == Direction::Forward);
        hub.desired.send_replace(wanted);
        hub.dial();
    }
    endpoint.links(4).await;
    let target = format!("a4:{}", echo(&mut tasks).await);
    let (mut first, error) = fill(&greedy, &request(&target)).await;
    assert_eq!((first.len(), error), (8, OpenError::Crowded));
    let said = greedy.connector.connect(&unvouched(&target, [192, 0, 2, 1])).await;
    assert_eq!(said.err(), Some(OpenError::Crowded), "it is another by what it says");
    let (second, error) = fill(&other, &request(&target)).await;
    assert_eq!((second.len(), error), (4, OpenError::Crowded));
    left(&mut first, 4).await;
    let mut own = endpoint.connect(&target).await.unwrap();
    assert_eq!(ask(&mut own, b"own").await.unwrap(), b"own");
}

/// However much it says it has to say: strangers have little memory here.
#[tokio::test]
async fn a_first_message_that_is_long_is_not_waited_for() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let cloud = world.hub("c1", true);
    let (mut client, server) = duplex(64 * 1024);
    let ingress = of_anybody(&cloud);
    tasks.spawn(async move { serve_sni(&ingress, server, "test", &Arrival::uncounted(), 10250).await });
    // A record of 16 KiB that begins a hello of 60,000 bytes, and some of the next.
    let mut first = vec![22, 3, 1, 0x40, 0, 1, 0, 0xea, 0x60];
    first.resize(5 + 16 * 1024, 0);
    first.extend([22, 3, 1, 0x40, 0]);
    client.write_all(&first).await.unwrap();
    let ended = timeout(Duration::from_secs(5), client.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "it is waited for");
    assert_eq!(refused(&cloud), [("malformed", 1)].into());
}

/// Its first message opens a stream; that it says nothing more ends it.
#[tokio::test]
async fn a_client_that_stops_in_its_handshake_keeps_no_stream() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let cloud = world.hub("c1", true);
    let port = echo(&mut tasks).await;
    let (mut client, server) = duplex(64 * 1024);
    let ingress = of_anybody(&cloud);
    tasks.spawn(async move { serve_sni(&ingress, server, "test", &Arrival::uncounted(), port).await });
    let hello = client_hello("c1");
    assert_eq!(timeout(SOON, ask(&mut client, &hello)).await.unwrap().unwrap(), hello);
    tokio::time::pause();
    sleep(Duration::from_secs(31)).await;
    let rest = timeout(Duration::from_secs(5), client.read(&mut [0])).await.expect("it is still there");
    assert_eq!(rest.unwrap_or_default(), 0);
}

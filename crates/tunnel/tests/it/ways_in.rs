//! The ways in: CONNECT, forward proxy, `Host`, and TLS by the server's name.

use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::Notify,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;
use tunnel::{
    ending::Ending,
    ingress::{
        Ingress,
        arrival::Arrival,
        http::{Form, serve_http},
        sni::serve_sni,
    },
};

use crate::world::{SOON, World, ask, authority, destination, echo, eventually, leaf};

/// The first message of a client that asks for `name`.
pub(crate) fn client_hello(name: &str) -> Vec<u8> {
    tls::install_provider();
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}

/// A client of the HTTP way in.
fn http_client(ingress: &Ingress, tasks: &mut JoinSet<()>, port: Option<u16>) -> DuplexStream {
    http_client_until(ingress, tasks, port, Ending::at(CancellationToken::new()))
}

fn http_client_until(
    ingress: &Ingress,
    tasks: &mut JoinSet<()>,
    port: Option<u16>,
    ending: Ending,
) -> DuplexStream {
    let form = port.map_or(Form::Proxy, |port| Form::Host([port].into()));
    let (client, server) = duplex(64 * 1024);
    let ingress = ingress.clone();
    tasks.spawn(
        async move { serve_http(&ingress, server, "test", &Arrival::uncounted(), &form, &ending).await },
    );
    client
}

/// Reads up to the end of a head.
async fn head(client: &mut DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = timeout(SOON, client.read_u8()).await.unwrap();
        head.push(byte.unwrap_or_else(|error| panic!("{error} after {}", String::from_utf8_lossy(&head))));
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_as_the_api_server_does() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    let mut client = http_client(&cloud.ingress(), &mut tasks, None);
    // With the client's first bytes right behind the request, as some send them.
    client
        .write_all(format!("CONNECT a1:{port} HTTP/1.1\r\nHost: a1:{port}\r\n\r\nearly").as_bytes())
        .await
        .unwrap();
    let answer = head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(!answer.to_lowercase().contains("transfer-encoding"), "{answer}");
    let mut early = [0; 5];
    client.read_exact(&mut early).await.unwrap();
    assert_eq!(&early, b"early");
    ask(&mut client, &vec![7; 30_000]).await.unwrap();
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(SOON, client.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(rest, b"");
    for (target, status) in [
        ("a1:22", "403"),
        ("x:10250", "404"),
        ("solo:10250", "503"),
        ("a1", "400"),
        ("192.168.9.9:10250", "403"),
    ] {
        let mut client = http_client(&cloud.ingress(), &mut tasks, None);
        client.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let answer = head(&mut client).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {answer}");
    }
}

/// A server that says which path and host it was asked for, and keeps its connection.
async fn web(tasks: &mut JoinSet<()>) -> u16 {
    destination(tasks, |mut client| async move {
        loop {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let Ok(byte) = client.read_u8().await else { return };
                request.push(byte);
            }
            let request = String::from_utf8(request).unwrap();
            let line = request.lines().next().unwrap();
            let find = |name: &str| {
                request.lines().find(|line| line.to_lowercase().starts_with(name)).unwrap_or("-")
            };
            let body = format!("{line}|{}|{}", find("host:"), find("proxy-"));
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            client.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await
}

async fn body(client: &mut DuplexStream) -> String {
    let head = head(client).await;
    let length =
        head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or_else(|| panic!("{head}"))];
    client.read_exact(&mut body).await.unwrap();
    String::from_utf8(body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forward_proxy_and_plain_http_by_host() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge) = world.pair().await;
    let port = web(&mut tasks).await;
    // One connection to the proxy, several destinations.
    let mut client = http_client(&cloud.ingress(), &mut tasks, None);
    for node in ["a1", "a2", "c2"] {
        let request = format!(
            "GET http://{node}:{port}/metrics?x=1 HTTP/1.1\r\nHost: other\r\nProxy-Connection: keep-alive\r\n\r\n"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let expected = format!("GET /metrics?x=1 HTTP/1.1|host: {node}:{port}|-");
        assert_eq!(body(&mut client).await.to_lowercase(), expected.to_lowercase());
    }
    // A client that takes it for the node; the port that it leaves out is the only one.
    let mut client = http_client(&cloud.ingress(), &mut tasks, Some(port));
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: a1\r\n\r\n").await.unwrap();
    assert_eq!(body(&mut client).await.to_lowercase(), "get /metrics http/1.1|host: a1|-");
    for (port, request) in [
        (None, "GET / HTTP/1.1\r\nHost: a1\r\n\r\n"),
        // What takes this for a node gets no proxy.
        (Some(port), "GET http://a1/ HTTP/1.1\r\nHost: a1\r\n\r\n"),
        (Some(port), "CONNECT a1:9 HTTP/1.1\r\nHost: a1\r\n\r\n"),
        (Some(port), "GET / HTTP/1.0\r\n\r\n"),
        (Some(port), "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
        (None, "GET ftp://a1/ HTTP/1.1\r\nHost: a1\r\n\r\n"),
    ] {
        let mut client = http_client(&cloud.ingress(), &mut tasks, port);
        client.write_all(request.as_bytes()).await.unwrap();
        let answer = head(&mut client).await;
        assert!(answer.contains(" 400 "), "{request}: {answer}");
    }
    // And no port that is not meant.
    let mut client = http_client(&cloud.ingress(), &mut tasks, Some(port));
    client.write_all(b"GET / HTTP/1.1\r\nHost: a1:9\r\n\r\n").await.unwrap();
    let answer = head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

async fn get(client: &mut DuplexStream, path: &str) -> String {
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: a1\r\n\r\n").as_bytes()).await.unwrap();
    body(client).await
}

/// Who scrapes a node again over the same connection waits for no stream to be opened; one that ended meanwhile is made anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_request_opens_no_stream() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge) = world.pair().await;
    let opened = || edge.stats.snapshot().opened;
    let port = web(&mut tasks).await;
    let mut client = http_client(&cloud.ingress(), &mut tasks, Some(port));
    for number in 0..5 {
        let said = get(&mut client, &format!("/{number}")).await;
        assert!(said.starts_with(&format!("GET /{number} ")), "{said}");
    }
    assert_eq!(opened(), 1);
    // A server that ends each connection after its answer, and does not say so.
    let port = destination(&mut tasks, |mut client| async move {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(client.read_u8().await.unwrap());
        }
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    })
    .await;
    let mut other = http_client(&cloud.ingress(), &mut tasks, Some(port));
    for number in 2..5 {
        assert_eq!(get(&mut other, "/").await, "ok");
        assert_eq!(opened(), number);
        // Whoever keeps the connection has let go of it; that of the other client is left.
        eventually("its end has come", || {
            let both = [&cloud, &edge].map(|hub| hub.table.snapshot());
            both.iter().all(|links| links.iter().map(|link| link.streams).sum::<usize>() < 2)
        })
        .await;
    }
    // With the client goes what was kept for it.
    drop((client, other));
    eventually("streams end", || edge.table.snapshot().iter().all(|link| link.streams == 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_keep_their_connection_are_sent_away_at_the_end() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge) = world.pair().await;
    let port = web(&mut tasks).await;
    // Answers once it is told to.
    let (asked, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (ask_told, answer_told) = (asked.clone(), told.clone());
    let slow = destination(&mut tasks, move |mut client| {
        let (asked, told) = (ask_told.clone(), answer_told.clone());
        async move {
            client.read_u8().await.unwrap();
            asked.notify_one();
            told.notified().await;
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            let _ = client.read_to_end(&mut Vec::new()).await;
        }
    })
    .await;
    let ending = Ending::at(CancellationToken::new());
    let mut idle = http_client_until(&cloud.ingress(), &mut tasks, Some(port), ending.clone());
    let mut busy = http_client_until(&cloud.ingress(), &mut tasks, Some(slow), ending.clone());
    get(&mut idle, "/").await;
    let last = tokio::join!(get(&mut busy, "/"), async {
        asked.notified().await;
        ending.retire();
        told.notify_one();
    });
    assert_eq!(last.0, "ok");
    for mut client in [idle, busy] {
        let mut rest = Vec::new();
        timeout(SOON, client.read_to_end(&mut rest)).await.expect("still there").unwrap();
        assert_eq!(rest, b"");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_over_plain_http() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge) = world.pair().await;
    let port = destination(&mut tasks, |mut client| async move {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(client.read_u8().await.unwrap());
        }
        assert!(String::from_utf8(request).unwrap().to_lowercase().contains("upgrade: spdy/3.1"));
        let answer =
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nhello";
        client.write_all(answer).await.unwrap();
        let (mut from, mut to) = client.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await;
    let mut client = http_client(&cloud.ingress(), &mut tasks, Some(port));
    let request = b"POST /exec HTTP/1.1\r\nHost: a1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    client.write_all(request).await.unwrap();
    let answer = head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    let mut hello = [0; 5];
    client.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
    ask(&mut client, b"bytes of both").await.unwrap();
}

/// TLS ends at the destination: it has its own authority and sees the client's certificate.
#[tokio::test(flavor = "multi_thread")]
async fn tls_is_passed_through_unopened() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge) = world.pair().await;
    let kubelets = authority();
    let mut roots = RootCertStore::empty();
    roots.add(kubelets.certificate().clone()).unwrap();
    let roots = Arc::new(roots);
    let kubelet = leaf(&kubelets, "kubelet", true);
    let verifier = rustls::server::WebPkiClientVerifier::builder(roots.clone()).build().unwrap();
    let server = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![kubelet.certificate], kubelet.key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let port = destination(&mut tasks, move |client| {
        let acceptor = acceptor.clone();
        async move {
            let mut client = acceptor.accept(client).await.unwrap();
            let seen = client.get_ref().1.peer_certificates().unwrap()[0].len();
            client.write_all(format!("{seen}").as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
        }
    })
    .await;
    // The name in the kubelet's certificate is the gateways' one: it only has to be a node here.
    let mut view = crate::world::view();
    let node = view.nodes["a1"].clone();
    view.nodes.insert(crate::world::GATEWAY_NAME.into(), node);
    world.view.send_replace(Arc::new(view));
    let caller = leaf(&kubelets, "caller", false);
    let shown = caller.certificate.len();
    let client = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![caller.certificate], caller.key)
        .unwrap();
    let (near, far) = duplex(64 * 1024);
    let ingress = cloud.ingress();
    tasks.spawn(async move { serve_sni(&ingress, far, "test", &Arrival::uncounted(), port).await });
    let name = ServerName::try_from(crate::world::GATEWAY_NAME).unwrap();
    let mut session = TlsConnector::from(Arc::new(client)).connect(name, near).await.unwrap();
    let mut seen = String::new();
    session.read_to_string(&mut seen).await.unwrap();
    assert_eq!(seen, shown.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_message_in_pieces_or_without_a_name() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    let serve = |tasks: &mut JoinSet<()>| {
        let (near, far) = duplex(256 * 1024);
        let ingress = cloud.ingress();
        tasks.spawn(async move { serve_sni(&ingress, far, "test", &Arrival::uncounted(), port).await });
        near
    };
    // Byte by byte; all of it comes to the destination, and what follows.
    let hello = client_hello("a1");
    let mut client = serve(&mut tasks);
    for byte in &hello {
        client.write_u8(*byte).await.unwrap();
    }
    client.write_all(b"and more").await.unwrap();
    let mut echoed = vec![0; hello.len() + 8];
    timeout(SOON, client.read_exact(&mut echoed)).await.unwrap().unwrap();
    assert_eq!(echoed, [hello, b"and more".to_vec()].concat());
    // An address instead of a name; a name that may not be reached: an alert that says so.
    for name in ["192.0.2.1", "nobody"] {
        let mut client = serve(&mut tasks);
        client.write_all(&client_hello(name)).await.unwrap();
        let mut answer = Vec::new();
        timeout(SOON, client.read_to_end(&mut answer)).await.unwrap().unwrap();
        assert_eq!(answer, [21, 3, 3, 0, 2, 2, 112], "{name}");
    }
    // A message that goes on for ever: 16 MiB announced.
    let mut client = serve(&mut tasks);
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend([1, 0xff, 0xff, 0xff]);
    record.resize(5 + 0x4000, 0);
    for _ in 0..64 {
        if client.write_all(&record).await.is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = timeout(SOON, client.read_to_end(&mut answer)).await.expect("no end");
}

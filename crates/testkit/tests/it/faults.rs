//! What the server does wrong at a test's command.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, RootCertStore};
use testkit::api_server::access::User;
use testkit::api_server::pki::Authority;
use testkit::api_server::{Cluster, FakeApiServer, ServerOptions, Tls};
use testkit::client::connection::{ConnectionError, Endpoint};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::support::{CONFIGMAPS, SOON, config_map, get, server};

#[tokio::test]
async fn a_cut_resets_what_is_open_and_refuses_what_comes() {
    let server = server().await;
    let endpoint = Endpoint::plain(server.address());
    let mut watch = endpoint.get(&format!("{CONFIGMAPS}?watch=1"), "").await.unwrap();
    server.cut();
    let end = timeout(SOON, watch.chunk()).await.unwrap();
    assert!(matches!(end, Err(ConnectionError::Read(_))), "{end:?}");
    let deadline = Instant::now() + SOON;
    // The listener is closed by its task, a moment later.
    while !matches!(endpoint.get(CONFIGMAPS, "").await, Err(ConnectionError::Connect { .. })) {
        assert!(Instant::now() < deadline);
    }
    server.heal();
    while endpoint.get(CONFIGMAPS, "").await.is_err() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_black_hole_is_silent_and_what_waited_comes_after() {
    let server = server().await;
    let endpoint = Endpoint::plain(server.address());
    let mut watch = endpoint.get(&format!("{CONFIGMAPS}?watch=1"), "").await.unwrap();
    server.black_hole();
    server.cluster().create("configmaps", config_map("a", "x", 0)).unwrap();
    let quiet = Duration::from_millis(200);
    assert!(timeout(quiet, watch.chunk()).await.is_err());
    assert!(timeout(quiet, endpoint.get(CONFIGMAPS, "")).await.is_err());
    server.heal();
    let chunk = timeout(SOON, watch.chunk()).await.unwrap().unwrap().unwrap();
    assert!(chunk.starts_with(b"{\"type\":\"ADDED\""));
}

/// Or whoever connects again and again would take it for one that is there.
#[tokio::test]
async fn nobody_shakes_hands_in_a_black_hole() {
    let authority = Authority::generate("test").unwrap();
    let tls = Some(Tls::of(&authority).unwrap());
    let options = ServerOptions { tls, ..ServerOptions::default() };
    let server = FakeApiServer::serve(Cluster::default(), options).await.unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    let config = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    let connect = async || {
        let tcp = TcpStream::connect(server.address()).await.unwrap();
        TlsConnector::from(config.clone()).connect("127.0.0.1".try_into().unwrap(), tcp).await
    };
    connect().await.unwrap();
    server.black_hole();
    let mut waits = Box::pin(connect());
    assert!(timeout(Duration::from_millis(300), &mut waits).await.is_err(), "a handshake");
    server.heal();
    timeout(SOON, waits).await.expect("it is answered").unwrap();
}

#[tokio::test]
async fn an_answer_breaks_off_at_any_byte() {
    let server = server().await;
    server.cluster().create("configmaps", config_map("a", "x", 0)).unwrap();
    let endpoint = Endpoint::plain(server.address());
    let whole = endpoint.get(CONFIGMAPS, "").await.unwrap().bytes().await.unwrap();
    for bytes in [0, 1, 17, whole.len() - 1] {
        server.cut_after_bytes(bytes as u64);
        let mut read = Vec::new();
        let end = match endpoint.get(CONFIGMAPS, "").await {
            Ok(mut answer) => loop {
                match answer.chunk().await {
                    Ok(Some(chunk)) => read.extend_from_slice(&chunk),
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            },
            Err(error) => Err(error),
        };
        assert!(end.is_err(), "broken after {bytes}");
        assert_eq!(read, whole[..bytes]);
    }
    assert_eq!(
        endpoint.get(CONFIGMAPS, "").await.unwrap().bytes().await.unwrap(),
        whole,
        "only the next answer"
    );
}

#[tokio::test]
async fn a_throttle_bounds_bytes_a_second_and_bytes_are_counted() {
    let server = server().await;
    let mut big = config_map("a", "x", 0);
    big["data"]["filler"] = "x".repeat(30_000).into();
    server.cluster().create("configmaps", big).unwrap();
    let (_, _) = get(&server, CONFIGMAPS).await;
    let bytes = server.log().totals(|_| true).body_bytes;
    assert!(bytes > 30_000);
    server.throttle(Some(60_000));
    let started = Instant::now();
    get(&server, CONFIGMAPS).await;
    let took = started.elapsed();
    assert!(took > Duration::from_millis(400), "{took:?}");
    assert_eq!(server.log().totals(|_| true).body_bytes, 2 * bytes);
}

#[tokio::test]
async fn a_failure_is_answered_once_and_streams_are_counted() {
    let server = server().await;
    server.fail_next(429);
    let answer = Endpoint::plain(server.address()).get(CONFIGMAPS, "").await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.headers["retry-after"]), (429, &"1".parse().unwrap()));
    assert_eq!(get(&server, CONFIGMAPS).await.0, 200);
    let open = || server.log().totals(|record| record.path == CONFIGMAPS).open_watches;
    let watch = Endpoint::plain(server.address()).get(&format!("{CONFIGMAPS}?watch=1"), "").await.unwrap();
    assert_eq!(open(), 1);
    drop(watch);
    let deadline = Instant::now() + SOON;
    while open() > 0 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_server_that_lags_shows_the_past_until_it_catches_up() {
    let server = server().await;
    let other = server.replica().await.unwrap();
    server.cluster().create("configmaps", config_map("a", "x", 0)).unwrap();
    other.lag(Some(2));
    server.cluster().create("configmaps", config_map("a", "y", 0)).unwrap();
    let items = async |server: &FakeApiServer, query: &str| {
        let (status, list) = get(server, &format!("{CONFIGMAPS}?{query}")).await;
        (status, list["items"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(items(&server, "resourceVersion=0").await, (200, 2));
    assert_eq!(items(&other, "resourceVersion=0").await, (200, 1));
    assert_eq!(items(&other, "").await, (200, 2), "the most recent is read past the cache");
    assert_eq!(items(&other, "resourceVersion=3").await.0, 504);
    let watch = format!("{CONFIGMAPS}?watch=1&resourceVersion=2");
    let mut watch = Endpoint::plain(other.address()).get(&watch, "").await.unwrap();
    assert!(timeout(Duration::from_millis(100), watch.chunk()).await.is_err());
    other.lag(None);
    assert!(timeout(SOON, watch.chunk()).await.unwrap().unwrap().is_some());
}

#[tokio::test]
async fn certificates_say_who_asks() {
    let authority = Authority::generate("test").unwrap();
    let tls = Some(Tls::of(&authority).unwrap());
    let server = FakeApiServer::serve(Cluster::default(), ServerOptions { tls, ..ServerOptions::default() })
        .await
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    let identity = authority.client(&User::new("system:node:n", &["system:nodes"])).unwrap();
    let node = config.clone().with_client_auth_cert(vec![identity.certificate], identity.key).unwrap();
    for (config, user) in [(node, "system:node:n"), (config.with_no_client_auth(), "system:anonymous")] {
        let endpoint = Endpoint::tls(server.address(), config, "127.0.0.1".try_into().unwrap());
        assert_eq!(endpoint.get(CONFIGMAPS, "").await.unwrap().status, 200);
        assert_eq!(server.log().requests().last().unwrap().user, user);
    }
}

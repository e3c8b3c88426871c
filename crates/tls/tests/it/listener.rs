//! What a listener must bear: silence, garbage, a change of certificates under load.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tls::listener::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

use crate::server::{Client, Server, authority};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn serves_http_1_and_offers_http_2() {
    let server = Server::start(Limits::default()).await;
    let ca = authority();
    server.install(&ca);
    let answer = Client::new(&[&ca], "http/1.1").get(&server).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
    assert_eq!(Client::new(&[&ca], "h2").handshake(&server).await.unwrap(), b"h2");
    let stranger = authority();
    assert!(Client::new(&[&stranger], "h2").handshake(&server).await.is_err());
}

#[tokio::test]
async fn before_the_first_certificate_handshakes_fail_and_then_they_work() {
    let server = Server::start(Limits::default()).await;
    let ca = authority();
    let client = Client::new(&[&ca], "http/1.1");
    assert!(client.get(&server).await.is_err());
    server.install(&ca);
    client.get(&server).await.unwrap();
}

#[tokio::test]
async fn silent_clients_delay_nobody_and_are_dropped_at_the_deadline() {
    let limits = Limits { handshake: Duration::from_secs(6), ..Limits::default() };
    let server = Server::start(limits).await;
    let ca = authority();
    server.install(&ca);
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(server.connect().await);
    }
    let started = Instant::now();
    let client = Client::new(&[&ca], "http/1.1");
    timeout(SOON, client.get(&server)).await.unwrap().unwrap();
    assert!(started.elapsed() < limits.handshake, "it waited for the silent: {:?}", started.elapsed());
    for mut connection in silent {
        let end = timeout(SOON, connection.read(&mut [0])).await.expect("not dropped in time");
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
}

/// Whether the server has closed a connection.
async fn is_closed(connection: &mut TcpStream) -> bool {
    matches!(timeout(Duration::from_millis(200), connection.read(&mut [0])).await, Ok(Ok(0) | Err(_)))
}

#[tokio::test]
async fn who_holds_all_handshakes_silently_keeps_no_other_address_out() {
    let limits = Limits { handshake: SOON * 2, ..Limits::default() };
    let server = Server::start(limits).await;
    let ca = authority();
    server.install(&ca);
    let client = Client::new(&[&ca], "http/1.1");
    let mut waiting = server.connect_from(2).await;
    let mut silent = Vec::new();
    for _ in 0..limits.concurrent_handshakes + 20 {
        silent.push(server.connect().await);
    }
    let started = Instant::now();
    for host in [3, 2, 3] {
        timeout(SOON, client.get_over(server.connect_from(host).await)).await.unwrap().unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(5), "it waited for the silent: {:?}", started.elapsed());
    assert!(is_closed(&mut silent[0]).await, "its oldest gave way");
    assert!(!is_closed(silent.last_mut().unwrap()).await, "its newest have their time");
    assert!(!is_closed(&mut waiting).await, "another's did not give way");
    timeout(SOON, client.get(&server)).await.unwrap().expect("nor is its address shut out");
}

#[tokio::test]
async fn handshakes_of_many_addresses_have_a_second_before_they_give_way() {
    let limits = Limits { handshake: SOON * 2, concurrent_handshakes: 4, ..Limits::default() };
    let server = Server::start(limits).await;
    let ca = authority();
    server.install(&ca);
    let mut silent = Vec::new();
    for host in 2..6 {
        silent.push(server.connect_from(host).await);
    }
    let started = Instant::now();
    let client = Client::new(&[&ca], "http/1.1");
    timeout(SOON, client.get_over(server.connect_from(6).await)).await.unwrap().unwrap();
    assert!(
        started.elapsed() >= Duration::from_millis(700),
        "the bound does not hold: {:?}",
        started.elapsed()
    );
    assert!(is_closed(&mut silent[0]).await, "the oldest gave way");
    assert!(!is_closed(&mut silent[3]).await, "one is enough");
}

#[tokio::test]
async fn garbage_concerns_only_who_sent_it() {
    let server = Server::start(Limits::default()).await;
    let ca = authority();
    server.install(&ca);
    let mut noise = 1_u32;
    for length in [0_usize, 1, 5, 300, 20_000] {
        let garbage: Vec<u8> = (0..length)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                noise.to_be_bytes()[0]
            })
            .collect();
        let mut connection = server.connect().await;
        // The server may hang up before all is written.
        let _ = connection.write_all(&garbage).await;
    }
    let mut plain = server.connect().await;
    plain.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(SOON, plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP"), "plain HTTP was served");
    Client::new(&[&ca], "http/1.1").get(&server).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_handshake_fails_while_certificates_change() {
    let server = Arc::new(Server::start(Limits::default()).await);
    let (old, new) = (authority(), authority());
    server.install(&old);
    let client = Arc::new(Client::new(&[&old, &new], "http/1.1"));
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for _ in 0..4 {
        let (server, client, stop) = (server.clone(), client.clone(), stop.clone());
        load.spawn(async move {
            let mut answers = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                client.get(&server).await.unwrap();
                answers += 1;
            }
            answers
        });
    }
    let end = Instant::now() + Duration::from_secs(2);
    let mut changes = 0_u32;
    while Instant::now() < end {
        server.install(if changes.is_multiple_of(2) { &new } else { &old });
        changes += 1;
        assert!(server.serving.install("garbage", "garbage").is_err());
        tokio::task::yield_now().await;
    }
    stop.store(true, Ordering::Relaxed);
    let answers: u32 = load.join_all().await.into_iter().sum();
    assert!(changes > 20 && answers > 20, "{answers} requests and {changes} changes prove little");
}

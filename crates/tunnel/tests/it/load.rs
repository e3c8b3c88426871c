//! Many streams, much data, and what is left afterwards. Times are told and not asserted.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream, tcp},
    task::JoinSet,
    time::{Instant, timeout},
};
use tunnel::{protocol::Class, route::Direction};

use crate::world::{Hub, SOON, World, ask, destination, echo, eventually, links, only, request};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_streams() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    let mut streams = Vec::new();
    for _ in 0..1000 {
        streams.push(cloud.connect(&format!("a1:{port}")).await.unwrap());
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let question = number.to_be_bytes();
        assert_eq!(timeout(SOON, ask(stream, &question)).await.unwrap().unwrap(), question);
    }
    assert_eq!(edge.table.snapshot().iter().map(|link| link.streams).sum::<usize>(), 1000);
    drop(streams);
    eventually("all streams end", || {
        cloud.table.snapshot().iter().chain(&edge.table.snapshot()).all(|link| link.streams == 0)
    })
    .await;
    assert_eq!(cloud.stats.snapshot().links_registered, 4);
}

/// 2,000 opened and closed, ended or broken: nothing is left, and the link is the same.
#[tokio::test(flavor = "multi_thread")]
async fn streams_leave_nothing_behind() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    for number in 0..2000 {
        let mut stream = cloud.connect(&format!("a1:{port}")).await.unwrap();
        if number % 2 == 0 {
            ask(&mut stream, b"x").await.unwrap();
            stream.shutdown().await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
        }
    }
    eventually("all streams end", || {
        cloud.table.snapshot().iter().chain(&edge.table.snapshot()).all(|link| link.streams == 0)
    })
    .await;
    assert_eq!(cloud.stats.snapshot().links_registered, 4);
}

/// Bulk and somebody at a keyboard: bytes are right; how fast it was is told.
#[tokio::test(flavor = "multi_thread")]
async fn bulk_beside_a_keyboard() {
    const SIZE: usize = 1 << 30;
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge) = world.pair().await;
    let source = destination(&mut tasks, |mut client| async move {
        let block: Vec<u8> = (0..64 * 1024_usize).map(|n| u8::try_from(n % 251).unwrap()).collect();
        for _ in 0..SIZE / block.len() {
            if client.write_all(&block).await.is_err() {
                return;
            }
        }
    })
    .await;
    let keyboard = echo(&mut tasks).await;
    let mut wanted = request(&format!("a1:{source}"));
    wanted.class = Class::Bulk;
    let mut bulk = cloud.connector.connect(&wanted).await.unwrap();
    let mut shell = cloud.connect(&format!("a1:{keyboard}")).await.unwrap();
    let mut copy = JoinSet::new();
    let began = Instant::now();
    copy.spawn(async move {
        let (mut total, mut buffer) = (0_usize, vec![0; 256 * 1024]);
        loop {
            let read = bulk.read(&mut buffer).await.unwrap();
            if read == 0 {
                return total;
            }
            let right = (0..read).all(|at| usize::from(buffer[at]) == (total + at) % (64 * 1024) % 251);
            assert!(right, "bytes differ");
            total += read;
        }
    });
    let mut waits = Vec::new();
    let total = loop {
        tokio::select! {
            Some(total) = copy.join_next() => break total.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                let pressed = Instant::now();
                ask(&mut shell, b"k").await.unwrap();
                waits.push(pressed.elapsed());
            }
        }
    };
    assert_eq!(total, SIZE);
    let took = began.elapsed();
    waits.sort();
    println!(
        "1 GiB in {took:?} (debug build); keys: {} pressed, p50 {:?}, worst {:?}",
        waits.len(),
        waits[waits.len() / 2],
        waits[waits.len() - 1]
    );
}

/// Streams on the links over which this node asks, by class.
fn asked_over(hub: &Hub) -> Vec<(Class, usize, u64)> {
    let mut links: Vec<_> = hub
        .table
        .snapshot()
        .into_iter()
        .filter(|link| link.direction == Direction::Reverse)
        .map(|link| (link.class, link.streams, link.received))
        .collect();
    links.sort_unstable();
    links
}

/// A copy is interactive as far as anybody knows. Who comes after it goes over the other link, and when it is over as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_shell_does_not_go_over_the_link_that_a_copy_fills() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, _edge) = world.pair().await;
    let source = destination(&mut tasks, |mut client| async move {
        let block = vec![0; 64 * 1024];
        while client.write_all(&block).await.is_ok() {}
    })
    .await;
    let keyboard = echo(&mut tasks).await;
    let mut copy = cloud.connect(&format!("a1:{source}")).await.unwrap();
    let streams = |hub: &Hub| asked_over(hub).iter().map(|(_, streams, _)| *streams).collect::<Vec<_>>();
    assert_eq!(streams(&cloud), [1, 0]);
    let mut copying = JoinSet::new();
    copying.spawn(async move {
        let mut buffer = vec![0; 256 * 1024];
        while copy.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    });
    eventually("the copy fills its link", || asked_over(&cloud)[0].2 > 4 << 20).await;
    let mut shell = cloud.connect(&format!("a1:{keyboard}")).await.unwrap();
    assert_eq!(streams(&cloud), [1, 1]);
    ask(&mut shell, b"k").await.unwrap();
    drop(shell);
    copying.shutdown().await;
    let until = Instant::now() + SOON;
    loop {
        eventually("the streams end", || streams(&cloud) == [0, 0]).await;
        let _shell = cloud.connect(&format!("a1:{keyboard}")).await.unwrap();
        if streams(&cloud) == [1, 0] {
            break;
        }
        assert!(Instant::now() < until, "the first link is still avoided");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Of both on one link: the class of a copy that begins while all is quiet is that of the shell which was there before, and no stream changes its
/// link. What is ahead of a key is then what the line's queue and the kernel hold, and one frame, and not what the copy has ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_before_waits_little_behind_a_copy_that_begins_later() {
    const PER_SECOND: u32 = 1_000_000;
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (mut cloud, mut edge) = (world.hub("c1", true), world.hub("a1", false));
    let line = thin_line(&mut tasks, cloud.listen().await, PER_SECOND);
    let all = links("c1", line, edge.credentials.generation());
    edge.desired.send_replace(only(all, Direction::Reverse, Class::Interactive));
    edge.dial();
    cloud.links(1).await;
    edge.links(1).await;
    let keyboard = echo(&mut tasks).await;
    let source = destination(&mut tasks, |mut client| async move {
        let block = vec![0; 64 * 1024];
        while client.write_all(&block).await.is_ok() {}
    })
    .await;
    let mut shell = cloud.connect(&format!("a1:{keyboard}")).await.unwrap();
    ask(&mut shell, b"k").await.unwrap();
    let mut copy = cloud.connect(&format!("a1:{source}")).await.unwrap();
    let copied = Arc::new(AtomicUsize::new(0));
    tasks.spawn({
        let copied = copied.clone();
        async move {
            let mut buffer = vec![0; 256 * 1024];
            while let Ok(read) = copy.read(&mut buffer).await
                && read > 0
            {
                copied.fetch_add(read, Ordering::Relaxed);
            }
        }
    });
    // Until whatever could fill is full.
    eventually("the copy fills the line", || copied.load(Ordering::Relaxed) > 2_000_000).await;
    let (before, mut waits) = (copied.load(Ordering::Relaxed), Vec::new());
    for _ in 0..15 {
        let pressed = Instant::now();
        ask(&mut shell, b"k").await.unwrap();
        waits.push(pressed.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    waits.sort();
    let passed = copied.load(Ordering::Relaxed) - before;
    println!("keys beside {passed} bytes of a copy on the same link: {waits:?}");
    assert!(passed > 500_000, "{passed} bytes beside the keys");
    // 96 KiB (TCP_NOTSENT_LOWAT) and the line's some 64 KiB are a sixth of a second. The send buffer of a stream is a quarter of a MiB, the kernel's four.
    assert!(waits[waits.len() / 2] < Duration::from_millis(600), "{waits:?}");
}

/// A line of so many bytes a second each way, which holds next to nothing itself.
fn thin_line(tasks: &mut JoinSet<()>, server: SocketAddr, per_second: u32) -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listener = socket.listen(16).unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut ways = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(server).await.unwrap();
            for end in [&client, &server] {
                end.set_nodelay(true).unwrap();
            }
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            ways.spawn(trickle(from_client, to_server, per_second));
            ways.spawn(trickle(from_server, to_client, per_second));
        }
    });
    address
}

async fn trickle(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, per_second: u32) {
    let mut buffer = vec![0; 4096];
    while let Ok(read) = from.read(&mut buffer).await
        && read > 0
    {
        let length = u32::try_from(read).unwrap();
        tokio::time::sleep(Duration::from_secs(1) * length / per_second).await;
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

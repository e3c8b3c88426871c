//! Many streams, much data, and what is left afterwards. Times are told and not asserted.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
    time::{Instant, timeout},
};
use tunnel::{protocol::Class, route::Direction};

use crate::world::{Hub, SOON, World, ask, destination, echo, eventually, request};

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

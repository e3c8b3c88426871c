//! A great many streams, one after the other and side by side: what is held at the end is what was held at the beginning.
//!
//! Memory and file handles are those of the whole process, so they are looked at where this test runs alone: `hack/test --long`
//! sets `ISTHMUS_LONG` and runs nothing else beside it. Series of metrics are the hub's: its own soak (`edge-hub/tests/it/hub/tunnel`) counts them.

use std::fs;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    runtime::Handle,
    task::JoinSet,
};

use crate::world::{Hub, World, ask, eventually, own_address};

/// Clients at a time.
const CLIENTS: usize = 20;

/// How much more memory may be resident in the end: the allocator keeps what it had at most.
const MORE_KIB: usize = 4 << 10;

#[derive(Debug)]
struct Held {
    tasks: usize,
    files: usize,
    resident_kib: usize,
}

fn held() -> Held {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    Held {
        tasks: Handle::current().metrics().num_alive_tasks(),
        files: fs::read_dir("/proc/self/fd").unwrap().count(),
        resident_kib: resident.trim().trim_end_matches(" kB").parse().unwrap(),
    }
}

/// A client's share: a stream each time, ended in good order, dropped, or broken off with something unread.
async fn connects(cloud: &Hub, target: &str, number: usize) {
    for number in 0..number {
        let mut stream = cloud.connect(target).await.unwrap();
        match number % 3 {
            0 => {
                ask(&mut stream, b"question").await.unwrap();
            }
            1 => {
                ask(&mut stream, b"x").await.unwrap();
                stream.shutdown().await.unwrap();
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
            }
            _ => stream.write_all(b"nobody reads the answer").await.unwrap(),
        }
    }
}

/// Gives back what it is given. Unlike the other tests' destinations it forgets each client that has left.
async fn echo(tasks: &mut JoinSet<()>) -> u16 {
    let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                Ok((mut client, _)) = listener.accept() => {
                    clients.spawn(async move {
                        let (mut from, mut to) = client.split();
                        let _ = tokio::io::copy(&mut from, &mut to).await;
                        let _ = to.shutdown().await;
                    });
                }
                Some(_) = clients.join_next() => {}
            }
        }
    });
    port
}

async fn at_rest(cloud: &Hub, edge: &Hub) {
    eventually("all streams end", || {
        cloud.table.snapshot().iter().chain(&edge.table.snapshot()).all(|link| link.streams == 0)
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soak_leaves_nothing_behind() {
    let long = std::env::var_os("ISTHMUS_LONG").is_some();
    let total = if long { 100_000 } else { 3_000 };
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge) = world.pair().await;
    let target = format!("a1:{}", echo(&mut tasks).await);
    let round = async |number: usize| {
        let clients = (0..CLIENTS).map(|_| connects(&cloud, &target, number / CLIENTS));
        futures::future::join_all(clients).await;
        at_rest(&cloud, &edge).await;
        held()
    };
    // What is made once is made, and the allocator has what it needs.
    let before = round(total / 10).await;
    let after = round(total).await;
    println!("{total} connects: before {before:?}, after {after:?}");
    assert!(after.tasks <= before.tasks + CLIENTS, "{before:?} {after:?}");
    if long {
        assert!(after.files <= before.files + CLIENTS, "{before:?} {after:?}");
        assert!(after.resident_kib <= before.resident_kib + MORE_KIB, "{before:?} {after:?}");
    }
    assert_eq!(cloud.stats.snapshot().links_registered, 4);
}

//! A great many streams by all ways in, whatever callers ask for: what the hubs hold and tell at the end is what it was at the beginning.
//!
//! Memory and file handles are those of the whole process, so they are looked at where this test runs alone: `hack/test --long`
//! sets `ISTHMUS_LONG` and runs nothing else beside it.

use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::{Instant, timeout},
};

use super::{
    SOON, connect,
    site::{TestHub, Tunnelled, read_head},
};

/// Clients at a time.
const CLIENTS: usize = 20;

/// Handles and tasks that come and go beside them: the kubelet's, and what watches the cluster.
const MORE: usize = 2 * CLIENTS;

/// How much more memory may be resident in the end: the allocator keeps what it had at most.
const MORE_KIB: usize = 4 << 10;

/// And for each second between: the test kit's server keeps every version of what hubs write of themselves, 1.75 KiB a second when
/// nothing else happens.
const HISTORY_KIB: usize = 2;

/// What two hubs in this process tell of themselves and of it.
#[derive(Debug)]
struct Held {
    /// Of the gateway and of the agent.
    series: [usize; 2],
    // Of the process, and of the tunnel of each.
    tasks: [usize; 2],
    files: usize,
    resident_kib: usize,
}

impl Held {
    async fn by(cloud: &TestHub, edge: &TestHub) -> Self {
        let metrics = [cloud.metrics().await, edge.metrics().await];
        let figure = |of: usize, name: &str| -> usize {
            let line = metrics[of].lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {}", metrics[of])).trim().parse().unwrap()
        };
        Self {
            series: [0, 1].map(|of: usize| {
                metrics[of].lines().filter(|line| line.starts_with("isthmus_hub_tunnel")).count()
            }),
            tasks: [0, 1].map(|of: usize| figure(of, "isthmus_hub_tasks ")),
            files: figure(0, "process_open_fds "),
            resident_kib: figure(0, "process_resident_memory_bytes ") >> 10,
        }
    }
}

/// One that asks for something, each time by another way and for something else: what is answered, dropped, not there or not allowed.
async fn client(site: &Tunnelled, number: usize) {
    const QUESTION: &str = "GET /metrics HTTP/1.1\r\nHost: a1\r\nConnection: close\r\n\r\n";
    let loopback = async || TcpStream::connect(("127.0.0.1", site.loopback)).await.unwrap();
    match number % 5 {
        0 => {
            let mut stream = UnixStream::connect(site.socket()).await.unwrap();
            assert_eq!(connect(&mut stream, &format!("a1:{}", site.exporter)).await, "200");
            stream.write_all(QUESTION.as_bytes()).await.unwrap();
            let mut answer = String::new();
            timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        1 => {
            let mut stream = TcpStream::connect((site.address, site.http_way)).await.unwrap();
            let host = format!("Host: a1:{}", site.exporter);
            stream.write_all(QUESTION.replace("Host: a1", &host).as_bytes()).await.unwrap();
            let head = timeout(SOON, read_head(&mut stream)).await.unwrap();
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        }
        2 => {
            let target = format!("c1:{}", site.kubelet);
            assert_eq!(connect(&mut loopback().await, &target).await, "200", "{target}");
        }
        3 => {
            let target = format!("nobody-{number}:{}", site.kubelet);
            assert_eq!(connect(&mut loopback().await, &target).await, "404", "{target}");
        }
        _ => {
            let target = format!("nobody-{number}:{}", 20 + number % 1000);
            assert_eq!(connect(&mut loopback().await, &target).await, "403", "{target}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_leave_no_metrics_behind_and_nothing_else() {
    let long = std::env::var_os("ISTHMUS_LONG").is_some();
    let total = if long { 100_000 } else { 500 };
    let site = Tunnelled::new().await;
    let (cloud, edge) = (site.cloud().await, site.edge().await);
    site.linked(&cloud).await;
    let first = Held::by(&cloud, &edge).await;
    assert!(first.series.iter().all(|count| *count > 20), "{first:?}");
    let round = async |number: usize| {
        let clients = (0..CLIENTS).map(async |one| {
            for number in 0..number / CLIENTS {
                client(&site, number * CLIENTS + one).await;
            }
        });
        join_all(clients).await;
        site.until_async("all streams end", async || {
            let metrics = [cloud.metrics().await, edge.metrics().await];
            metrics.iter().all(|metrics| metrics.contains("isthmus_hub_tunnel_open_streams 0\n"))
        })
        .await;
        Held::by(&cloud, &edge).await
    };
    // What is made once is made, and the allocator has what it needs.
    let before = round(total / 10).await;
    let began = Instant::now();
    let after = round(total).await;
    println!("{total} connects: first {first:?}, before {before:?}, after {after:?}");
    assert_eq!(after.series, first.series);
    assert!([0, 1].iter().all(|of| after.tasks[*of] <= before.tasks[*of] + MORE), "{before:?} {after:?}");
    if long {
        assert!(after.files <= before.files + MORE, "{before:?} {after:?}");
        let history = usize::try_from(began.elapsed().as_secs()).unwrap() * HISTORY_KIB;
        assert!(after.resident_kib <= before.resident_kib + MORE_KIB + history, "{before:?} {after:?}");
    }
}

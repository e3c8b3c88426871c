//! Who does not read holds nobody else back.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{
    EDGE_GATEWAY, Forward, GATEWAYS, NAMESPACE, ORDINARY, Reach, forward, ground, hub_metrics, in_namespace,
    logs, long, pod, said,
};
use e2e::hub::token;
use e2e::keyboard::{Keyboard, Waits, hardly_slower, in_turn, slowest_hardly_slower};
use e2e::{eventually, hack_cluster, kubectl, kubectl_apply};
use futures::future::try_join_all;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::held::Held;
use super::reach::{link_ports_of, settled_links};

const PATIENCE: Duration = Duration::from_secs(30);

/// What a hub with stalled streams may hold resident in all.
const RESIDENT_KIB: u64 = 192 << 10;

/// What the kernel may keep of one connection that a hub does not read. By itself it goes up to 32 MiB.
const UNREAD: u64 = 2 << 20;

/// A node that is reached without a tunnel.
const PLAIN: &str = GATEWAYS[1];

/// A pod with a long log of lines of one byte that goes on, and a port that gives a gigabyte.
async fn talker(node: &str) -> Result<(String, Cleanup)> {
    let name = format!("talker-{node}");
    let gone =
        Cleanup::kubectl(&in_namespace(&["delete", "pod", &name, "--wait=false", "--ignore-not-found"]));
    said(&["delete", "pod", &name, "--ignore-not-found"], PATIENCE).await?;
    let talker = format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: isthmus.dev/busybox:1
    command: [sh, -c, 'nc -ll -p 9001 -e dd if=/dev/zero bs=65536 count=16384 2>/dev/null & yes x | head -n 1200000; while :; do echo x; sleep 0.01; done']
"
    );
    kubectl_apply(&talker).await?.ok()?;
    e2e::hub::runs(NAMESPACE, &name).await?;
    Ok((name, gone))
}

/// Readers of a pod who do not read: its log, and its port by port-forward.
struct Stalled {
    logs: Vec<Child>,
    forwards: Vec<(Forward, TcpStream)>,
}

impl Stalled {
    /// Forwards of the pod's port, of which a byte was read.
    async fn forwards(pod: &str, number: usize) -> Result<Self> {
        let mut forwards = Vec::new();
        for _ in 0..number {
            // A kubectl each: all of one share a connection.
            let forwarded = forward(pod, 9001).await?;
            let mut client = TcpStream::connect(("127.0.0.1", forwarded.port)).await?;
            client.read_exact(&mut [0]).await.context("a forwarded gigabyte begins")?;
            forwards.push((forwarded, client));
        }
        Ok(Self { logs: Vec::new(), forwards })
    }

    /// The pod's log besides, of which is read what a pipe holds.
    async fn follow(&mut self, pod: &str, number: usize, bearer: &str) -> Result<()> {
        let server = kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"])
            .await?
            .ok()?;
        let url = format!("{server}/api/v1/namespaces/{NAMESPACE}/pods/{pod}/log?follow=true");
        for _ in 0..number {
            let mut curl = Command::new("curl");
            curl.args(["-skN", "-H", bearer, &url])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .kill_on_drop(true);
            // Its pipe is full after 64 KiB, and then it reads no more.
            self.logs.push(curl.spawn()?);
        }
        Ok(())
    }

    /// Reads on from each, which shows those that were cut: of a forward more than is on its way to here, of a log more than its reader's
    /// pipe holds.
    async fn go_on(&mut self) -> Result<()> {
        let mut reading = Vec::new();
        for (number, curl) in self.logs.iter_mut().enumerate() {
            let log = curl.stdout.as_mut().context("its output")?;
            // Each line is a frame, and costs as much as many bytes.
            let bytes = if number == 0 { 1 << 20 } else { 128 << 10 };
            reading.push(read_on(log, bytes, |at, byte| byte == b"x\n"[at % 2]));
        }
        let forwards =
            self.forwards.iter_mut().map(|(_, client)| read_on(client, 16 << 20, |_, byte| byte == 0));
        let (logs, forwards) = tokio::join!(try_join_all(reading), try_join_all(forwards));
        logs.context("a stalled log")?;
        forwards.context("a stalled forward").map(drop)
    }
}

/// Reads so many bytes, each as it is to be where it stands. All that were stalled share what the machine has, so it is waited for the next of
/// them and not for all.
async fn read_on(
    mut from: impl AsyncRead + Unpin,
    bytes: usize,
    is_right: impl Fn(usize, u8) -> bool,
) -> Result<()> {
    let (mut at, mut piece) = (0, vec![0; 64 << 10]);
    while at < bytes {
        let length = piece.len().min(bytes - at);
        let read = tokio::time::timeout(PATIENCE * 3, from.read(&mut piece[..length])).await;
        let read = read.with_context(|| format!("nothing came after {at} bytes"))??;
        ensure!(read > 0, "it was ended after {at} bytes");
        ensure!((at..).zip(&piece[..read]).all(|(at, byte)| is_right(at, *byte)), "other bytes at {at}");
        at += read;
    }
    Ok(())
}

/// How many logs a node's kubelet is sending: at its end of the tunnel one that was cut is seen, though nobody reads at the other.
async fn logs_sent_by(node: &str) -> Result<usize> {
    let metrics = kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/metrics")]).await?.ok()?;
    let of_logs = metrics.lines().filter(|line| {
        line.starts_with("kubelet_http_inflight_requests{") && line.contains("path=\"containerLogs\"")
    });
    of_logs.map(|line| Ok(line.rsplit(' ').next().context("a figure")?.parse::<usize>()?)).sum()
}

/// Bytes that have passed over the links of a node's hub.
async fn passed(node: &str) -> Result<f64> {
    let metrics = hub_metrics(node).await?;
    let of_links = metrics.lines().filter(|line| line.starts_with("isthmus_hub_tunnel_bytes_total{"));
    of_links.map(|line| Ok(line.rsplit(' ').next().context("a figure")?.parse::<f64>()?)).sum()
}

/// Waits until what was to stall has: the links carry no more than they do at rest, time after time. On a busy machine what still goes on
/// may stand still for seconds, and a hundred logs of lines of a byte take a slow one longer than five minutes.
async fn until_stalled() -> Result<()> {
    let patience = Duration::from_mins(if long() { 20 } else { 5 });
    eventually("nothing passes but what is asked for", patience, || async {
        for _ in 0..3 {
            let before = passed(EDGE_GATEWAY).await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let more = passed(EDGE_GATEWAY).await? - before;
            ensure!(more < 256_000.0, "{more} bytes in two seconds");
        }
        Ok(())
    })
    .await
}

/// Whole `kubectl exec`s, with all that it takes to begin, to both in turn.
async fn sessions(times: usize) -> Result<(Waits, Waits)> {
    let (mut through, mut beside) = (Waits::default(), Waits::default());
    for _ in 0..times {
        for (node, waits) in [(ORDINARY, &mut through), (PLAIN, &mut beside)] {
            let began = Instant::now();
            let said = said(&["exec", &pod(node), "--", "echo", "here"], PATIENCE).await?;
            ensure!(said == "here\n", "{said:?}");
            waits.add(began.elapsed());
        }
    }
    Ok((through, beside))
}

/// The API server, all nodes and their clients share one kernel's memory for TCP here, and each keeps up to 32 MiB of a connection that it does not
/// read. At full size they would use it up, and the kernel would drop what has nothing to do with it.
fn memory_as_of_many_machines() -> Result<Cleanup> {
    const FILE: &str = "/proc/sys/net/ipv4/tcp_mem";
    let before = std::fs::read_to_string(FILE)?;
    let pages: Result<Vec<u64>, _> = before.split_whitespace().map(str::parse).collect();
    let more: Vec<String> = pages?.into_iter().map(|pages| (4 * pages).to_string()).collect();
    std::fs::write(FILE, more.join(" "))?;
    let restored = format!("net.ipv4.tcp_mem={}", before.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut cleanup = Cleanup::default();
    cleanup.add("sysctl", &["-qw", &restored]);
    Ok(cleanup)
}

/// Logs that are followed and ports that are forwarded by nobody who reads, fifty of each with `--long`, else six and two; as many on a
/// node that is reached by plain TCP, so that whatever else the machine does with them delays both. None is ended, no link is made
/// anew, and nothing is left of them but memory, of which, with `--long`, a second round leaves no more.
#[tokio::test]
async fn x8_stalled_readers_hold_nobody_back() -> Result<()> {
    ground(Reach::Names).await?;
    let _memory = if long() { Some(memory_as_of_many_machines()?) } else { None };
    // The API server keeps the connection for the logs.
    logs(ORDINARY, PATIENCE).await?;
    let held = Held::at_rest().await?;
    let (through, beside) = (talker(ORDINARY).await?, talker(PLAIN).await?);
    let (mut ours, mut plain) = (Keyboard::open(ORDINARY).await?, Keyboard::open(PLAIN).await?);
    let (alone, alone_plain) = in_turn(&mut ours, &mut plain, 100).await?;
    println!("keys, nobody stalled: {alone}; by plain TCP {alone_plain}");
    let bearer =
        format!("Authorization: Bearer {}", token("default", "e2e-tunnel-slow", "cluster-admin").await?);
    let mut rights = Cleanup::kubectl(&["delete", "clusterrolebinding", "default-e2e-tunnel-slow"]);
    rights.add("kubectl", &["delete", "serviceaccount", "e2e-tunnel-slow"]);
    let number = if long() { 50 } else { 6 };
    let links = settled_links().await?;
    let forwards = if long() { number } else { 2 };
    // Logs of lines of a byte take all processors until they stall, so a forward that begins beside them waits for minutes.
    let mut stalled = Stalled::forwards(&through.0, forwards).await?;
    let mut stalled_plain = Stalled::forwards(&beside.0, forwards).await?;
    until_stalled().await?;
    stalled.follow(&through.0, number, &bearer).await?;
    stalled_plain.follow(&beside.0, number, &bearer).await?;
    until_stalled().await?;
    // Whom stalled readers hold back they hold back in each round; one slow round is the machine's.
    let mut judged = Err(anyhow!("no keys"));
    for _ in 0..3 {
        let (keys, keys_plain) = in_turn(&mut ours, &mut plain, 200).await?;
        println!(
            "keys beside {number} stalled logs and {forwards} forwards: {keys}; by plain TCP {keys_plain}"
        );
        judged = hardly_slower(&keys, &keys_plain, Duration::ZERO)
            .and_then(|()| slowest_hardly_slower(&keys, &keys_plain, Duration::ZERO));
        if judged.is_ok() {
            break;
        }
    }
    judged?;
    let (whole, whole_plain) = sessions(10).await?;
    println!("whole execs beside them: {whole}; by plain TCP {whole_plain}");
    // It takes several round trips to begin, so what the machine adds to each counts as often.
    let bound = whole_plain.percentile(50) * 3 / 2 + Duration::from_millis(50);
    ensure!(whole.percentile(50) <= bound, "{whole}; plain {whole_plain}");
    for node in GATEWAYS.into_iter().chain([EDGE_GATEWAY]) {
        let resident = resident_kib(node).await?;
        println!("{node}: {} MiB resident", resident >> 10);
        ensure!(resident < RESIDENT_KIB, "the hub of {node} holds {resident} KiB");
        let unread = unread(node).await?;
        println!("{node}: {unread} bytes of a connection are not read");
        ensure!(unread <= UNREAD, "the kernel of {node} keeps {unread} bytes of a connection for the hub");
    }
    let (sent, sent_plain) = (logs_sent_by(ORDINARY).await?, logs_sent_by(PLAIN).await?);
    println!("of {number} stalled logs the kubelet sends {sent}; by plain TCP {sent_plain}");
    ensure!(sent >= number.min(sent_plain), "of {number} stalled logs {sent} are sent; plain {sent_plain}");
    stalled.go_on().await?;
    let after = link_ports_of(EDGE_GATEWAY).await?;
    ensure!(after.is_subset(&links), "links were made anew: {links:?}, now {after:?}");
    drop((stalled, stalled_plain, ours, plain, through, beside));
    eventually("the edge is reached", PATIENCE, || logs(ORDINARY, PATIENCE)).await?;
    held.is_all_there_is_but_memory().await?;
    // It takes a hundred seconds.
    if long() { a_second_round_leaves_no_more(number, &bearer).await } else { Ok(()) }
}

/// What the allocator keeps of a round of readers who stall is there for the next one, and what each round leaves behind is not.
async fn a_second_round_leaves_no_more(number: usize, bearer: &str) -> Result<()> {
    let (kept, began) = (Held::at_rest().await?, Instant::now());
    let through = talker(ORDINARY).await?;
    let mut stalled = Stalled::forwards(&through.0, number).await?;
    until_stalled().await?;
    stalled.follow(&through.0, number, bearer).await?;
    until_stalled().await?;
    drop((stalled, through));
    eventually("the edge is reached", PATIENCE, || logs(ORDINARY, PATIENCE)).await?;
    kept.is_all_there_is().await.context("after a second round")?;
    println!("a second round of {number} forwards and as many logs took {:.1?}", began.elapsed());
    Ok(())
}

async fn resident_kib(node: &str) -> Result<u64> {
    let script =
        "awk '/^VmRSS:/ { print $2 }' /proc/$(ss -Hltnp 'sport = :10267' | sed 's/.*pid=//; s/,.*//')/status";
    let found = hack_cluster(&["exec", node, "--", "bash", "-c", script]).await?.ok()?;
    found.trim().parse().with_context(|| format!("{found:?}"))
}

/// The most bytes that the kernel keeps of a connection for a node's hub, which does not read them yet.
async fn unread(node: &str) -> Result<u64> {
    let connections = hack_cluster(&["exec", node, "--", "ss", "-Htnp"]).await?.ok()?;
    let of_hub = connections.lines().filter(|line| line.contains("edge-hub"));
    let unread = of_hub.map(|line| {
        let queue = line.split_whitespace().nth(1).with_context(|| format!("{line:?}"))?;
        queue.parse().with_context(|| format!("{line:?}"))
    });
    unread.collect::<Result<Vec<u64>>>()?.into_iter().max().context("a hub without connections")
}

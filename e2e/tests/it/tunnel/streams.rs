//! What passes through arrives, and ends as it ends without a tunnel: logs, exec, attach, port-forward and cp, by both kinds of
//! upgrade and both ways of the API server.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::process::Command as Plain;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{
    EDGE_GATEWAY, GATEWAYS, NAMESPACE, ORDINARY, Reach, background, forward, ground, ground_with,
    in_namespace, long, output, pod, said,
};
use e2e::keyboard::{Keyboard, Waits, hardly_slower};
use e2e::{eventually, kubectl, kubectl_apply, run};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout};
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(20);

/// How much later than by plain TCP a line may come.
const A_LINE: Duration = Duration::from_millis(50);

/// How long a large transfer may take.
const LARGE: Duration = Duration::from_mins(3);

#[tokio::test]
async fn f2_logs_are_whole_and_followed() -> Result<()> {
    for reach in Reach::both() {
        ground(reach).await?;
        let followed = tokio::try_join!(Followed::of(ORDINARY), Followed::of(GATEWAYS[1]));
        let followed = followed.with_context(|| format!("{reach:?}"))?;
        // It is silent meanwhile.
        let since = Instant::now();
        logs_are_whole().await.with_context(|| format!("{reach:?}"))?;
        // Longer than a peer is given to answer, where nothing else passes.
        let silence = match (reach, long()) {
            (_, true) => 600,
            (Reach::Names | Reach::Dns, false) => 16,
            (Reach::Egress, false) => 1,
        };
        let after = logs_are_followed(followed, since, Duration::from_secs(silence));
        after.await.with_context(|| format!("{reach:?}"))?;
    }
    Ok(())
}

async fn logs_are_whole() -> Result<()> {
    let lines = if long() { "25000000" } else { "1300000" };
    let remove =
        Cleanup::kubectl(&in_namespace(&["delete", "pod", "writer", "--wait=false", "--ignore-not-found"]));
    let pod = format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: writer, namespace: {NAMESPACE}}}
spec:
  nodeName: {ORDINARY}
  terminationGracePeriodSeconds: 0
  containers: [{{name: c, image: isthmus.dev/busybox:1, command: [sh, -c, 'seq 1 {lines}; exec sleep 3600']}}]
"
    );
    said(&["delete", "pod", "writer", "--ignore-not-found"], PATIENCE).await?;
    kubectl_apply(&pod).await?.ok()?;
    // A container that ends would lose what containerd has not yet read of its pipe when the machine is busy.
    eventually("the log's last line is written", LARGE * 2, || async {
        let last = said(&["logs", "--tail=1", "writer"], PATIENCE).await?;
        ensure!(last.trim() == lines, "{last:?}");
        Ok(())
    })
    .await?;
    let expected = run("bash", &["-c", &format!("seq 1 {lines} | sha256sum")], "").await?.ok()?;
    let began = Instant::now();
    let script =
        format!("set -o pipefail; kubectl -n {NAMESPACE} logs writer | tee >(wc -c >&2) | sha256sum");
    let got = run("bash", &["-c", &script], "").await?;
    println!("log of {} bytes in {:.1} s", got.stderr.trim(), began.elapsed().as_secs_f64());
    ensure!(got.success && got.stdout == expected, "{got:?} is not {expected}");
    drop(remove);
    Ok(())
}

/// A log that is followed, and a session that writes to it.
pub(super) struct Followed {
    _logs: Child,
    lines: Lines<BufReader<ChildStdout>>,
    writer: Keyboard,
}

impl Followed {
    pub(super) async fn of(node: &str) -> Result<Self> {
        let mut logs = background(&["logs", "-f", "--tail=0", &pod(node)])?;
        let lines = BufReader::new(logs.stdout.take().context("its output")?).lines();
        // Each line goes to the log of the pod, and back.
        let writer = Keyboard::with(node, &["tee", "-a", "/proc/1/fd/1"]).await?;
        let mut followed = Self { _logs: logs, lines, writer };
        // It is followed once a first line came.
        for _ in 0..30 {
            followed.writer.press().await?;
            if tokio::time::timeout(Duration::from_secs(1), followed.lines.next_line()).await.is_ok() {
                break;
            }
        }
        followed.catch_up().await?;
        Ok(followed)
    }

    /// Takes what has come, up to a line that is written now.
    async fn catch_up(&mut self) -> Result<()> {
        self.mark().await.map(drop)
    }

    /// From a line's writing to its coming.
    pub(super) async fn mark(&mut self) -> Result<Duration> {
        let wanted = self.writer.next();
        let began = Instant::now();
        self.writer.send().await?;
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.context("no line")??;
            ensure!(line.is_some(), "the log ended");
            if line == Some(wanted.clone()) {
                let took = began.elapsed();
                self.writer.echoed().await?;
                return Ok(took);
            }
        }
    }
}

/// Of a log through the tunnel and one by plain TCP, to which nothing was written `since` then, nor is for this much longer.
async fn logs_are_followed(
    (mut ours, mut plain): (Followed, Followed),
    mut since: Instant,
    silence: Duration,
) -> Result<()> {
    // The first line after it, beside one by plain TCP at the same moment: a single one may meet a busy machine.
    let (mut firsts, mut silences) = (Vec::new(), Vec::new());
    while firsts.iter().all(|(ours, plain): &(Duration, Duration)| *ours > *plain + A_LINE) {
        ensure!(
            firsts.len() < 3,
            "the first lines after {silences:?} of silence, and plain TCP's: {firsts:?}"
        );
        tokio::time::sleep(silence).await;
        silences.push(since.elapsed());
        firsts.push(tokio::try_join!(ours.mark(), plain.mark())?);
        since = Instant::now();
    }
    let (mut through, mut beside) = (Waits::default(), Waits::default());
    for _ in 0..20 {
        through.add(ours.mark().await?);
        beside.add(plain.mark().await?);
    }
    println!(
        "lines of a log: {firsts:?} after {silences:?} of silence and by plain TCP, then {through}; by plain TCP {beside}"
    );
    hardly_slower(&through, &beside, Duration::ZERO)
}

#[tokio::test]
async fn f3_exec_ends_as_the_command_does() -> Result<()> {
    for reach in Reach::both() {
        ground(reach).await?;
        exec().await.with_context(|| format!("{reach:?}"))?;
    }
    Ok(())
}

async fn exec() -> Result<()> {
    let pod = pod(ORDINARY);
    for code in [0, 3, 137] {
        let script = format!("exit {code}");
        let words = ["exec", &pod, "--", "sh", "-c", &script];
        let words = in_namespace(&words);
        let finished = output("kubectl", &words, b"").await?;
        ensure!(finished.status.code() == Some(code), "exit {code}: {finished:?}");
    }
    // The end of the input is passed on, and nothing of it is lost.
    let input = vec![b'x'; 1 << 20];
    let counted = output("kubectl", &in_namespace(&["exec", "-i", &pod, "--", "wc", "-c"]), &input).await?;
    ensure!(String::from_utf8_lossy(&counted.stdout).trim() == input.len().to_string(), "{counted:?}");
    let writes = if long() { "1000000" } else { "100000" };
    let script = format!("dd if=/dev/zero bs=1 count={writes} 2>/dev/null");
    let small = output("kubectl", &in_namespace(&["exec", &pod, "--", "sh", "-c", &script]), b"").await?;
    ensure!(small.stdout.len().to_string() == writes, "{} of {writes} small writes", small.stdout.len());
    // The size of a terminal, and its change, once the first one was seen.
    let screen = tempfile::NamedTempFile::new()?;
    let screen = screen.path().to_str().context("a name in UTF-8")?;
    let until = |what: &str| format!("n=0; until {what} || [ $n = 150 ]; do n=$((n + 1)); sleep 0.2; done");
    let seen = until(&format!("grep -q '41 77.$' {screen}"));
    // Until there is a size busybox says that there is none.
    let has = |size: &str| until(&format!("[ \"$(stty size 2>/dev/null)\" = '{size}' ]"));
    let (first, second) = (has("41 77"), has("51 99"));
    let sizes = format!("{first}; stty size; {second}; stty size").replace('\'', "'\\''");
    let inner = format!(
        "stty rows 41 cols 77; ({seen}; stty rows 51 cols 99 </dev/tty) & kubectl -n {NAMESPACE} exec -it {pod} -- sh -c '{sizes}'"
    );
    let terminal = run("script", &["-qefc", &inner, screen], "").await?.ok()?;
    // Before them the terminal shows the end of the input.
    let lines = terminal.split(['\r', '\n']).map(|line| line.trim_start_matches("^@"));
    let sizes: Vec<&str> = lines.filter(|line| line.contains(' ')).collect();
    ensure!(sizes == ["41 77", "51 99"], "{terminal:?}");
    Ok(())
}

#[tokio::test]
async fn f4_attach() -> Result<()> {
    for reach in Reach::both() {
        ground(reach).await?;
        let words = in_namespace(&["attach", "-i", &pod(ORDINARY)]).join(" ");
        let word = format!("{reach:?}");
        let script = format!("(echo hello {word}; sleep 3) | timeout 8 kubectl {words}");
        let said = run("bash", &["-c", &script], "").await?;
        ensure!(said.stdout.contains(&format!("said hello {word}")), "{said:?}");
    }
    Ok(())
}

#[tokio::test]
async fn f5_port_forward() -> Result<()> {
    for reach in Reach::both() {
        ground(reach).await?;
        forwards().await.with_context(|| format!("{reach:?}"))?;
    }
    Ok(())
}

/// Waits until a port of the pod on a node is open: kubectl ends a forward that meets a closed one.
pub(super) async fn listens(node: &str, port: &str) -> Result<()> {
    let (pod, script) = (&pod(node), &format!("netstat -ltn | grep -q :{port}"));
    eventually(&format!("port {port} listens"), PATIENCE, || async move {
        said(&["exec", pod, "--", "sh", "-c", script], PATIENCE).await.map(drop)
    })
    .await
}

/// Reads zeros to the end. One attempt, which has to bring them all: a second one would hide that the first was cut.
async fn download(port: u16, bytes: usize) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut total, mut buffer) = (0, vec![0; 1 << 18]);
    loop {
        let read = match stream.read(&mut buffer).await {
            Err(error) if total < bytes => {
                return Err(error).context(format!("after {total} of {bytes} bytes"));
            }
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        ensure!(buffer[..read].iter().all(|byte| *byte == 0), "other bytes than were sent, after {total}");
        total += read;
    }
    ensure!(total == bytes, "{total} of {bytes} bytes");
    Ok(())
}

async fn forwards() -> Result<()> {
    // All clients of one kubectl share a connection to the kubelet, which is a stream of the tunnel.
    let mut forwarded = Vec::new();
    for _ in 0..if long() { 50 } else { 5 } {
        forwarded.push(forward(&pod(ORDINARY), 8080).await?);
    }
    let mut clients = JoinSet::new();
    for forwarded in forwarded.iter().cycle().take(50) {
        let port = forwarded.port;
        clients.spawn(async move {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
            let mut answer = String::new();
            tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await??;
            ensure!(answer.ends_with(&format!("{ORDINARY}\n")), "{answer:?}");
            Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    drop(forwarded);
    // Much data, each way: a server in the pod gives what it is asked for, and counts what it is given. It does not wait for the end of
    // that, which containerd does not hand on: a half that is closed is shown where there is no containerd, in f13.
    let bytes: usize = if long() { 1 << 30 } else { 64 << 20 };
    let pod = pod(ORDINARY);
    let serve = format!(
        "nc -ll -p 9001 -e dd if=/dev/zero bs=65536 count={} & nc -ll -p 9002 -e sh -c 'head -c {bytes} | wc -c' & sleep 120",
        bytes / 65536
    );
    let server = background(&["exec", &pod, "--", "sh", "-c", &serve])?;
    listens(ORDINARY, "9001").await?;
    listens(ORDINARY, "9002").await?;
    let (down, up) = (forward(&pod, 9001).await?, forward(&pod, 9002).await?);
    let began = Instant::now();
    tokio::time::timeout(LARGE, download(down.port, bytes)).await??;
    println!("{bytes} bytes down in {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", up.port)).await?;
    let block = vec![b'u'; 1 << 16];
    for _ in 0..bytes / block.len() {
        stream.write_all(&block).await?;
    }
    let mut answer = String::new();
    tokio::time::timeout(LARGE, BufReader::new(stream).read_line(&mut answer)).await??;
    println!("{bytes} bytes up in {:.1} s", began.elapsed().as_secs_f64());
    ensure!(answer.trim() == bytes.to_string(), "{answer:?} of {bytes} bytes");
    drop(server);
    said(&["exec", &pod, "--", "sh", "-c", "killall nc; true"], PATIENCE).await?;
    Ok(())
}

#[tokio::test]
async fn f6_cp() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("e2e-tunnel-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = copies(&folder).await;
    std::fs::remove_dir_all(&folder)?;
    result
}

async fn copies(folder: &std::path::Path) -> Result<()> {
    let blocks = if long() { 1024 } else { 64 };
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (original, returned) = (path("original"), path("returned"));
    let of = format!("of={original}");
    let count = format!("count={blocks}");
    run("dd", &["if=/dev/urandom", &of, "bs=1M", &count], "").await?.ok()?;
    for reach in Reach::both() {
        ground(reach).await?;
        let there = format!("{}:/tmp-copy", pod(ORDINARY));
        let began = Instant::now();
        said(&["cp", &original, &there], LARGE).await?;
        let up = began.elapsed();
        said(&["cp", &there, &returned], LARGE).await?;
        println!(
            "{blocks} MiB up in {up:?} and down in {:?} ({reach:?})",
            began.elapsed().saturating_sub(up)
        );
        ensure!(Plain::new("cmp").args([&original, &returned]).status()?.success(), "the copy differs");
        said(&["exec", &pod(ORDINARY), "--", "rm", "/tmp-copy"], PATIENCE).await?;
    }
    Ok(())
}

/// How often what the API server was asked by WebSocket was `understood` there, since it began: to exec, and to forward a port.
async fn by_websocket(understood: &str) -> Result<[u64; 2]> {
    let metrics = kubectl(&["get", "--raw", "/metrics"]).await?.ok()?;
    let of = |subresource: &str| {
        let series = format!(
            "apiserver_websocket_streaming_requests_total{{proxy_type=\"{understood}\",subresource=\"{subresource}\"}} "
        );
        let count = metrics.lines().find_map(|line| line.strip_prefix(&series));
        count.map_or(Ok(0), str::parse)
    };
    Ok([of("exec")?, of("portforward")?])
}

/// kubectl speaks SPDY or WebSocket, and falls back to SPDY without a word. The API server speaks to the kubelet what it was asked in, or,
/// without that feature, SPDY.
#[tokio::test]
async fn f7_both_kinds_of_upgrade() -> Result<()> {
    for (reach, gate) in Reach::both().into_iter().flat_map(|reach| [(reach, "true"), (reach, "false")]) {
        let gate = format!("--feature-gates=ExtendWebSocketsToKubelet={gate}");
        ground_with(reach, &[&gate]).await?;
        let kubelet_understands = gate.ends_with("true");
        let understood = if kubelet_understands { "proxied_to_kubelet" } else { "translated_at_apiserver" };
        for websockets in ["true", "false"] {
            let before = by_websocket(understood).await?;
            let script = format!(
                "export KUBECTL_REMOTE_COMMAND_WEBSOCKETS={websockets} KUBECTL_PORT_FORWARD_WEBSOCKETS={websockets}
                echo through | kubectl -v 7 -n {NAMESPACE} exec -i {pod} -- cat
                exec 3< <(exec kubectl -v 7 -n {NAMESPACE} port-forward {pod} :8080) && forward=$!
                read -r _ _ address _ <&3 && curl -sf http://$address/
                kill $forward",
                pod = pod(EDGE_GATEWAY)
            );
            let out = run("bash", &["-c", &script], "").await?;
            ensure!(
                out.stdout == format!("through\n{EDGE_GATEWAY}\n"),
                "websockets {websockets}, {reach:?}, {gate}: {out:?}"
            );
            // kubectl tells its requests: SPDY is asked for by POST, WebSocket by GET.
            let posts = out.stderr.matches("verb=\"POST\"").count();
            ensure!(posts == if websockets == "true" { 0 } else { 2 }, "{posts} by SPDY: {out:?}");
            let after = by_websocket(understood).await?;
            ensure!(
                websockets == "false" || after == before.map(|count| count + 1),
                "{reach:?}, {gate}: {understood} {before:?} times, then {after:?}"
            );
        }
    }
    Ok(())
}

//! What breaks, and how soon everything works again. Times are told; what is asserted has room for a busy machine, except where the
//! requirement is a number of seconds.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{
    EDGE_GATEWAY, GATEWAYS, NAMESPACE, ORDINARY, Reach, TWIN, connected, ground, in_namespace, logs, long,
    pod,
};
use e2e::keyboard::{Keyboard, Waits};
use e2e::weather::{Weather, delay_of};
use e2e::{eventually, hack_cluster, kubectl, repository};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::reach::links_of;

/// How soon both ends know that the other is silent, and have made what is needed anew.
const LIVENESS: Duration = Duration::from_secs(20);

fn cluster_cleanup(words: &[&str]) -> Cleanup {
    let mut cleanup = Cleanup::default();
    cleanup.add(repository().join("hack/cluster"), words);
    cleanup
}

/// What came of requests that were made for a while.
#[derive(Debug, Default)]
struct Asked {
    requests: usize,
    failed: usize,
    waits: Waits,
    // For a node that is reached without a tunnel, in turn with them.
    plain: Waits,
}

/// Asks for logs again and again for that long.
async fn ask_for(period: Duration, nodes: &[&str]) -> Result<Asked> {
    let end = Instant::now() + period;
    let mut all = Asked::default();
    while Instant::now() < end {
        for node in nodes {
            all.requests += 1;
            let began = Instant::now();
            if let Err(error) = logs(node, Duration::from_secs(10)).await {
                println!("failed: {error:#}");
                all.failed += 1;
            } else {
                all.waits.add(began.elapsed());
            }
        }
        let began = Instant::now();
        logs(PLAIN, Duration::from_secs(30)).await?;
        all.plain.add(began.elapsed());
    }
    Ok(all)
}

/// A node that is reached without a tunnel.
const PLAIN: &str = GATEWAYS[1];

/// Kills the hub that pool a is reached through. Its other node has no link, and is elected when there is none.
#[tokio::test]
async fn x1_an_only_edge_gateway_dies() -> Result<()> {
    ground(Reach::Names).await?;
    logs(ORDINARY, LIVENESS).await?;
    let start = cluster_cleanup(&["start", "edge-hub", EDGE_GATEWAY]);
    hack_cluster(&["signal", "KILL", "edge-hub", EDGE_GATEWAY]).await?.ok()?;
    let began = Instant::now();
    eventually("another endpoint is elected", LIVENESS, || logs(ORDINARY, Duration::from_secs(5))).await?;
    println!("x1, one replica: reached again after {:.1} s", began.elapsed().as_secs_f64());
    drop(start);
    connected("tunnel-a", Duration::from_mins(1)).await?;
    eventually("the pool is reached", LIVENESS, || logs(EDGE_GATEWAY, Duration::from_secs(5))).await
}

#[tokio::test]
async fn x1_one_of_two_edge_gateways_dies() -> Result<()> {
    ground(Reach::Names).await?;
    let replicas = |number: u8| format!("{{\"spec\":{{\"proxyConfig\":{{\"Replicas\":{number}}}}}}}");
    let (two, one) = (replicas(2), replicas(1));
    let mut back = Cleanup::kubectl(&["patch", "gateway", "tunnel-a", "--type=merge", "-p", &one]);
    kubectl(&["patch", "gateway", "tunnel-a", "--type=merge", "-p", &two]).await?.ok()?;
    eventually("both hold links", LIVENESS, || async {
        ensure!(links_of(EDGE_GATEWAY).await? > 0 && links_of(ORDINARY).await? > 0, "not yet");
        Ok(())
    })
    .await?;
    back.add(repository().join("hack/cluster"), &["start", "edge-hub", EDGE_GATEWAY]);
    hack_cluster(&["signal", "KILL", "edge-hub", EDGE_GATEWAY]).await?.ok()?;
    let Asked { requests, failed, waits, plain } =
        ask_for(Duration::from_secs(10), &[ORDINARY, EDGE_GATEWAY]).await?;
    println!("x1, two replicas: {failed} of {requests} requests failed; {waits}; by plain TCP {plain}");
    ensure!(failed <= 1, "{failed} of {requests} requests failed");
    let bound = Duration::from_secs(1) + plain.percentile(99);
    ensure!(waits.percentile(99) <= bound, "{waits}, of at most {bound:?}");
    drop(back);
    connected("tunnel-a", Duration::from_mins(1)).await
}

/// The nodes that the Service of node names leads to, as the manager has written them.
async fn endpoints() -> Result<String> {
    let label = "kubernetes.io/service-name=x-raven-proxy-internal-svc";
    let path = "jsonpath={.items[*].endpoints[*].nodeName}";
    kubectl(&["-n", "kube-system", "get", "endpointslices", "-l", label, "-o", path]).await?.ok()
}

/// Waits until the hubs of all cloud gateways have reported twice: after a change of the way to kubelets, which is a new API server,
/// they are given time to return.
async fn gateways_report() -> Result<()> {
    for gateway in GATEWAYS {
        let name = format!("isthmus-gateway-{gateway}");
        let words =
            ["-n", "kube-system", "get", "configmap", &name, "-o", "jsonpath={.metadata.resourceVersion}"];
        let mut seen = kubectl(&words).await?.ok()?;
        for _ in 0..2 {
            seen = eventually("a report", LIVENESS, || async {
                let version = kubectl(&words).await?.ok()?;
                ensure!(version != seen, "{gateway} is still at {version}");
                Ok(version)
            })
            .await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn x2_a_cloud_gateway_dies() -> Result<()> {
    for reach in Reach::ALL {
        ground(reach).await?;
        gateways_report().await?;
        let start = cluster_cleanup(&["start", "edge-hub", GATEWAYS[0]]);
        hack_cluster(&["signal", "KILL", "edge-hub", GATEWAYS[0]]).await?.ok()?;
        let began = Instant::now();
        eventually("logs by the other", Duration::from_secs(10), || {
            logs(EDGE_GATEWAY, Duration::from_secs(3))
        })
        .await?;
        println!("x2, {reach:?}: logs after {:.1} s", began.elapsed().as_secs_f64());
        eventually("the endpoints have no dead gateway", Duration::from_secs(10), || async {
            let nodes = endpoints().await?;
            ensure!(!nodes.contains(GATEWAYS[0]) && nodes.contains(GATEWAYS[1]), "{nodes}");
            Ok(())
        })
        .await?;
        println!("x2, {reach:?}: endpoints after {:.1} s", began.elapsed().as_secs_f64());
        drop(start);
        eventually("the endpoints have both", Duration::from_secs(30), || async {
            let nodes = endpoints().await?;
            ensure!(GATEWAYS.iter().all(|gateway| nodes.contains(gateway)), "{nodes}");
            Ok(())
        })
        .await?;
        eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn x3_a_cloud_gateway_is_told_to_end() -> Result<()> {
    ground(Reach::Names).await?;
    eventually("links at both", Duration::from_secs(40), || both_report(EDGE_GATEWAY, true)).await?;
    // Sessions over either gateway: the balancer gives each in turn.
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(Keyboard::open(EDGE_GATEWAY).await?);
    }
    let start = cluster_cleanup(&["start", "edge-hub", GATEWAYS[0]]);
    hack_cluster(&["signal", "TERM", "edge-hub", GATEWAYS[0]]).await?.ok()?;
    // The balancer looks twice a second; until then it may send somebody to the port that is closed.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let Asked { requests, failed, waits, .. } =
        ask_for(Duration::from_secs(8), &[EDGE_GATEWAY, TWIN]).await?;
    println!("x3: {failed} of {requests} requests failed; {waits}");
    for session in &mut sessions {
        session.press().await.context("a session of before, while its gateway drains")?;
    }
    drop(sessions);
    // It may still drain: connections that clients keep are streams, too.
    hack_cluster(&["stop", "edge-hub", GATEWAYS[0]]).await?.ok()?;
    drop(start);
    ensure!(failed == 0, "{failed} of {requests} requests failed");
    eventually("links at both", Duration::from_secs(40), || both_report(EDGE_GATEWAY, true)).await
}

#[tokio::test]
async fn x4_the_link_flaps() -> Result<()> {
    ground(Reach::Names).await?;
    let heal = cluster_cleanup(&["link", "b", "heal"]);
    let process = process_of_hub(TWIN).await?;
    let mut worst = Duration::ZERO;
    for _ in 0..if long() { 50 } else { 3 } {
        hack_cluster(&["link", "b", "cut"]).await?.ok()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        hack_cluster(&["link", "b", "heal"]).await?.ok()?;
        let began = Instant::now();
        eventually("reached after a flap", LIVENESS, || logs(TWIN, Duration::from_secs(3))).await?;
        worst = worst.max(began.elapsed());
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    println!("x4: reached at the latest {:.1} s after the link was up", worst.as_secs_f64());
    drop(heal);
    ensure!(process_of_hub(TWIN).await? == process, "the hub ended");
    for node in [TWIN, GATEWAYS[0], GATEWAYS[1]] {
        let log = hack_cluster(&["logs", "edge-hub", node]).await?.ok()?;
        ensure!(!log.contains("panicked"), "a panic in the hub of {node}");
    }
    Ok(())
}

/// The process that serves a hub's admin port.
async fn process_of_hub(node: &str) -> Result<String> {
    let script = "ss -Hltnp 'sport = :10267' | sed 's/.*pid=//; s/,.*//'";
    let found = hack_cluster(&["exec", node, "--", "bash", "-c", script]).await?.ok()?;
    ensure!(!found.trim().is_empty(), "no hub on {node}");
    Ok(found)
}

#[tokio::test]
async fn x5_a_nat_forgets() -> Result<()> {
    ground(Reach::Names).await?;
    logs(TWIN, LIVENESS).await?;
    hack_cluster(&["link", "b", "rebind"]).await?.ok()?;
    let began = Instant::now();
    eventually("reached after a rebinding", LIVENESS, || logs(TWIN, Duration::from_secs(3))).await?;
    println!("x5: reached {:.1} s after the NAT forgot", began.elapsed().as_secs_f64());
    Ok(())
}

/// Whether all gateways report a link of the node, or none does.
async fn both_report(node: &str, wanted: bool) -> Result<()> {
    for gateway in GATEWAYS {
        let name = format!("isthmus-gateway-{gateway}");
        let report = kubectl(&["-n", "kube-system", "get", "configmap", &name, "-o", "yaml"]).await?.ok()?;
        ensure!(report.contains(&format!("\"{node}\"")) == wanted, "{gateway} reports {report}");
    }
    Ok(())
}

#[tokio::test]
async fn x6_one_direction_is_silent() -> Result<()> {
    ground(Reach::Names).await?;
    let delay = Duration::from_millis(20);
    let weather = Weather::over("b", delay).await?;
    for direction in ["loss_up=1", "loss_down=1"] {
        eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
        weather.turns(&[&delay_of(delay), direction]).await?;
        let began = Instant::now();
        eventually("both ends have noticed", LIVENESS, || async {
            let left = links_of(TWIN).await?;
            ensure!(left == 0, "the edge has {left} links");
            both_report(TWIN, false).await
        })
        .await?;
        println!("x6, {direction}: both ends know after {:.1} s", began.elapsed().as_secs_f64());
        weather.turns(&[&delay_of(delay)]).await?;
        let began = Instant::now();
        eventually("reached again", Duration::from_secs(45), || logs(TWIN, Duration::from_secs(3))).await?;
        println!("x6, {direction}: reached {:.1} s after it was healed", began.elapsed().as_secs_f64());
    }
    Ok(())
}

#[tokio::test]
async fn x7_a_nat_forgets_the_silent() -> Result<()> {
    ground(Reach::Names).await?;
    logs(TWIN, LIVENESS).await?;
    let usual = cluster_cleanup(&["link", "b", "forget", "432000"]);
    hack_cluster(&["link", "b", "forget", "15"]).await?.ok()?;
    let mut follow = e2e::ground::background(&["logs", "-f", "--tail=0", &pod(TWIN)])?;
    let mut lines = BufReader::new(follow.stdout.take().context("its output")?).lines();
    tokio::time::sleep(Duration::from_secs(if long() { 3600 } else { 35 })).await;
    let words = ["exec", &pod(TWIN), "--", "sh", "-c", "echo alive >/proc/1/fd/1"];
    kubectl(&in_namespace(&words)).await?.ok()?;
    let line = tokio::time::timeout(Duration::from_secs(10), lines.next_line()).await;
    ensure!(
        line.context("no line after the silence")??.as_deref() == Some("alive"),
        "another line in {NAMESPACE}"
    );
    drop(usual);
    Ok(())
}

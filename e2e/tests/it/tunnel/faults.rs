//! What breaks, and how soon everything works again. Times are told; what is asserted has room for a busy machine, except where the
//! requirement is a number of seconds.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{
    EDGE_GATEWAY, GATEWAYS, NAMESPACE, ORDINARY, Reach, TWIN, connected, ground, in_namespace, logs, long,
    pod,
};
use e2e::keyboard::Keyboard;
use e2e::weather::{Weather, delay_of};
use e2e::{client, eventually, hack_cluster, kubectl, repository};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::asked::{Asked, ask_until, plain, reached};
use super::held::{Held, fates, sessions};
use super::reach::{link_ports_of, links_of};

/// How soon both ends know that the other is silent, and have made what is needed anew.
const LIVENESS: Duration = Duration::from_secs(20);

/// How soon a node is reached again after what its tunnel went by is gone.
const RECOVERY: Duration = Duration::from_secs(15);

fn cluster_cleanup(words: &[&str]) -> Cleanup {
    let mut cleanup = Cleanup::default();
    cleanup.add(repository().join("hack/cluster"), words);
    cleanup
}

/// The slices of the Service of node names.
fn of_node_names() -> ListParams {
    ListParams::default().labels("kubernetes.io/service-name=x-raven-proxy-internal-svc")
}

/// The nodes that the Service of node names leads to, as the manager has written them.
async fn endpoints(slices: &Api<EndpointSlice>) -> Result<BTreeSet<String>> {
    let endpoints =
        slices.list(&of_node_names()).await?.items.into_iter().filter_map(|slice| slice.endpoints);
    Ok(endpoints.flatten().filter_map(|endpoint| endpoint.node_name).collect())
}

/// Waits until they are these.
async fn endpoints_are(
    slices: &Api<EndpointSlice>,
    wanted: &[&str],
    began: Instant,
    within: Duration,
) -> Result<Duration> {
    let wanted: BTreeSet<String> = wanted.iter().map(|node| (*node).to_owned()).collect();
    let left = within.saturating_sub(began.elapsed());
    eventually("the endpoints are those who live", left, || async {
        let nodes = endpoints(slices).await?;
        ensure!(nodes == wanted, "{nodes:?}, not {wanted:?}");
        Ok(began.elapsed())
    })
    .await
}

/// Has so many nodes stand for pool a, which are the first of its list; waits until the links are theirs, and the first is known to have
/// some: until then it comes last, if it had lost them.
async fn stand_for_pool_a(number: u8) -> Result<()> {
    kubectl(&["patch", "gateway", "tunnel-a", "--type=merge", "-p", &replicas(number)]).await?.ok()?;
    eventually("those who stand for the pool hold links", Duration::from_secs(40), || async {
        let (first, second) = (links_of(EDGE_GATEWAY).await?, links_of(ORDINARY).await?);
        ensure!(first > 0 && (second > 0) == (number > 1), "{first} and {second} links");
        both_report(EDGE_GATEWAY, true).await
    })
    .await
}

fn replicas(number: u8) -> String {
    format!("{{\"spec\":{{\"proxyConfig\":{{\"Replicas\":{number}}}}}}}")
}

/// Kills the hub that pool a is reached through. Its other node has no link, and is elected when there is none.
#[tokio::test]
async fn x1_an_only_edge_gateway_dies() -> Result<()> {
    ground(Reach::Names).await?;
    reached(ORDINARY, Instant::now(), LIVENESS).await?;
    let held = Held::now().await?;
    let sessions = sessions(ORDINARY).await?;
    let start = cluster_cleanup(&["start", "edge-hub", EDGE_GATEWAY]);
    let began = Instant::now();
    hack_cluster(&["signal", "KILL", "edge-hub", EDGE_GATEWAY]).await?.ok()?;
    let took = reached(ORDINARY, began, RECOVERY).await?;
    println!("x1, one replica: reached again after {:.1} s", took.as_secs_f64());
    let (alive, ended) = fates(sessions, began).await?;
    ensure!(alive == 0 && ended > 0, "{alive} sessions over the gateway that died go on");
    drop(start);
    connected("tunnel-a", Duration::from_mins(1)).await?;
    // Who was elected stays so: by way of both it is the first again.
    stand_for_pool_a(2).await?;
    stand_for_pool_a(1).await?;
    reached(EDGE_GATEWAY, Instant::now(), LIVENESS).await?;
    held.is_all_there_is().await
}

/// It is killed while requests are made, one at a time. Its node's kubelet, which has no way to the API server then, was asked before, and
/// knows the rights of who asks.
#[tokio::test]
async fn x1_one_of_two_edge_gateways_dies() -> Result<()> {
    ground(Reach::Names).await?;
    let one = Cleanup::kubectl(&["patch", "gateway", "tunnel-a", "--type=merge", "-p", &replicas(1)]);
    stand_for_pool_a(2).await?;
    reached(EDGE_GATEWAY, Instant::now(), LIVENESS).await?;
    let held = Held::now().await?;
    let sessions = sessions(ORDINARY).await?;
    let start = cluster_cleanup(&["start", "edge-hub", EDGE_GATEWAY]);
    let began = Instant::now();
    let (asked, killed) = tokio::join!(
        ask_until(Duration::from_secs(10), began, &[ORDINARY, EDGE_GATEWAY], true),
        hack_cluster(&["signal", "KILL", "edge-hub", EDGE_GATEWAY]),
    );
    killed?.ok()?;
    let Asked { requests, failed, waits, plain, .. } = asked?;
    println!("x1, two replicas: {failed} of {requests} requests failed; {waits}; by plain TCP {plain}");
    ensure!(failed <= 1, "{failed} of {requests} requests failed");
    let bound = Duration::from_secs(1) + plain.percentile(99);
    ensure!(waits.percentile(99) <= bound, "{waits}, of at most {bound:?}");
    let (alive, ended) = fates(sessions, began).await?;
    println!("x1, two replicas: {alive} sessions go on, {ended} ended");
    ensure!(alive > 0 && ended > 0, "not over both gateways: {alive} sessions go on, {ended} ended");
    drop(start);
    stand_for_pool_a(2).await?;
    drop(one);
    stand_for_pool_a(1).await?;
    held.is_all_there_is().await
}

/// Waits until slices that are gone are made anew. After a change of the way to kubelets, which is a new API server, the manager is back
/// once kube-proxy is, by which it comes to it.
async fn manager_follows(slices: &Api<EndpointSlice>) -> Result<()> {
    slices.delete_collection(&DeleteParams::default(), &of_node_names()).await?;
    endpoints_are(slices, &GATEWAYS, Instant::now(), Duration::from_secs(90)).await.map(drop)
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

/// New requests are made from a moment before the kill, by which all is measured. The slices have half a second beside what is required:
/// for the command that kills, and for the look at them.
#[tokio::test]
async fn x2_a_cloud_gateway_dies() -> Result<()> {
    const LOOK: Duration = Duration::from_millis(500);
    let slices = Api::namespaced(client().await?, "kube-system");
    for reach in Reach::both() {
        ground(reach).await?;
        manager_follows(&slices).await?;
        gateways_report().await?;
        let held = Held::now().await?;
        let sessions = sessions(EDGE_GATEWAY).await?;
        let start = cluster_cleanup(&["start", "edge-hub", GATEWAYS[0]]);
        let began = Instant::now();
        let (asked, gone, killed) = tokio::join!(
            ask_until(Duration::from_secs(8), began, &[EDGE_GATEWAY, TWIN], false),
            endpoints_are(&slices, &GATEWAYS[1..], began, Duration::from_secs(5) + LOOK),
            hack_cluster(&["signal", "KILL", "edge-hub", GATEWAYS[0]]),
        );
        killed?.ok()?;
        println!("x2, {reach:?}: endpoints after {:.1} s", gone?.as_secs_f64());
        let Asked { requests, failed, waits, last_failed, .. } = asked?;
        let last = last_failed.unwrap_or_default();
        let told = format!("{failed} of {requests} requests failed, the last begun after {last:?}; {waits}");
        println!("x2, {reach:?}: {told}");
        ensure!(last <= Duration::from_secs(3), "{told}");
        let (alive, ended) = fates(sessions, began).await?;
        println!("x2, {reach:?}: {alive} sessions go on, {ended} ended");
        ensure!(alive > 0 && ended > 0, "not over both gateways: {alive} sessions go on, {ended} ended");
        drop(start);
        endpoints_are(&slices, &GATEWAYS, Instant::now(), Duration::from_secs(30)).await?;
        eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
        held.is_all_there_is().await?;
    }
    Ok(())
}

/// It cannot say any more that it lives, which the other gateway sees by its links: nothing is sent to it, and edge nodes keep theirs.
#[tokio::test]
async fn x2_a_cloud_gateway_is_cut_off_from_the_api_server() -> Result<()> {
    ground(Reach::there()).await?;
    let slices = Api::namespaced(client().await?, "kube-system");
    manager_follows(&slices).await?;
    gateways_report().await?;
    eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
    let mut sessions = sessions(TWIN).await?;
    let links = link_ports_of(TWIN).await?;
    let server = kubectl(&["get", "endpoints", "kubernetes", "-o", "jsonpath={.subsets[0].addresses[0].ip}"]);
    let server = server.await?.ok()?;
    let rule = ["OUTPUT", "-p", "tcp", "-d", &server, "--dport", "6443", "-j", "DROP"];
    let words = |verb| [&["exec", GATEWAYS[0], "--", "iptables", "-w", verb], &rule[..]].concat();
    let heal = Cleanup::hack_cluster(&words("-D"));
    let began = Instant::now();
    hack_cluster(&words("-I")).await?.ok()?;
    let gone = endpoints_are(&slices, &GATEWAYS[1..], began, Duration::from_millis(5500)).await?;
    println!("x2, cut off: out of the endpoints after {:.1} s", gone.as_secs_f64());
    let path =
        "jsonpath={.status.activeEndpoints[*].nodeName} {.status.conditions[?(@.type==\"Elected\")].reason}";
    eventually("the status says so", Duration::from_secs(5), || async {
        let said = kubectl(&["get", "gateway", "cloud", "-o", path]).await?.ok()?;
        ensure!(said == "cloud-1 cloud-2 TooFewEndpoints", "{said:?}");
        Ok(())
    })
    .await?;
    for session in &mut sessions {
        session.press().await.context("a session of before the gateway was cut off")?;
    }
    let kept = link_ports_of(TWIN).await?;
    ensure!(kept.is_subset(&links), "links were made anew: {links:?}, now {kept:?}");
    drop(heal);
    endpoints_are(&slices, &GATEWAYS, Instant::now(), Duration::from_secs(30)).await?;
    ensure!(link_ports_of(TWIN).await?.is_subset(&links), "links were made anew");
    Ok(())
}

/// New requests are made from before the signal until it has long closed its ports. The balancer hears of it from the slices, so the
/// manager has to be there.
#[tokio::test]
async fn x3_a_cloud_gateway_is_told_to_end() -> Result<()> {
    let slices = Api::namespaced(client().await?, "kube-system");
    for reach in Reach::both() {
        ground(reach).await?;
        manager_follows(&slices).await?;
        gateways_report().await?;
        eventually("links at both", Duration::from_secs(40), || both_report(EDGE_GATEWAY, true)).await?;
        let held = Held::now().await?;
        // Sessions over either gateway: the balancer gives each in turn.
        let mut sessions = sessions(EDGE_GATEWAY).await?;
        let start = cluster_cleanup(&["start", "edge-hub", GATEWAYS[0]]);
        let began = Instant::now();
        let (asked, told) = tokio::join!(
            ask_until(Duration::from_secs(8), began, &[EDGE_GATEWAY, TWIN], false),
            hack_cluster(&["signal", "TERM", "edge-hub", GATEWAYS[0]]),
        );
        told?.ok()?;
        let Asked { requests, failed, waits, .. } = asked?;
        println!("x3, {reach:?}: {failed} of {requests} requests failed; {waits}");
        for session in &mut sessions {
            session.press().await.context("a session of before, while its gateway drains")?;
        }
        drop(sessions);
        // It may still drain: connections that clients keep are streams, too.
        hack_cluster(&["stop", "edge-hub", GATEWAYS[0]]).await?.ok()?;
        drop(start);
        ensure!(failed == 0, "{failed} of {requests} requests failed");
        eventually("links at both", Duration::from_secs(40), || both_report(EDGE_GATEWAY, true)).await?;
        held.is_all_there_is().await?;
    }
    Ok(())
}

/// Its time is what a request takes from the moment the link is up, less what one by plain TCP takes then.
#[tokio::test]
async fn x4_the_link_flaps() -> Result<()> {
    ground(Reach::Names).await?;
    reached(TWIN, Instant::now(), LIVENESS).await?;
    let held = Held::now().await?;
    let mut session = Keyboard::open(TWIN).await?;
    let heal = cluster_cleanup(&["link", "b", "heal"]);
    let process = process_of_hub(TWIN).await?;
    let mut worst = Duration::ZERO;
    for flap in 0..if long() { 50 } else { 3 } {
        // As long as it is up each time.
        if flap > 0 {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        hack_cluster(&["link", "b", "cut"]).await?.ok()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        hack_cluster(&["link", "b", "heal"]).await?.ok()?;
        let began = Instant::now();
        let took = reached(TWIN, began, LIVENESS).await?;
        let plain = plain().await?;
        println!("x4: reached {took:?} after the link was up; by plain TCP {plain:?}");
        worst = worst.max(took.saturating_sub(plain));
    }
    drop(heal);
    println!("x4: the tunnel's share was {worst:?} at the most");
    ensure!(worst <= Duration::from_secs(2), "reached {worst:?} after the link was up");
    session.press().await.context("a session of before the link flapped")?;
    drop(session);
    ensure!(process_of_hub(TWIN).await? == process, "the hub ended");
    for node in [TWIN, GATEWAYS[0], GATEWAYS[1]] {
        let log = hack_cluster(&["logs", "edge-hub", node]).await?.ok()?;
        ensure!(!log.contains("panicked"), "a panic in the hub of {node}");
    }
    held.is_all_there_is().await
}

/// The process that serves a hub's admin port.
async fn process_of_hub(node: &str) -> Result<String> {
    let script = "ss -Hltnp 'sport = :10267' | sed 's/.*pid=//; s/,.*//'";
    let found = hack_cluster(&["exec", node, "--", "bash", "-c", script]).await?.ok()?;
    ensure!(!found.trim().is_empty(), "no hub on {node}");
    Ok(found)
}

/// A second more than it may take: requests are made each half second, and take a while by themselves.
#[tokio::test]
async fn x5_a_nat_forgets() -> Result<()> {
    ground(Reach::Names).await?;
    reached(TWIN, Instant::now(), LIVENESS).await?;
    let held = Held::now().await?;
    let sessions = sessions(TWIN).await?;
    hack_cluster(&["link", "b", "rebind"]).await?.ok()?;
    let began = Instant::now();
    let took = reached(TWIN, began, RECOVERY + Duration::from_secs(1)).await?;
    println!("x5: reached {:.1} s after the NAT forgot", took.as_secs_f64());
    let (alive, ended) = fates(sessions, began).await?;
    ensure!(alive == 0 && ended > 0, "{alive} sessions of before the NAT forgot go on");
    held.is_all_there_is().await
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
    reached(TWIN, Instant::now(), LIVENESS).await?;
    let held = Held::now().await?;
    for direction in ["loss_up=1", "loss_down=1"] {
        eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
        let sessions = sessions(TWIN).await?;
        weather.turns(&[&delay_of(delay), direction]).await?;
        let began = Instant::now();
        eventually("both ends have noticed", LIVENESS, || async {
            let left = links_of(TWIN).await?;
            ensure!(left == 0, "the edge has {left} links");
            both_report(TWIN, false).await
        })
        .await?;
        println!("x6, {direction}: both ends know after {:.1} s", began.elapsed().as_secs_f64());
        let (alive, ended) = fates(sessions, began).await?;
        ensure!(alive == 0 && ended > 0, "{alive} sessions of before the silence go on");
        weather.turns(&[&delay_of(delay)]).await?;
        let began = Instant::now();
        let took = reached(TWIN, began, Duration::from_secs(45)).await?;
        println!("x6, {direction}: reached {:.1} s after it was healed", took.as_secs_f64());
    }
    held.is_all_there_is().await
}

#[tokio::test]
async fn x7_a_nat_forgets_the_silent() -> Result<()> {
    ground(Reach::Names).await?;
    logs(TWIN, LIVENESS).await?;
    let usual = cluster_cleanup(&["link", "b", "forget", "432000"]);
    hack_cluster(&["link", "b", "forget", "10"]).await?.ok()?;
    let mut follow = e2e::ground::background(&["logs", "-f", "--tail=0", &pod(TWIN)])?;
    let mut lines = BufReader::new(follow.stdout.take().context("its output")?).lines();
    tokio::time::sleep(Duration::from_secs(if long() { 3600 } else { 23 })).await;
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

//! What becomes of one of the cloud's gateways, and how soon the other does its work. Times are told; what is asserted has room for a busy
//! machine, except where the requirement is a number of seconds.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{EDGE_GATEWAY, GATEWAYS, Reach, TWIN, ground, required};
use e2e::keyboard::Keyboard;
use e2e::{client, eventually, hack_cluster, internal_ip, kubectl};
use futures::future::try_join_all;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams};

use super::asked::{ask_by_service, ask_until, done};
use super::faults::process_of_hub;
use super::held::{Held, fates, press_all, sessions};
use super::reach::link_ports_of;

/// How soon the slices no longer list a gateway that is gone.
pub(super) fn slices_within() -> Duration {
    required(Duration::from_secs(5))
}

/// How soon new requests no longer go to it.
fn requests_within() -> Duration {
    required(Duration::from_secs(3))
}

/// For how long new requests are made: well beyond that.
fn asked_for() -> Duration {
    requests_within() + PATIENCE
}

/// For how long a hub that ends lets streams of the tunnel go on.
const DRAIN: Duration = Duration::from_secs(25);

/// What else it does before and after.
const DRAIN_MORE: Duration = Duration::from_secs(5);

/// How much longer is waited, to say how late it was.
const PATIENCE: Duration = Duration::from_secs(5);

/// The slices of the Service of node names.
fn of_node_names() -> ListParams {
    ListParams::default().labels("kubernetes.io/service-name=x-raven-proxy-internal-svc")
}

/// The nodes that the Service of node names leads to, as the manager has written them.
pub(super) async fn endpoints(slices: &Api<EndpointSlice>) -> Result<BTreeSet<String>> {
    // Each port has a slice of its own, and a gateway that listens at some is in those.
    let of_kubelets = |slice: &EndpointSlice| {
        slice.ports.iter().flatten().any(|port| port.name.as_deref() == Some("https-10250"))
    };
    let slices = slices.list(&of_node_names()).await?.items.into_iter().filter(of_kubelets);
    let endpoints = slices.filter_map(|slice| slice.endpoints);
    Ok(endpoints.flatten().filter_map(|endpoint| endpoint.node_name).collect())
}

/// Waits until they are these.
pub(super) async fn endpoints_are(
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

/// Whether all gateways report a link of the node, or none does.
pub(super) async fn both_report(node: &str, wanted: bool) -> Result<()> {
    for gateway in GATEWAYS {
        reports(gateway, node, wanted).await?;
    }
    Ok(())
}

/// Whether one reports a link of the node, or does not. One that drains is none.
pub(super) async fn reports(gateway: &str, node: &str, wanted: bool) -> Result<()> {
    let name = format!("isthmus-gateway-{gateway}");
    let report = kubectl(&["-n", "kube-system", "get", "configmap", &name, "-o", "yaml"]).await?.ok()?;
    ensure!(report.contains(&format!("\"node\":\"{node}\"")) == wanted, "{gateway} reports {report}");
    Ok(())
}

/// Waits until slices that are gone are made anew. After a change of the way to kubelets, which is a new API server, the manager is back
/// once kube-proxy is, by which it comes to it.
pub(super) async fn manager_follows(slices: &Api<EndpointSlice>) -> Result<()> {
    slices.delete_collection(&DeleteParams::default(), &of_node_names()).await?;
    endpoints_are(slices, &GATEWAYS, Instant::now(), Duration::from_secs(90)).await.map(drop)
}

/// Waits until the hubs of all cloud gateways have reported twice: after a change of the way to kubelets, which is a new API server,
/// they are given time to return.
pub(super) async fn gateways_report() -> Result<()> {
    try_join_all(GATEWAYS.map(reports_twice)).await.map(drop)
}

async fn reports_twice(gateway: &str) -> Result<()> {
    let name = format!("isthmus-gateway-{gateway}");
    let words =
        ["-n", "kube-system", "get", "configmap", &name, "-o", "jsonpath={.metadata.resourceVersion}"];
    let mut seen = kubectl(&words).await?.ok()?;
    for _ in 0..2 {
        seen = eventually("a report", Duration::from_secs(20), || async {
            let version = kubectl(&words).await?.ok()?;
            ensure!(version != seen, "{gateway} is still at {version}");
            Ok(version)
        })
        .await?;
    }
    Ok(())
}

/// New requests are made from before the kill, which is when the command that kills has ended.
#[tokio::test]
async fn x2_a_cloud_gateway_dies() -> Result<()> {
    let slices = Api::namespaced(client().await?, "kube-system");
    for reach in Reach::both_by_balancer() {
        ground(reach).await?;
        manager_follows(&slices).await?;
        gateways_report().await?;
        let held = Held::at_rest().await?;
        let sessions = sessions(EDGE_GATEWAY).await?;
        let start = Cleanup::hack_cluster(&["start", "edge-hub", GATEWAYS[0]]);
        let began = Instant::now();
        let (asked, by_service, gone, killed) = tokio::join!(
            ask_until(asked_for(), began, &[EDGE_GATEWAY, TWIN], false),
            ask_by_service(asked_for(), began, EDGE_GATEWAY),
            endpoints_are(&slices, &GATEWAYS[1..], began, slices_within() + PATIENCE),
            done(began, &["signal", "KILL", "edge-hub", GATEWAYS[0]]),
        );
        let (asked, by_service, gone, killed) = (asked?, by_service?, gone?, killed?);
        println!(
            "x2, {reach:?}: killed after {killed:.1?}, endpoints after {gone:.1?}; {asked}; by kube-proxy {by_service}"
        );
        ensure!(
            gone.saturating_sub(killed) <= slices_within(),
            "the endpoints, {gone:.1?}; killed after {killed:.1?}"
        );
        let soon = killed + requests_within();
        for asked in [&asked, &by_service] {
            ensure!(
                asked.answered(killed..soon),
                "not one begun within {:?} was answered: {asked}",
                requests_within()
            );
            ensure!(
                asked.failed(soon) == 0,
                "some failed that were begun {:?} after it died: {asked}",
                requests_within()
            );
        }
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
/// Who comes to it all the same is served.
#[tokio::test]
async fn x2_a_cloud_gateway_is_cut_off_from_the_api_server() -> Result<()> {
    ground(Reach::there()).await?;
    let slices = Api::namespaced(client().await?, "kube-system");
    manager_follows(&slices).await?;
    gateways_report().await?;
    eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
    kubelet_answers_by(GATEWAYS[0], TWIN).await.context("before it is cut off")?;
    let held = Held::at_rest().await?;
    let mut sessions = sessions(TWIN).await?;
    let links = link_ports_of(TWIN).await?;
    let server = kubectl(&["get", "endpoints", "kubernetes", "-o", "jsonpath={.subsets[0].addresses[0].ip}"]);
    let server = server.await?.ok()?;
    let rule = ["OUTPUT", "-p", "tcp", "-d", &server, "--dport", "6443", "-j", "DROP"];
    let words = |verb| [&["exec", GATEWAYS[0], "--", "iptables", "-w", verb], &rule[..]].concat();
    let heal = Cleanup::hack_cluster(&words("-D"));
    let began = Instant::now();
    let cut = done(began, &words("-I")).await?;
    let gone = endpoints_are(&slices, &GATEWAYS[1..], began, slices_within() + PATIENCE).await?;
    println!("x2, cut off after {cut:.1?}: out of the endpoints after {gone:.1?}");
    ensure!(
        gone.saturating_sub(cut) <= slices_within(),
        "out of the endpoints after {gone:.1?}; cut off after {cut:.1?}"
    );
    let path =
        "jsonpath={.status.activeEndpoints[*].nodeName} {.status.conditions[?(@.type==\"Elected\")].reason}";
    eventually("the status says so", Duration::from_secs(5), || async {
        let said = kubectl(&["get", "gateway", "cloud", "-o", path]).await?.ok()?;
        ensure!(said == "cloud-1 cloud-2 TooFewEndpoints", "{said:?}");
        Ok(())
    })
    .await?;
    press_all(&mut sessions).await.context("while the gateway is cut off")?;
    kubelet_answers_by(GATEWAYS[0], TWIN).await.context("while the gateway has no API server")?;
    let kept = link_ports_of(TWIN).await?;
    ensure!(kept.is_subset(&links), "links were made anew: {links:?}, now {kept:?}");
    drop(heal);
    endpoints_are(&slices, &GATEWAYS, Instant::now(), Duration::from_secs(30)).await?;
    ensure!(link_ports_of(TWIN).await?.is_subset(&links), "links were made anew");
    drop(sessions);
    held.is_all_there_is().await
}

/// Asks a node's kubelet by this gateway's way in for TLS, over a stream of its own, from the other gateway's node. By its certificate it
/// is the node's.
async fn kubelet_answers_by(gateway: &str, node: &str) -> Result<()> {
    let address = internal_ip(gateway).await?;
    let authority = hack_cluster(&["path", GATEWAYS[1], "hub-ca"]).await?.ok()?;
    let pki = authority.trim().trim_end_matches("/ca.crt");
    let (certificate, key) = (format!("{pki}/admin.crt"), format!("{pki}/admin.key"));
    let (resolve, url) = (format!("{node}:10263:{address}"), format!("https://{node}:10263/healthz"));
    let words = ["exec", GATEWAYS[1], "--", "curl", "-sSfm10", "--cacert", authority.trim()];
    let words = [&words[..], &["--cert", &certificate, "--key", &key, "--resolve", &resolve, &url]].concat();
    let said = hack_cluster(&words).await?;
    ensure!(said.success && said.stdout == "ok", "the kubelet of {node} by {gateway}: {said:?}");
    Ok(())
}

/// New requests are made from before the signal until it has long closed its ports. The balancer hears of it from the slices, so the
/// manager has to be there.
#[tokio::test]
async fn x3_a_cloud_gateway_is_told_to_end() -> Result<()> {
    let slices = Api::namespaced(client().await?, "kube-system");
    for reach in Reach::both_by_balancer() {
        ground(reach).await?;
        manager_follows(&slices).await?;
        gateways_report().await?;
        eventually("links at both", Duration::from_secs(40), || both_report(EDGE_GATEWAY, true)).await?;
        let held = Held::at_rest().await?;
        // Sessions over either gateway: the balancer gives each in turn.
        let mut sessions = sessions(EDGE_GATEWAY).await?;
        let process = process_of_hub(GATEWAYS[0]).await?;
        let start = Cleanup::hack_cluster(&["start", "edge-hub", GATEWAYS[0]]);
        let began = Instant::now();
        let (asked, by_service, told) = tokio::join!(
            ask_until(asked_for(), began, &[EDGE_GATEWAY, TWIN], false),
            ask_by_service(asked_for(), began, EDGE_GATEWAY),
            done(began, &["signal", "TERM", "edge-hub", GATEWAYS[0]]),
        );
        let (asked, by_service, told) = (asked?, by_service?, told?);
        println!("x3, {reach:?}: told after {told:.1?}; {asked}; by kube-proxy {by_service}");
        press_all(&mut sessions).await.context("while its gateway drains")?;
        if reach == Reach::Names {
            it_ends_by_itself(sessions, &process, began + told).await?;
        } else {
            drop(sessions);
            // It may still drain: connections that clients keep are streams, too.
            hack_cluster(&["stop", "edge-hub", GATEWAYS[0]]).await?.ok()?;
        }
        for asked in [&asked, &by_service] {
            ensure!(asked.failed(Duration::ZERO) == 0, "{asked}");
        }
        // Its way back is as quiet: who comes to it before it has links waits for them.
        start.forget();
        let began = Instant::now();
        let (asked, by_service, back) = tokio::join!(
            ask_until(Duration::from_secs(6), began, &[EDGE_GATEWAY, TWIN], false),
            ask_by_service(Duration::from_secs(6), began, EDGE_GATEWAY),
            done(began, &["start", "edge-hub", GATEWAYS[0]]),
        );
        let (asked, by_service, back) = (asked?, by_service?, back?);
        println!("x3, {reach:?}: back after {back:.1?}; {asked}; by kube-proxy {by_service}");
        for asked in [&asked, &by_service] {
            ensure!(asked.failed(Duration::ZERO) == 0, "while it came back: {asked}");
        }
        eventually("links at both", Duration::from_secs(40), || both_report(EDGE_GATEWAY, true)).await?;
        held.is_all_there_is().await?;
    }
    Ok(())
}

/// What is kept open for longer than a drain lasts is all that is cut: sessions over the gateway that was told to end, which then is gone;
/// those over the other one go on.
async fn it_ends_by_itself(sessions: Vec<Keyboard>, process: &str, told: Instant) -> Result<()> {
    let there = format!("/proc/{}", process.trim());
    let left = (DRAIN + DRAIN_MORE).saturating_sub(told.elapsed());
    eventually("its process is gone", left, || async {
        let found = hack_cluster(&["exec", GATEWAYS[0], "--", "test", "-e", &there]).await?;
        ensure!(!found.success, "it still drains");
        Ok(())
    })
    .await?;
    let took = told.elapsed();
    let (mut alive, mut ended) = (0, 0);
    for mut session in sessions {
        if session.press().await.is_ok() {
            alive += 1;
        } else {
            session.breaks(PATIENCE).await?;
            ended += 1;
        }
    }
    println!("x3: gone by itself after {took:.1?}; {alive} sessions go on, {ended} ended");
    ensure!(alive > 0 && ended > 0, "not over both gateways: {alive} sessions go on, {ended} ended");
    Ok(())
}

//! Who is reached, through whom, and who is not disturbed.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{
    EDGE, EDGE_GATEWAY, GATEWAYS, ORDINARY, Reach, SOLO, TWIN, ground, hub_metrics, logs, pod, said,
};
use e2e::keyboard::Keyboard;
use e2e::{eventually, hack_cluster, kubectl, run};

use super::outwards::{on_host, other_pool_answers};

/// How long a request may take that is to succeed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The port of the gateways at which agents dial.
const LINKS: &str = "10262";

#[tokio::test]
async fn f1_no_way_but_the_tunnel() -> Result<()> {
    ground(Reach::there()).await?;
    for node in EDGE {
        let path = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
        let address = kubectl(&["get", "node", node, "-o", path]).await?.ok()?;
        let dial = format!("exec 3<>/dev/tcp/{address}/10250");
        let here = run("timeout", &["2", "bash", "-c", &dial], "").await?;
        ensure!(!here.success, "{node} at {address} can be dialled from the API server's machine");
        let cloud = hack_cluster(&["exec", "cloud-1", "--", "timeout", "2", "bash", "-c", &dial]).await?;
        ensure!(!cloud.success, "{node} at {address} can be dialled from the cloud");
        logs(node, PATIENCE).await?;
    }
    the_gateways_row().await
}

/// What a connected Gateway shows at a glance. Round trips are written each half minute.
async fn the_gateways_row() -> Result<()> {
    eventually("the row of a connected Gateway", Duration::from_secs(40), || async {
        let table = kubectl(&["get", "gateways.raven.openyurt.io", "tunnel-a"]).await?.ok()?;
        let (header, row) = table.trim_end().split_once('\n').context("no row")?;
        // Columns begin where their titles do.
        let cell = |title: &str| -> Result<&str> {
            let begin =
                header.find(&format!(" {title} ")).with_context(|| format!("no {title}: {header}"))?;
            row.get(begin..).and_then(|rest| rest.split_whitespace().next()).context("a short row")
        };
        let time: u32 = cell("RTT")?.strip_suffix("ms").with_context(|| table.clone())?.parse()?;
        ensure!(cell("ACTIVE")? == EDGE_GATEWAY && cell("CONNECTED")? == "True" && time > 0, "{table}");
        ensure!(cell("VIA")? == GATEWAYS.join(","), "{table}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn f9_nodes_with_one_address_are_told_apart() -> Result<()> {
    for reach in Reach::both() {
        ground(reach).await?;
        let mut addresses = Vec::new();
        for node in [EDGE_GATEWAY, TWIN, SOLO] {
            let path = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
            addresses.push(kubectl(&["get", "node", node, "-o", path]).await?.ok()?);
        }
        for _ in 0..10 {
            tokio::try_join!(answers_itself(EDGE_GATEWAY), answers_itself(TWIN), answers_itself(SOLO))?;
        }
        addresses.dedup();
        ensure!(addresses.len() == 1, "the nodes have different addresses: {addresses:?}");
    }
    Ok(())
}

/// Whether it is that node whose kubelet and pod answer.
async fn answers_itself(node: &str) -> Result<()> {
    logs(node, PATIENCE).await?;
    let name = said(&["exec", &pod(node), "--", "cat", "/www/index.html"], PATIENCE).await?;
    ensure!(name.trim() == node, "asked {node}, {name} answered");
    Ok(())
}

#[tokio::test]
async fn f10_cloud_nodes_work_with_every_gateway_dead() -> Result<()> {
    ground(Reach::Names).await?;
    let mut start = Cleanup::default();
    for gateway in GATEWAYS {
        start.add(e2e::repository().join("hack/cluster"), &["start", "edge-hub", gateway]);
        hack_cluster(&["signal", "KILL", "edge-hub", gateway]).await?.ok()?;
    }
    for gateway in GATEWAYS {
        logs(gateway, PATIENCE).await?;
    }
    let edge = logs(EDGE_GATEWAY, PATIENCE).await;
    ensure!(edge.is_err(), "there is another way to the edge than the gateways");
    drop(start);
    eventually("the edge is back", Duration::from_secs(40), || logs(EDGE_GATEWAY, PATIENCE)).await
}

#[tokio::test]
async fn f16_a_node_alone_connects_itself_until_it_is_in_a_pool() -> Result<()> {
    ground(Reach::Names).await?;
    logs(SOLO, PATIENCE).await?;
    eventually("the solo node has links", PATIENCE, || async {
        ensure!(links_of(SOLO).await? > 0, "it has none");
        Ok(())
    })
    .await?;
    // Into the pool of its twin, which has an endpoint: the node itself is an ordinary one there.
    let pool = format!("{}=tunnel-b", api::labels::NODE_POOL);
    let leave = format!("{}-", api::labels::NODE_POOL);
    let back = Cleanup::kubectl(&["label", "node", SOLO, &leave]);
    let mut session = Keyboard::open(SOLO).await?;
    kubectl(&["label", "--overwrite", "node", SOLO, &pool]).await?.ok()?;
    // Its pool's endpoint leads to it, and the session of before goes on over the link that drains.
    gives_up_its_role().await?;
    for _ in 0..10 {
        session.press().await.context("a session of before the node was in a pool")?;
    }
    drop(session);
    // The API server keeps a connection to a kubelet, which is a stream, for a minute and a half after its last request.
    eventually("its links are drained", Duration::from_mins(2), || async {
        let links = links_of(SOLO).await?;
        ensure!(links == 0, "it has {links}");
        Ok(())
    })
    .await?;
    drop(back);
    connects_itself().await?;
    // Raven's own label says the same.
    let [behind, leave] = ["=tunnel-b", "-"].map(|value| format!("{}{value}", api::labels::GATEWAY));
    let back = Cleanup::kubectl(&["label", "node", SOLO, &leave]);
    kubectl(&["label", "--overwrite", "node", SOLO, &behind]).await?.ok()?;
    gives_up_its_role().await.context("by Raven's label")?;
    logs(SOLO, PATIENCE).await.context("behind a Gateway by Raven's label")?;
    drop(back);
    connects_itself().await
}

/// Waits until the hub of the node that was alone has no role.
async fn gives_up_its_role() -> Result<()> {
    eventually("its hub has given up its role", Duration::from_secs(40), || async {
        let status = hub_metrics(SOLO).await?;
        ensure!(status.contains("hub_tunnel_role{role=\"none\"} 1"), "it has another");
        Ok(())
    })
    .await
}

/// Waits until it dials for itself and is reached.
async fn connects_itself() -> Result<()> {
    eventually("it connects itself again", Duration::from_secs(40), || async {
        let links = links_of(SOLO).await?;
        ensure!(links > 0, "it has {links} links");
        logs(SOLO, PATIENCE).await
    })
    .await
}

#[tokio::test]
async fn f17_an_ordinary_node_holds_no_tunnel() -> Result<()> {
    let ground = ground(Reach::there()).await?;
    // What a program of the node wanted of the pool's endpoint is kept for a minute after.
    eventually("an ordinary node holds nothing at rest", Duration::from_secs(90), || async {
        let links = links_of(ORDINARY).await?;
        ensure!(links == 0, "{ORDINARY} holds {links} links");
        Ok(())
    })
    .await?;
    logs(ORDINARY, PATIENCE).await?;
    ensure!(links_of(ORDINARY).await? == 0, "{ORDINARY} holds a tunnel");
    ensure!(links_of(EDGE_GATEWAY).await? > 0, "{EDGE_GATEWAY} holds none: the count shows nothing");
    it_never_dials_the_cloud(&ground.balancer).await
}

/// What its programs send out goes to its pool's endpoint: to the cloud's port for links not one packet goes.
async fn it_never_dials_the_cloud(balancer: &str) -> Result<()> {
    let (cloud, _) = balancer.rsplit_once('.').context("the cloud's network")?;
    let cloud = format!("{cloud}.0/24");
    let rule = ["-p", "tcp", "-d", &cloud, "--dport", LINKS];
    let words = |verb| [&["exec", ORDINARY, "--", "iptables", "-w", verb, "OUTPUT"], &rule[..]].concat();
    hack_cluster(&words("-I")).await?.ok()?;
    let _gone = Cleanup::hack_cluster(&words("-D"));
    let sent = || async {
        let list = ["exec", ORDINARY, "--", "iptables", "-w", "-nvxL", "OUTPUT", "1"];
        let line = hack_cluster(&list).await?.ok()?;
        let packets = line.split_whitespace().next().with_context(|| format!("{line:?}"))?;
        anyhow::Ok(packets.parse::<u64>()?)
    };
    let _ends = (on_host(ORDINARY).await?, on_host(TWIN).await?);
    for _ in 0..3 {
        other_pool_answers(ORDINARY, TWIN).await?;
    }
    let (links, packets) = (links_of(ORDINARY).await?, sent().await?);
    ensure!(links > 0, "{ORDINARY} has no link to its pool's endpoint while its proxy is in use");
    ensure!(packets == 0, "{ORDINARY} sent {packets} packets to the cloud's port {LINKS}");
    let dial = format!("exec 3<>/dev/tcp/{balancer}/{LINKS}");
    hack_cluster(&["exec", ORDINARY, "--", "timeout", "5", "bash", "-c", &dial]).await?.ok()?;
    ensure!(sent().await? > 0, "one that is dialled by hand is not counted, so the above shows nothing");
    Ok(())
}

/// How many connections a node has to gateways' ports.
pub(super) async fn links_of(node: &str) -> Result<usize> {
    Ok(link_ports_of(node).await?.len())
}

/// Its ends of them.
pub(super) async fn link_ports_of(node: &str) -> Result<BTreeSet<String>> {
    let filter = format!("( dport = :{LINKS} )");
    let found =
        hack_cluster(&["exec", node, "--", "ss", "-Htn", "state", "established", &filter]).await?.ok()?;
    Ok(found.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect())
}

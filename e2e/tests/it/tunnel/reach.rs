//! Who is reached, through whom, and who is not disturbed.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{
    EDGE, EDGE_GATEWAY, GATEWAYS, ORDINARY, Reach, SOLO, TWIN, connected, ground, hub_metrics, logs, pod,
    said,
};
use e2e::keyboard::Keyboard;
use e2e::{eventually, hack_cluster, internal_ip, kubectl, kubectl_apply, run};

use super::controllers::condition;
use super::outwards::{on_host, other_pool_answers};

/// How long a request may take that is to succeed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The port of the gateways at which agents dial.
const LINKS: &str = "10262";

#[tokio::test]
async fn f1_no_way_but_the_tunnel() -> Result<()> {
    ground(Reach::there()).await?;
    for node in EDGE {
        let address = internal_ip(node).await?;
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
            addresses.push(internal_ip(node).await?);
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
    ground(Reach::Dns).await?;
    let mut start = Cleanup::default();
    for gateway in GATEWAYS {
        start.add(e2e::repository().join("hack/cluster"), &["start", "edge-hub", gateway]);
        hack_cluster(&["signal", "KILL", "edge-hub", gateway]).await?.ok()?;
    }
    for gateway in GATEWAYS {
        logs(gateway, PATIENCE).await?;
    }
    let listed = node_names_in_dns().await?;
    ensure!(EDGE.iter().all(|node| listed.contains(*node)), "not all edge nodes are in DNS: {listed:?}");
    let cloud = GATEWAYS.iter().find(|node| listed.contains(**node));
    ensure!(cloud.is_none(), "a cloud node is in DNS as an edge node: {listed:?}");
    let edge = logs(EDGE_GATEWAY, PATIENCE).await;
    ensure!(edge.is_err(), "there is another way to the edge than the gateways");
    drop(start);
    eventually("the edge is back", Duration::from_secs(40), || logs(EDGE_GATEWAY, PATIENCE)).await
}

/// The nodes whose names lead to gateways.
pub(super) async fn node_names_in_dns() -> Result<BTreeSet<String>> {
    let path = "jsonpath={.data.tunnel-nodes}";
    let hosts =
        kubectl(&["-n", "kube-system", "get", "configmap", "edge-tunnel-nodes", "-o", path]).await?.ok()?;
    Ok(hosts.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect())
}

/// As users have it: the API server asks the cluster's DNS, and dials the address of the gateways' Service, behind which a kube-proxy
/// chooses among them.
#[tokio::test]
async fn f12_an_api_server_goes_by_cluster_dns() -> Result<()> {
    ground(Reach::Dns).await?;
    let service = ["-n", "kube-system", "get", "service", "x-raven-proxy-internal-svc"];
    let service = kubectl(&[&service[..], &["-o", "jsonpath={.spec.clusterIP}"]].concat()).await?.ok()?;
    for node in EDGE {
        let address = resolved_by_api_server(node).await?;
        ensure!(address == service, "{node} is {address} to the API server, the Service is {service}");
        answers_itself(node).await?;
    }
    for gateway in GATEWAYS {
        let own = internal_ip(gateway).await?;
        let address = resolved_by_api_server(gateway).await?;
        ensure!(address == own, "{gateway} is {address} to the API server, its own is {own}");
        answers_itself(gateway).await?;
    }
    let mut session = Keyboard::open(EDGE_GATEWAY).await?;
    session.press().await.map(drop)
}

/// What a name is to the API server's process, which has files of its own for that.
async fn resolved_by_api_server(name: &str) -> Result<String> {
    let authority = hack_cluster(&["path", GATEWAYS[0], "hub-ca"]).await?.ok()?;
    let state = Path::new(authority.trim()).ancestors().nth(2).context("the cluster's folder")?;
    let process = std::fs::read_to_string(state.join("run/kube-apiserver.pid"))?;
    let words = ["--target", process.trim(), "--mount", "getent", "ahostsv4", name];
    let found = run("nsenter", &words, "").await?.ok().with_context(|| format!("{name} is unknown"))?;
    Ok(found.split_whitespace().next().context("no address")?.to_owned())
}

/// By the hub of its own node an API server needs neither a name nor a certificate.
#[tokio::test]
async fn f12_an_api_server_beside_a_gateway_goes_by_its_socket() -> Result<()> {
    ground(Reach::there()).await?;
    hack_cluster(&["reach", "socket"]).await?.ok()?;
    for node in EDGE {
        answers_itself(node).await?;
    }
    answers_itself(GATEWAYS[1]).await.context("a cloud node")?;
    // It is that hub, and no other way.
    let start = Cleanup::hack_cluster(&["start", "edge-hub", GATEWAYS[0]]);
    hack_cluster(&["signal", "KILL", "edge-hub", GATEWAYS[0]]).await?.ok()?;
    let without = e2e::ground::exec(EDGE_GATEWAY, PATIENCE).await;
    ensure!(without.is_err(), "there is another way to the edge than the socket's hub");
    drop(start);
    eventually("the edge is back", Duration::from_secs(40), || e2e::ground::exec(EDGE_GATEWAY, PATIENCE))
        .await
}

#[tokio::test]
async fn f16_a_node_alone_connects_itself_until_it_is_in_a_pool() -> Result<()> {
    ground(Reach::Names).await?;
    // Clients that came by another way before may be gone without a word, and what they had open lasts as long as the kernel tries.
    hack_cluster(&["stop", "edge-hub", SOLO]).await?.ok()?;
    hack_cluster(&["start", "edge-hub", SOLO]).await?.ok()?;
    eventually("the solo node is reached", PATIENCE, || logs(SOLO, PATIENCE)).await?;
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

/// Those of no pool may be a site all the same, by any label: the Gateway's name says nothing of them.
#[tokio::test]
async fn a_gateway_is_of_those_it_selects() -> Result<()> {
    const NAME: &str = "e2e-selects";
    ground(Reach::Names).await?;
    let mut back = Cleanup::kubectl(&["label", "node", SOLO, "e2e.isthmus.dev/site-"]);
    back.add("kubectl", &["delete", "gateway", NAME, "--ignore-not-found"]);
    kubectl_apply(&format!(
        "apiVersion: raven.openyurt.io/v1beta1
kind: Gateway
metadata: {{name: {NAME}}}
spec:
  nodeSelector: {{matchLabels: {{e2e.isthmus.dev/site: van}}}}
  proxyConfig: {{Replicas: 1}}
  tunnelConfig: {{Replicas: 0}}
  endpoints: [{{nodeName: {SOLO}, type: proxy, underNAT: true}}]
"
    ))
    .await?
    .ok()?;
    let nodes = || async {
        let path = "jsonpath={.status.nodes[*].nodeName} {.status.activeEndpoints[*].nodeName}";
        kubectl(&["get", "gateway", NAME, "-o", path]).await?.ok()
    };
    eventually("its condition says that it selects nobody", PATIENCE, || async {
        let (elected, _) = condition(NAME, "Elected").await?;
        ensure!(elected == "False" && nodes().await?.trim().is_empty(), "{elected:?}, {:?}", nodes().await?);
        Ok(())
    })
    .await?;
    kubectl(&["label", "node", SOLO, "e2e.isthmus.dev/site=van"]).await?.ok()?;
    connected(NAME, Duration::from_secs(40)).await?;
    let said = nodes().await?;
    ensure!(said == format!("{SOLO} {SOLO}"), "nodes and active endpoints: {said:?}");
    // It is connected by one of the cloud's gateways; the other may be a moment behind.
    eventually("its node is reached", PATIENCE, || logs(SOLO, PATIENCE)).await?;
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
        let sockets = tunnel_sockets_of(ORDINARY).await?;
        ensure!(sockets.is_empty(), "{ORDINARY} holds {sockets}");
        Ok(())
    })
    .await?;
    logs(ORDINARY, PATIENCE).await?;
    let sockets = tunnel_sockets_of(ORDINARY).await?;
    ensure!(sockets.is_empty(), "{ORDINARY} holds {sockets}");
    // The same look sees those who dial and those who are dialled.
    for (node, end) in [(EDGE_GATEWAY, "dials"), (GATEWAYS[0], "is dialled")] {
        ensure!(
            !tunnel_sockets_of(node).await?.is_empty(),
            "{node}, which {end}, holds none: the look shows nothing"
        );
    }
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

/// A node's sockets of links, whichever end it is, and those that are only being dialled. Those that have ended are none.
async fn tunnel_sockets_of(node: &str) -> Result<String> {
    let filter = format!("( dport = :{LINKS} or sport = :{LINKS} )");
    hack_cluster(&["exec", node, "--", "ss", "-Htn", "state", "big", &filter]).await?.ok()
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

/// The links of the pool's gateway, once those that a test before has replaced are gone.
pub(super) async fn settled_links() -> Result<BTreeSet<String>> {
    settled_links_of(EDGE_GATEWAY).await
}

/// The same of another node.
pub(super) async fn settled_links_of(node: &str) -> Result<BTreeSet<String>> {
    eventually("links stay", Duration::from_mins(1), || async {
        let before = link_ports_of(node).await?;
        // Longer than a hub waits before it looks at its links again.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let now = link_ports_of(node).await?;
        ensure!(now == before, "{before:?}, now {now:?}");
        Ok(now)
    })
    .await
}

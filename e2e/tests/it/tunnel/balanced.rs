//! What comes to gateways by their load balancer, and what kube-proxy makes of its address and of its node ports.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{GATEWAYS, NAMESPACE, Reach, SOLO, TWIN, ground, logs};
use e2e::{eventually, hack_cluster, internal_ip, kubectl, run, throughout};

use super::gateways::both_report;
use super::reach::links_of;
use super::rotation::{fingerprint_at, shown};
use crate::hub::kube_proxy::KubeProxy;

/// How soon a node has links, or kube-proxy its rules.
const SOON: Duration = Duration::from_secs(45);

/// For how long a hub whose dials go past the balancer is seen to have no link: it dials again meanwhile.
const DIALS: Duration = Duration::from_secs(10);

/// The site of the node that is alone.
const SITE: &str = "solo";

/// The node whose kube-proxy reads through the hub.
const LABEL: &str = "isthmus.dev/e2e=tunnel-balanced";

/// A node of the cloud that is no gateway.
const BYSTANDER: &str = "e2e-bystander";

/// The rules by which a node leads on what is for addresses.
async fn rules(node: &str) -> Result<String> {
    hack_cluster(&["exec", node, "--", "iptables", "-w", "-t", "nat", "-S"]).await?.ok()
}

/// Whether a node's kube-proxy takes the balancer's address at the port of links for its own.
async fn is_taken(node: &str, balancer: &str, wanted: bool) -> Result<()> {
    let rules = rules(node).await?;
    let address = format!(" -d {balancer}/32 ");
    let taken: Vec<&str> =
        rules.lines().filter(|rule| rule.contains(&address) && rule.contains(" --dport 10262 ")).collect();
    ensure!(taken.is_empty() != wanted, "{node}: {taken:?}");
    // Else nothing at all is led on there, which shows nothing.
    ensure!(rules.contains("-A KUBE-SERVICES "), "{node} has no kube-proxy");
    Ok(())
}

/// Whether the node that is alone has links to both gateways, or to none, as both ends see it.
async fn is_linked(wanted: bool) -> Result<()> {
    let links = links_of(SOLO).await?;
    ensure!((links > 0) == wanted, "{SOLO} has {links} links");
    both_report(SOLO, wanted).await
}

/// A kube-proxy that asks the API server itself leads what its node dials at the balancer's address to the cloud nodes' own, which a node behind
/// NAT does not reach. One that reads through the hub is not shown that Service, and the links come through the balancer.
#[tokio::test]
async fn links_come_through_the_balancer() -> Result<()> {
    let balancer = &ground(Reach::there()).await?.balancer;
    eventually("links at both", SOON, || is_linked(true)).await?;
    for node in [SOLO, TWIN] {
        eventually("kube-proxy takes the balancer's address", SOON, || is_taken(node, balancer, true))
            .await?;
    }

    let heal = Cleanup::hack_cluster(&["link", SITE, "heal"]);
    hack_cluster(&["link", SITE, "hide"]).await?.ok()?;
    eventually("the links went past the balancer", SOON, || is_linked(false)).await?;
    throughout("so do those that are dialled", DIALS, || async {
        let links = links_of(SOLO).await?;
        ensure!(links == 0, "{links} links");
        anyhow::Ok(())
    })
    .await?;

    let (key, _) = LABEL.split_once('=').context("a label")?;
    let unlabel = Cleanup::kubectl(&["label", "node", SOLO, &format!("{key}-")]);
    kubectl(&["label", "--overwrite", "node", SOLO, LABEL]).await?.ok()?;
    let proxy = KubeProxy::through_the_hub(LABEL, NAMESPACE).await?;
    eventually("kube-proxy through the hub leaves the balancer's address alone", SOON, || {
        is_taken(SOLO, balancer, false)
    })
    .await?;
    eventually("links through the balancer", SOON, || is_linked(true)).await?;
    logs(SOLO, SOON).await?;
    // It is the hub that makes the difference, and not that the Service went.
    is_taken(TWIN, balancer, true).await?;

    proxy.undo();
    drop(unlabel);
    eventually("the cluster's own kube-proxy is back", SOON, || is_taken(SOLO, balancer, true)).await?;
    drop(heal);
    eventually("links at both", SOON, || is_linked(true)).await
}

/// The network of the load balancer.
async fn balancers_network() -> Result<PathBuf> {
    let of_node = hack_cluster(&["path", GATEWAYS[0], "netns"]).await?.ok()?;
    Ok(Path::new(of_node.trim()).with_extension("lb"))
}

/// The certificate, by its fingerprint, that is shown there to who comes from outside of the nodes; none if nobody answers.
async fn shown_outside(network: &Path, address: &str) -> Result<Option<String>> {
    let script = fingerprint_at(address);
    let network = format!("--net={}", network.display());
    let said = run("nsenter", &[&network, "timeout", "6", "bash", "-c", &script], "").await?;
    Ok(said.success.then_some(said.stdout).filter(|shown| !shown.is_empty()))
}

/// A cloud's own balancer comes by the node port of its Service. A gateway's node answers there as the hub of that very node; another node of the
/// cloud does not answer, and leads to no gateway.
#[tokio::test]
async fn a_node_port_leads_to_the_gateway_of_its_node_alone() -> Result<()> {
    ground(Reach::there()).await?;
    let network = balancers_network().await?;
    let label = format!("{}=cloud", api::labels::GATEWAY);
    let path = "jsonpath={.items[0].spec.ports[?(@.name==\"proxy\")].nodePort}";
    let port = kubectl(&["-n", "kube-system", "get", "services", "-l", &label, "-o", path]).await?.ok()?;
    ensure!(port.parse::<u16>().is_ok(), "no node port: {port:?}");
    for gateway in GATEWAYS {
        let address = format!("{}:{port}", internal_ip(gateway).await?);
        eventually("the hub of the node answers", SOON, || async {
            let (outside, own) = (shown_outside(&network, &address).await?, shown(gateway).await?);
            ensure!(outside.as_ref() == Some(&own), "{gateway} shows {outside:?} at {address}, and is {own}");
            Ok(())
        })
        .await?;
    }

    hack_cluster(&["leave", BYSTANDER]).await?.ok()?;
    let left = Cleanup::hack_cluster(&["leave", BYSTANDER]);
    hack_cluster(&["join", BYSTANDER]).await?.ok()?;
    eventually("its kube-proxy knows the port", SOON, || async {
        let rules = rules(BYSTANDER).await?;
        ensure!(rules.contains(&format!(" --dport {port} ")), "no rule for port {port}: {rules}");
        Ok(())
    })
    .await?;
    let address = format!("{}:{port}", internal_ip(BYSTANDER).await?);
    let outside = shown_outside(&network, &address).await?;
    ensure!(outside.is_none(), "{BYSTANDER}, which is no gateway, shows {outside:?} at {address}");
    hack_cluster(&["leave", BYSTANDER]).await?.ok()?;
    left.forget();
    Ok(())
}

//! A node that loses its power while it has no link: its pods come back with other addresses, which nobody can be told.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::hub::{HubNode, SECURE, token};
use e2e::{client, eventually, fresh_namespace, kubectl};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::Value;

use super::cluster_dns::ClusterDns;
use super::kube_proxy::KubeProxy;

const NAMESPACE: &str = "e2e-hub-reboot";
const NODE: &str = "e2e-reboot-1";
const LABEL: &str = "isthmus.dev/e2e=reboot";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/e2e-hub-reboot/endpointslices?resourceVersion=0";

/// How soon after its start a node is to work again.
const WORKS: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_node_that_reboots_without_its_link_works_within_half_a_minute() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let node = HubNode::fresh(NODE, &[LABEL]).await?;
    let reader = token(NAMESPACE, "reader", "view").await?;
    let proxy = KubeProxy::through_the_hub(LABEL, NAMESPACE).await?;
    let dns = ClusterDns::through_the_hub(NAMESPACE, NODE).await?;
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let before = pods.get("web").await?;
    let old = before.status.as_ref().and_then(|status| status.pod_ip.clone()).context("an address")?;
    dns.answers(&node, "with a link", Duration::from_mins(1)).await?;
    // Rights and lists are stored within seconds.
    eventually("the slices are held", Duration::from_secs(20), || async {
        let held = addresses(&node, &reader).await?;
        ensure!(held.contains(&old), "{held:?}");
        Ok(())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(4)).await;

    node.black_hole(true).await?;
    let started = node.reboot().await?;
    let left = WORKS.saturating_sub(started.elapsed());
    println!("containerd, hub and kubelet run after {:.1} s", started.elapsed().as_secs_f64());
    dns.answers(&node, "after a reboot without a link", left).await?;
    println!("Service and DNS of local pods work {:.1} s after the start", started.elapsed().as_secs_f64());
    let now = addresses(&node, &reader).await?;
    ensure!(!now.contains(&old), "web came back at its old address: the test shows nothing");
    let slices = node.get(SECURE, Some(&reader), SLICES).await?;
    ensure!(slices.is_stale(), "{:?}", slices.warning);
    let corrected = corrected(&node).await?;
    ensure!(corrected > 0, "the hub does not say that it corrects");

    node.black_hole(false).await?;
    let healed = Instant::now();
    eventually("the API server knows the address", Duration::from_secs(40), || async {
        let pod = pods.get("web").await?;
        let address = pod.status.and_then(|status| status.pod_ip).unwrap_or_default();
        ensure!(now.contains(&address), "{address} is none of {now:?}");
        Ok(())
    })
    .await?;
    eventually("nothing is corrected any more", Duration::from_mins(1), || async {
        ensure!(self::corrected(&node).await? == 0, "still corrected");
        Ok(())
    })
    .await?;
    println!("the API server's word counts {:.1} s after the link is back", healed.elapsed().as_secs_f64());
    let direct = kubectl(&["get", "--raw", SLICES]).await?.ok()?;
    ensure!(
        addresses_in(&direct)? == addresses(&node, &reader).await?,
        "the hub's slices are not the API server's"
    );
    dns.answers(&node, "with the link again", Duration::from_secs(10)).await?;
    let after = pods.get("web").await?;
    ensure!(before.metadata.uid == after.metadata.uid, "the pod is another: {after:?}");
    proxy.undo();
    node.leave().await
}

/// The addresses in the slices, as the hub shows them.
async fn addresses(node: &HubNode, token: &str) -> Result<Vec<String>> {
    let reply = node.get(SECURE, Some(token), SLICES).await?;
    ensure!(reply.status == 200, "{reply:?}");
    addresses_in(&reply.body)
}

fn addresses_in(list: &str) -> Result<Vec<String>> {
    let list: Value = serde_json::from_str(list)?;
    let slices = list["items"].as_array().context("a list")?.iter();
    let endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    let addresses = endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    let mut addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    addresses.sort_unstable();
    Ok(addresses)
}

/// How many pods the hub says it corrects.
async fn corrected(node: &HubNode) -> Result<u64> {
    let metrics = node.get("http://127.0.0.1:10267", None, "/metrics").await?.body;
    let mut values = metrics.lines().filter(|line| !line.starts_with('#'));
    let line = values.find(|line| line.contains("hub_corrected_pods ")).context("hub_corrected_pods")?;
    Ok(line.rsplit_once(' ').context("a figure")?.1.parse()?)
}

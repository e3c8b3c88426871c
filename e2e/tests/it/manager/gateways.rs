//! Gateways that the manager makes by itself, and what it makes of several that expose the cloud.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{eventually, kubectl, kubectl_apply};
use serde_json::Value;

use super::made_by_the_manager;

const PATIENCE: Duration = Duration::from_secs(20);

/// With `gateways.forEdgePools` a pool of type Edge has a Gateway of its own without having asked.
pub(super) async fn an_edge_pool_has_one(pool: &str) -> Result<()> {
    eventually("a Gateway for the pool", PATIENCE, || async {
        let made: Value =
            serde_json::from_str(&kubectl(&["get", "gateway", pool, "-o", "json"]).await?.ok()?)?;
        let owner = &made["metadata"]["ownerReferences"][0];
        ensure!(owner["kind"] == "NodePool" && owner["name"] == pool, "{made}");
        Ok(())
    })
    .await
}

/// It goes with its pool.
pub(super) async fn it_is_gone(pool: &str) -> Result<()> {
    eventually("the pool's Gateway is gone", PATIENCE, || async {
        let left = kubectl(&["get", "gateway", pool, "-o", "name", "--ignore-not-found"]).await?.ok()?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await
}

/// An exposed Gateway, to which a Service and its slice lead though no hub runs.
pub(super) async fn one_exposes_the_cloud(name: &str) -> Result<()> {
    let gateway = format!(
        "apiVersion: raven.openyurt.io/v1beta1\nkind: Gateway\nmetadata: {{name: {name}}}\n\
         spec: {{exposeType: PublicIP, proxyConfig: {{Replicas: 1, proxyHTTPSPort: \"10250\"}}, \
         endpoints: [{{nodeName: cloud-1, type: proxy, publicIP: 192.0.2.1}}]}}\n"
    );
    kubectl_apply(&gateway).await?.ok()?;
    eventually("a Service for the Gateway", PATIENCE, || async {
        let made = made_by_the_manager().await?;
        ensure!(made.iter().any(|object| object.starts_with("service/")), "{made:?}");
        ensure!(made.iter().any(|object| object.starts_with("endpointslice")), "{made:?}");
        Ok(())
    })
    .await
}

/// Where one Gateway lists the kubelets' port already, a second one that does adds no other: the API server would refuse it.
pub(super) async fn a_port_of_two_is_one() -> Result<()> {
    ports_are("10250").await.context("of one Gateway")?;
    kubectl_apply(
        "apiVersion: raven.openyurt.io/v1beta1\nkind: Gateway\nmetadata: {name: e2e-second}\n\
         spec: {exposeType: PublicIP, nodeSelector: {matchLabels: {kubernetes.io/hostname: cloud-2}}, \
         proxyConfig: {Replicas: 1, proxyHTTPSPort: \"10250,9445\"}, \
         endpoints: [{nodeName: cloud-2, type: proxy, publicIP: 192.0.2.2}]}\n",
    )
    .await?
    .ok()?;
    let merged = ports_are("9445 10250").await.context("of two Gateways");
    kubectl(&["delete", "gateway", "e2e-second"]).await?.ok()?;
    merged?;
    ports_are("10250").await.context("of one Gateway again")
}

/// Waits until the internal Service has these ports, and its slice one for each.
async fn ports_are(wanted: &str) -> Result<()> {
    eventually("the ports of the internal Service", PATIENCE, || async {
        let service = ["-n", "kube-system", "get", "service", "x-raven-proxy-internal-svc"];
        let words = [&service[..], &["-o", "jsonpath={.spec.ports[*].port}"]].concat();
        let ports = kubectl(&words).await?.ok()?;
        ensure!(ports == wanted, "{ports:?}");
        let label = "-lkubernetes.io/service-name=x-raven-proxy-internal-svc";
        let path = "jsonpath={.items[*].ports[*].name}";
        let words = ["-n", "kube-system", "get", "endpointslices", label, "-o", path];
        let mut names: Vec<String> =
            kubectl(&words).await?.ok()?.split_whitespace().map(str::to_owned).collect();
        names.sort();
        let mut each: Vec<String> = wanted.split(' ').map(|port| format!("https-{port}")).collect();
        each.sort();
        ensure!(names == each, "{names:?}");
        Ok(())
    })
    .await
}

//! `NodeMetric` from a real hub to `kubectl`: the hub of a node reports straight to the leader, the API server aggregates, and a change of
//! leader is nobody's loss.

mod callers;
mod faults;
mod ground;
mod observers;
mod take_overs;

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::{SYSTEM, client, eventually, hack_cluster, kubectl, kubectl_apply, repository, run};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use serde_json::Value;

const NODE: &str = "cloud-1";

/// Until those who never report are taken for silent: six intervals of ten seconds, and what a busy machine adds.
const WARM: Duration = Duration::from_mins(3);

/// How long a change of leader may take on a busy machine; its time is for benchmarks.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn what_a_node_uses_is_seen_and_outlives_a_leader() -> Result<()> {
    let client = client().await?;
    let install = repository().join("hack/install");
    let mut cleanup = report_often().await?;
    cleanup.add(repository().join("hack/cluster"), &["hub", NODE, "--off"]);
    cleanup.add(&install, &["--wait"]);
    run(&install, &["--set", "nodeMetrics.enabled=true", "--wait"], "").await?.ok()?;
    hack_cluster(&["hub", NODE, "--report"]).await?.ok()?;
    let first = eventually("a report is seen", WARM, fresh).await?;
    let table = kubectl(&["get", "nm", NODE]).await?.ok()?;
    println!("{table}");
    ensure!(table.starts_with("NAME") && table.contains("Fresh"), "{table}");
    let explained = kubectl(&["explain", "nodemetrics.status.nodeMetric.nodeUsage"]).await?.ok()?;
    ensure!(explained.contains("resources"), "{explained}");

    // Nobody asked the API server to store it.
    let stored =
        kubectl(&["get", "crd", "nodemetrics.slo.koordinator.sh", "--ignore-not-found"]).await?.ok()?;
    ensure!(stored.trim().is_empty(), "a CRD holds NodeMetrics: {stored}");

    let leases = Api::<Lease>::namespaced(client.clone(), SYSTEM);
    let holder = |lease: Lease| lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    let leader = holder(leases.get("isthmus-node-metric").await?);
    let pod = leader.split('_').next().unwrap_or_default();
    ensure!(!pod.is_empty(), "nobody leads");
    Api::<Pod>::namespaced(client.clone(), SYSTEM).delete(pod, &DeleteParams::default()).await?;
    eventually("another leads", SOON, || async {
        let now = holder(leases.get("isthmus-node-metric").await?);
        ensure!(!now.is_empty() && now != leader, "{now} leads");
        Ok(())
    })
    .await?;
    eventually("a later report is seen", WARM, || async {
        let later = fresh().await?;
        ensure!(later > first, "version {later} after {first}");
        Ok(())
    })
    .await?;
    e2e::replicas::all_ready().await
}

/// Has nodes report each two seconds, until this is dropped: those who never do are waited for six intervals after each cold start. It comes
/// before the installation, which lets managers read the ConfigMap if its namespace is there.
async fn report_often() -> Result<Cleanup> {
    let cleanup = Cleanup::kubectl(&["delete", "namespace", "koordinator-system", "--ignore-not-found"]);
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: koordinator-system}\n";
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: slo-controller-config, namespace: koordinator-system}\n\
                  data: {colocation-config: '{\"metricReportIntervalSeconds\": 2}'}\n";
    kubectl_apply(namespace).await?.ok()?;
    kubectl_apply(config).await?.ok()?;
    Ok(cleanup)
}

/// The resource version of the node's metrics, if they are fresh and say something.
async fn fresh() -> Result<u64> {
    let text = kubectl(&["get", "nodemetrics", NODE, "-o", "json"]).await?.ok()?;
    let metric: Value = serde_json::from_str(&text)?;
    let (status, version) = (&metric["status"], &metric["metadata"]["resourceVersion"]);
    ensure!(status["freshness"]["state"] == "Fresh", "{}", status["freshness"]);
    let usage = &status["nodeMetric"]["nodeUsage"]["resources"];
    ensure!(usage["cpu"].is_string() && usage["memory"].is_string(), "{usage}");
    let pods = status["podsMetric"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(pods.iter().any(|pod| pod["podUsage"]["resources"]["memory"].is_string()), "no pod: {pods:?}");
    Ok(version.as_str().unwrap_or_default().parse()?)
}

//! `NodeMetric` from a real hub to `kubectl`: the hub of a node reports straight to the leader, the API server aggregates, and a change of
//! leader is nobody's loss.

mod callers;
mod faults;
mod figures;
mod flow;
mod ground;
mod koordinator;
mod observers;
mod take_overs;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::{SYSTEM, client, eventually, hack_cluster, kubectl, kubectl_apply, replicas, repository, run};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use serde_json::Value;

use self::ground::LEASE;

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

    // The same for a person at a terminal, by the manager's own command.
    let top = run("isthmus-manager", &["top", "nodes", "--sort-by", "memory"], "").await?.ok()?;
    let line = top.lines().find(|line| line.split_whitespace().next() == Some(NODE));
    ensure!(line.is_some_and(|line| line.contains("Fresh") && line.contains("Mi")), "{top}");

    reports_cost_the_api_server_nothing().await?;

    let leader = replicas::holder_of(&client, LEASE).await?;
    let pod = leader.split('_').next().unwrap_or_default();
    Api::<Pod>::namespaced(client.clone(), SYSTEM).delete(pod, &DeleteParams::default()).await?;
    replicas::another_leads(&client, LEASE, &leader, SOON).await?;
    eventually("a later report is seen", WARM, || async {
        let later = fresh().await?;
        ensure!(later > first, "version {later} after {first}");
        Ok(())
    })
    .await?;
    replicas::all_ready().await
}

/// Nothing is stored, and nobody is asked who may report: by the API server's own counts.
async fn reports_cost_the_api_server_nothing() -> Result<()> {
    let stored =
        kubectl(&["get", "crd", "nodemetrics.slo.koordinator.sh", "--ignore-not-found"]).await?.ok()?;
    ensure!(stored.trim().is_empty(), "a CRD holds NodeMetrics: {stored}");
    let counts = || async {
        let metrics = kubectl(&["get", "--raw", "/metrics"]).await?.ok()?;
        let etcd = |line: &&str| {
            line.starts_with("etcd_request")
                && ["slo.koordinator.sh", "nodemetrics"].iter().all(|word| line.contains(word))
        };
        let asked = metrics.lines().find(etcd);
        ensure!(asked.is_none(), "etcd was asked for NodeMetrics: {asked:?}");
        let review = |line: &&str| {
            line.starts_with("apiserver_request_total{")
                && ["tokenreviews", "subjectaccessreviews"]
                    .iter()
                    .any(|kind| line.contains(&format!("resource=\"{kind}\"")))
        };
        let count = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok());
        anyhow::Ok(metrics.lines().filter(review).filter_map(count).sum::<f64>())
    };
    // The API server's own looks at its extensions are reviewed each half minute; between two of them nothing is.
    eventually("reports come and nothing is reviewed", WARM, || async {
        let (reviews, seq) = (counts().await?, of_last_report("seq").await?);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (reviews, reports) =
            (counts().await? - reviews, of_last_report("seq").await?.saturating_sub(seq));
        ensure!(reports >= 2, "{reports} reports in 5 s");
        ensure!(reviews < 1.0, "{reviews} reviews while {reports} reports came");
        Ok(())
    })
    .await
}

/// What the node's hub says of its last report that was taken: its number as `seq`, the leader's term as `epoch`.
async fn of_last_report(what: &str) -> Result<u64> {
    let words = ["exec", NODE, "--", "curl", "-sfm2", "http://127.0.0.1:10267/v1/status"];
    let status: Value = serde_json::from_str(&hack_cluster(&words).await?.ok()?)?;
    status["nodeMetric"][what].as_u64().context("no report was taken yet")
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

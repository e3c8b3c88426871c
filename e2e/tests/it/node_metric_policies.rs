//! What consumers of NodeMetric and its administrators see: policies that reach nodes, mistakes that are named, loads, nodes that never reported,
//! and nothing left on nodes once it is switched off.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::{eventually, hack_cluster, kubectl, kubectl_apply, repository, run};

const NODE: &str = "cloud-1";
const NAMESPACE: &str = "koordinator-system";

/// How long an expired object is seen.
const GRACE: Duration = Duration::from_secs(10);

/// Until nodes that never report are taken for silent, a policy is read and a report follows.
const WARM: Duration = Duration::from_mins(3);

fn config(colocation: &str, load: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: slo-controller-config, namespace: {NAMESPACE}}}\n\
         data:\n  colocation-config: '{colocation}'\n  node-load-config: '{load}'\n"
    )
}

async fn field(resource: &str, name: &str, path: &str) -> Result<String> {
    kubectl(&["get", resource, name, "-o", &format!("jsonpath={{{path}}}")]).await?.ok()
}

fn condition(field: &str) -> String {
    format!(r#".status.conditions[?(@.type=="NodeMetricFresh")].{field}"#)
}

/// Waits until the Node says so of its metrics.
async fn says(status: &str, reason: &str) -> Result<()> {
    eventually(&format!("NodeMetricFresh is {status}, {reason}"), WARM, || async {
        let said = field("node", NODE, &condition("status")).await?;
        let why = field("node", NODE, &condition("reason")).await?;
        ensure!(said == status && why == reason, "{said}, {why}");
        Ok(())
    })
    .await
}

/// What becomes of a node that is silent: after six intervals it is expired, and said to be; after the grace it is out of view.
async fn silence() -> Result<()> {
    says("False", "ReportsCeased").await?;
    let state = field("nm", NODE, ".status.freshness.state").await?;
    ensure!(state == "Expired", "{state}");
    let about = format!("reason=ReportsCeased,involvedObject.name={NODE}");
    eventually("an event tells of it", WARM, || async {
        let events =
            ["get", "events", "-A", "--field-selector", &about, "-o", "jsonpath={.items[*].message}"];
        let events = kubectl(&events).await?.ok()?;
        ensure!(events.contains("does not report"), "{events}");
        Ok(())
    })
    .await?;
    eventually("it is out of view", WARM, || async {
        let gone = kubectl(&["get", "nm", NODE]).await?;
        ensure!(!gone.success && gone.stderr.contains("(NotFound)"), "{gone:?}");
        Ok(())
    })
    .await?;
    says("False", "OutOfView").await
}

#[tokio::test]
async fn policies_reach_nodes_and_nothing_is_left_behind() -> Result<()> {
    let install = repository().join("hack/install");
    let mut cleanup = Cleanup::kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"]);
    cleanup.add(&install, &["--wait"]);
    cleanup.add(repository().join("hack/cluster"), &["hub", NODE, "--off"]);
    kubectl(&["create", "namespace", NAMESPACE]).await?.ok()?;
    let grace = format!("nodeMetrics.grace={}s", GRACE.as_secs());
    run(&install, &["--set", "nodeMetrics.enabled=true", "--set", &grace, "--wait"], "").await?.ok()?;
    hack_cluster(&["hub", NODE, "--report"]).await?.ok()?;
    let colocation = format!(
        r#"{{"metricAggregateDurationSeconds": 60, "nodeConfigs": [{{
            "nodeSelector": {{"matchLabels": {{"kubernetes.io/hostname": "{NODE}"}}}},
            "metricReportIntervalSeconds": 2, "metricAggregatePolicy": {{"durations": ["20s"]}}}}]}}"#
    )
    .replace('\n', " ");
    kubectl_apply(&config(&colocation, r#"{"memory": [1], "cpu": []}"#)).await?.ok()?;
    eventually("the node measures by the policy", WARM, || async {
        let interval = ".spec.metricCollectPolicy.reportIntervalSeconds";
        let told = field("nm", NODE, interval).await?;
        ensure!(told == "2", "interval {told}");
        let window = field("nm", NODE, ".status.nodeMetric.aggregatedNodeUsages[*].duration").await?;
        ensure!(window == "20s", "windows {window}");
        Ok(())
    })
    .await?;
    let others = kubectl(&[
        "get",
        "nm",
        "-o",
        "jsonpath={range .items[*]}{.metadata.name}={.spec.metricCollectPolicy.reportIntervalSeconds} {end}",
    ]);
    let others = others.await?.ok()?;
    ensure!(
        others.split_whitespace().all(|one| one == format!("{NODE}=2") || one.ends_with("=10")),
        "{others}"
    );

    eventually("the load has its step", WARM, || async {
        let step = field("nl", NODE, ".status.memory.atLeast").await?;
        ensure!(step == "1", "{step}");
        Ok(())
    })
    .await?;
    let table = kubectl(&["get", "nm"]).await?.ok()?;
    let never =
        table.lines().filter(|line| line.contains("NeverReported") && line.contains("<none>")).count();
    ensure!(never == others.split_whitespace().count() - 1, "{table}");

    kubectl_apply(&config(r#"{"metricReportIntervalSeconds": "often"}"#, "{}")).await?.ok()?;
    eventually("the mistake is named", WARM, || async {
        let events = ["-n", NAMESPACE, "get", "events", "-o", "jsonpath={.items[*].message}"];
        let events = kubectl(&events).await?.ok()?;
        ensure!(events.contains("colocation-config: metricReportIntervalSeconds"), "{events}");
        Ok(())
    })
    .await?;
    let told = field("nm", NODE, ".spec.metricCollectPolicy.reportIntervalSeconds").await?;
    ensure!(told == "2", "the last good one holds: {told}");

    says("True", "Reporting").await?;
    // A hub that stands still says nothing; its node is back at its next report.
    hack_cluster(&["signal", "STOP", "edge-hub", NODE]).await?.ok()?;
    let silent = silence().await;
    hack_cluster(&["signal", "CONT", "edge-hub", NODE]).await?.ok()?;
    silent?;
    eventually("it is back", WARM, || async {
        let state = field("nm", NODE, ".status.freshness.state").await?;
        ensure!(state == "Fresh", "{state}");
        Ok(())
    })
    .await?;
    says("True", "Reporting").await?;

    run(&install, &["--wait"], "").await?.ok()?;
    let said = field("node", NODE, &condition("status")).await?;
    ensure!(said.is_empty(), "the hook left NodeMetricFresh={said}");
    let place = ["-n", "kube-system", "get", "configmap", "isthmus-node-metric", "-o", "jsonpath={.data}"];
    let place = kubectl(&place).await?.ok()?;
    ensure!(place.contains("version-ceiling") && !place.contains("servers"), "{place}");
    e2e::replicas::all_ready().await
}

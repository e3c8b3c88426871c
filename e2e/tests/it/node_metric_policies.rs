//! What consumers of NodeMetric and its administrators see: policies that reach nodes, mistakes that are named, loads, nodes that never reported,
//! and nothing left on nodes once it is switched off.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::{eventually, hack_cluster, kubectl, kubectl_apply, repository, run};

const NODE: &str = "cloud-1";
const NAMESPACE: &str = "koordinator-system";

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

#[tokio::test]
async fn policies_reach_nodes_and_nothing_is_left_behind() -> Result<()> {
    let install = repository().join("hack/install");
    let mut cleanup = Cleanup::kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"]);
    cleanup.add(&install, &["--wait"]);
    cleanup.add(repository().join("hack/cluster"), &["hub", NODE, "--off"]);
    kubectl(&["create", "namespace", NAMESPACE]).await?.ok()?;
    run(&install, &["--set", "nodeMetrics.enabled=true", "--wait"], "").await?.ok()?;
    hack_cluster(&["hub", NODE, "--report"]).await?.ok()?;
    let colocation = format!(
        r#"{{"metricAggregateDurationSeconds": 60, "nodeConfigs": [{{
            "nodeSelector": {{"matchLabels": {{"kubernetes.io/hostname": "{NODE}"}}}},
            "metricReportIntervalSeconds": 5, "metricAggregatePolicy": {{"durations": ["20s"]}}}}]}}"#
    )
    .replace('\n', " ");
    kubectl_apply(&config(&colocation, r#"{"memory": [1], "cpu": []}"#)).await?.ok()?;
    eventually("the node measures by the policy", WARM, || async {
        let interval = ".spec.metricCollectPolicy.reportIntervalSeconds";
        let told = field("nm", NODE, interval).await?;
        ensure!(told == "5", "interval {told}");
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
        others.split_whitespace().all(|one| one == format!("{NODE}=5") || one.ends_with("=10")),
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
    ensure!(told == "5", "the last good one holds: {told}");

    let condition = r#".status.conditions[?(@.type=="NodeMetricFresh")].status"#;
    eventually("the node says that it reports", WARM, || async {
        let said = field("node", NODE, condition).await?;
        ensure!(said == "True", "{said}");
        Ok(())
    })
    .await?;
    run(&install, &["--wait"], "").await?.ok()?;
    let said = field("node", NODE, condition).await?;
    ensure!(said.is_empty(), "the hook left NodeMetricFresh={said}");
    let place = ["-n", "kube-system", "get", "configmap", "isthmus-node-metric", "-o", "jsonpath={.data}"];
    let place = kubectl(&place).await?.ok()?;
    ensure!(place.contains("version-ceiling") && !place.contains("servers"), "{place}");
    e2e::replicas::all_ready().await
}

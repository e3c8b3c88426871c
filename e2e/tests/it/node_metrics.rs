//! `NodeMetric` from a real hub to `kubectl`: the hub of a node reports straight to the leader, the API server aggregates, and a change of
//! leader is nobody's loss.

mod callers;
mod discovery;
mod faults;
mod figures;
mod flow;
mod ground;
mod handed_on;
mod koordinator;
mod observers;
mod rehomed;
mod serving;
mod stale;
mod take_overs;
mod unheard;
mod versions;
mod writes;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{SYSTEM, eventually, hack_cluster, kubectl, kubectl_apply, replicas, run};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use serde_json::Value;

use self::ground::{Ground, LEASE};

const NODE: &str = "cloud-1";

/// Until those who never report are taken for silent: six intervals of ten seconds, and what a busy machine adds.
const WARM: Duration = Duration::from_mins(3);

/// How often nodes report in these tests, in seconds.
const OFTEN: u64 = 2;

/// For how long it is counted what the API server is asked, and how long it may take until nothing else disturbs that.
const COUNTED: Duration = Duration::from_secs(30);
const EVEN: Duration = Duration::from_mins(6);

/// How long a change of leader may take on a busy machine; its time is for benchmarks.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn what_a_node_uses_is_seen_and_outlives_a_leader() -> Result<()> {
    let client = Ground::new().await?.client;
    let first = eventually("a report is seen", WARM, fresh).await?;
    let table = kubectl(&["get", "nm", NODE]).await?.ok()?;
    println!("{table}");
    ensure!(table.starts_with("NAME") && table.contains("Fresh"), "{table}");
    // The API server asks anew what a service behind it describes only now and then.
    eventually("the fields are explained", WARM, || async {
        let explained = kubectl(&["explain", "nodemetrics.status.nodeMetric.nodeUsage"]).await?.ok()?;
        ensure!(explained.contains("resources"), "{explained}");
        Ok(())
    })
    .await?;

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

/// Nothing is stored, and nobody is asked who may report: by the API server's own counts, of which reports ten times as often add none.
#[allow(clippy::print_stdout, reason = "the counts are read beside the test's name when it fails")]
async fn reports_cost_the_api_server_nothing() -> Result<()> {
    let stored =
        kubectl(&["get", "crd", "nodemetrics.slo.koordinator.sh", "--ignore-not-found"]).await?.ok()?;
    ensure!(stored.trim().is_empty(), "a CRD holds NodeMetrics: {stored}");
    // What else goes on in a cluster comes and goes: of several attempts one must be even.
    eventually("reports add nothing to what the API server does", EVEN, || async {
        let (often, reports_of_often) = asked_of_the_api_server(1).await?;
        let (seldom, reports_of_seldom) = asked_of_the_api_server(10).await?;
        println!("{reports_of_often} reports: {often:?}\n{reports_of_seldom} reports: {seldom:?}");
        let more = reports_of_often.saturating_sub(reports_of_seldom);
        ensure!(more >= 15, "{reports_of_often} reports, and {reports_of_seldom}");
        let few = f64::from(u32::try_from(more)?) / 3.0;
        for (what, count) in &often {
            let added = count - seldom.get(what).copied().unwrap_or_default();
            // A write or a review each report would be as many as there are more reports.
            ensure!(added < few, "{what}: {added} more with {more} more reports");
        }
        Ok(())
    })
    .await?;
    kubectl_apply(&reports_each(OFTEN)).await?.ok().map(drop)
}

/// What the API server is asked to write or review within half a minute, by verb and resource, while the node reports each `seconds`; and how
/// many reports were taken.
async fn asked_of_the_api_server(seconds: u64) -> Result<(BTreeMap<String, f64>, u64)> {
    const KINDS: [&str; 6] =
        ["nodes", "configmaps", "events", "leases", "tokenreviews", "subjectaccessreviews"];
    let counts = || async {
        let metrics = kubectl(&["get", "--raw", "/metrics"]).await?.ok()?;
        let mut counts = BTreeMap::<String, f64>::new();
        for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let label = |name: &str| line.split_once(&format!("{name}=\""))?.1.split('"').next();
            let (Some(verb), Some(kind)) = (label("verb"), label(",resource")) else { continue };
            let is_write = ["POST", "PUT", "PATCH", "APPLY"].contains(&verb);
            if is_write && (KINDS.contains(&kind) || kind.contains("metric")) {
                let count = line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok());
                *counts.entry(format!("{verb} {kind}")).or_default() += count.unwrap_or_default();
            }
        }
        anyhow::Ok(counts)
    };
    kubectl_apply(&reports_each(seconds)).await?.ok()?;
    eventually("the node reports so often", WARM, || async {
        let interval = of_last_report("intervalMs").await?;
        ensure!(interval == seconds * 1_000, "each {interval} ms");
        Ok(())
    })
    .await?;
    let (before, first) = (counts().await?, of_last_report("seq").await?);
    tokio::time::sleep(COUNTED).await;
    let (mut after, last) = (counts().await?, of_last_report("seq").await?);
    for (what, count) in before {
        *after.entry(what).or_default() -= count;
    }
    Ok((after, last.saturating_sub(first)))
}

/// What the node's hub says of its last report that was taken: its number as `seq`, the leader's term as `epoch`, until the next `intervalMs`.
async fn of_last_report(what: &str) -> Result<u64> {
    let words = ["exec", NODE, "--", "curl", "-sfm2", "http://127.0.0.1:10267/v1/status"];
    let status: Value = serde_json::from_str(&hack_cluster(&words).await?.ok()?)?;
    status["nodeMetric"][what].as_u64().context("no report was taken yet")
}

/// Has nodes report each two seconds: those who never do are waited for six intervals after each cold start. It comes before the installation, which
/// lets managers read the ConfigMap if its namespace is there.
async fn report_often() -> Result<()> {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: koordinator-system}\n";
    kubectl_apply(namespace).await?.ok()?;
    kubectl_apply(&reports_each(OFTEN)).await?.ok().map(drop)
}

/// The ConfigMap that has nodes report so often.
fn reports_each(seconds: u64) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: slo-controller-config, namespace: koordinator-system}}\n\
         data: {{colocation-config: '{{\"metricReportIntervalSeconds\": {seconds}}}'}}\n"
    )
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

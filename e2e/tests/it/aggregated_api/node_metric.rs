//! NodeMetric itself, from the store that the leader has: asked the same as a custom resource of its schema. Between the two stand what the
//! server knows better than any client, how old a status is and how loaded the node ([`strip`]), and that an object is that of a Node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::cleanup::Cleanup;
use e2e::{client, eventually, fresh_namespace, kubectl, kubectl_apply};
use node_metrics::freshness::Now;
use node_metrics::storage::{NodeMetricStorage, NodeMetrics};
use node_metrics::store::{NodeFacts, Settings, Store};
use node_report::{NodeUsage, Report};
use serde_json::{Value, json};

use super::Comparison;
use super::answers::{Kind, Question};
use super::documents::About;
use super::servers::{Ours, real};
use super::words::Words;

/// A group of its own: it takes nothing away from the one that the manager serves.
const GROUP: &str = "compared.isthmus.dev";
const VERSION: &str = "compared.isthmus.dev/v1beta1";
const CRD: &str = "nodemetrics.compared.isthmus.dev";

/// Where the account is that asks.
const NAMESPACE: &str = "e2e-node-metric-compared";

/// Columns of a Table that tell how old a status is: AGE and STATE.
const AGES: std::ops::Range<usize> = 8..10;

const REQUESTS: &str = include_str!("node_metric.yaml");

#[tokio::test]
async fn a_node_metric_is_answered_as_a_custom_resource_of_its_schema() -> Result<()> {
    let mut made = Cleanup::kubectl(&["delete", "crd", CRD, "--ignore-not-found", "--timeout=1m"]);
    made.add("kubectl", &["delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=1m"]);
    fresh_namespace(&client().await?, NAMESPACE).await?;
    kubectl_apply(&definition()?.to_string()).await?.ok()?;
    let real = real(NAMESPACE).await?;
    let kind = Kind {
        collection: format!("/apis/{VERSION}/nodemetrics"),
        type_meta: r#""apiVersion":"compared.isthmus.dev/v1beta1","kind":"NodeMetric""#,
        strip,
    };
    eventually("the CRD is served", Duration::from_secs(30), || async {
        kubectl(&["get", "--raw", &kind.collection]).await?.ok()
    })
    .await?;
    let mut info = node_metrics::resource("v1beta1")?;
    info.group = GROUP.to_owned();
    // What is absent is `<none>` with us, for people; a custom resource leaves that to kubectl.
    info.missing_cell = Value::Null;
    // Not advertised, so that no garbage collector follows it, and so without the finalizers that are for one.
    info.unadvertised.clear();
    let ours = Ours::serve(info, Arc::new(NodeMetricStorage(store()))).await?;
    let mut comparison = Comparison::of(&real, &ours.endpoint, &kind);
    for question in super::generate::clean() {
        question.ask(&ours.endpoint, &kind).await?;
    }
    let written: Vec<Question> = serde_saphyr::from_str(REQUESTS)?;
    for question in &written {
        comparison.ask(question).await?;
    }
    comparison.made_up(&WORDS).await?;
    comparison.end()?;
    let metrics = About { group: GROUP, version: "v1beta1", kind: "NodeMetric" };
    metrics.openapi_v3((&real, &ours.endpoint)).await?;
    metrics.openapi_v2((&real, &ours.endpoint)).await?;
    drop(made);
    Ok(())
}

/// The custom resource: its schema is that of the real one.
fn definition() -> Result<Value> {
    let mut crd = serde_json::to_value(api::crds::node_metrics())?;
    crd["metadata"] = json!({ "name": CRD });
    crd["spec"]["group"] = GROUP.into();
    crd["spec"]["conversion"] = Value::Null;
    // Short names belong to whoever has them first.
    crd["spec"]["names"] = json!({ "kind": "NodeMetric", "plural": "nodemetrics", "singular": "nodemetric" });
    let version = crd["spec"]["versions"].get_mut(0).context("no version")?;
    version["selectableFields"] = json!([{ "jsonPath": ".status.freshness.state" }]);
    Ok(crd)
}

/// A store that leads, over Nodes of the names that requests are about.
fn store() -> Arc<NodeMetrics> {
    let began = std::time::Instant::now();
    let clock = move || Now { steady: began.elapsed(), wall: jiff::Timestamp::now() };
    let metrics = NodeMetrics::new(Store::new(Settings::default()), VERSION, clock, || true);
    let names: BTreeSet<Arc<str>> = ["a", "b", "c", "y1", "y2"].map(Arc::from).into();
    metrics.change(|store, now| {
        for name in &names {
            store.node_applied(now, NodeFacts::alive(name));
        }
        store.nodes_listed(now, &names);
        store.promote(now, 0);
        for name in &names {
            let report =
                Report { node: name.to_string(), usage: Some(NodeUsage::default()), ..Report::default() };
            store.report(now, report);
        }
    });
    metrics
}

/// Takes away what the server says of its own accord, whoever wrote the rest: freshness, load and the time of a status. So a `status` and a `spec` are always
/// there with us, and nobody who writes into them has made them (`.` among what a manager owns).
fn strip(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Object(members) => {
            members.values_mut().for_each(strip);
            if let Some(managers) = members.get_mut("managedFields").and_then(Value::as_array_mut) {
                managers.retain(|one| one["fieldsV1"].as_object().is_none_or(|owned| !owned.is_empty()));
                if managers.is_empty() {
                    members.remove("managedFields");
                }
            }
            if let Some(cells) = members.get_mut("cells").and_then(Value::as_array_mut) {
                for cell in cells.get_mut(AGES).into_iter().flatten() {
                    *cell = Value::Null;
                }
            }
            for name in ["status", "spec"] {
                let Some(part) = members.get_mut(name).and_then(Value::as_object_mut) else { continue };
                part.remove("freshness");
                part.remove("load");
                part.remove("updateTime");
                if part.is_empty() {
                    members.remove(name);
                }
            }
            for name in ["f:status", "f:spec"] {
                let Some(owned) = members.get_mut(name).and_then(Value::as_object_mut) else { continue };
                for own in [".", "f:freshness", "f:load"] {
                    owned.remove(own);
                }
                if owned.is_empty() {
                    members.remove(name);
                }
            }
        }
        _ => {}
    }
}

const WORDS: Words = Words {
    names: &["a", "a", "a", "b", "c"],
    // It would be that of no Node.
    generates: false,
    spec: &[
        r#""metricCollectPolicy":{}"#,
        r#""metricCollectPolicy":null"#,
        r#""metricCollectPolicy":[]"#,
        r#""metricCollectPolicy":"often""#,
        r#""metricCollectPolicy":{"reportIntervalSeconds":10}"#,
        r#""metricCollectPolicy":{"reportIntervalSeconds":"10"}"#,
        r#""metricCollectPolicy":{"reportIntervalSeconds":1.5}"#,
        r#""metricCollectPolicy":{"reportIntervalSeconds":99999999999999999999}"#,
        r#""metricCollectPolicy":{"aggregateDurationSeconds":300,"reportIntervalSeconds":null}"#,
        r#""metricCollectPolicy":{"nodeAggregatePolicy":{"durations":["5m","10m"]}}"#,
        r#""metricCollectPolicy":{"nodeAggregatePolicy":{"durations":[5]}}"#,
        r#""metricCollectPolicy":{"nodeAggregatePolicy":{"durations":[null]}}"#,
        r#""metricCollectPolicy":{"nodeMemoryCollectPolicy":"usageWithPageCache"}"#,
        r#""metricCollectPolicy":{"nodeMemoryCollectPolicy":"all"}"#,
        r#""metricCollectPolicy":{"unknown":{"deep":1}}"#,
        r#""unknown":1"#,
    ],
    valid: &[
        r#""metricCollectPolicy":{}"#,
        r#""metricCollectPolicy":{"reportIntervalSeconds":10}"#,
        r#""metricCollectPolicy":{"reportIntervalSeconds":20,"aggregateDurationSeconds":300}"#,
        r#""metricCollectPolicy":{"nodeAggregatePolicy":{"durations":["5m","10m"]}}"#,
        r#""metricCollectPolicy":{"nodeAggregatePolicy":{"durations":["30m"]}}"#,
        r#""metricCollectPolicy":{"nodeMemoryCollectPolicy":"usageWithPageCache"}"#,
    ],
    required: None,
    twice: [r#""metricCollectPolicy":{}"#, r#""metricCollectPolicy":{"reportIntervalSeconds":30}"#],
    // Who owns what is compared with the other kind: here a status and a spec are always there.
    metadata: &[
        r#""labels":{"app":"x"}"#,
        r#""labels":{"app":"y","tier":"z"}"#,
        r#""labels":{"not ok":"x"}"#,
        r#""labels":{"app":7}"#,
        r#""labels":null"#,
        r#""annotations":{"note":"any thing"}"#,
        r#""annotations":{"/":"x"}"#,
        r#""annotations":null"#,
        r#""finalizers":["e2e.isthmus.dev/one"]"#,
        r#""finalizers":[]"#,
        r#""finalizers":["bad finalizer"]"#,
        r#""generation":9"#,
        r#""uid":"other""#,
        r#""resourceVersion":"1""#,
        r#""bogus":1"#,
        r#""namespace":"elsewhere""#,
        r#""creationTimestamp":null"#,
    ],
    status: &[
        r#""updateTime":"2026-01-01T00:00:00Z""#,
        r#""updateTime":"yesterday""#,
        r#""updateTime":null"#,
        r#""nodeMetric":{"nodeUsage":{"resources":{"cpu":"1250m","memory":"2Gi"}}}"#,
        r#""nodeMetric":{"nodeUsage":{"resources":{"cpu":2,"memory":1048576}}}"#,
        r#""nodeMetric":{"nodeUsage":{"resources":{"cpu":true}}}"#,
        r#""nodeMetric":{"nodeUsage":{"resources":{"cpu":"a lot"}}}"#,
        r#""nodeMetric":{"nodeUsage":{"resources":{"cpu":"1"},"bogus":1}}"#,
        r#""nodeMetric":{"systemUsage":{"resources":{"cpu":"100m"}},"aggregatedNodeUsages":[{"duration":"5m","usage":{"p50":{"resources":{"cpu":"1"}},"p95":{"resources":{"cpu":"2"}}}}]}"#,
        r#""nodeMetric":{"numaUsages":[{"numaNodeID":0,"nodeUsage":{"resources":{"cpu":"1"}}},{"numaNodeID":1}]}"#,
        r#""nodeMetric":{"numaUsages":[{"nodeUsage":{}}]}"#,
        r#""nodeMetric":{"numaUsages":[{"numaNodeID":"0"}]}"#,
        r#""nodeMetric":null"#,
        r#""podsMetric":[{"name":"p1","namespace":"default","podUsage":{"resources":{"cpu":"10m","memory":"64Mi"}},"priority":"koord-prod","qos":"LS"}]"#,
        r#""podsMetric":[{"name":"p1","namespace":"default"},{"name":"p1","namespace":"default"}]"#,
        r#""podsMetric":[{"name":"p2","extensions":{"any":[1,{"thing":null}]}},null]"#,
        r#""podsMetric":[{"name":"p3","extensions":{"any":[1,{"thing":"x"}]},"bogus":1}]"#,
        r#""podsMetric":[]"#,
        r#""podsMetric":{}"#,
        r#""hostApplicationMetric":[{"name":"nginx","usage":{"resources":{"cpu":"1"}}}]"#,
        r#""prodReclaimableMetric":{"resource":{"resources":{"cpu":"3","memory":"5Gi"}}}"#,
        r#""summary":{"cpu":"1250m","cpuPercent":"62%","memory":"2Gi","memoryPercent":"8%","cpuP95":"1500m","pressure":"1.2/0.0/25.0","pods":3}"#,
        r#""summary":{"pods":"three"}"#,
        r#""summary":null"#,
        r#""other":1"#,
    ],
    operations: &[
        // Nothing that fits if there is but a status: with us one is always there.
        r#"{"op":"add","path":"/spec/metricCollectPolicy","value":{"reportIntervalSeconds":15}}"#,
        r#"{"op":"replace","path":"/spec/metricCollectPolicy/reportIntervalSeconds","value":25}"#,
        r#"{"op":"replace","path":"/spec/metricCollectPolicy/reportIntervalSeconds","value":"x"}"#,
        r#"{"op":"remove","path":"/spec/metricCollectPolicy"}"#,
        r#"{"op":"test","path":"/spec/metricCollectPolicy/reportIntervalSeconds","value":10}"#,
        r#"{"op":"add","path":"/metadata/labels","value":{"by":"patch"}}"#,
        r#"{"op":"add","path":"/status/podsMetric/-","value":{"name":"more"}}"#,
        r#"{"op":"replace","path":"/status/podsMetric/0/name","value":"other"}"#,
        r#"{"op":"remove","path":"/status/podsMetric/0"}"#,
        r#"{"op":"add","path":"/nowhere/at/all","value":1}"#,
        r#"{"op":"add","path":"/spec/bogus","value":1}"#,
        r#"{"op":"add","path":"/metadata/finalizers","value":["e2e.isthmus.dev/one"]}"#,
        r#"{"op":"replace","path":"/metadata/name","value":"z"}"#,
        r#"{"op":"test","path":"/metadata/name","value":"a"}"#,
    ],
    reading: &[
        "",
        "",
        "includeObject=None",
        "includeObject=Object",
        "labelSelector=app%3Dx",
        "labelSelector=app%20in%20(x%2Cy)%2Ctier",
        "labelSelector=!app",
        "labelSelector=app%3D%3D%3D",
        "fieldSelector=metadata.name%3Da",
        "fieldSelector=metadata.name!%3Da%2Cstatus.freshness.state!%3DNothing",
        "fieldSelector=spec.color%3Dred",
        "limit=1",
        "limit=1&labelSelector=app",
        "limit=2&fieldSelector=metadata.name!%3Da",
        "limit=1&continue=$NEXT",
        "limit=500&continue=$NEXT",
        "limit=1&continue=$NEXT&labelSelector=app%3Dx",
        "limit=1&continue=$NEXT&resourceVersion=0",
        "limit=x",
        "limit=1&resourceVersion=0",
        "resourceVersion=0",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact",
        "resourceVersion=x",
        "continue=x",
        "watch=1&timeoutSeconds=1",
        "watch=1&timeoutSeconds=1&resourceVersion=0",
        "watch=1&timeoutSeconds=1&resourceVersion=0&labelSelector=app%3Dx",
        "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&fieldSelector=metadata.name%3Db",
        "watch=1&timeoutSeconds=1&sendInitialEvents=true",
        "watch=1&timeoutSeconds=x",
        "watch=1&timeoutSeconds=1&resourceVersion=x",
    ],
    deleting: &[
        "labelSelector=app%3Dx",
        "labelSelector=tier",
        "fieldSelector=metadata.name%3Db",
        "dryRun=All",
        "labelSelector=(",
        "limit=1&dryRun=All",
    ],
    strange: &[
        ("json", "{"),
        ("json", r#"{$K,"spec":}"#),
        ("yaml", "{$K, metadata: {name: y1}, spec: {metricCollectPolicy: {reportIntervalSeconds: 0x3}}}"),
        ("application/cbor", "\u{a0}"),
        ("text/plain", "{$K}"),
        ("application/json;charset=utf-8", r#"{$K,"metadata":{"name":"y2"},"spec":{}}"#),
    ],
};

//! What Koordinator's own components read where NodeMetric is served as `v1alpha1`: a list decoded into their Go types, and encoded again, is what was
//! served but for what is ours alone. No cluster is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use aggregated_api::authorize::AuthorizationError;
use aggregated_api::{AggregatedApi, Attributes, Authorizer, Decision};
use anyhow::{Context, Result, ensure};
use e2e::run;
use futures::future::{BoxFuture, FutureExt, ready};
use node_metrics::freshness::Now;
use node_metrics::storage::{NodeMetricStorage, NodeMetrics};
use node_metrics::store::{NodeFacts, Settings, Store};
use node_report::report::{Aggregate, HostApplicationUsage, Numa, Pressure, PressureData, PressureStats};
use node_report::report::{Priority, Qos, RunQueue};
use node_report::{NodeUsage, PodUsage, Report, Resources};
use serde_json::Value;
use testkit::client::connection::Endpoint;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Nobody else can reach it.
struct Everybody;

impl Authorizer for Everybody {
    fn authorize<'a>(&'a self, _: &'a Attributes) -> BoxFuture<'a, Result<Decision, AuthorizationError>> {
        ready(Ok(Decision::Allowed)).boxed()
    }
}

#[tokio::test]
async fn koordinators_types_read_what_is_served_as_v1alpha1() -> Result<()> {
    let metrics = Arc::new(NodeMetricStorage(store()));
    let api = AggregatedApi::new().resource(node_metrics::resource("v1alpha1")?, metrics);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    let router = api.authorizer(Arc::new(Everybody)).router();
    tasks.spawn(async move { _ = axum::serve(listener, router).await });
    let path = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics";
    let mut answer = Endpoint::plain(address).get(path, "application/json").await?;
    let text = String::from_utf8(answer.bytes().await?.to_vec())?;
    let mut served: Value = serde_json::from_str(&text)?;
    ensure!(
        served["apiVersion"] == "slo.koordinator.sh/v1alpha1" && served["kind"] == "NodeMetricList",
        "{text}"
    );

    let built = run("hack/build-tools", &["informer", "--print-path"], "").await?.ok()?;
    let binary = built.split_whitespace().last().context("the path of the informer")?;
    let read: Value = serde_json::from_str(&run(binary, &["-reread"], &text).await?.ok()?)?;
    ours_alone_taken_away(&mut served);
    let (items, again) = (&served["items"], &read["items"]);
    ensure!(items.as_array().is_some_and(|items| items.len() == 2), "{items}");
    for at in 0..2 {
        for part in ["spec", "status"] {
            let (served, read) = (&items[at][part], &again[at][part]);
            ensure!(served == read, "{part}, served:\n{served}\nread by Koordinator:\n{read}");
        }
        ensure!(items[at]["metadata"]["name"] == again[at]["metadata"]["name"], "{again}");
    }
    // Nothing that they go by is missing: they find the first node loaded, and nothing of the second.
    let status = &again[0]["status"];
    for path in [
        "/updateTime",
        "/nodeMetric/nodeUsage/resources/cpu",
        "/nodeMetric/aggregatedNodeUsages/0/usage/p95/resources/memory",
        "/nodeMetric/numaUsages/1/numaNodeID",
        "/podsMetric/0/podUsage/resources/cpu",
        "/podsMetric/0/priority",
        "/hostApplicationMetric/0/usage/resources/memory",
        "/prodReclaimableMetric/resource/resources/cpu",
        "/prodPeakMetric/resource/resources/cpu",
    ] {
        ensure!(status.pointer(path).is_some_and(|value| !value.is_null()), "no {path}: {status}");
    }
    ensure!(again[1]["status"]["updateTime"].is_null(), "a node that never reported: {}", again[1]);
    Ok(())
}

/// Freshness, loads and scarcity are not Koordinator's; its components pass over them.
fn ours_alone_taken_away(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(ours_alone_taken_away),
        Value::Object(members) => {
            for name in ["freshness", "load", "summary", "scarcity", "systemScarcity"] {
                members.remove(name);
            }
            members.values_mut().for_each(ours_alone_taken_away);
        }
        _ => {}
    }
}

/// Two nodes, of which one reports all that there is to report.
fn store() -> Arc<NodeMetrics> {
    let began = std::time::Instant::now();
    let clock = move || Now { steady: began.elapsed(), wall: jiff::Timestamp::now() };
    let version = "slo.koordinator.sh/v1alpha1";
    let metrics = NodeMetrics::new(Store::new(Settings::default()), version, clock, || true);
    let names: BTreeSet<Arc<str>> = ["loaded", "never"].map(Arc::from).into();
    metrics.change(|store, now| {
        for name in &names {
            // The one that is down is not waited for.
            store.node_applied(now, NodeFacts { ready: &**name == "loaded", ..NodeFacts::alive(name) });
        }
        store.nodes_listed(now, &names);
        store.promote(now, 0);
        store.report(now, report("loaded"));
    });
    metrics
}

fn report(node: &str) -> Report {
    let used = |cpu_milli, memory_bytes| {
        Some(Resources { cpu_milli: Some(cpu_milli), memory_bytes: Some(memory_bytes) })
    };
    let aggregate = |duration_s| Aggregate {
        duration_s,
        avg: used(1_000, 1 << 30),
        p50: used(1_001, (1 << 30) + 1),
        p90: used(1_500, 3 << 29),
        // Go writes a whole number of thousands anew as 1M, which is the same.
        p95: used(1_999, 1_000_001),
        p99: used(2_000, 5 << 20),
    };
    let data = Some(PressureData { avg10_ppm: Some(1), ..PressureData::default() });
    let pressure =
        Some(Pressure { cpu: Some(PressureStats { some: data, full: data }), memory: None, io: None });
    let run_queue = Some(RunQueue { delay_ns: Some(1), waiting_milli: Some(2) });
    let numa = |id| Numa { id, usage: used(500, 1 << 29), system: None };
    let usage = NodeUsage {
        aggregate_duration_s: 300,
        usage: used(1_250, 2 << 30),
        aggregates: [300, 600, 1_800].map(aggregate).to_vec(),
        system: used(99, 123_456_789),
        system_aggregates: vec![aggregate(300)],
        prod_reclaimable: used(700, 1 << 28),
        prod_peak: used(3_000, 0),
        pressure,
        run_queue,
        numa: vec![numa(0), numa(1)],
        host_applications: vec![HostApplicationUsage {
            name: "plc".to_owned(),
            usage: used(10, 1 << 20),
            priority: Some(Priority::Prod.into()),
            qos: Some(Qos::Ls.into()),
        }],
        system_pressure: pressure,
        system_run_queue: run_queue,
        ..NodeUsage::default()
    };
    let pod = |number: u64| PodUsage {
        uid: format!("uid-{number}"),
        namespace: "team".to_owned(),
        name: format!("pod-{number}"),
        usage: used(number, number << 10),
        priority: Some(Priority::Batch.into()),
        qos: Some(Qos::Be.into()),
        pressure,
        ..PodUsage::default()
    };
    Report { node: node.to_owned(), usage: Some(usage), pods: (0..3).map(pod).collect(), ..Report::default() }
}

//! A label added to every pool of a large cluster: how long until every node carries it, and what it costs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{NodePool, labels};
use e2e::replicas::leader_process;
use e2e::{eventually, hack_cluster, kubectl};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::process::{Process, cpu_by_program};
use crate::report::{Figure, Report};

const LABEL: &str = "bench.isthmus.dev/round";
const KIND: &str = "bench.isthmus.dev/kind";

/// How many clients write at a time in the comparison, as many as the controller has writes under way.
const WRITERS: usize = 32;

/// Whose figures stand beside ours: the same change on the same machine, not in the same run.
const PEER: &str = "yurt-manager v1.7, same machine, earlier run";

/// How large the cluster is.
#[derive(clap::Args)]
pub(crate) struct Size {
    /// Number of nodes.
    #[arg(long, default_value_t = 2000)]
    nodes: usize,
    /// Number of pools, over which the nodes are spread.
    #[arg(long, default_value_t = 40)]
    pools: usize,
}

/// What one change of all pools cost, and the same patches without a controller.
struct Change {
    converge_s: f64,
    cpu_s: f64,
    resident_mb: f64,
    api_writes: f64,
    direct_s: f64,
    /// Who used the processors until all nodes carried it, in seconds, the greatest first.
    spent: Vec<(String, f64)>,
}

/// Measures; leaves the cluster without the nodes and pools that it made.
pub(crate) async fn run(client: Client, size: Size) -> Result<Report> {
    let Size { nodes, pools } = size;
    let pool_api = Api::<NodePool>::all(client.clone());
    set_labels(&pool_api, pools, json!({ KIND: "scale" })).await?;
    register(&client, &size).await?;
    let still = measured(&client, &size, "still").await?;
    Api::<Node>::all(client.clone())
        .delete_collection(&DeleteParams::default(), &ListParams::default().labels(labels::NODE_POOL))
        .await?;
    counted(&pool_api, 0).await?;

    hack_cluster(&["nodes", &nodes.to_string(), "--pools", &pools.to_string()]).await?.ok()?;
    let beating = measured(&client, &size, "beating").await?;
    kubectl(&["label", "nodes", "-l", labels::NODE_POOL, &format!("{}-", labels::NODE_POOL)]).await?.ok()?;
    let names: Vec<String> = (0..pools).map(|i| format!("np/pool-{i}")).collect();
    let arguments: Vec<&str> = ["delete"].into_iter().chain(names.iter().map(String::as_str)).collect();
    kubectl(&arguments).await?.ok()?;
    hack_cluster(&["nodes", "0"]).await?.ok()?;

    let bound = |what: &str, change: &Change| {
        let spent: Vec<_> = change.spent.iter().map(|(who, seconds)| format!("{who} {seconds:.2}")).collect();
        format!(
            "What bounds it, {what}: the API server. The same {nodes} patches, sent without any controller by {WRITERS} writers in \
             this run, took {:.2} s; through the controller {:.2} times that. Processor seconds until then: {}.",
            change.direct_s,
            change.converge_s / change.direct_s,
            spent.join(", ")
        )
    };
    Ok(Report {
        missing: Vec::new(),
        title: format!("nodepool: a label added to {pools} pools of {nodes} nodes"),
        figures: vec![
            Figure::new("converge_s", still.converge_s).against(39.9, PEER).target(4.0),
            Figure::new("cpu_s", still.cpu_s).against(5.3, PEER).target(1.0),
            Figure::new("resident_mb", still.resident_mb).against(92.0, PEER).target(30.0),
            Figure::new("api_writes", still.api_writes),
            Figure::new("direct_s", still.direct_s),
            Figure::new("beating_converge_s", beating.converge_s),
            Figure::new("beating_cpu_s", beating.cpu_s),
            Figure::new("beating_resident_mb", beating.resident_mb),
            Figure::new("beating_api_writes", beating.api_writes),
            Figure::new("beating_direct_s", beating.direct_s),
        ],
        notes: vec![
            bound(
                "nodes that registered and were never heard of again, as the peer's figures were taken with",
                &still,
            ),
            bound("nodes with a status, each of which renews its Lease every 30 s (beating_…)", &beating),
        ],
    })
}

/// Nodes that registered and nothing more, which the peer's figures were taken with: made as a kubelet makes its own, and never heard of again.
async fn register(client: &Client, size: &Size) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let nodes = &nodes;
    stream::iter(0..size.nodes)
        .map(|i| async move {
            let name = node_name(i);
            let mut node = Node::default();
            let pool = format!("pool-{}", i % size.pools);
            let labels = [("kubernetes.io/hostname", name.clone()), (labels::NODE_POOL, pool)];
            node.metadata.labels =
                Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
            node.metadata.name = Some(name);
            nodes.create(&PostParams::default(), &node).await
        })
        .buffer_unordered(WRITERS)
        .try_for_each(|_| async { Ok(()) })
        .await
        .context("nodes")
}

/// As `hack/cluster nodes` calls them.
fn node_name(number: usize) -> String {
    format!("fake-{number:05}")
}

/// Waits until the statuses of the pools count that many nodes.
async fn counted(pools: &Api<NodePool>, nodes: usize) -> Result<()> {
    eventually("all nodes are counted", Duration::from_mins(2), || async {
        let found = pools.list(&ListParams::default()).await?;
        let counted: usize = found
            .iter()
            .filter(|p| p.name_any().starts_with("pool-"))
            .filter_map(|p| p.status.as_ref())
            .map(|s| s.nodes.len())
            .sum();
        ensure!(counted == nodes, "{counted} of {nodes}");
        Ok(())
    })
    .await
}

/// One change once the cluster is at rest.
async fn measured(client: &Client, size: &Size, value: &'static str) -> Result<Change> {
    counted(&Api::all(client.clone()), size.nodes).await?;
    settled().await?;
    change(client, size, value).await
}

/// Adds a label of that value to each pool, and measures.
async fn change(client: &Client, size: &Size, value: &'static str) -> Result<Change> {
    let Size { nodes, pools } = *size;
    let pool_api = Api::<NodePool>::all(client.clone());
    let leader = Process(leader_process(client).await.context("needs hack/cluster and root")?);
    let writes_before = api_writes().await?;
    let cpu_before = leader.cpu_seconds()?;
    let watch = tokio::spawn(carried(client.clone(), value, nodes));
    // The watch must be there before the change.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (began, programs) = (Instant::now(), cpu_by_program()?);
    set_labels(&pool_api, pools, json!({ KIND: "scale", LABEL: value })).await?;
    let finished =
        tokio::time::timeout(Duration::from_mins(2), watch).await.context("not converged")???;
    let converge_s = finished.duration_since(began).as_secs_f64();
    let spent = since(&programs)?;
    // Statuses follow the nodes; their cost belongs to the change.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let cpu_s = leader.cpu_seconds()? - cpu_before;
    let resident_mb = leader.resident_mb()?;
    let api_writes = api_writes().await? - writes_before;
    let direct_s = direct(client, nodes, value).await?;
    Ok(Change { converge_s, cpu_s, resident_mb, api_writes, direct_s, spent })
}

/// Who used the processors since then, but for what does not count.
fn since(before: &BTreeMap<String, f64>) -> Result<Vec<(String, f64)>> {
    const COUNTS: f64 = 0.05;
    let mut spent: Vec<_> = cpu_by_program()?
        .into_iter()
        .map(|(name, seconds)| {
            let before = before.get(&name).copied().unwrap_or_default();
            (name, seconds - before)
        })
        .filter(|(_, seconds)| *seconds >= COUNTS)
        .collect();
    spent.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    Ok(spent)
}

/// Makes the pools carry these labels for their nodes.
async fn set_labels(pools: &Api<NodePool>, count: usize, labels: serde_json::Value) -> Result<()> {
    stream::iter(0..count)
        .map(|i| {
            let name = format!("pool-{i}");
            let pool = json!({
                "apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool",
                "metadata": { "name": name }, "spec": { "labels": labels },
            });
            async move { pools.patch(&name, &PatchParams::apply("bench").force(), &Patch::Apply(&pool)).await }
        })
        .buffer_unordered(WRITERS)
        .try_for_each(|_| async { Ok(()) })
        .await
        .context("pools")
}

/// The moment at which the last of `count` nodes carries the label with that value.
async fn carried(client: Client, value: &str, count: usize) -> Result<Instant> {
    // In the form that others watch too, so that the API server does no work for the measurement alone.
    let nodes = Api::<Node>::all(client);
    let config = watcher::Config::default().labels(&format!("{LABEL}={value}"));
    let mut events = std::pin::pin!(watcher(nodes, config).applied_objects());
    let mut carrying = std::collections::BTreeSet::new();
    while let Some(node) = events.try_next().await? {
        carrying.insert(node.name_any());
        if carrying.len() == count {
            return Ok(Instant::now());
        }
    }
    anyhow::bail!("the watch ended")
}

/// How long the same number of patches takes without a controller.
async fn direct(client: &Client, count: usize, value: &str) -> Result<f64> {
    let nodes = Api::<Node>::all(client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "bench.isthmus.dev/direct": value } } }));
    let (nodes, patch) = (&nodes, &patch);
    let began = Instant::now();
    stream::iter(0..count)
        .map(|i| async move { nodes.patch_metadata(&node_name(i), &PatchParams::default(), patch).await })
        .buffer_unordered(WRITERS)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    Ok(began.elapsed().as_secs_f64())
}

/// Waits until what new nodes set off has ended: kube-controller-manager annotates and taints each, for a minute and more,
/// which would be measured as ours.
async fn settled() -> Result<()> {
    const LOOK: Duration = Duration::from_secs(10);
    // What a small cluster at rest writes meanwhile.
    const AT_REST: f64 = 20.0;
    eventually("the cluster is at rest", Duration::from_mins(5), || async {
        let before = api_writes().await?;
        tokio::time::sleep(LOOK).await;
        let written = api_writes().await? - before;
        ensure!(written <= AT_REST, "{written} writes in {LOOK:?}");
        Ok(())
    })
    .await
}

/// Writes of nodes, pools, their statuses, events and `ConfigMap`s that the API server has served, apart from
/// heartbeats.
async fn api_writes() -> Result<f64> {
    let metrics = kubectl(&["get", "--raw", "/metrics"]).await?.ok()?;
    let counted = ["nodes", "nodepools", "events", "configmaps"];
    Ok(metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .filter(|line| counted.iter().any(|resource| line.contains(&format!("resource=\"{resource}\""))))
        .filter(|line| {
            ["APPLY", "PATCH", "POST", "PUT"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        })
        .filter(|line| !(line.contains("resource=\"nodes\"") && line.contains("subresource=\"status\"")))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum())
}

//! Node objects of simulated nodes, and what the control plane stored meanwhile.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::slo::node_metric::NodeMetric;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use e2e::{eventually, kubectl};

use super::fleet;
use crate::process::Process;

/// How many clients write at a time.
const WRITERS: usize = 16;

/// How long objects may outlive their Nodes: a new leader asks for twenty Nodes a second.
const GONE: Duration = Duration::from_mins(10);

/// What a cluster at rest writes in the time of a look: Leases apart.
const AT_REST: f64 = 5.0;

/// Makes Nodes `range` where they are not there yet, alive as a kubelet would say.
pub(super) async fn make(client: &Client, range: std::ops::Range<usize>) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    stream::iter(range)
        .map(|number| {
            let nodes = nodes.clone();
            async move {
                let now = jiff::Timestamp::now().to_string();
                let node: Node = serde_json::from_value(json!({
                    "metadata": { "name": fleet::name(number), "labels": { "bench.isthmus.dev/load": "true" } },
                    "spec": { "taints": [{ "key": "bench.isthmus.dev/load", "effect": "NoSchedule" }] },
                    "status": {
                        "allocatable": { "cpu": "32", "memory": "64Gi", "pods": "110" },
                        "capacity": { "cpu": "32", "memory": "64Gi", "pods": "110" },
                        "conditions": [{
                            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated",
                            "lastHeartbeatTime": now, "lastTransitionTime": now,
                        }],
                    },
                }))?;
                match nodes.create(&PostParams::default(), &node).await {
                    Ok(_) => anyhow::Ok(()),
                    Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
        })
        .buffer_unordered(WRITERS)
        .try_for_each(|()| async { Ok(()) })
        .await
        .context("nodes")
}

/// Takes all of them away: silent nodes would be written of.
pub(super) async fn remove(client: &Client) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let simulated = ListParams::default().labels("bench.isthmus.dev/load=true");
    eventually("no simulated node is left", Duration::from_mins(3), || async {
        nodes.delete_collection(&DeleteParams::default(), &simulated).await?;
        let left = nodes.list_metadata(&simulated.clone().limit(1)).await?.items.len();
        ensure!(left == 0, "some are left");
        anyhow::Ok(())
    })
    .await?;
    // What comes next begins with nothing of them: a new leader asks for each Node before it lets go of an object.
    let metrics = Api::<NodeMetric>::all(client.clone());
    eventually("no object of a simulated node is left", GONE, || async {
        let listed = metrics.list_metadata(&ListParams::default().limit(50)).await?;
        let of_load = |name: &String| name.starts_with(fleet::PREFIX);
        let left =
            listed.items.iter().filter_map(|item| item.metadata.name.as_ref()).find(|name| of_load(name));
        ensure!(left.is_none(), "{left:?} is left");
        anyhow::Ok(())
    })
    .await
}

/// What etcd was given to store, by the API server's own count.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    /// Writes of anything but Leases, which are as many whatever nodes report.
    pub(super) writes: f64,
    /// Writes of Leases: those of elections and of nodes' heartbeats.
    pub(super) leases: f64,
    /// Bytes that etcd made the kernel write.
    pub(super) bytes: f64,
}

impl Stored {
    pub(super) async fn now() -> Result<Self> {
        let metrics = kubectl(&["get", "--raw", "/metrics"]).await?.ok()?;
        let written = |line: &&str| {
            line.starts_with("etcd_request_duration_seconds_count{")
                && ["create", "update", "delete"]
                    .iter()
                    .any(|op| line.contains(&format!("operation=\"{op}\"")))
        };
        let count = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok());
        let (leases, others): (Vec<&str>, Vec<&str>) =
            metrics.lines().filter(written).partition(|line| line.contains("leases"));
        let sum = |lines: Vec<&str>| lines.into_iter().filter_map(count).sum();
        Ok(Self { writes: sum(others), leases: sum(leases), bytes: control_plane("etcd")?.written_bytes()? })
    }

    pub(super) fn since(self, before: Self) -> Self {
        let Self { writes, leases, bytes } = self;
        Self { writes: writes - before.writes, leases: leases - before.leases, bytes: bytes - before.bytes }
    }
}

/// A process of the cluster in use.
pub(super) fn control_plane(component: &str) -> Result<Process> {
    let cluster = std::env::var("ISTHMUS_CLUSTER").unwrap_or_else(|_| "isthmus".to_owned());
    let folder = std::env::var("ISTHMUS_CLUSTERS").unwrap_or_else(|_| "/var/lib/isthmus".to_owned());
    let program = format!("{folder}/{cluster}/bin/{component}");
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let text = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if text.split(|byte| *byte == 0).next() == Some(program.as_bytes()) {
            return Ok(Process(entry.file_name().to_string_lossy().parse()?));
        }
    }
    anyhow::bail!("no {program} on this machine: the benchmark needs hack/cluster and root")
}

/// How many Nodes a second the leader can be waited for to write of, on a machine that has much else to do: half of what it writes at most.
const WRITTEN_PER_S: u64 = 10;

/// Waits until what so many new nodes set off has ended, such as the condition that says that they report.
pub(super) async fn settled(nodes: usize) -> Result<()> {
    let limit = Duration::from_secs(60 + nodes as u64 / WRITTEN_PER_S);
    eventually("the cluster is at rest", limit, || async {
        let before = Stored::now().await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let Stored { writes, .. } = Stored::now().await?.since(before);
        ensure!(writes <= AT_REST, "{writes} writes in 3 s");
        Ok(())
    })
    .await
}

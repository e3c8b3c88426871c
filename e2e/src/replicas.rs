//! The replicas of the manager: who leads, who is ready, who began anew.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::{SYSTEM, eventually, kubectl};

/// The Lease of who runs the controllers.
pub const LEASE: &str = "isthmus-manager";

/// Who runs the controllers, as the Lease has it: the name of a pod and a process of it.
pub async fn holder(client: &Client) -> Result<String> {
    holder_of(client, LEASE).await
}

/// Who leads by this Lease.
pub async fn holder_of(client: &Client, lease: &str) -> Result<String> {
    let lease = Api::<Lease>::namespaced(client.clone(), SYSTEM).get(lease).await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    ensure!(!holder.is_empty(), "nobody leads");
    Ok(holder)
}

/// Waits until another than `before` leads by this Lease.
pub async fn another_leads(client: &Client, lease: &str, before: &str, within: Duration) -> Result<()> {
    eventually("another leads", within, || async {
        let now = holder_of(client, lease).await?;
        ensure!(now != before, "{now} still leads");
        Ok(())
    })
    .await
}

/// The pods of the manager that are not going away, as they are now.
pub async fn replicas(client: &Client) -> Result<Vec<Pod>> {
    let selector = ListParams::default().labels("app.kubernetes.io/component=manager");
    let pods = Api::<Pod>::namespaced(client.clone(), SYSTEM).list(&selector).await?;
    Ok(pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
}

/// Waits until every replica is ready.
pub async fn all_ready() -> Result<()> {
    kubectl(&["-n", SYSTEM, "rollout", "status", "deployment/isthmus-manager", "--timeout=90s"])
        .await?
        .ok()?;
    Ok(())
}

/// How often the leadership has changed hands.
pub async fn transitions(client: &Client) -> Result<i32> {
    let lease = Api::<Lease>::namespaced(client.clone(), SYSTEM).get(LEASE).await?;
    Ok(lease.spec.and_then(|spec| spec.lease_transitions).unwrap_or_default())
}

/// How often the container of each replica was started again, by pod.
pub async fn restarts(client: &Client) -> Result<BTreeMap<String, i32>> {
    let count = |pod: &Pod| {
        let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
        Some(containers.iter().map(|container| container.restart_count).sum())
    };
    let replicas = replicas(client).await?;
    Ok(replicas.iter().map(|pod| (pod.name_any(), count(pod).unwrap_or_default())).collect())
}

/// The name of the pod that leads.
pub async fn leader(client: &Client) -> Result<String> {
    let holder = holder(client).await?;
    let mut names = replicas(client).await?.into_iter().map(|pod| pod.name_any());
    names.find(|name| holder.starts_with(name)).context("no pod of the leader")
}

/// The number of the process that leads: its cluster is on this machine.
pub async fn leader_process(client: &Client) -> Result<u32> {
    let process = process(&leader(client).await?)?;
    let id = process.file_name().and_then(|id| id.to_str()).context("the process's number")?;
    Ok(id.parse()?)
}

/// The folder in `/proc` of the manager that runs in that pod: its cluster is on this machine.
pub fn process(pod: &str) -> Result<PathBuf> {
    let name = format!("POD_NAME={pod}");
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let words = |file: &str| {
            let text = std::fs::read(entry.path().join(file)).unwrap_or_default();
            text.split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect::<Vec<_>>()
        };
        let is_manager = words("cmdline").first().is_some_and(|program| program.ends_with("isthmus-manager"));
        if is_manager && words("environ").contains(&name) {
            return Ok(entry.path());
        }
    }
    Err(anyhow::anyhow!("no process of pod {pod} on this machine"))
}

/// How long ago that process began.
pub fn age(process: &std::path::Path) -> Result<Duration> {
    let up = std::fs::read_to_string("/proc/uptime")?;
    let up: f64 = up.split(' ').next().context("uptime")?.parse()?;
    let stat = std::fs::read_to_string(process.join("stat"))?;
    // proc(5): the start is field 22 of the line, 20 after the name, in ticks of 10 ms since the machine began.
    let began =
        stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(19)).context("stat")?;
    Ok(Duration::try_from_secs_f64((up - began.parse::<f64>()? / 100.0).max(0.0))?)
}

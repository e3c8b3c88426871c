//! The replicas of the manager: who leads, who is ready, who began anew.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::{SYSTEM, kubectl};

/// Who leads, as the Lease has it: the name of a pod and a process of it.
pub async fn holder(client: &Client) -> Result<String> {
    let lease = Api::<Lease>::namespaced(client.clone(), SYSTEM).get("isthmus-manager").await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    ensure!(!holder.is_empty(), "nobody leads");
    Ok(holder)
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
    let lease = Api::<Lease>::namespaced(client.clone(), SYSTEM).get("isthmus-manager").await?;
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

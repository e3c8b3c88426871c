//! What replicas say of themselves in their metrics: whether a standby would take over warm, and whether a leader did.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use e2e::hub::token;
use e2e::{SYSTEM, eventually, replicas, run};
use kube::ResourceExt;

use super::SOON;
use super::ground::Ground;

/// How often each replica took over without a copy, by pod.
pub(super) type Cold = BTreeMap<String, u64>;

/// Whoever may read metrics.
pub(super) struct Figures {
    token: String,
}

impl Figures {
    pub(super) async fn new() -> Result<Self> {
        Ok(Self { token: token(SYSTEM, "e2e-figures", "isthmus-metrics-reader").await? })
    }

    /// The metrics of a replica.
    async fn of(&self, address: &str) -> Result<String> {
        let header = format!("Authorization: Bearer {}", self.token);
        let url = format!("https://{address}:10271/metrics");
        let text = run("curl", &["-skf", "--max-time", "2", "-H", &header, &url], "").await?.ok()?;
        ensure!(text.contains("isthmus_node_metric_leading "), "no metrics of NodeMetric: {text}");
        Ok(text)
    }

    /// Whether that replica holds a whole copy of the leader's state, and the version of the last change that it knows.
    pub(super) async fn copy(&self, address: &str) -> Result<(bool, u64)> {
        let text = self.of(address).await?;
        let value = |name: &str| value(&text, &format!("isthmus_node_metric_{name}"));
        Ok((value("copied") == 1, value("resource_version")))
    }

    /// Waits until whoever does not lead has a whole copy of the leader's state. Returns how often each replica took over without one.
    pub(super) async fn standbys_are_warm(&self, ground: &Ground) -> Result<Cold> {
        eventually("the standbys have a copy", SOON, || async {
            let (leader, mut cold) = (ground.holder().await?, Cold::new());
            for pod in replicas::replicas(&ground.client).await? {
                let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
                let (name, text) = (pod.name_any(), self.of(&address.unwrap_or_default()).await?);
                let copied = value(&text, "isthmus_node_metric_copied") == 1;
                ensure!(copied || leader.starts_with(&format!("{name}_")), "{name} has no copy");
                cold.insert(name, took_over(&text, false));
            }
            ensure!(cold.len() >= 2, "{} replicas", cold.len());
            Ok(cold)
        })
        .await
    }

    /// Whether the leader had a copy when it took over; `before` is what was so then.
    pub(super) async fn took_over_warm(&self, ground: &Ground, before: &Cold) -> Result<()> {
        let leader = ground.leader().await?;
        let text = eventually("the leader shows its metrics", SOON, || self.of(&leader.address)).await?;
        let (warm, cold) = (took_over(&text, true), took_over(&text, false));
        let known = before.get(&leader.pod).copied().unwrap_or_default();
        ensure!(warm >= 1, "{} did not take over warm: {cold} times cold", leader.pod);
        ensure!(cold <= known, "{} took over cold {cold} times, {known} of them before", leader.pod);
        Ok(())
    }
}

fn took_over(metrics: &str, warm: bool) -> u64 {
    value(metrics, &format!("isthmus_node_metric_take_overs_total{{warm=\"{warm}\"}}"))
}

/// A series that is not there has counted nothing yet.
fn value(metrics: &str, series: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

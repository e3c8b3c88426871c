//! What a call costs, as processes and metrics tell: processor time, and where it is waited.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::{SYSTEM, kubectl, run};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, Config, ResourceExt};

/// The processes that a creation keeps busy.
pub(super) struct Processes {
    api_server: Vec<PathBuf>,
    managers: Vec<PathBuf>,
}

/// Processor time so far, in milliseconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Cpu {
    pub(super) api_server: f64,
    pub(super) managers: f64,
}

impl Cpu {
    pub(super) fn add(&mut self, before: Self, after: Self) {
        self.api_server += after.api_server - before.api_server;
        self.managers += after.managers - before.managers;
    }
}

impl Processes {
    /// Those of the cluster in use, which runs on this machine.
    pub(super) async fn find(client: &Client) -> Result<Self> {
        let host = Config::infer().await?.cluster_url.host().context("host")?.to_owned();
        let selector = ListParams::default().labels("app.kubernetes.io/component=manager");
        let pods = Api::<Pod>::namespaced(client.clone(), SYSTEM).list(&selector).await?;
        let mut found = Self { api_server: Vec::new(), managers: Vec::new() };
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<_> = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            if words[0].ends_with("kube-apiserver")
                && words.contains(&format!("--bind-address={host}").into())
            {
                found.api_server.push(entry.path());
            }
        }
        let managers = pods.iter().map(|pod| e2e::replicas::process(&pod.name_any()));
        found.managers.extend(managers.flatten());
        ensure!(found.api_server.len() == 1, "no API server of {host} on this machine");
        ensure!(!found.managers.is_empty(), "no manager on this machine");
        Ok(found)
    }

    pub(super) fn cpu(&self) -> Result<Cpu> {
        let sum = |all: &[PathBuf]| all.iter().map(|process| milliseconds(process)).sum::<Result<f64>>();
        Ok(Cpu { api_server: sum(&self.api_server)?, managers: sum(&self.managers)? })
    }
}

/// User and system time of a process.
fn milliseconds(process: &Path) -> Result<f64> {
    let stat = std::fs::read_to_string(process.join("stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // proc(5): utime and stime are fields 14 and 15 of the line, 12 and 13 after the name, in ticks of 10 ms.
    let ticks: f64 =
        fields.get(11..13).context("stat")?.iter().filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks * 10.0)
}

/// A sum and a count of a histogram, of all series that have the label.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seconds {
    sum: f64,
    count: f64,
}

impl Seconds {
    fn read(metrics: &str, name: &str, label: &str) -> Self {
        let total = |suffix: &str| {
            let start = format!("{name}_{suffix}{{");
            let lines = metrics.lines().filter(|line| line.starts_with(&start) && line.contains(label));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        Self { sum: total("sum"), count: total("count") }
    }

    /// How often something was measured since `before`, and the mean in milliseconds.
    pub(super) fn since(self, before: Self) -> (f64, f64) {
        let count = self.count - before.count;
        (count, (self.sum - before.sum) * 1000.0 / count)
    }
}

/// Time that the API server waited for a webhook, connection and all.
pub(super) async fn calls(webhook: &str) -> Result<Seconds> {
    let metrics = kubectl(&["get", "--raw", "/metrics"]).await?.ok()?;
    Ok(Seconds::read(
        &metrics,
        "apiserver_admission_webhook_admission_duration_seconds",
        &format!("name=\"{webhook}\""),
    ))
}

/// Time that our handler took, over all replicas.
pub(super) async fn handling(client: &Client) -> Result<Seconds> {
    let token = kubectl(&["-n", SYSTEM, "create", "token", "isthmus-manager"]).await?.ok()?;
    let header = format!("Authorization: Bearer {}", token.trim());
    let selector = ListParams::default().labels("app.kubernetes.io/component=manager");
    let mut all = Seconds::default();
    let pods = Api::<Pod>::namespaced(client.clone(), SYSTEM).list(&selector).await?;
    for pod in pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let address = pod.status.and_then(|status| status.pod_ip).context("no address")?;
        let url = format!("https://{address}:10271/metrics");
        let metrics = run("curl", &["-sk", "-H", &header, &url], "").await?.ok()?;
        let Seconds { sum, count } =
            Seconds::read(&metrics, "isthmus_webhook_duration_seconds", "webhook=\"pod\"");
        all = Seconds { sum: all.sum + sum, count: all.count + count };
    }
    Ok(all)
}

/// Lets the manager's account, whose token is used, read the manager's metrics, or takes that back.
pub(super) async fn allow_metrics(allow: bool) -> Result<()> {
    kubectl(&["delete", "clusterrolebinding", "bench-metrics", "--ignore-not-found"]).await?.ok()?;
    if allow {
        let account = format!("--serviceaccount={SYSTEM}:isthmus-manager");
        let words = [
            "create",
            "clusterrolebinding",
            "bench-metrics",
            "--clusterrole=isthmus-metrics-reader",
            &account,
        ];
        kubectl(&words).await?.ok()?;
    }
    Ok(())
}

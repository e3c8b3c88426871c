//! The replicas of the manager: processes of this machine, in pods.

use anyhow::{Context, Result, ensure};
use e2e::SYSTEM;
use e2e::replicas::holder_of;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::process::Process;

const LEASE: &str = "isthmus-node-metric";

/// One replica.
#[derive(Clone)]
pub(super) struct Replica {
    /// Address of its pod.
    pub(super) address: String,
    pub(super) process: Process,
}

/// What a replica has used so far.
#[derive(Clone, Copy)]
pub(super) struct Used {
    pub(super) cpu_seconds: f64,
    /// Received and sent on its pod's link.
    pub(super) link_bytes: [f64; 2],
}

impl Replica {
    pub(super) fn used(&self) -> Result<Used> {
        Ok(Used { cpu_seconds: self.process.cpu_seconds()?, link_bytes: self.link_bytes()? })
    }

    fn link_bytes(&self) -> Result<[f64; 2]> {
        let text = std::fs::read_to_string(format!("/proc/{}/net/dev", self.process.0))?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:")).context("eth0")?;
        let fields: Vec<f64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        Ok([*fields.first().context("received")?, *fields.get(8).context("sent")?])
    }

    /// Lets no packet in or out of its pod, or lets them again.
    pub(super) async fn cut_off(&self, off: bool) -> Result<()> {
        let network = format!("--net=/proc/{}/ns/net", self.process.0);
        let change = if off { "-I" } else { "-D" };
        for chain in ["INPUT", "OUTPUT"] {
            e2e::run("nsenter", &[&network, "iptables", "-w", change, chain, "-j", "DROP"], "")
                .await?
                .ok()?;
        }
        Ok(())
    }

    /// Sends its process a signal.
    pub(super) fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.process.0)?).context("pid")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }
}

/// The leader of node metrics, and those that stand by.
pub(super) async fn replicas(client: &Client) -> Result<(Replica, Vec<Replica>)> {
    let holder = holder_of(client, LEASE).await?;
    let managers = ListParams::default().labels("app.kubernetes.io/name=isthmus");
    let mut standbys = Vec::new();
    let mut leader = None;
    for pod in Api::<Pod>::namespaced(client.clone(), SYSTEM).list(&managers).await? {
        let name = pod.name_any();
        let address = pod.status.and_then(|status| status.pod_ip);
        let (Some(address), Some(process)) = (address, process_of(&name)?) else { continue };
        let leads = holder.starts_with(&name);
        let replica = Replica { address, process };
        if leads { leader = Some(replica) } else { standbys.push(replica) }
    }
    Ok((leader.with_context(|| format!("no process of {holder} on this machine"))?, standbys))
}

/// The leader and one standby, once both run.
pub(super) async fn pair(client: &Client) -> Result<(Replica, Replica)> {
    let (leader, standbys) = replicas(client).await?;
    ensure!(standbys.len() == 1, "{} standbys", standbys.len());
    Ok((leader, standbys.into_iter().next().context("no standby")?))
}

fn process_of(pod: &str) -> Result<Option<Process>> {
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if !name.starts_with("isthmus-manage") {
            continue;
        }
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let is = environment
            .split(|byte| *byte == 0)
            .any(|v| v.strip_prefix(b"POD_NAME=") == Some(pod.as_bytes()));
        if is {
            return Ok(Some(Process(pid)));
        }
    }
    Ok(None)
}

//! A cluster whose manager serves NodeMetrics, with a node that reports, and what can be done to the leader.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::{SYSTEM, client, eventually, hack_cluster, replicas, repository, run};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt};

use super::{NODE, WARM, fresh};

/// How long a change of leader may take on a busy machine, the start of another pod in it.
const CHANGE: Duration = Duration::from_mins(2);

/// The Lease of the election, which is also the name of the Service.
pub(super) const LEASE: &str = "isthmus-node-metric";

/// NodeMetrics are served, and one node reports.
pub(super) struct Ground {
    pub(super) client: Client,
    /// The nodes of the cluster: each has an object.
    pub(super) nodes: BTreeSet<String>,
}

/// Installs with NodeMetric, or puts that back.
pub(super) const INSTALLED: [&str; 3] = ["--set", "nodeMetrics.enabled=true", "--wait"];

impl Ground {
    /// Installs what is needed, and waits until all of it is seen. It stays for the next test, until the cluster goes: two rollouts a test take longer than most
    /// of them.
    pub(super) async fn new() -> Result<Self> {
        let client = client().await?;
        super::report_often().await?;
        run(repository().join("hack/install"), &INSTALLED, "").await?.ok()?;
        if super::of_last_report("seq").await.is_err() {
            hack_cluster(&["hub", NODE, "--report"]).await?.ok()?;
        }
        eventually("a report is seen", WARM, fresh).await?;
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
        let nodes: BTreeSet<_> = nodes.iter().map(ResourceExt::name_any).collect();
        let ground = Self { client, nodes };
        eventually("every node has an object", WARM, || async {
            let names = ground.names().await?;
            ensure!(names == ground.nodes, "{names:?}");
            Ok(())
        })
        .await?;
        replicas::all_ready().await?;
        Ok(ground)
    }

    /// NodeMetrics as any client sees them.
    pub(super) fn metrics(&self) -> Api<DynamicObject> {
        metrics(self.client.clone())
    }

    /// The same for a client that does not try again by itself: it sees refusals.
    pub(super) async fn impatient(&self) -> Result<Api<DynamicObject>> {
        let mut config = kube::Config::infer().await?;
        config.default_retry = false;
        Ok(metrics(Client::try_from(config)?))
    }

    async fn names(&self) -> Result<BTreeSet<String>> {
        Ok(self.metrics().list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect())
    }

    /// Who leads, as the Lease has it.
    pub(super) async fn holder(&self) -> Result<String> {
        replicas::holder_of(&self.client, LEASE).await
    }

    /// The pod of the leader.
    pub(super) async fn leader(&self) -> Result<Replica> {
        let holder = self.holder().await?;
        let pod = holder.split('_').next().unwrap_or_default();
        Replica::find(&self.client, pod).await
    }

    /// All replicas.
    pub(super) async fn replicas(&self) -> Result<Vec<Replica>> {
        let mut found = Vec::new();
        for pod in replicas::replicas(&self.client).await? {
            found.push(Replica::find(&self.client, &pod.name_any()).await?);
        }
        Ok(found)
    }

    /// Ends a replica's pod, and another comes in its place: it is asked to end by its kubelet, or killed.
    pub(super) async fn end(&self, replica: &Replica, kill: bool) -> Result<()> {
        if kill {
            replica.signal("-KILL").await?;
        }
        // Asked twice it would end at once, so it is the kubelet alone that asks.
        let how = DeleteParams { grace_period_seconds: kill.then_some(0), ..DeleteParams::default() };
        Api::<Pod>::namespaced(self.client.clone(), SYSTEM).delete(&replica.pod, &how).await?;
        Ok(())
    }

    /// Waits until another than `before` leads, all replicas are there, and reads are answered.
    pub(super) async fn recovered(&self, before: &str) -> Result<()> {
        replicas::another_leads(&self.client, LEASE, before, CHANGE).await?;
        self.whole().await
    }

    /// Waits until all replicas are there, and reads are answered.
    pub(super) async fn whole(&self) -> Result<()> {
        eventually("all replicas are ready", CHANGE, || async {
            replicas::all_ready().await?;
            let there = replicas::replicas(&self.client).await?.len();
            ensure!(there >= 2, "{there} replicas");
            Ok(())
        })
        .await?;
        eventually("reads are answered", WARM, || async {
            let names = self.names().await?;
            ensure!(names == self.nodes, "{names:?}");
            Ok(())
        })
        .await
    }
}

/// What the leader has announced of itself and the other replicas.
pub(super) async fn announced(client: &Client, what: &str) -> Result<String> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    let mut data = maps.get(LEASE).await?.data.unwrap_or_default();
    data.remove(what).with_context(|| format!("no {what} is announced"))
}

fn metrics(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("slo.koordinator.sh", "v1beta1", "NodeMetric");
    Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, "nodemetrics"))
}

/// A replica's pod and its process on this machine.
pub(super) struct Replica {
    pub(super) pod: String,
    pub(super) address: String,
    pub(super) process: String,
}

impl Replica {
    async fn find(client: &Client, name: &str) -> Result<Self> {
        let pod = Api::<Pod>::namespaced(client.clone(), SYSTEM).get(name).await?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("no node")?;
        let status = pod.status.context("no status")?;
        let containers = status.container_statuses.unwrap_or_default();
        let id = containers
            .first()
            .and_then(|container| container.container_id.clone())
            .context("no container")?;
        let id = id.trim_start_matches("containerd://");
        let tasks = ["exec", &node, "--", "ctr", "-n", "k8s.io", "tasks", "ls"];
        let tasks = hack_cluster(&tasks).await?.ok()?;
        let line = tasks
            .lines()
            .find(|line| line.starts_with(id))
            .with_context(|| format!("no task {id}: {tasks}"))?;
        let process = line.split_whitespace().nth(1).context("no process")?.to_owned();
        Ok(Self { pod: name.to_owned(), address: status.pod_ip.context("no address")?, process })
    }

    /// Sends a signal to the process.
    pub(super) async fn signal(&self, signal: &str) -> Result<()> {
        run("kill", &[signal, &self.process], "").await?.ok().map(drop)
    }

    /// Cuts the pod off from everybody: no packet comes or goes.
    pub(super) async fn cut_off(&self) -> Result<()> {
        let network = format!("--net=/proc/{}/ns/net", self.process);
        for chain in ["INPUT", "OUTPUT"] {
            run("nsenter", &[&network, "iptables", "-w", "-I", chain, "-j", "DROP"], "").await?.ok()?;
        }
        Ok(())
    }

    /// Leaves everybody but `one` no way to a port of this pod, until what is returned is dropped.
    pub(super) async fn unheard_by_all_but(&self, one: &Self, port: u16) -> Result<CutOff> {
        let port = port.to_string();
        self.cut(vec![vec!["INPUT", "!", "-s", &one.address, "-p", "tcp", "--dport", &port, "-j", "DROP"]])
            .await
    }

    /// Leaves this pod no way to a port of another, and the other none back, until what is returned is dropped.
    pub(super) async fn cut_off_from(&self, other: &Self, port: i32, how: Cut) -> Result<CutOff> {
        let port = port.to_string();
        let there = ["OUTPUT", "-d", &other.address, "-p", "tcp", "--dport", &port];
        let back = ["INPUT", "-s", &other.address, "-p", "tcp", "--sport", &port];
        let drop = ["-j", "DROP"];
        let rules = match how {
            Cut::Refused => vec![[&there[..], &["-j", "REJECT", "--reject-with", "tcp-reset"]].concat()],
            Cut::Silent => vec![[&there[..], &drop].concat(), [&back[..], &drop].concat()],
        };
        self.cut(rules).await
    }

    /// Rules of the pod's own network, until what is returned is dropped.
    async fn cut(&self, rules: Vec<Vec<&str>>) -> Result<CutOff> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.process))?;
        // The pod's namespace outlives its process, which may begin anew meanwhile.
        let network = format!("--net=/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
        let mut lifted = Cleanup::default();
        for rule in rules {
            let words = |change| [&[network.as_str(), "iptables", "-w", change], &rule[..]].concat();
            run("nsenter", &words("-I"), "").await?.ok()?;
            lifted.add("nsenter", &words("-D"));
        }
        Ok(CutOff { _lifted: lifted, _namespace: namespace })
    }
}

/// What becomes of packets where there is no way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Their connections are reset.
    Refused,
    /// Nothing.
    Silent,
}

/// There is a way again when this is dropped.
pub(super) struct CutOff {
    _lifted: Cleanup,
    // By which the namespace is found until then.
    _namespace: File,
}

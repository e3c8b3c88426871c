//! Creation of pods that the webhook changes, beside pods that are made in the same final shape, in turn in one run. Two
//! webhooks that do not look at their pods show what of the difference is the API server's own.

mod baseline;
mod cost;

use std::time::Duration;

use anyhow::Result;
use api::{NodePool, labels};
use e2e::{eventually, fresh_namespace};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::report::{Figure, Report, percentile};
use baseline::Baseline;
use cost::{Cpu, Processes};

const NAMESPACE: &str = "bench-webhook";

/// The webhook of the chart that is measured.
const WEBHOOK: &str = "labelled.pods.isthmus.dev";

/// How much is created.
#[derive(clap::Args)]
pub(crate) struct Size {
    /// Number of clients that create pods at the same time.
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Pods that a client creates in a round.
    #[arg(long, default_value_t = 50)]
    pods: usize,
    /// Rounds of each kind, in turn.
    #[arg(long, default_value_t = 4)]
    rounds: usize,
}

/// What kind of pod is created.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    /// In its final shape, asked of nobody.
    Direct,
    /// In its final shape; a webhook answers that it is allowed, without looking at it.
    Asked,
    /// Plain; a webhook answers with our patch, without looking at it.
    Changed,
    /// Labelled for our webhook.
    Ours,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Direct, Self::Asked, Self::Changed, Self::Ours];

    fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::Direct => (baseline::LABEL, "none"),
            Self::Asked => (baseline::LABEL, baseline::ASKED),
            Self::Changed => (baseline::LABEL, baseline::CHANGED),
            Self::Ours => (labels::DESIRED_NODE_POOL, NAMESPACE),
        }
    }
}

/// What was measured of one kind.
#[derive(Default)]
struct Measured {
    samples: Vec<f64>,
    cpu: Cpu,
    spent: Duration,
}

impl Measured {
    fn percentile(&mut self, share: f64) -> f64 {
        percentile(&mut self.samples, share)
    }

    #[expect(clippy::cast_precision_loss, reason = "a few thousand samples")]
    fn count(&self) -> f64 {
        self.samples.len() as f64
    }
}

/// Measures; removes what it made.
pub(crate) async fn run(client: Client, size: Size) -> Result<Report> {
    let Size { clients, pods, rounds } = size;
    fresh_namespace(&client, NAMESPACE).await?;
    let pool = json!({
        "apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool",
        "metadata": { "name": NAMESPACE }, "spec": { "networkMode": "HostNetwork" },
    });
    let pools = Api::<NodePool>::all(client.clone());
    pools.patch(NAMESPACE, &PatchParams::apply("bench"), &Patch::Apply(&pool)).await?;
    let baseline = Baseline::start(client.clone(), NAMESPACE, &our_patch()).await?;
    cost::allow_metrics(true).await?;
    let processes = Processes::find(&client).await?;

    let mut measured = Kind::ALL.map(|_| Measured::default());
    let mut before = (cost::calls(WEBHOOK).await?, cost::handling(&client).await?);
    // The first round of each kind opens connections and is not counted.
    for round in 0..=rounds {
        if round == 1 {
            before = (cost::calls(WEBHOOK).await?, cost::handling(&client).await?);
        }
        for (kind, measured) in Kind::ALL.into_iter().zip(&mut measured) {
            let cpu = processes.cpu()?;
            let began = Instant::now();
            let samples = create(&client, clients, pods, kind).await?;
            if round > 0 {
                measured.spent += began.elapsed();
                measured.cpu.add(cpu, processes.cpu()?);
                measured.samples.extend(samples);
            }
            clear(&client).await?;
        }
    }
    let (calls, call_ms) = cost::calls(WEBHOOK).await?.since(before.0);
    let (_, handling_ms) = cost::handling(&client).await?.since(before.1);
    cost::allow_metrics(false).await?;
    baseline.stop().await?;
    pools.delete(NAMESPACE, &DeleteParams::default()).await?;
    Api::<Namespace>::all(client.clone()).delete(NAMESPACE, &DeleteParams::default()).await?;
    let title = format!("webhook: creation of pods by {clients} clients, {rounds} rounds of {pods} each");
    Ok(report(title, measured, [calls, call_ms, handling_ms]))
}

fn report(title: String, measured: [Measured; 4], [calls, call_ms, handling_ms]: [f64; 3]) -> Report {
    let [mut direct, mut asked, mut changed, mut ours] = measured;
    let [p50, p99] = [0.5, 0.99].map(|share| ours.percentile(share));
    let [base_p50, base_p99] = [0.5, 0.99].map(|share| direct.percentile(share));
    let (asked_p50, changed_p50) = (asked.percentile(0.5), changed.percentile(0.5));
    let cpu = |measured: &Measured| measured.cpu.api_server / measured.count();
    let direct_cpu = cpu(&direct);
    let same = "pods made in the final shape, same run";
    Report {
        title,
        figures: vec![
            Figure::new("p50_ms", p50).against(base_p50, same).target(base_p50 + 2.0),
            Figure::new("p99_ms", p99).against(base_p99, same),
            Figure::new("base_p50_ms", base_p50),
            Figure::new("base_p99_ms", base_p99),
            Figure::new("asked_p50_ms", asked_p50).against(base_p50, same),
            Figure::new("changed_p50_ms", changed_p50).against(base_p50, same),
            Figure::new("apiserver_cpu_ms", cpu(&ours)).against(direct_cpu, same),
            Figure::new("asked_apiserver_cpu_ms", cpu(&asked)).against(direct_cpu, same),
            Figure::new("changed_apiserver_cpu_ms", cpu(&changed)).against(direct_cpu, same),
            Figure::new("manager_cpu_ms", ours.cpu.managers / ours.count()),
            Figure::new("call_ms", call_ms),
            Figure::new("handling_ms", handling_ms),
            Figure::new("calls_per_pod", calls / ours.count()),
            Figure::new("per_s", ours.count() / ours.spent.as_secs_f64()),
        ],
        notes: vec![
            format!("The webhook adds {:.2} ms at p50 and {:.2} ms at p99.", p50 - base_p50, p99 - base_p99),
            format!(
                "A webhook that does not look adds {:.2} ms at p50 when it changes nothing, {:.2} ms when it answers with our \
                 patch. CPU is processor time for each pod.",
                asked_p50 - base_p50,
                changed_p50 - base_p50
            ),
        ],
    }
}

/// What our webhook answers for these pods.
fn our_patch() -> Value {
    json!([
        { "op": "add", "path": "/spec/hostNetwork", "value": true },
        { "op": "add", "path": "/spec/nodeSelector", "value": { labels::NODE_POOL: NAMESPACE } }
    ])
}

/// Creates pods from all clients at once and returns the time of each creation in milliseconds.
async fn create(client: &Client, clients: usize, pods: usize, kind: Kind) -> Result<Vec<f64>> {
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        let api = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        tasks.spawn(async move {
            let mut samples = Vec::with_capacity(pods);
            for i in 0..pods {
                let pod = pod(&format!("p-{number}-{i}"), kind)?;
                let began = Instant::now();
                let made = api.create(&PostParams::default(), &pod).await?;
                samples.push(began.elapsed().as_secs_f64() * 1000.0);
                let host_network = made.spec.is_some_and(|spec| spec.host_network == Some(true));
                anyhow::ensure!(host_network, "a pod without host network: nothing is compared");
            }
            anyhow::Ok(samples)
        });
    }
    let mut samples = Vec::new();
    while let Some(done) = tasks.join_next().await {
        samples.extend(done??);
    }
    Ok(samples)
}

/// A pod that no scheduler takes.
fn pod(name: &str, kind: Kind) -> Result<Pod> {
    let (key, value) = kind.label();
    let mut pod = json!({
        "metadata": { "name": name, "labels": { key: value } },
        "spec": {
            "schedulerName": "nobody",
            "containers": [{ "name": "c", "image": "isthmus.dev/busybox:1", "ports": [{ "containerPort": 8080 }] }],
        },
    });
    if matches!(kind, Kind::Direct | Kind::Asked) {
        pod["spec"]["hostNetwork"] = true.into();
        pod["spec"]["nodeSelector"] = json!({ labels::NODE_POOL: NAMESPACE });
    }
    Ok(serde_json::from_value(pod)?)
}

async fn clear(client: &Client) -> Result<()> {
    let api = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    api.delete_collection(&now, &ListParams::default()).await?;
    eventually("pods are gone", Duration::from_mins(1), || async {
        let left = api.list(&ListParams::default().limit(1)).await?.items.len();
        anyhow::ensure!(left == 0, "{left} are left");
        Ok(())
    })
    .await
}

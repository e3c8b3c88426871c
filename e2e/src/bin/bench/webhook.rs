//! Creation of pods that the webhook changes, beside the same pods without the label, in turn in one run. Two webhooks that do
//! not look at their pods show what of the difference is the API server's own.
//!
//! The clients create at a pace below what the machine gives: what is added then is what the webhook costs. Then the same
//! without a pause, where a creation waits for all others before it, and each millisecond of work adds as many as there are
//! clients to a processor: the rows that begin with `saturated_`, and `per_s`.

mod baseline;
mod cost;

use std::time::Duration;

use anyhow::{Context as _, Result};
use api::{NodePool, labels};
use e2e::{eventually, fresh_namespace};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

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
    /// Milliseconds from one creation of a client to its next: 16 clients at 200 ask for 80 pods a second.
    #[arg(long, default_value_t = 200)]
    interval: u64,
}

/// What kind of pod is created.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    /// Without the label, asked of nobody.
    Direct,
    /// The same; a webhook answers that it is allowed, without looking at it.
    Asked,
    /// The same; a webhook answers with our patch, without looking at it.
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

    fn becomes_host_network(self) -> bool {
        matches!(self, Self::Changed | Self::Ours)
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

    fn per_second(&self) -> f64 {
        self.count() / self.spent.as_secs_f64()
    }
}

/// How pods are created.
#[derive(Clone, Copy)]
struct Load {
    clients: usize,
    /// Pods of each client.
    pods: usize,
    /// From one creation of a client to its next; zero is without a pause.
    interval: Duration,
}

/// Measures; removes what it made.
pub(crate) async fn run(client: Client, size: Size) -> Result<Report> {
    let Size { clients, pods, rounds, interval } = size;
    let load = Load { clients, pods, interval: Duration::from_millis(interval) };
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

    // The first creations of each kind open connections and are not counted.
    let saturating = Load { interval: Duration::ZERO, ..load };
    rounds_of(&client, &processes, &Kind::ALL, saturating, 1).await?;
    let before = (cost::calls(WEBHOOK).await?, cost::handling(&client).await?);
    let measured = rounds_of(&client, &processes, &Kind::ALL, load, rounds).await?;
    let (calls, call_ms) = cost::calls(WEBHOOK).await?.since(before.0);
    let (_, handling_ms) = cost::handling(&client).await?.since(before.1);
    let saturated =
        rounds_of(&client, &processes, &[Kind::Direct, Kind::Changed, Kind::Ours], saturating, rounds)
            .await?;
    cost::allow_metrics(false).await?;
    baseline.stop().await?;
    pools.delete(NAMESPACE, &DeleteParams::default()).await?;
    Api::<Namespace>::all(client.clone()).delete(NAMESPACE, &DeleteParams::default()).await?;
    let title = format!(
        "webhook: creation of pods by {clients} clients, each one in {interval} ms, {rounds} rounds of {pods} each"
    );
    let mut report = report(title, measured, [calls, call_ms, handling_ms])?;
    add_saturated(&mut report, saturated)?;
    Ok(report)
}

/// Creates in rounds, the kinds in turn. What is measured comes in the order of `kinds`.
async fn rounds_of(
    client: &Client,
    processes: &Processes,
    kinds: &[Kind],
    load: Load,
    rounds: usize,
) -> Result<Vec<Measured>> {
    let mut measured: Vec<Measured> = kinds.iter().map(|_| Measured::default()).collect();
    for _ in 0..rounds {
        for (&kind, measured) in kinds.iter().zip(&mut measured) {
            let cpu = processes.cpu()?;
            let began = Instant::now();
            measured.samples.extend(create(client, load, kind).await?);
            measured.spent += began.elapsed();
            measured.cpu.add(cpu, processes.cpu()?);
            clear(client).await?;
        }
    }
    Ok(measured)
}

fn add_saturated(report: &mut Report, measured: Vec<Measured>) -> Result<()> {
    let [mut direct, mut changed, mut ours] =
        <[Measured; 3]>::try_from(measured).ok().context("three kinds")?;
    let [base, changed, p50] = [&mut direct, &mut changed, &mut ours].map(|kind| kind.percentile(0.5));
    let same = "the same pods unlabelled, same run";
    report.figures.extend([
        Figure::new("saturated_p50_ms", p50).against(base, same),
        Figure::new("saturated_base_p50_ms", base),
        Figure::new("saturated_changed_p50_ms", changed).against(base, same),
        Figure::new("per_s", ours.per_second()).against(direct.per_second(), same),
    ]);
    report.notes.push(format!(
        "Without a pause between creations the webhook adds {:.2} ms at p50; one that does not look and answers with our patch \
         adds {:.2} ms.",
        p50 - base,
        changed - base
    ));
    Ok(())
}

fn report(title: String, measured: Vec<Measured>, [calls, call_ms, handling_ms]: [f64; 3]) -> Result<Report> {
    let [mut direct, mut asked, mut changed, mut ours] =
        <[Measured; 4]>::try_from(measured).ok().context("four kinds")?;
    let [p50, p99] = [0.5, 0.99].map(|share| ours.percentile(share));
    let [base_p50, base_p99] = [0.5, 0.99].map(|share| direct.percentile(share));
    let (asked_p50, changed_p50) = (asked.percentile(0.5), changed.percentile(0.5));
    let cpu = |measured: &Measured| measured.cpu.api_server / measured.count();
    let direct_cpu = cpu(&direct);
    let same = "the same pods unlabelled, same run";
    Ok(Report {
        missing: Vec::new(),
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
            Figure::new("paced_per_s", ours.per_second()).against(direct.per_second(), same),
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
    })
}

/// What our webhook answers for these pods.
fn our_patch() -> Value {
    json!([
        { "op": "add", "path": "/spec/hostNetwork", "value": true },
        { "op": "add", "path": "/spec/nodeSelector", "value": { labels::NODE_POOL: NAMESPACE } }
    ])
}

/// Creates pods from all clients and returns the time of each creation in milliseconds. The clients' turns are spread over
/// the interval.
async fn create(client: &Client, load: Load, kind: Kind) -> Result<Vec<f64>> {
    let Load { clients, pods, interval } = load;
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for number in 0..clients {
        let api = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        let first = start + interval.mul_f64(ratio(number, clients));
        tasks.spawn(async move {
            let mut samples = Vec::with_capacity(pods);
            for (i, turn) in (0..pods).zip(0u32..) {
                let pod = pod(&format!("p-{number}-{i}"), kind)?;
                sleep_until(first + interval * turn).await;
                let began = Instant::now();
                let made = api.create(&PostParams::default(), &pod).await?;
                samples.push(began.elapsed().as_secs_f64() * 1000.0);
                let host_network = made.spec.is_some_and(|spec| spec.host_network == Some(true));
                anyhow::ensure!(host_network == kind.becomes_host_network(), "host network: {host_network}");
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

#[expect(clippy::cast_precision_loss, reason = "a few clients")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

/// A pod that no scheduler takes.
fn pod(name: &str, kind: Kind) -> Result<Pod> {
    let (key, value) = kind.label();
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { key: value } },
        "spec": {
            "schedulerName": "nobody",
            "containers": [{ "name": "c", "image": "isthmus.dev/busybox:1", "ports": [{ "containerPort": 8080 }] }],
        },
    }))?)
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

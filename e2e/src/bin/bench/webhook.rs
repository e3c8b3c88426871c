//! Creation of pods that the webhook changes, beside the same pods without the label, in turn in one run.

use std::time::Duration;

use anyhow::Result;
use api::{NodePool, labels};
use e2e::{eventually, fresh_namespace};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::report::{Figure, Report, percentile};

const NAMESPACE: &str = "bench-webhook";

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

    let (mut base, mut ours) = (Vec::new(), Vec::new());
    let mut spent = Duration::ZERO;
    // The first round of each kind opens connections and is not counted.
    for round in 0..=rounds {
        for labelled in [false, true] {
            let began = Instant::now();
            let samples = create(&client, clients, pods, labelled).await?;
            if round > 0 && labelled {
                spent += began.elapsed();
            }
            if round > 0 {
                if labelled { &mut ours } else { &mut base }.extend(samples);
            }
            clear(&client).await?;
        }
    }
    pools.delete(NAMESPACE, &DeleteParams::default()).await?;
    Api::<Namespace>::all(client.clone()).delete(NAMESPACE, &DeleteParams::default()).await?;

    #[expect(clippy::cast_precision_loss, reason = "a few thousand samples")]
    let per_s = ours.len() as f64 / spent.as_secs_f64();
    let [p50, p99] = [0.5, 0.99].map(|share| percentile(&mut ours, share));
    let [base_p50, base_p99] = [0.5, 0.99].map(|share| percentile(&mut base, share));
    Ok(Report {
        title: format!("webhook: creation of pods by {clients} clients, {rounds} rounds of {pods} each"),
        figures: vec![
            Figure::new("p50_ms", p50)
                .against(base_p50, "the same pods unlabelled, same run")
                .target(base_p50 + 2.0),
            Figure::new("p99_ms", p99).against(base_p99, "the same pods unlabelled, same run"),
            Figure::new("base_p50_ms", base_p50),
            Figure::new("base_p99_ms", base_p99),
            Figure::new("per_s", per_s),
        ],
        notes: vec![format!(
            "The webhook adds {:.2} ms at p50 and {:.2} ms at p99.",
            p50 - base_p50,
            p99 - base_p99
        )],
    })
}

/// Creates pods from all clients at once and returns the time of each creation in milliseconds.
async fn create(client: &Client, clients: usize, pods: usize, labelled: bool) -> Result<Vec<f64>> {
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        let api = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        tasks.spawn(async move {
            let mut samples = Vec::with_capacity(pods);
            for i in 0..pods {
                let pod = pod(&format!("p-{number}-{i}"), labelled)?;
                let began = Instant::now();
                api.create(&PostParams::default(), &pod).await?;
                samples.push(began.elapsed().as_secs_f64() * 1000.0);
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
fn pod(name: &str, labelled: bool) -> Result<Pod> {
    let key = if labelled { labels::DESIRED_NODE_POOL } else { "bench.isthmus.dev/unlabelled" };
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { key: NAMESPACE } },
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

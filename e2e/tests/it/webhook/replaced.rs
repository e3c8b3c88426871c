//! The webhook while replicas end and others take their place: no admission fails, and each replica answers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use e2e::replicas::{LEASE, all_ready, another_leads, holder, leader, replicas};
use e2e::{SYSTEM, client, eventually, kubectl, run};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{NAMESPACE, POOL, clean_up, desired, pod, prepare};

/// The leader is asked to end, then all replicas are, as an upgrade does it; labelled pods are created all the while.
#[tokio::test]
async fn no_admission_fails_while_replicas_end() -> Result<()> {
    let client = client().await?;
    all_ready().await?;
    prepare(&client).await?;
    each_replica_answers(&client).await?;

    // A client that tries again by itself would hide failures.
    let mut config = Config::infer().await?;
    config.default_retry = false;
    let pods = Api::<Pod>::namespaced(Client::try_from(config)?, NAMESPACE);
    let ended = admit_while("the leader ended", &pods, end_the_leader(&client)).await?;
    let replaced = admit_while("all replicas were replaced", &pods, replace_all(&client)).await?;
    println!("{ended} admissions while the leader ended, {replaced} while all replicas were replaced");

    each_replica_answers(&client).await?;
    clean_up().await
}

/// Creates labelled pods, eight at a time, until `change` is over, and says how many: each must get host network at the first try.
async fn admit_while(what: &str, pods: &Api<Pod>, change: impl Future<Output = Result<()>>) -> Result<usize> {
    let over = CancellationToken::new();
    let changed = async {
        let changed = change.await;
        over.cancel();
        changed
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let created: Pod = serde_json::from_value(pod("replaced", &desired(POOL), json!({})))?;
    let (dry, created) = (&dry, &created);
    let admissions = stream::repeat(())
        .take_until(over.cancelled())
        .map(|()| async move {
            // Without a rest they would take the processors from the replicas that begin.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let admitted = pods.create(dry, created).await?;
            let host_network = admitted.spec.and_then(|spec| spec.host_network);
            ensure!(host_network == Some(true), "admitted unchanged");
            anyhow::Ok(())
        })
        .buffer_unordered(8)
        .fold((0, Vec::new()), |(admitted, mut failed), answer| async move {
            match answer {
                Ok(()) => (admitted + 1, failed),
                Err(error) => {
                    failed.push(format!("{error:?}"));
                    (admitted, failed)
                }
            }
        });
    // To its end, whatever fails: the tests that follow need the replicas.
    let ((admitted, failed), changed) = tokio::join!(admissions, changed);
    changed.with_context(|| format!("while {what}"))?;
    ensure!(
        failed.is_empty(),
        "while {what} {} of {} failed: {:?}",
        failed.len(),
        admitted + failed.len(),
        failed.first()
    );
    ensure!(admitted > 50, "only {admitted} admissions while {what}");
    Ok(admitted)
}

/// Deletes the pod of the leader, which its kubelet asks to end, and waits until another leads and all are ready.
async fn end_the_leader(client: &Client) -> Result<()> {
    let before = holder(client).await?;
    // kubectl waits until it is gone.
    kubectl(&["-n", SYSTEM, "delete", "pod", &leader(client).await?]).await?.ok()?;
    another_leads(client, LEASE, &before, Duration::from_secs(20)).await?;
    all_ready().await
}

/// As an upgrade does it: one by one, until none of the old ones is left.
async fn replace_all(client: &Client) -> Result<()> {
    let old: Vec<String> = replicas(client).await?.iter().map(ResourceExt::name_any).collect();
    kubectl(&["-n", SYSTEM, "rollout", "restart", "deployment/isthmus-manager"]).await?.ok()?;
    all_ready().await?;
    let pods = Api::<Pod>::namespaced(client.clone(), SYSTEM);
    eventually("the old replicas are gone", Duration::from_mins(1), || async {
        let found = pods.list_metadata(&ListParams::default()).await?;
        let mut left = found.iter().map(ResourceExt::name_any).filter(|name| old.contains(name));
        ensure!(left.next().is_none(), "not yet");
        Ok(())
    })
    .await
}

/// Asks each replica at its own address, past the Service.
async fn each_replica_answers(client: &Client) -> Result<()> {
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "e2e", "operation": "CREATE", "namespace": NAMESPACE, "dryRun": true, "userInfo": { "username": "e2e" },
        "kind": { "group": "", "version": "v1", "kind": "Pod" },
        "resource": { "group": "", "version": "v1", "resource": "pods" },
        "object": pod("asked", &desired(POOL), json!({})),
    } })
    .to_string();
    let replicas = replicas(client).await?;
    ensure!(replicas.len() > 1, "{} replicas", replicas.len());
    for replica in replicas {
        let name = replica.name_any();
        let address = replica.status.and_then(|status| status.pod_ip).context("no address")?;
        let url = format!("https://{address}:10273/mutate-core-openyurt-io-v1-pod");
        let words =
            ["-sSk", "--max-time", "5", "-H", "Content-Type: application/json", "--data-binary", "@-", &url];
        let answer = run("curl", &words, &review).await?.ok().with_context(|| name.clone())?;
        let answer: Value = serde_json::from_str(&answer).with_context(|| format!("{name}: {answer}"))?;
        ensure!(answer["response"]["allowed"] == true, "{name}: {answer}");
        let patch = STANDARD.decode(answer["response"]["patch"].as_str().context("no patch")?)?;
        let patch: Vec<Value> = serde_json::from_slice(&patch)?;
        let wanted = json!({ "op": "add", "path": "/spec/hostNetwork", "value": true });
        ensure!(patch.contains(&wanted), "{name}: {patch:?}");
    }
    Ok(())
}

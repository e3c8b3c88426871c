//! What keeps pods off host-network nodes: the API server's own policy, with and without the webhook behind it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::labels::HOST_NETWORK;
use e2e::{SYSTEM, client, eventually, kubectl, kubectl_apply, run, set_pool};
use kube::Client;
use serde_json::{Value, json};

use super::{POOL, clean_up, desired, get, pod, prepare};

/// The pod as the API server would store it.
async fn admitted(pod: &Value) -> Result<Value> {
    let words = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    Ok(serde_json::from_str(&run("kubectl", &words, &pod.to_string()).await?.ok()?)?)
}

/// The terms of the pod's required node affinity.
fn terms(pod: &Value) -> Vec<Value> {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = &pod["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"];
    terms.as_array().cloned().unwrap_or_default()
}

/// Whether the term has the requirement.
fn is_narrowed(term: &Value) -> bool {
    let requirement = json!({ "key": HOST_NETWORK, "operator": "NotIn", "values": ["true"] });
    term["matchExpressions"].as_array().is_some_and(|all| all.contains(&requirement))
}

#[tokio::test]
async fn every_term_of_an_affinity_is_narrowed_however_many() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;
    for count in [1, 16, 17, 40, 1000] {
        let own: Vec<Value> = (0..count)
            .map(|i| json!({ "matchExpressions": [{ "key": format!("e2e-{i}"), "operator": "Exists" }] }))
            .collect();
        let affinity = json!({ "spec": { "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": own }
        } } } });
        let found = admitted(&pod("terms", &json!({}), affinity)).await.with_context(|| count.to_string())?;
        let narrowed = terms(&found).iter().filter(|term| is_narrowed(term)).count();
        ensure!(narrowed == count, "{narrowed} of {count} terms are narrowed");
    }
    clean_up().await
}

/// Pools that a pod may want without getting host network: one that does not exist, one with container network, no name.
const WITHOUT_NETWORK: [&str; 3] = ["nowhere", "e2e-webhook-plain", ""];

#[tokio::test]
async fn a_labelled_pod_without_host_network_is_scheduled_on_no_host_network_node() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;
    let node = "fake-00011";
    set_pool(&client, node, Some(POOL)).await?;
    eventually("the node is marked", Duration::from_secs(20), || async {
        ensure!(e2e::node(&client, node).await?["metadata"]["labels"][HOST_NETWORK] == "true", "not yet");
        anyhow::Ok(())
    })
    .await?;
    let changes = json!({ "spec": {
        "schedulerName": "default-scheduler",
        "nodeSelector": { "kubernetes.io/hostname": node },
        "tolerations": [{ "operator": "Exists" }],
    } });
    for (name, pool) in
        [("unknown", WITHOUT_NETWORK[0]), ("container", WITHOUT_NETWORK[1]), ("empty", WITHOUT_NETWORK[2])]
    {
        kubectl_apply(&pod(name, &desired(pool), changes.clone()).to_string()).await?.ok()?;
        let found = scheduled(&client, name).await?;
        ensure!(found["status"] == "False", "{name} was scheduled: {found}");
        let spec = get(&client, name).await?["spec"].clone();
        ensure!(spec["hostNetwork"].is_null() && spec["nodeName"].is_null(), "{name}: {spec}");
    }
    // The policy keeps this one off as well; the webhook takes that back.
    kubectl_apply(&pod("wanted", &desired(POOL), changes).to_string()).await?.ok()?;
    let found = scheduled(&client, "wanted").await?;
    ensure!(found["status"] == "True", "{found}");
    let spec = get(&client, "wanted").await?["spec"].clone();
    ensure!(spec["hostNetwork"] == true && spec["nodeName"] == node, "{spec}");
    ensure!(spec["affinity"].is_null(), "something of the policy is left: {spec}");
    set_pool(&client, node, None).await?;
    clean_up().await
}

/// What the scheduler says of the pod, once it has looked at it.
async fn scheduled(client: &Client, name: &str) -> Result<Value> {
    eventually("the scheduler looks at the pod", Duration::from_secs(20), || async {
        let conditions = get(client, name).await?["status"]["conditions"].clone();
        let conditions = conditions.as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|found| found["type"] == "PodScheduled").context("not yet")
    })
    .await
}

/// The policy stands in for a webhook that does not answer and may be skipped.
#[tokio::test]
async fn a_webhook_that_is_skipped_lets_no_labelled_pod_onto_host_network_nodes() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;
    set_failure_policy("Ignore").await?;
    kubectl(&["-n", SYSTEM, "scale", "deployment/isthmus-manager", "--replicas=0"]).await?.ok()?;
    let result = async {
        eventually("the webhook is skipped", Duration::from_mins(1), || async {
            let found = admitted(&pod("skipped", &desired(POOL), json!({}))).await?;
            ensure!(found["spec"]["hostNetwork"].is_null(), "not yet");
            anyhow::Ok(())
        })
        .await?;
        for pool in WITHOUT_NETWORK.into_iter().chain([POOL]) {
            let bound = json!({ "spec": { "nodeSelector": { "apps.openyurt.io/nodepool": POOL } } });
            for changes in [json!({}), bound] {
                let found = admitted(&pod("skipped", &desired(pool), changes)).await?;
                let terms = terms(&found);
                ensure!(!terms.is_empty() && terms.iter().all(is_narrowed), "{pool:?}: {}", found["spec"]);
            }
        }
        anyhow::Ok(())
    }
    .await;
    set_failure_policy("Fail").await?;
    kubectl(&["-n", SYSTEM, "scale", "deployment/isthmus-manager", "--replicas=2"]).await?.ok()?;
    kubectl(&["-n", SYSTEM, "rollout", "status", "deployment/isthmus-manager", "--timeout=90s"])
        .await?
        .ok()?;
    result?;
    clean_up().await
}

async fn set_failure_policy(policy: &str) -> Result<()> {
    let change =
        json!([{ "op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy }]).to_string();
    let words = ["patch", "mutatingwebhookconfiguration", "isthmus", "--type=json", "-p", &change];
    kubectl(&words).await?.ok().map(drop)
}

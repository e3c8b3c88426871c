//! What keeps pods off host-network nodes: the API server's own policy, with and without the webhook behind it.

use anyhow::{Context, Result, ensure};
use api::labels::HOST_NETWORK;
use e2e::{client, run};
use serde_json::{Value, json};

use super::{clean_up, pod, prepare};

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

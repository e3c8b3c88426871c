//! Pods that workloads make: what the webhook does to them, and whether they come to run.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{client, eventually, kubectl_apply, run};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::{NAMESPACE, POOL, clean_up, merge, prepare};

/// On a fake node of the pool, which kwok says runs its pods; on a real kubelet they run in `hostnet.rs`.
#[tokio::test]
async fn pods_of_every_workload_controller_get_host_network_and_run_in_the_pool() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;
    let node = "fake-00010";
    e2e::set_pool(&client, node, Some(POOL)).await?;
    let selector = json!({ "matchLabels": { "app": "w" } });
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let kinds = [
        ("apps/v1", "Deployment"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
    ];
    for (port, (version, kind)) in (8081..).zip(kinds) {
        let mut template = template(port);
        // Its controller makes pods by the template alone: see the test below.
        if kind == "DaemonSet" {
            template["spec"]["nodeSelector"] = json!({ "apps.openyurt.io/nodepool": POOL });
        }
        let spec = match kind {
            "Job" => {
                template["spec"]["restartPolicy"] = json!("Never");
                json!({ "template": template })
            }
            "StatefulSet" => json!({ "selector": selector, "template": template, "serviceName": "w" }),
            _ => json!({ "selector": selector, "template": template }),
        };
        let metadata = json!({ "name": kind.to_lowercase(), "namespace": NAMESPACE });
        let workload = json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec });
        let applied = kubectl_apply(&workload.to_string()).await?;
        ensure!(applied.success && !applied.stderr.contains("Warning"), "{kind}: {applied:?}");
        eventually(kind, Duration::from_secs(45), || async {
            let all = pods.list(&ListParams::default()).await?;
            let of_kind = |pod: &&Pod| {
                let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
                let owner = if kind == "Deployment" { "ReplicaSet" } else { kind };
                owners.iter().any(|reference| reference.kind == owner)
            };
            let found: Vec<&Pod> = all.iter().filter(of_kind).collect();
            ensure!(found.len() == 1, "{} pods, and the pool has one node", found.len());
            let pod = serde_json::to_value(found[0])?;
            ensure!(pod["spec"]["hostNetwork"] == true, "no host network: {}", pod["spec"]);
            ensure!(pod["spec"]["nodeName"] == node, "on {}", pod["spec"]["nodeName"]);
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            ensure!(pod["status"]["phase"] == "Running" && is_ready, "{}", pod["status"]);
            anyhow::Ok(())
        })
        .await?;
    }
    e2e::set_pool(&client, node, None).await?;
    clean_up().await
}

/// A pod that wants the pool, as workloads make it, and that goes to fake nodes.
fn template(port: u16) -> Value {
    json!({
        "metadata": { "labels": { "app": "w", "nodepool.openyurt.io/desired-nodepool": POOL } },
        "spec": {
            "containers": [{ "name": "c", "image": "isthmus.dev/busybox:1", "ports": [{ "containerPort": port }] }],
            "tolerations": [{ "key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule" }],
        },
    })
}

/// Its pods for nodes outside of the pool would wait for ever: whoever writes it is told, and not refused.
#[tokio::test]
async fn a_labelled_daemonset_that_is_not_confined_to_its_pool_is_warned_of() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;
    let among = |pools: &[&str]| {
        let expression = json!({ "key": "apps.openyurt.io/nodepool", "operator": "In", "values": pools });
        let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [expression] }] });
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } })
    };
    let cases = [
        ("anywhere", json!({}), true),
        ("other", json!({ "nodeSelector": { "apps.openyurt.io/nodepool": "other" } }), true),
        ("among", among(&[POOL, "other"]), true),
        ("selected", json!({ "nodeSelector": { "apps.openyurt.io/nodepool": POOL } }), false),
        ("affine", among(&[POOL]), false),
        ("unlabelled", json!({}), false),
    ];
    for (name, confined, warned) in cases {
        let mut template = template(8081);
        merge(&mut template, json!({ "spec": confined }));
        if name == "unlabelled" {
            template["metadata"] = json!({ "labels": { "app": "w" } });
        }
        let daemonset = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": { "selector": { "matchLabels": { "app": "w" } }, "template": template },
        });
        let applied =
            run("kubectl", &["apply", "--dry-run=server", "-f", "-"], &daemonset.to_string()).await?;
        ensure!(applied.success, "{name}: {applied:?}");
        let parts = [
            "Warning:",
            POOL,
            "spec.template.spec.nodeSelector",
            "add apps.openyurt.io/nodepool: e2e-webhook",
        ];
        for part in parts {
            ensure!(applied.stderr.contains(part) == warned, "{name}, {part}: {}", applied.stderr);
        }
    }
    clean_up().await
}

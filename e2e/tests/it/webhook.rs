//! What the admission webhook does to pods, seen through the API server that calls it.

mod keep_off;
mod replaced;
mod workloads;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{SYSTEM, client, eventually, fresh_namespace, kubectl, kubectl_apply};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

const NAMESPACE: &str = "e2e-webhook";
const POOL: &str = "e2e-webhook";

/// A namespace without pods and a host-network pool without nodes.
async fn prepare(client: &Client) -> Result<()> {
    fresh_namespace(client, NAMESPACE).await?;
    let pools = "apiVersion: apps.openyurt.io/v1beta2\nkind: NodePool\nmetadata: {name: e2e-webhook}\nspec: {networkMode: HostNetwork}\n---\n\
                 apiVersion: apps.openyurt.io/v1beta1\nkind: NodePool\nmetadata: {name: e2e-webhook-plain}\nspec: {type: Edge}\n";
    kubectl_apply(pools).await?.ok()?;
    Ok(())
}

/// A pod that nobody schedules, with changes to it.
fn pod(name: &str, labels: &Value, changes: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
        "spec": {
            "schedulerName": "nobody",
            "containers": [{ "name": "c", "image": "isthmus.dev/busybox:1", "ports": [{ "containerPort": 8080 }] }],
        },
    });
    merge(&mut pod, changes);
    pod
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn desired(pool: &str) -> Value {
    json!({ "nodepool.openyurt.io/desired-nodepool": pool })
}

#[tokio::test]
async fn pods_are_changed_refused_or_warned_about() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;

    // Changed: host network, bound to the pool, and ports that are valid under it.
    kubectl_apply(&pod("changed", &desired(POOL), json!({})).to_string()).await?.ok()?;
    let spec = get(&client, "changed").await?["spec"].clone();
    ensure!(spec["hostNetwork"] == true, "{spec}");
    ensure!(spec["nodeSelector"]["apps.openyurt.io/nodepool"] == POOL, "{spec}");
    ensure!(spec["containers"][0]["ports"][0]["hostPort"] == 8080, "{spec}");

    // Not labelled, or the pool has container network: as it was.
    kubectl_apply(&pod("plain", &json!({}), json!({})).to_string()).await?.ok()?;
    ensure!(get(&client, "plain").await?["spec"]["hostNetwork"].is_null());
    kubectl_apply(&pod("container", &desired("e2e-webhook-plain"), json!({})).to_string()).await?.ok()?;
    ensure!(get(&client, "container").await?["spec"]["hostNetwork"].is_null());

    // An unknown pool: without host network and kept off the nodes that have nothing else (ADR 0009), with a warning.
    let unknown = kubectl_apply(&pod("unknown", &desired("nowhere"), json!({})).to_string()).await?;
    ensure!(unknown.success, "{unknown:?}");
    for part in [
        "Warning",
        "\"nowhere\"",
        "nodepool.openyurt.io/desired-nodepool",
        "create the pool, then the pod anew",
    ] {
        ensure!(unknown.stderr.contains(part), "the warning does not say {part}: {}", unknown.stderr);
    }
    let spec = get(&client, "unknown").await?["spec"].clone();
    ensure!(spec["hostNetwork"].is_null() && spec["nodeSelector"].is_null(), "{spec}");
    ensure!(is_kept_off(&spec), "{spec}");

    // Refused, with what is wrong, where, and what to do.
    let other = json!({ "spec": { "nodeSelector": { "apps.openyurt.io/nodepool": "other" } } });
    let ports = json!({ "spec": { "containers": [
        { "name": "a", "image": "isthmus.dev/busybox:1", "ports": [{ "containerPort": 80, "hostPort": 81 }] },
    ] } });
    // A real node, which is in no pool.
    let node = json!({ "spec": { "nodeName": "cloud-1" } });
    let excluded =
        json!({ "metadata": { "annotations": { "apps.openyurt.io/exclude-host-network-pool": "true" } } });
    let cases = [
        (
            "other",
            other,
            vec![POOL, "other", "spec.nodeSelector", "name the same pool in both, or remove one"],
        ),
        (
            "ports",
            ports,
            vec![POOL, "spec.containers[0].ports[0].hostPort", "or choose a pool without host network"],
        ),
        ("node", node, vec![POOL, "spec.nodeName", "cloud-1", "no pool", "name a node of that pool or none"]),
        (
            "excluded",
            excluded.clone(),
            vec![POOL, "exclude-host-network-pool", "remove the annotation or the label"],
        ),
    ];
    for (name, changes, parts) in cases {
        let refused = kubectl_apply(&pod(name, &desired(POOL), changes).to_string()).await?;
        ensure!(!refused.success, "{name} was admitted");
        for part in parts {
            ensure!(
                refused.stderr.contains(part),
                "{name}: the refusal does not say {part}: {}",
                refused.stderr
            );
        }
    }

    // OpenYurt's annotation.
    kubectl_apply(&pod("annotated", &json!({}), excluded).to_string()).await?.ok()?;
    let spec = get(&client, "annotated").await?["spec"].clone();
    ensure!(is_kept_off(&spec), "{spec}");
    clean_up().await
}

/// Whether the only term of the pod's required node affinity is that the node has no host-network pool.
fn is_kept_off(spec: &Value) -> bool {
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let requirement =
        json!({ "key": "nodepool.openyurt.io/hostnetwork", "operator": "NotIn", "values": ["true"] });
    required["nodeSelectorTerms"] == json!([{ "matchExpressions": [requirement] }])
}

async fn get(client: &Client, name: &str) -> Result<Value> {
    let pod = Api::<Pod>::namespaced(client.clone(), NAMESPACE).get(name).await?;
    Ok(serde_json::to_value(pod)?)
}

async fn clean_up() -> Result<()> {
    kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"]).await?.ok()?;
    kubectl(&["delete", "np", POOL, "e2e-webhook-plain", "--ignore-not-found"]).await?.ok()?;
    Ok(())
}

/// The API server asks the webhook of pods with the label or the annotation, and of no other: by its own count of calls.
#[tokio::test]
async fn only_pods_with_the_label_or_the_annotation_reach_the_webhook() -> Result<()> {
    const WEBHOOKS: [&str; 2] = ["labelled.pods.isthmus.dev", "annotated.pods.isthmus.dev"];
    let client = client().await?;
    prepare(&client).await?;
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |labels: &Value, changes: &Value, count: usize| {
        for number in 0..count {
            let pod = pod(&format!("pod-{number}"), labels, changes.clone());
            pods.create(&dry, &serde_json::from_value(pod)?).await?;
        }
        anyhow::Ok(())
    };
    let counts = async || anyhow::Ok([calls(WEBHOOKS[0]).await?, calls(WEBHOOKS[1]).await?]);
    let annotation =
        json!({ "metadata": { "annotations": { "apps.openyurt.io/exclude-host-network-pool": "true" } } });

    let before = counts().await?;
    create(&json!({ "app": "plain" }), &json!({}), 50).await?;
    let plain = counts().await?;
    ensure!(plain == before, "50 plain pods: {before:?} calls, then {plain:?}");
    // That the count counts; the API server may ask twice of a pod.
    create(&desired(POOL), &json!({}), 3).await?;
    create(&json!({}), &annotation, 2).await?;
    let after = counts().await?;
    let more = after[0] >= plain[0] + 3 && after[1] >= plain[1] + 2;
    ensure!(more, "3 labelled and 2 annotated pods: {plain:?} calls, then {after:?}");
    clean_up().await
}

/// How often the API server has called the webhook of that name.
async fn calls(webhook: &str) -> Result<u64> {
    let metrics = kubectl(&["get", "--raw", "/metrics"]).await?.ok()?;
    let start = "apiserver_admission_webhook_admission_duration_seconds_count{";
    let name = format!("name=\"{webhook}\"");
    let lines = metrics.lines().filter(|line| line.starts_with(start) && line.contains(&name));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
}

/// Everything that was sent and the API server kept is still there. A field that our types do not know no API server of today keeps: that is
/// asked of the webhook itself, in the manager's own tests.
#[tokio::test]
async fn fields_that_were_sent_survive() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;
    let full = json!({ "spec": {
        "automountServiceAccountToken": false, "enableServiceLinks": false, "shareProcessNamespace": true, "terminationGracePeriodSeconds": 7,
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "nodeTaintsPolicy": "Honor", "matchLabelKeys": ["app"], "labelSelector": {},
        }],
        "resources": { "requests": { "cpu": "10m" } },
    } });
    for (name, labels) in [("labelled", desired(POOL)), ("unlabelled", json!({}))] {
        kubectl_apply(&pod(name, &labels, full.clone()).to_string()).await?.ok()?;
    }
    // Raw, so that no types of ours come between.
    let [labelled, unlabelled] = [raw("labelled").await?, raw("unlabelled").await?];
    // The API server's own policy keeps the unlabelled one off host-network nodes.
    let ours = ["hostNetwork", "nodeSelector", "containers", "affinity"];
    let fields = |pod: &Value| -> BTreeSet<String> {
        pod["spec"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    for field in fields(&unlabelled) {
        if !ours.contains(&field.as_str()) {
            ensure!(
                labelled["spec"][&field] == unlabelled["spec"][&field],
                "{field} was changed: {}",
                labelled["spec"]
            );
        }
    }
    clean_up().await
}

async fn raw(name: &str) -> Result<Value> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}");
    Ok(serde_json::from_str(&kubectl(&["get", "--raw", &path]).await?.ok()?)?)
}

/// 1,000 admissions while authority and certificate are forced to change: none fails.
#[tokio::test]
async fn a_forced_rotation_fails_no_admission() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;
    let secrets = Api::<Secret>::namespaced(client.clone(), SYSTEM);
    let served = || async {
        let secret = secrets.get("isthmus-webhook-serving").await?;
        anyhow::Ok(secret.data.context("no data")?["tls.crt"].0.clone())
    };
    let before = served().await?;
    let request = format!("{}", jiff::Timestamp::now());
    let rotate = json!({ "metadata": { "annotations": { "isthmus.dev/rotate": request } } });
    secrets.patch("isthmus-webhook-ca", &PatchParams::default(), &Patch::Merge(&rotate)).await?;

    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let (pods, dry) = (&pods, &dry);
    let deadline = Instant::now() + Duration::from_mins(4);
    let (mut admitted, mut rotated) = (0, false);
    // The rotation waits for everyone to trust the new authority: admissions go on until it is over, and 1,000 at least.
    while admitted < 1000 || !rotated {
        ensure!(Instant::now() < deadline, "after {admitted} admissions: rotated is {rotated}");
        let batch: Vec<_> = stream::iter(0..50)
            .map(|i| async move {
                let pod: Pod = serde_json::from_value(pod(&format!("r-{i}"), &desired(POOL), json!({})))?;
                let admitted = pods.create(dry, &pod).await?;
                let host_network = admitted.spec.and_then(|spec| spec.host_network);
                ensure!(host_network == Some(true), "admitted unchanged");
                anyhow::Ok(())
            })
            .buffer_unordered(8)
            .collect()
            .await;
        for answer in batch {
            answer.with_context(|| format!("after {admitted} admissions"))?;
            admitted += 1;
        }
        rotated = served().await? != before && authorities_settled(&secrets).await?;
        // Spread over the rotation, not all before its first step.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    clean_up().await
}

/// Whether no authority waits to take over any more.
async fn authorities_settled(secrets: &Api<Secret>) -> Result<bool> {
    let data = secrets.get("isthmus-webhook-ca").await?.data.unwrap_or_default();
    Ok(!data.contains_key("next.crt"))
}

/// Plain pods never wait for the webhook, even if nobody serves it; labelled ones are refused rather than let through.
#[tokio::test]
async fn without_any_replica_plain_pods_are_created_and_rules_of_the_crds_hold() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;
    kubectl(&["-n", SYSTEM, "scale", "deployment/isthmus-manager", "--replicas=0"]).await?.ok()?;
    let managers = Api::<Pod>::namespaced(client.clone(), SYSTEM);
    eventually("no replica is left", Duration::from_mins(1), || async {
        let left = managers.list(&ListParams::default()).await?.items.len();
        ensure!(left == 0, "{left} pods are left");
        Ok(())
    })
    .await?;

    let result = async {
        let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        let plain: Pod = serde_json::from_value(pod("alone", &json!({}), json!({})))?;
        let began = Instant::now();
        pods.create(&PostParams::default(), &plain).await.context("a plain pod")?;
        // The webhook's own time limit is 3 s.
        ensure!(began.elapsed() < Duration::from_secs(3), "a plain pod waited {:?}", began.elapsed());
        let labelled: Pod = serde_json::from_value(pod("labelled", &desired(POOL), json!({})))?;
        let refused = pods.create(&PostParams::default(), &labelled).await;
        ensure!(refused.is_err(), "a labelled pod was let through without its network");

        let bad = "apiVersion: apps.openyurt.io/v1beta2\nkind: NodePool\nmetadata: {name: e2e-bad}\nspec: {type: Moon}\n";
        let refused = kubectl_apply(bad).await?;
        ensure!(!refused.success && refused.stderr.contains("spec.type"), "{refused:?}");
        let changed = kubectl(&["patch", "np", POOL, "--type=merge", "-p", r#"{"spec":{"networkMode":"ContainerNetwork"}}"#]);
        let changed = changed.await?;
        ensure!(!changed.success, "the network mode changed: {changed:?}");
        Ok(())
    }
    .await;

    kubectl(&["-n", SYSTEM, "scale", "deployment/isthmus-manager", "--replicas=2"]).await?.ok()?;
    kubectl(&["-n", SYSTEM, "rollout", "status", "deployment/isthmus-manager", "--timeout=90s"])
        .await?
        .ok()?;
    result?;
    Api::<Pod>::namespaced(client, NAMESPACE).delete("alone", &DeleteParams::default()).await?;
    clean_up().await
}

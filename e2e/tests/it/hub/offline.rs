//! A node that loses its link to the API server, its kubelet, its hub, and gets the link back.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use e2e::hub::{HubNode, LOOPBACK, SECURE, runs, token};
use e2e::{client, eventually, fresh_namespace, kubectl, kubectl_apply};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::clients::CUT;
use super::cluster_dns::ClusterDns;
use super::kube_proxy::KubeProxy;
use super::waiting_pod;

const NAMESPACE: &str = "e2e-hub-offline";
const NODE: &str = "e2e-hub-1";
const LABEL: &str = "isthmus.dev/e2e=hub";
const EXPLAIN: [&str; 2] = ["explain", "service.spec.ports"];
const SERVICES: &str = "/api/v1/services?resourceVersion=0";

/// How soon a black hole is to be noticed: in 5 s (docs/adr/0017-idle-link.md), and what a busy machine takes to ask.
const NOTICED: Duration = Duration::from_secs(6);

/// How soon a hub that was killed is to answer again.
const SERVING: Duration = Duration::from_secs(1);

/// How soon names are answered by a `CoreDNS` that runs, and by one that begins.
const ANSWERED: Duration = Duration::from_secs(20);
const BEGUN: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_node_goes_on_without_its_link_and_misses_nothing_after() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let node = HubNode::fresh(NODE, &[LABEL]).await?;
    let reader = token(NAMESPACE, "reader", "view").await?;
    waiting_pod(NAMESPACE, "keeper", NODE).await?;
    runs(NAMESPACE, "keeper").await?;
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let before = pods.get("keeper").await?;
    let proxy = KubeProxy::through_the_hub(LABEL, NAMESPACE).await?;
    service("before").await?;
    proxy.routes(&node, "before").await?;
    let dns = ClusterDns::through_the_hub(NAMESPACE, NODE).await?;
    dns.answers(&node, "with a link", Duration::from_mins(1)).await?;
    let explained = node.kubectl(&reader, &EXPLAIN).await?.ok()?;
    // Rights and tokens are stored within seconds.
    tokio::time::sleep(Duration::from_secs(4)).await;

    // Two watches, each through another door. Not as a table: only the API server makes these, and such a watch ends with the link.
    let words = ["get", "services", "-n", NAMESPACE, "-w", "-o", "name"];
    let mut by_kubectl = node.start(&[&node.kubectl_words(SECURE, &reader), &words[..]].concat())?;
    let url = format!("{LOOPBACK}/api/v1/services?watch=1&resourceVersion=0");
    let mut by_curl = node.start(&["curl", "-sNA", "e2e", &url])?;
    let kubectl_out = by_kubectl.stdout.take().context("stdout")?;
    let mut lines = BufReader::new(kubectl_out).lines();
    while !lines.next_line().await?.context("kubectl ended")?.ends_with("/before") {}
    let online = node.get(SECURE, Some(&reader), SERVICES).await?;
    ensure!(online.status == 200 && online.warning.is_none(), "with a link: {online:?}");

    let began = Instant::now();
    let noticed = cut(&node, &reader).await?;
    println!("black hole noticed after {:.2} s", noticed.as_secs_f64());
    let listed = node.kubectl(&reader, &["get", "services", "-A"]).await?;
    ensure!(listed.success && listed.stdout.contains("before"), "kubectl without a link: {listed:?}");
    ensure!(listed.stderr.contains("no link to the API server"), "kubectl does not warn: {listed:?}");
    let write = Instant::now();
    let written = node.kubectl(&reader, &["-n", NAMESPACE, "create", "configmap", "x"]).await?;
    ensure!(
        !written.success && write.elapsed() < Duration::from_secs(5),
        "{:?} {written:?}",
        write.elapsed()
    );

    documents_are_told(&node, &reader).await?;

    dns.answers(&node, "in the cut", ANSWERED).await?;

    // Meanwhile in the cloud.
    waiting_pod(NAMESPACE, "late", NODE).await?;
    service("during").await?;
    node.daemon("stop", "kubelet").await?;
    node.daemon("start", "kubelet").await?;
    restarted(&node, "keeper", "a restarted kubelet").await?;
    restarted(&node, "dns", "a restarted kubelet").await?;
    dns.answers(&node, "in the cut, by a CoreDNS that began in it", BEGUN).await?;
    tokio::time::sleep(CUT.saturating_sub(began.elapsed())).await;
    dns.answers(&node, "at the end of the cut", ANSWERED).await?;
    ensure!(
        by_kubectl.try_wait()?.is_none() && by_curl.try_wait()?.is_none(),
        "a watch ended during the cut"
    );

    node.black_hole(false).await?;
    let healed = Instant::now();
    runs(NAMESPACE, "late").await?;
    println!("a pod made during the cut runs {:.1} s after its end", healed.elapsed().as_secs_f64());
    while !lines.next_line().await?.context("kubectl's watch ended")?.ends_with("/during") {}
    proxy.routes(&node, "during").await?;

    // Once more, and now the hub dies as well.
    cut(&node, &reader).await?;
    let served = killed_hub_serves(&node, &reader).await?;
    println!("a hub that was killed serves {} ms after its start", served.as_millis());
    ensure!(served < SERVING, "{served:?}");
    dns.answers(&node, "by a CoreDNS whose hub was killed", ANSWERED).await?;
    proxy.begins_anew(&node, "during").await?;
    restarted(&node, "keeper", "a kubelet whose hub was killed").await?;
    restarted(&node, "dns", "a kubelet whose hub was killed").await?;
    dns.answers(&node, "by a CoreDNS that began after the kill", BEGUN).await?;
    let listed = node.kubectl(&reader, &["get", "services", "-A"]).await?;
    ensure!(listed.success && listed.stdout.contains("during"), "after the kill: {listed:?}");
    is_explained(&node, &reader, &explained).await?;
    node.black_hole(false).await?;
    waiting_pod(NAMESPACE, "last", NODE).await?;
    runs(NAMESPACE, "last").await?;
    service("after").await?;
    proxy.routes(&node, "after").await?;

    let after = pods.get("keeper").await?;
    ensure!(before.metadata.uid == after.metadata.uid, "the pod is another: {after:?}");
    ensure!(after.metadata.deletion_timestamp.is_none(), "the pod is being deleted: {after:?}");
    kubectl(&["wait", &format!("node/{NODE}"), "--for=condition=Ready", "--timeout=60s"]).await?.ok()?;
    proxy.undo();
    node.leave().await
}

/// `kubectl explain` without a link says what it said with one, by the document that the hub has on its disk: kubectl has kept nothing itself.
async fn is_explained(node: &HubNode, reader: &str, expected: &str) -> Result<()> {
    let kept = tempfile::tempdir()?;
    let words = [&["--cache-dir", kept.path().to_str().context("a path")?][..], &EXPLAIN].concat();
    let told = node.kubectl(reader, &words).await?;
    ensure!(
        told.success && told.stdout == expected,
        "kubectl explain without a link: {told:?}\nbut {expected}"
    );
    ensure!(told.stdout.contains("nodePort"), "{told:?}");
    Ok(())
}

/// What there is, which version it is and how it is, without a link: kubectl asks that before anything else, and nobody on the node has yet.
async fn documents_are_told(node: &HubNode, reader: &str) -> Result<()> {
    for (words, shown) in [
        (&["api-resources"][..], "endpointslices"),
        (&["version"], "Server Version: v1."),
        (&["get", "--raw", "/healthz"], "ok"),
        (&["get", "--raw", "/readyz"], "ok"),
    ] {
        let told = node.kubectl(reader, words).await?;
        ensure!(told.success && told.stdout.contains(shown), "kubectl {words:?} without a link: {told:?}");
    }
    // Nothing of this group is on the node, nor did anybody ask.
    let reply = node.get(SECURE, Some(reader), "/openapi/v3/apis/batch/v1").await?;
    ensure!(reply.status == 503 && reply.body.contains("--openapi=used"), "{reply:?}");
    parts_are_told(node, reader).await
}

/// Each group and version alone, which the hub takes from what it keeps of all: as the API server tells them, but for what is optional.
async fn parts_are_told(node: &HubNode, reader: &str) -> Result<()> {
    let direct = async |path: &str| -> Result<Value> {
        let mut told: Value = serde_json::from_str(&kubectl(&["get", "--raw", path]).await?.ok()?)?;
        for resource in told.get_mut("resources").and_then(Value::as_array_mut).into_iter().flatten() {
            resource.as_object_mut().context("a resource")?.remove("storageVersionHash");
        }
        Ok(told)
    };
    let groups = direct("/apis").await?;
    let mut paths = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().context("groups")? {
        paths.push(format!("/apis/{}", group["name"].as_str().context("a name")?));
        let versions = group["versions"].as_array().context("versions")?;
        paths
            .extend(versions.iter().filter_map(|of| Some(format!("/apis/{}", of["groupVersion"].as_str()?))));
    }
    ensure!(paths.len() > 30, "{paths:?}");
    for path in paths {
        let reply = node.get(SECURE, Some(reader), &path).await?;
        ensure!(reply.status == 200 && reply.is_stale(), "{path}: {reply:?}");
        let (told, expected) = (serde_json::from_str::<Value>(&reply.body)?, direct(&path).await?);
        ensure!(told == expected, "{path}: {told} and not {expected}");
    }
    Ok(())
}

/// Makes a black hole of the link, and says when the hub told its callers.
async fn cut(node: &HubNode, token: &str) -> Result<Duration> {
    node.black_hole(true).await?;
    let cut = Instant::now();
    eventually("the hub notices the black hole", NOTICED, || async {
        let reply = node.get(SECURE, Some(token), SERVICES).await?;
        ensure!(reply.status == 200, "{reply:?}");
        ensure!(reply.is_stale(), "{:?}", reply.warning);
        Ok(cut.elapsed())
    })
    .await
}

/// Kills the only container of the pod; the kubelet is to start another.
async fn restarted(node: &HubNode, pod: &str, who: &str) -> Result<()> {
    let running = node.running(pod).await?;
    let [killed] = running.as_slice() else { bail!("containers before the kill: {running:?}") };
    node.kill(killed).await?;
    let what = format!("{who} restarts {pod} without a link");
    eventually(&what, Duration::from_mins(1), || async {
        let running = node.running(pod).await?;
        ensure!(running.len() == 1 && &running[0] != killed, "{running:?}");
        Ok(())
    })
    .await
}

/// Kills the hub, starts it again, and says how long after its start it answered.
async fn killed_hub_serves(node: &HubNode, token: &str) -> Result<Duration> {
    e2e::hack_cluster(&["signal", "KILL", "edge-hub", node.name]).await?.ok()?;
    let answering = async {
        loop {
            let reply = node.get(SECURE, Some(token), SERVICES).await?;
            if reply.status == 200 {
                return anyhow::Ok(SystemTime::now());
            }
        }
    };
    let (started, answered) = tokio::join!(node.daemon("start", "edge-hub"), answering);
    started?;
    Ok(answered?.duration_since(node.hub_started()?)?)
}

async fn service(name: &str) -> Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "selector": { "app": "keeper" }, "ports": [{ "port": 80 }] },
    });
    kubectl_apply(&service.to_string()).await?.ok().map(drop)
}

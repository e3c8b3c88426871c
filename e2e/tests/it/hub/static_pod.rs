//! The hub as a static pod: the kubelet keeps it, from what `edge-hub manifest` prints and the image that `cargo xtask dist` makes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::hub::{HubNode, LOOPBACK, token};
use e2e::{client, eventually, fresh_namespace, hack_cluster, kubectl, repository, run};

const NAMESPACE: &str = "e2e-hub-static";
const NODE: &str = "e2e-static-1";
const IMAGE: &str = concat!("isthmus.dev/edge-hub:", env!("CARGO_PKG_VERSION"));
const MANIFEST: &str = "/etc/kubernetes/manifests/edge-hub.json";
const PROBES: &str = "http://127.0.0.1:10267";

#[tokio::test]
async fn a_hub_runs_as_a_static_pod() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let node = HubNode::without_hub(NODE).await?;
    let tar = repository().join("dist/edge-hub.tar");
    let tar = tar.to_str().context("a path in UTF-8")?;
    hack_cluster(&["load-image", tar, "--node", NODE]).await?.ok()?;
    let keys = node.keys()?;
    let file = |name: &str| keys.join(name).display().to_string();
    let (certificate, key) = (file("kubelet-client.crt"), file("kubelet-client.key"));
    let authority = node.authority.display().to_string();
    let options = [
        ["--node-name", NODE],
        ["--server-addr", &node.api_server],
        ["--ca-file", &authority],
        ["--client-cert-file", &certificate],
        ["--client-key-file", &key],
    ];
    let words = [&["manifest", "static-pod", "--image", IMAGE, "--"][..], &options.concat()].concat();
    let manifest = run("edge-hub", &words, "").await?.ok()?;
    // What is half written is no manifest: the kubelet takes no file that begins with a dot.
    let place = format!("cat >$0.new && mv $0.new {MANIFEST}");
    let hidden = "/etc/kubernetes/manifests/.edge-hub";
    let words = ["exec", NODE, "--", "sh", "-c", &place, hidden];
    run(repository().join("hack/cluster"), &words, &manifest).await?.ok()?;

    eventually("the hub is ready", Duration::from_mins(1), || async {
        let ready = node.get(PROBES, None, "/readyz").await?;
        ensure!(ready.status == 200, "{ready:?}");
        Ok(())
    })
    .await?;
    // By a token: whether a process is the node's or a pod's cannot be seen from a container beside cgroups of version 1.
    let reader = token(NAMESPACE, "reader", "view").await?;
    let services = node.get(LOOPBACK, Some(&reader), "/api/v1/services?resourceVersion=0").await?;
    ensure!(services.status == 200 && services.body.contains("\"kubernetes\""), "{services:?}");
    let mirror = format!("pod/edge-hub-{NODE}");
    kubectl(&["-n", "kube-system", "wait", &mirror, "--for=condition=Ready", "--timeout=60s"]).await?.ok()?;

    hack_cluster(&["exec", NODE, "--", "rm", MANIFEST]).await?.ok()?;
    eventually("the hub is gone", Duration::from_mins(1), || async {
        let ready = node.get(PROBES, None, "/readyz").await?;
        ensure!(ready.status == 0, "{ready:?}");
        Ok(())
    })
    .await?;
    node.leave().await
}

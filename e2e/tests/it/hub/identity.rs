//! A hub with a certificate of its own: begun with a bootstrap token, approved by the manager, renewed without a cut. And what a
//! token is not good for.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use e2e::cleanup::Cleanup;
use e2e::hub::{HubNode, LOOPBACK};
use e2e::{Finished, eventually, hack_cluster, kubectl, kubectl_apply, run};
use serde_json::json;
use tls::request::{Subject, generate_key, make};

const NODE: &str = "e2e-identity-1";
const NEW: &str = "e2e-identity-2";
const TOKEN: &str = "e2e123.0123456789abcdef";
const SOON: Duration = Duration::from_secs(30);

/// Takes away the requests of the node's hub of before. Approved ones stay for an hour, and while they do no other key gets the name.
async fn forget_requests() -> Result<()> {
    let all = kubectl(&["get", "csr", "-o", "name"]).await?.ok()?;
    let hub = format!("/edge-hub-{NODE}-");
    for request in all.lines().filter(|name| name.contains(&hub)) {
        kubectl(&["delete", request, "--ignore-not-found"]).await?.ok()?;
    }
    Ok(())
}

/// Takes away what the test made, also when it fails. The node goes with its own.
fn cleanup() -> Cleanup {
    let mut cleanup = Cleanup::default();
    for words in [
        &["-n", "kube-system", "delete", "secret", "bootstrap-token-e2e123", "--ignore-not-found"][..],
        &["-n", "kube-public", "delete", "configmap,role,rolebinding", "-l", "isthmus.dev/e2e=identity"],
        &["delete", "csr", "e2e-takeover", "e2e-new", "--ignore-not-found"],
        &["-n", "kube-system", "delete", "configmap", "yurt-hub-cfg", "--ignore-not-found"],
        &["-n", "default", "delete", "service", "e2e-identity", "--ignore-not-found"],
    ] {
        cleanup.add("kubectl", words);
    }
    cleanup
}

#[tokio::test]
async fn a_hub_begins_with_a_token_and_renews_without_a_cut() -> Result<()> {
    let cleanup = cleanup();
    forget_requests().await?;
    let authority = kubectl(&[
        "config",
        "view",
        "--raw",
        "--minify",
        "-o",
        "jsonpath={.clusters[0].cluster.certificate-authority-data}",
    ])
    .await?
    .ok()?;
    kubectl_apply(&bootstrap_objects(&authority)).await?.ok()?;
    let file = std::env::temp_dir().join(format!("isthmus-e2e-token-{}", std::process::id()));
    tls::private_file::write(&file, TOKEN.as_bytes())?;
    let node = HubNode::with_token(NODE, &file.display().to_string()).await;
    std::fs::remove_file(&file)?;
    let node = node?;

    // The kubelet is ready, and its hub is the node, by a certificate that the manager approved.
    let who = ["kubectl", "--kubeconfig=/dev/null", "--server", LOOPBACK, "auth", "whoami", "-o", "json"];
    let who = node.inside(&who).await?.ok()?;
    ensure!(who.contains(&format!("system:node:{NODE}")) && who.contains("isthmus:edge-hubs"), "{who}");
    let approved = conditions(NODE).await?;
    ensure!(approved == "Approved=TokenAsksForNewNode", "{approved}");

    // What it is told to share arrives, and changes while it runs.
    let agents = |list: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: yurt-hub-cfg, namespace: kube-system}}, data: {{cache_agents: '{list}'}}}}"
        )
    };
    kubectl_apply(&agents("e2e-one")).await?.ok()?;
    eventually("the hub reads yurt-hub-cfg", SOON, || async {
        let held = node.status().await?;
        let config = held["subscriptions"]
            .as_array()
            .context("no subscriptions")?
            .iter()
            .find(|held| held["resource"] == "configmaps");
        ensure!(config.is_some_and(|held| held["state"] == "watching" && held["objects"] == 1), "{held}");
        Ok(())
    })
    .await?;

    // A watch stays open while the certificate is renewed, and so does the kubelet's readiness.
    let (mut watch, mut lines) = node.watch(LOOPBACK, None, "/api/v1/services?watch=1&resourceVersion=0")?;
    ensure!(lines.next_line().await?.is_some(), "no event");
    let before = node.status().await?["identity"]["notAfter"].clone();
    tokio::time::sleep(Duration::from_secs(1)).await;
    hack_cluster(&["signal", "HUP", "edge-hub", NODE]).await?.ok()?;
    eventually("another certificate", SOON, || async {
        let identity = node.status().await?["identity"].clone();
        ensure!(identity["state"] == "own" && identity["notAfter"] != before, "{identity} after {before}");
        Ok(())
    })
    .await?;
    let renewed =
        kubectl(&["get", "csr", "-o", "jsonpath={.items[*].status.conditions[*].reason}"]).await?.ok()?;
    ensure!(renewed.contains("NodeAsksForItsHub"), "{renewed}");
    ensure!(watch.try_wait()?.is_none(), "the renewal cut an open watch");
    let seen = async {
        kubectl(&["-n", "default", "create", "service", "clusterip", "e2e-identity", "--tcp=80"])
            .await?
            .ok()?;
        while !lines.next_line().await?.context("the watch ended")?.contains("e2e-identity") {}
        anyhow::Ok(())
    };
    let seen = tokio::time::timeout(SOON, seen).await;
    seen.context("the watch is silent after the renewal")??;

    // The same token is no good for a node that lives, nor for one that is only silent.
    ask("e2e-takeover", NODE).await?.ok()?;
    eventually("a denial", SOON, || async {
        let denied = conditions("e2e-takeover").await?;
        ensure!(denied == "Denied=NodeExists", "{denied}");
        Ok(())
    })
    .await?;
    ask("e2e-new", NEW).await?.ok()?;
    eventually("an approval", SOON, || async {
        let approved = conditions("e2e-new").await?;
        ensure!(approved == "Approved=TokenAsksForNewNode", "{approved}");
        Ok(())
    })
    .await?;
    drop(cleanup);
    node.leave().await
}

/// `Approved=reason` of the request of that name, or of the first for that node.
async fn conditions(name: &str) -> Result<String> {
    let format = "jsonpath={range .items[*]}{.metadata.name} {range .status.conditions[*]}{.type}={.reason}{end}{\"\\n\"}{end}";
    let all = kubectl(&["get", "csr", "--sort-by=.metadata.creationTimestamp", "-o", format]).await?.ok()?;
    let ours =
        all.lines().find(|line| line.starts_with(name) || line.starts_with(&format!("edge-hub-{name}-")));
    Ok(ours
        .and_then(|line| line.split_once(' '))
        .map(|(_, reason)| reason.trim().to_owned())
        .unwrap_or_default())
}

/// Asks, with the token alone, for the certificate of a node's hub.
async fn ask(name: &str, node: &str) -> Result<Finished> {
    let subject = Subject {
        common_name: format!("system:node:{node}"),
        organizations: vec![api::names::NODE_GROUP.to_owned(), api::names::HUB_GROUP.to_owned()],
    };
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": name },
        "spec": {
            "request": BASE64_STANDARD.encode(make(&subject, &generate_key()?)?),
            "signerName": api::names::HUB_SIGNER, "usages": api::names::HUB_USAGES, "expirationSeconds": 3600,
        },
    });
    let config = kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"])
        .await?
        .ok()?;
    let token = format!("--token={TOKEN}");
    let words = [
        "--kubeconfig=/dev/null",
        "--insecure-skip-tls-verify",
        "--server",
        config.trim(),
        &token,
        "create",
        "-f",
        "-",
    ];
    run("kubectl", &words, &request.to_string()).await
}

/// What kubeadm would have made: the token, and what is public of the cluster.
fn bootstrap_objects(authority: &str) -> String {
    let (id, secret) = TOKEN.split_once('.').unwrap_or_default();
    format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: bootstrap-token-{id}, namespace: kube-system}}
type: bootstrap.kubernetes.io/token
stringData:
  token-id: {id}
  token-secret: {secret}
  usage-bootstrap-authentication: 'true'
  usage-bootstrap-signing: 'true'
  auth-extra-groups: {group}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: cluster-info, namespace: kube-public, labels: {{isthmus.dev/e2e: identity}}}}
data:
  kubeconfig: |
    apiVersion: v1
    kind: Config
    clusters:
    - name: ''
      cluster: {{certificate-authority-data: {authority}, server: 'https://unused:6443'}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: e2e-cluster-info, namespace: kube-public, labels: {{isthmus.dev/e2e: identity}}}}
rules: [{{apiGroups: [''], resources: [configmaps], resourceNames: [cluster-info], verbs: [get]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: e2e-cluster-info, namespace: kube-public, labels: {{isthmus.dev/e2e: identity}}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: e2e-cluster-info}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: 'system:anonymous'}}]
",
        group = api::names::HUB_BOOTSTRAP_GROUP,
    )
}

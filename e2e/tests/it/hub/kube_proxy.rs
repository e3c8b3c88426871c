//! The cluster's kube-proxy on a node with a hub: the same, but its kubeconfig names the hub.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::cleanup::Cleanup;
use e2e::hub::{HubNode, SECURE};
use e2e::{eventually, kubectl, kubectl_apply};
use serde_json::{Value, json};

const SYSTEM: [&str; 2] = ["-n", "kube-system"];
const NAME: &str = "kube-proxy-hub";

/// A second kube-proxy on the nodes with a label, from which the cluster's own is kept off.
pub(crate) struct KubeProxy {
    /// Leaves kube-proxy as it was, also when the test fails.
    undo: Cleanup,
    namespace: &'static str,
}

impl KubeProxy {
    /// Starts it, and waits until it runs; `label` is `KEY=VALUE`.
    pub(crate) async fn through_the_hub(label: &str, namespace: &'static str) -> Result<Self> {
        let (key, value) = label.split_once('=').context("a label")?;
        let mut daemons = get("daemonset").await?;
        let mut config = get("configmap").await?;
        let before =
            placement(&daemons["spec"]["template"]["spec"]["affinity"], &daemons["spec"]["updateStrategy"]);
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [{ "key": key, "operator": "NotIn", "values": [value] }] }],
        } } });
        // Those of other nodes stay, then and when it is put back: it is the same template again.
        let off = placement(&affinity, &json!({ "type": "OnDelete", "rollingUpdate": null }));
        let mut undo = Cleanup::default();
        undo.add("kubectl", &[&SYSTEM[..], &before.each_ref().map(String::as_str)].concat());
        for kind in ["configmap", "daemonset"] {
            undo.add("kubectl", &[&SYSTEM[..], &["delete", kind, NAME, "--ignore-not-found"]].concat());
        }
        kubectl(&[&SYSTEM[..], &off.each_ref().map(String::as_str)].concat()).await?.ok()?;

        let kubeconfig = config["data"]["kubeconfig.conf"].as_str().context("kubeconfig.conf")?;
        let direct =
            kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).context("server")?;
        config["data"]["kubeconfig.conf"] = kubeconfig.replace(direct, SECURE).into();
        config["metadata"] = json!({ "name": NAME, "namespace": "kube-system" });
        daemons["metadata"] = json!({ "name": NAME, "namespace": "kube-system" });
        let labels = json!({ "e2e": NAME });
        daemons["spec"]["selector"] = json!({ "matchLabels": labels });
        let template = &mut daemons["spec"]["template"];
        template["metadata"] = json!({ "labels": labels });
        template["spec"]["nodeSelector"][key] = value.into();
        template["spec"]["affinity"] = Value::Null;
        for volume in template["spec"]["volumes"].as_array_mut().into_iter().flatten() {
            if volume["name"] == "kube-proxy" {
                volume["configMap"]["name"] = NAME.into();
            }
        }
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": [config, daemons] });
        kubectl_apply(&list.to_string()).await?.ok()?;
        let status = ["rollout", "status", "daemonset", NAME, "--timeout=60s"];
        kubectl(&[&SYSTEM[..], &status].concat()).await?.ok()?;
        Ok(Self { undo, namespace })
    }

    /// Waits until the node routes a Service of the namespace.
    pub(super) async fn routes(&self, node: &HubNode, service: &str) -> Result<()> {
        eventually(&format!("kube-proxy routes {service}"), Duration::from_mins(1), || async {
            ensure!(self.has_rule(node, service).await?, "no rule for {service}");
            Ok(())
        })
        .await
    }

    /// Whether the node sends what is for the Service's address anywhere.
    async fn has_rule(&self, node: &HubNode, service: &str) -> Result<bool> {
        let name = format!("\"{}/{service}", self.namespace);
        let comments = [format!("{name} "), format!("{name}\"")];
        let rules = node.inside(&["iptables-save", "-t", "nat"]).await?.ok()?;
        let mut rules = rules.lines().filter(|rule| rule.starts_with("-A KUBE-SERVICES "));
        Ok(rules.any(|rule| comments.iter().any(|comment| rule.contains(comment))))
    }

    /// Takes away what kube-proxy made of Services, and kills it: the next one knows of them by the hub alone.
    pub(super) async fn begins_anew(&self, node: &HubNode, service: &str) -> Result<()> {
        let (label, field) = (format!("e2e={NAME}"), format!("spec.nodeName={}", node.name));
        let words = [
            "get",
            "pods",
            "-l",
            &label,
            "--field-selector",
            &field,
            "-o",
            "jsonpath={.items[*].metadata.name}",
        ];
        let pod = kubectl(&[&SYSTEM[..], &words].concat()).await?.ok()?;
        let running = node.running(pod.trim()).await?;
        let [killed] = running.as_slice() else { bail!("containers of {pod}: {running:?}") };
        node.inside(&["iptables", "-w", "-t", "nat", "-F", "KUBE-SERVICES"]).await?.ok()?;
        node.kill(killed).await?;
        ensure!(
            !self.has_rule(node, service).await?,
            "the rules were not taken away: the test shows nothing"
        );
        self.routes(node, service).await
    }

    /// Leaves kube-proxy as it was.
    pub(crate) fn undo(self) {
        drop(self.undo);
    }
}

async fn get(kind: &str) -> Result<Value> {
    let words = [&SYSTEM[..], &["get", kind, "kube-proxy", "-o", "json"]].concat();
    Ok(serde_json::from_str(&kubectl(&words).await?.ok()?)?)
}

/// The words that say where the cluster's own kube-proxy runs, and how it follows its template.
fn placement(affinity: &Value, strategy: &Value) -> [String; 5] {
    let template = json!({ "spec": { "affinity": affinity } });
    let patch = json!({ "spec": { "updateStrategy": strategy, "template": template } }).to_string();
    [
        "patch".into(),
        "daemonset".into(),
        "kube-proxy".into(),
        "--type=merge".into(),
        format!("--patch={patch}"),
    ]
}

//! A `CoreDNS` of a node that has no other way to the API server than the hub, and two pods: one with a Service, and one that calls it
//! by its name.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::hub::{HubNode, runs, token};
use e2e::{eventually, kubectl, kubectl_apply, run};
use serde_json::{Value, json};

const COREFILE: &str = ".:53 {
  errors
  ready
  kubernetes cluster.local
  reload
}
";

/// The pods `dns`, `web` and `caller` of a namespace, all on one node.
pub(super) struct ClusterDns {
    namespace: &'static str,
}

impl ClusterDns {
    /// Starts them, and waits until they run.
    pub(super) async fn through_the_hub(namespace: &'static str, node: &str) -> Result<Self> {
        token(namespace, "dns", "view").await?;
        start(namespace, node).await?;
        for pod in ["dns", "web", "caller"] {
            runs(namespace, pod).await?;
        }
        Ok(Self { namespace })
    }

    /// Waits until a pod reaches the Service by its name.
    pub(super) async fn answers(&self, node: &HubNode, when: &str, within: Duration) -> Result<()> {
        eventually(&format!("Service and DNS of local pods {when}"), within, || self.call(node)).await
    }

    /// Calls the Service of web by its name, from a pod.
    async fn call(&self, node: &HubNode) -> Result<()> {
        let Self { namespace } = self;
        // A statically linked busybox looks names up by itself in nslookup only.
        let look = format!(
            "nslookup -type=a web.{namespace}.svc.cluster.local | awk '/^Name/ {{ f = 1 }} f && /^Address/ {{ print $NF }}'"
        );
        // Its wget dies of a name or an address; nc does not.
        let script = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 $({look}) 80 | tail -1");
        let said = node.within("caller", &script).await?;
        ensure!(said.stdout.trim() == "here", "{said:?}");
        Ok(())
    }
}

/// Makes the Services and pods.
async fn start(namespace: &str, node: &str) -> Result<()> {
    let service = |name: &str, ports: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": namespace },
            "spec": { "selector": { "app": name }, "ports": ports },
        })
    };
    let ports = json!([{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53, "protocol": "TCP" }]);
    let corefile = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "dns", "namespace": namespace },
        "data": { "Corefile": COREFILE },
    });
    let first =
        [service("dns", ports), service("web", json!([{ "port": 80, "targetPort": 8080 }])), corefile];
    kubectl_apply(&json!({ "apiVersion": "v1", "kind": "List", "items": first }).to_string()).await?.ok()?;
    let address = ["get", "service", "-n", namespace, "dns", "-o", "jsonpath={.spec.clusterIP}"];
    let address = kubectl(&address).await?.ok()?;

    let built = run("hack/build-tools", &["--print-path", "coredns"], "").await?.ok()?;
    let binary = built.split_whitespace().last().context("the path of coredns")?;
    let folder = binary.rsplit_once('/').context("its folder")?.0;
    let pod = |name: &str, spec: Value| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } }, "spec": spec,
        });
        pod["spec"]["nodeName"] = node.into();
        pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
        pod["spec"]["containers"][0]["name"] = "c".into();
        pod["spec"]["containers"][0]["image"] = "isthmus.dev/busybox:1".into();
        pod
    };
    // In-cluster clients of a node come to its hub by these two.
    let hub = json!([
        { "name": "KUBERNETES_SERVICE_HOST", "valueFrom": { "fieldRef": { "fieldPath": "status.hostIP" } } },
        { "name": "KUBERNETES_SERVICE_PORT", "value": "10268" },
    ]);
    let pods = [
        pod(
            "dns",
            json!({
                "serviceAccountName": "dns", "dnsPolicy": "Default",
                "containers": [{
                    "command": ["/opt/coredns/coredns", "-conf", "/etc/coredns/Corefile"], "env": hub,
                    "readinessProbe": { "httpGet": { "path": "/ready", "port": 8181 }, "periodSeconds": 1 },
                    "volumeMounts": [
                        { "name": "binary", "mountPath": "/opt/coredns", "readOnly": true }, { "name": "config", "mountPath": "/etc/coredns" },
                    ],
                }],
                "volumes": [{ "name": "binary", "hostPath": { "path": folder } }, { "name": "config", "configMap": { "name": "dns" } }],
            }),
        ),
        pod(
            "web",
            json!({ "containers": [{ "command": ["sh", "-c", "echo here >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"] }] }),
        ),
        pod(
            "caller",
            json!({
                "dnsPolicy": "None", "dnsConfig": { "nameservers": [address], "searches": ["svc.cluster.local"], "options": [{ "name": "ndots", "value": "3" }] },
                "containers": [{ "command": ["sh", "-c", "exec sleep 2147483647"] }],
            }),
        ),
    ];
    kubectl_apply(&json!({ "apiVersion": "v1", "kind": "List", "items": pods }).to_string()).await?.ok()?;
    Ok(())
}

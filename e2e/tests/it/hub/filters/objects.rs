//! The pods and Services that the filters are shown by.

use anyhow::{Context, Result};
use e2e::{kubectl_apply, run};
use serde_json::{Value, json};

use super::{ELSEWHERE, NAMESPACE, NODE, POOL};

/// The nodes that have a pod of the Services: this one, one that comes into its pool, and one that does not.
pub(super) const WEB: [&str; 3] = [NODE, ELSEWHERE, "cloud-1"];

/// Services with node ports, and the pools that they name.
pub(super) const PORTED: [(&str, &str); 3] =
    [("ported-ours", POOL), ("ported-others", "other"), ("ported-all-but-ours", "-e2e-filters,*")];

fn list(items: &[Value]) -> String {
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}

fn pod(name: &str, node: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
    });
    pod["spec"]["nodeName"] = node.into();
    pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
    pod["spec"]["containers"][0]["name"] = "c".into();
    pod["spec"]["containers"][0]["image"] = "isthmus.dev/busybox:1".into();
    pod
}

/// Makes a pod on each of the nodes that says by HTTP which it is on, and the Services of these pods.
pub(super) async fn apply() -> Result<()> {
    let service = |name: &str, kind: &str, annotations: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": NAMESPACE, "annotations": annotations },
            "spec": { "type": kind, "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
        })
    };
    let topology = |keys: &str| json!({ "openyurt.io/topologyKeys": keys });
    let mut items = vec![
        service("everywhere", "ClusterIP", json!({})),
        service("host", "ClusterIP", topology("kubernetes.io/hostname")),
        service("pool", "ClusterIP", topology("openyurt.io/nodepool")),
        service("discarded", "LoadBalancer", json!({ "svc.openyurt.io/discard": "true" })),
    ];
    items.extend(
        PORTED
            .map(|(name, pools)| service(name, "NodePort", json!({ "nodeport.openyurt.io/listen": pools }))),
    );
    items.extend(WEB.map(|node| {
        let serve = format!("mkdir /www; echo {node} >/www/index.html; exec httpd -f -p 8080 -h /www");
        let mut pod = pod(
            &web(node),
            node,
            &json!({ "automountServiceAccountToken": false, "containers": [{ "command": ["sh", "-c", serve] }] }),
        );
        pod["metadata"]["labels"] = json!({ "app": "web" });
        pod
    }));
    kubectl_apply(&list(&items)).await?.ok().map(drop)
}

/// The name of the pod on a node.
pub(super) fn web(node: &str) -> String {
    format!("web-{node}")
}

/// Makes a pod that has a kubectl, and what every pod has: the token of its `ServiceAccount` and what its environment says of the API server; or names
/// the API server in an environment of its own.
pub(super) async fn caller(name: &str, names_the_server: bool) -> Result<()> {
    let built = run("hack/build-tools", &["--print-path", "kubectl"], "").await?.ok()?;
    let binary = built.split_whitespace().last().context("the path of kubectl")?;
    let folder = binary.rsplit_once('/').context("its folder")?.0;
    let own = json!([
        { "name": "KUBERNETES_SERVICE_HOST", "value": "10.96.0.1" },
        { "name": "KUBERNETES_SERVICE_PORT", "value": "443" },
    ]);
    let spec = json!({
        "serviceAccountName": "reader",
        "containers": [{
            "command": ["sh", "-c", "exec sleep 2147483647"],
            "env": if names_the_server { own } else { json!([]) },
            "volumeMounts": [{ "name": "tools", "mountPath": "/opt/tools", "readOnly": true }],
        }],
        "volumes": [{ "name": "tools", "hostPath": { "path": folder } }],
    });
    kubectl_apply(&pod(name, NODE, &spec).to_string()).await?.ok().map(drop)
}

//! `edge-hub run` on a real node: what its kubelet, kube-proxy and kubectl do with it, with a link and without.

mod callers;
mod clients;
mod cluster_dns;
mod differential;
mod failover;
mod filters;
mod identity;
pub(crate) mod kube_proxy;
mod offline;
mod reboot;
mod revoked;
mod same;
mod static_pod;
mod systemd_unit;

use anyhow::Result;
use e2e::kubectl_apply;

/// Makes a pod that waits, on that node.
async fn waiting_pod(namespace: &str, name: &str, node: &str) -> Result<()> {
    let pod = format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: isthmus.dev/busybox:1
    command: [sh, -c, 'echo started; exec sleep 2147483647']
"
    );
    kubectl_apply(&pod).await?.ok().map(drop)
}

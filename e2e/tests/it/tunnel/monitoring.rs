//! Prometheus and metrics-server, as pods of the cloud, read kubelets and exporters of all nodes by name.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{EDGE, GATEWAYS, Reach, ground};
use e2e::{eventually, hack_cluster, internal_ip, kubectl, kubectl_apply, run};
use serde_json::Value;

const NAMESPACE: &str = "kube-system";

/// Where a tool stands on this machine, whose files the nodes share.
async fn folder_of(tool: &str) -> Result<String> {
    let built = run("hack/build-tools", &["--print-path", tool], "").await?.ok()?;
    let path = built.split_whitespace().last().context("its path")?;
    Ok(path.rsplit_once('/').context("its folder")?.0.to_owned())
}

/// The exporter on each node, on the node's network as it usually is.
async fn exporters() -> Result<()> {
    let folder = folder_of("node_exporter").await?;
    kubectl_apply(&format!(
        "apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: node-exporter, namespace: {NAMESPACE}}}
spec:
  selector: {{matchLabels: {{app: node-exporter}}}}
  template:
    metadata: {{labels: {{app: node-exporter}}}}
    spec:
      hostNetwork: true
      terminationGracePeriodSeconds: 1
      tolerations: [{{operator: Exists}}]
      affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{{key: isthmus.dev/fake, operator: DoesNotExist}}]}}]}}}}}}
      containers:
      - name: c
        image: isthmus.dev/busybox:1
        command: [/opt/tool/node_exporter, --collector.disable-defaults, --collector.uname, --collector.loadavg]
        volumeMounts: [{{name: tool, mountPath: /opt/tool, readOnly: true}}]
      volumes: [{{name: tool, hostPath: {{path: {folder}}}}}]
"
    ))
    .await?
    .ok()
    .map(drop)
}

/// The usual jobs, but for one line each: targets are asked by the name of their node. Two more have a gateway for their `proxy_url`.
fn jobs() -> String {
    let proxied = |job: &str, scheme: &str, port: u16| {
        format!(
            "    - job_name: {job}
      scheme: {scheme}
      proxy_url: https://gateway.isthmus.internal:10265
      tls_config:
        ca_file: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
        cert_file: /etc/proxy/client.crt
        key_file: /etc/proxy/client.key
      kubernetes_sd_configs: [{{role: node, selectors: [{{role: node, label: '!isthmus.dev/fake'}}]}}]
      relabel_configs: [{{source_labels: [__meta_kubernetes_node_name], target_label: __address__, replacement: '$1:{port}'}}]
"
        )
    };
    let kubelet = |job: &str, path: &str| {
        format!(
            "    - job_name: {job}
      scheme: https
      metrics_path: {path}
      authorization: {{credentials_file: /var/run/secrets/kubernetes.io/serviceaccount/token}}
      tls_config: {{ca_file: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt}}
      kubernetes_sd_configs: [{{role: node, selectors: [{{role: node, label: '!isthmus.dev/fake'}}]}}]
      relabel_configs: [{{source_labels: [__meta_kubernetes_node_name], target_label: __address__, replacement: '$1:10250'}}]
"
        )
    };
    [
        kubelet("kubelet", "/metrics"),
        kubelet("cadvisor", "/metrics/cadvisor"),
        proxied("proxied-kubelet", "https", 10250),
        proxied("proxied-exporter", "http", 9100),
    ]
    .concat()
}

/// Prometheus. The gateway that is its proxy asks for a certificate; Prometheus shows the kubelet the same one, so that is who it is there.
async fn prometheus() -> Result<()> {
    let folder = folder_of("prometheus").await?;
    let authority = hack_cluster(&["path", GATEWAYS[1], "hub-ca"]).await?.ok()?;
    let pki = authority.trim().trim_end_matches("/ca.crt");
    let proxy = internal_ip(GATEWAYS[1]).await?;
    let jobs = jobs();
    kubectl_apply(&format!(
        "apiVersion: v1
kind: ServiceAccount
metadata: {{name: prometheus, namespace: {NAMESPACE}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: e2e-prometheus}}
rules:
- {{apiGroups: ['']
  , resources: [nodes], verbs: [get, list, watch]}}
- {{apiGroups: [''], resources: [nodes/metrics], verbs: [get]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: e2e-prometheus}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-prometheus}}
subjects:
- {{kind: ServiceAccount, name: prometheus, namespace: {NAMESPACE}}}
- {{apiGroup: rbac.authorization.k8s.io, kind: User, name: kube-apiserver-egress}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: prometheus, namespace: {NAMESPACE}}}
data:
  prometheus.yml: |
    global: {{scrape_interval: 2s, scrape_timeout: 2s}}
    scrape_configs:
{jobs}    - job_name: exporter
      kubernetes_sd_configs: [{{role: node, selectors: [{{role: node, label: '!isthmus.dev/fake'}}]}}]
      relabel_configs: [{{source_labels: [__meta_kubernetes_node_name], target_label: __address__, replacement: '$1:9100'}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: prometheus, namespace: {NAMESPACE}}}
spec:
  serviceAccountName: prometheus
  nodeName: cloud-1
  terminationGracePeriodSeconds: 1
  hostAliases: [{{ip: {proxy}, hostnames: [gateway.isthmus.internal]}}]
  containers:
  - name: c
    image: isthmus.dev/busybox:1
    command: [/opt/tool/prometheus, --config.file=/etc/prometheus/prometheus.yml, --storage.tsdb.path=/data]
    volumeMounts:
    - {{name: tool, mountPath: /opt/tool, readOnly: true}}
    - {{name: config, mountPath: /etc/prometheus}}
    - {{name: data, mountPath: /data}}
    - {{name: certificate, mountPath: /etc/proxy/client.crt, readOnly: true}}
    - {{name: key, mountPath: /etc/proxy/client.key, readOnly: true}}
  volumes:
  - {{name: tool, hostPath: {{path: {folder}}}}}
  - {{name: config, configMap: {{name: prometheus}}}}
  - {{name: data, emptyDir: {{}}}}
  - {{name: certificate, hostPath: {{path: {pki}/egress.crt, type: File}}}}
  - {{name: key, hostPath: {{path: {pki}/egress.key, type: File}}}}
"
    ))
    .await?
    .ok()
    .map(drop)
}

#[tokio::test]
async fn f8_prometheus_reads_all_nodes_by_name() -> Result<()> {
    // First by the EgressSelector, for the certificate that the API server shows there.
    ground(Reach::Egress).await?;
    let mut gone = Cleanup::default();
    for object in [
        "configmap/prometheus",
        "serviceaccount/prometheus",
        "clusterrolebinding/e2e-prometheus",
        "clusterrole/e2e-prometheus",
        "pod/prometheus",
        "daemonset/node-exporter",
    ] {
        gone.add("kubectl", &["-n", NAMESPACE, "delete", object, "--ignore-not-found", "--wait=false"]);
    }
    kubectl(&["-n", NAMESPACE, "delete", "pod", "prometheus", "--ignore-not-found"]).await?.ok()?;
    exporters().await?;
    prometheus().await?;
    e2e::hub::runs(NAMESPACE, "prometheus").await?;
    for reach in [Reach::Egress, Reach::Dns] {
        ground(reach).await?;
        every_target_is_up().await.with_context(|| format!("{reach:?}"))?;
    }
    // For this path alone the API server looks names up by itself, EgressSelector or not.
    kubelets_by_the_api_server().await?;
    drop(gone);
    Ok(())
}

/// What else scrapes kubelets: the API server's own way to nodes.
async fn kubelets_by_the_api_server() -> Result<()> {
    for node in EDGE.iter().chain(&GATEWAYS) {
        for (path, series) in [("metrics", "kubelet_node_name{"), ("metrics/cadvisor", "machine_cpu_cores{")]
        {
            let answer =
                kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/{path}")]).await?.ok()?;
            ensure!(answer.contains(series), "{path} of {node} has no {series}");
            let own = format!("kubelet_node_name{{node=\"{node}\"}}");
            ensure!(
                path != "metrics" || answer.contains(&own),
                "another kubelet than that of {node} answered"
            );
        }
    }
    Ok(())
}

/// As Prometheus says, of scrapes that began from now on.
async fn every_target_is_up() -> Result<()> {
    let since = jiff::Timestamp::now();
    let proxied = format!("/api/v1/namespaces/{NAMESPACE}/pods/prometheus:9090/proxy/api/v1/targets");
    eventually("every target is up", Duration::from_secs(90), || async {
        let said = kubectl(&["get", "--raw", &proxied]).await?.ok()?;
        let said: Value = serde_json::from_str(&said)?;
        let targets = said["data"]["activeTargets"].as_array().context("targets")?;
        for node in EDGE.iter().chain(&GATEWAYS) {
            for job in ["kubelet", "cadvisor", "exporter", "proxied-kubelet", "proxied-exporter"] {
                let target = targets
                    .iter()
                    .find(|target| target["labels"]["instance"] == **node && target["labels"]["job"] == job);
                let target = target.with_context(|| format!("{job} of {node} is no target"))?;
                ensure!(target["health"] == "up", "{job} of {node}: {}", target["lastError"]);
                let last: jiff::Timestamp = target["lastScrape"].as_str().context("a scrape")?.parse()?;
                ensure!(last > since, "{job} of {node} was scraped at {last}, before {since}");
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn f8_metrics_server_reads_all_nodes_by_name() -> Result<()> {
    ground(Reach::Names).await?;
    let mut gone = Cleanup::default();
    for object in [
        "serviceaccount/metrics-server",
        "service/metrics-server",
        "deployment/metrics-server",
        "rolebinding/metrics-server-auth-reader",
        "clusterrolebinding/e2e-metrics-server-delegator",
        "clusterrolebinding/e2e-metrics-server",
        "clusterrole/e2e-metrics-server",
        "apiservice/v1beta1.metrics.k8s.io",
    ] {
        gone.add("kubectl", &["-n", NAMESPACE, "delete", object, "--ignore-not-found", "--wait=false"]);
    }
    kubectl_apply(&metrics_server(&folder_of("metrics-server").await?)).await?.ok()?;
    // Controllers that had no API server in a test before look for it again within half a minute.
    let rollout = ["-n", NAMESPACE, "rollout", "status", "deployment/metrics-server", "--timeout=150s"];
    kubectl(&rollout).await?.ok()?;
    for reach in Reach::both() {
        ground(reach).await?;
        kubectl_top().await.with_context(|| format!("{reach:?}"))?;
    }
    drop(gone);
    Ok(())
}

async fn kubectl_top() -> Result<()> {
    eventually("kubectl top", Duration::from_secs(90), || async {
        let top = kubectl(&["top", "nodes", "--no-headers"]).await?.ok()?;
        for node in EDGE.iter().chain(&GATEWAYS) {
            let line = top.lines().find(|line| line.split_whitespace().next() == Some(node));
            let line = line.with_context(|| format!("no figures of {node} in {top:?}"))?;
            ensure!(!line.contains("<unknown>"), "{line}");
        }
        Ok(())
    })
    .await
}

/// As it is released, but for the order of address types and the certificate of kubelets, which it checks.
fn metrics_server(folder: &str) -> String {
    format!(
        "apiVersion: v1
kind: ServiceAccount
metadata: {{name: metrics-server, namespace: {NAMESPACE}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: e2e-metrics-server}}
rules:
- {{apiGroups: [''], resources: [nodes/metrics], verbs: [get]}}
- {{apiGroups: [''], resources: [pods, nodes], verbs: [get, list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: e2e-metrics-server}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-metrics-server}}
subjects: [{{kind: ServiceAccount, name: metrics-server, namespace: {NAMESPACE}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: e2e-metrics-server-delegator}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:auth-delegator'}}
subjects: [{{kind: ServiceAccount, name: metrics-server, namespace: {NAMESPACE}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: metrics-server-auth-reader, namespace: {NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}}
subjects: [{{kind: ServiceAccount, name: metrics-server, namespace: {NAMESPACE}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: metrics-server, namespace: {NAMESPACE}}}
spec:
  selector: {{app: metrics-server}}
  ports: [{{port: 443, targetPort: 10350}}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: v1beta1.metrics.k8s.io}}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {{name: metrics-server, namespace: {NAMESPACE}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: metrics-server, namespace: {NAMESPACE}}}
spec:
  selector: {{matchLabels: {{app: metrics-server}}}}
  template:
    metadata: {{labels: {{app: metrics-server}}}}
    spec:
      serviceAccountName: metrics-server
      nodeName: cloud-1
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: isthmus.dev/busybox:1
        command:
        - /opt/tool/metrics-server
        - --cert-dir=/tmp
        - --secure-port=10350
        - --kubelet-preferred-address-types=Hostname,InternalIP
        - --kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt
        - --kubelet-use-node-status-port
        - --metric-resolution=10s
        - --kubelet-request-timeout=5s
        - --node-selector=!isthmus.dev/fake
        readinessProbe: {{httpGet: {{path: /readyz, port: 10350, scheme: HTTPS}}, periodSeconds: 2}}
        volumeMounts: [{{name: tool, mountPath: /opt/tool, readOnly: true}}, {{name: tmp, mountPath: /tmp}}]
      volumes: [{{name: tool, hostPath: {{path: {folder}}}}}, {{name: tmp, emptyDir: {{}}}}]
"
    )
}

//! A node that loses its power while it has no link: its pods come back with other addresses, which nobody can be told.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::hub::{HubNode, SECURE, runs, token};
use e2e::{client, eventually, fresh_namespace, hack_cluster, kubectl, kubectl_apply, run};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};

use super::kube_proxy::KubeProxy;

const NAMESPACE: &str = "e2e-hub-reboot";
const NODE: &str = "e2e-reboot-1";
const LABEL: &str = "isthmus.dev/e2e=reboot";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/e2e-hub-reboot/endpointslices?resourceVersion=0";

/// How soon after its start a node is to work again.
const WORKS: Duration = Duration::from_secs(30);

const COREFILE: &str = ".:53 {
  errors
  ready
  kubernetes cluster.local
  reload
}
";

#[tokio::test]
async fn a_node_that_reboots_without_its_link_works_within_half_a_minute() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let node = HubNode::fresh(NODE, &[LABEL]).await?;
    let reader = token(NAMESPACE, "reader", "view").await?;
    token(NAMESPACE, "dns", "view").await?;
    let proxy = KubeProxy::through_the_hub(LABEL, NAMESPACE).await?;
    let dns = pods().await?;
    for pod in ["dns", "web", "caller"] {
        runs(NAMESPACE, pod).await?;
    }
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let before = pods.get("web").await?;
    let old = before.status.as_ref().and_then(|status| status.pod_ip.clone()).context("an address")?;
    let what = format!("Service and name of web, asked of {dns}");
    eventually(&what, Duration::from_mins(1), || call(&node)).await?;
    // Rights and lists are stored within seconds.
    eventually("the slices are held", Duration::from_secs(20), || async {
        let held = addresses(&node, &reader).await?;
        ensure!(held.contains(&old), "{held:?}");
        Ok(())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(4)).await;

    node.black_hole(true).await?;
    let power = Instant::now();
    hack_cluster(&["reboot", NODE]).await?.ok()?;
    let started = Instant::now();
    println!("the machine is up after {:.1} s", power.elapsed().as_secs_f64());
    eventually("Service and DNS of local pods without a link", WORKS, || call(&node)).await?;
    println!("Service and DNS of local pods work {:.1} s after the start", started.elapsed().as_secs_f64());
    let now = addresses(&node, &reader).await?;
    ensure!(!now.contains(&old), "web came back at its old address: the test shows nothing");
    let slices = node.get(SECURE, Some(&reader), SLICES).await?;
    ensure!(slices.warning.as_deref().unwrap_or_default().contains("no link"), "{:?}", slices.warning);
    let corrected = corrected(&node).await?;
    ensure!(corrected > 0, "the hub does not say that it corrects");

    node.black_hole(false).await?;
    let healed = Instant::now();
    eventually("the API server knows the address", Duration::from_secs(40), || async {
        let pod = pods.get("web").await?;
        let address = pod.status.and_then(|status| status.pod_ip).unwrap_or_default();
        ensure!(now.contains(&address), "{address} is none of {now:?}");
        Ok(())
    })
    .await?;
    eventually("nothing is corrected any more", Duration::from_mins(1), || async {
        ensure!(self::corrected(&node).await? == 0, "still corrected");
        Ok(())
    })
    .await?;
    println!("the API server's word counts {:.1} s after the link is back", healed.elapsed().as_secs_f64());
    let direct = kubectl(&["get", "--raw", SLICES]).await?.ok()?;
    ensure!(
        addresses_in(&direct)? == addresses(&node, &reader).await?,
        "the hub's slices are not the API server's"
    );
    call(&node).await?;
    let after = pods.get("web").await?;
    ensure!(before.metadata.uid == after.metadata.uid, "the pod is another: {after:?}");
    proxy.undo();
    node.leave().await
}

/// Makes the Services and pods, and returns the address of the Service of names.
async fn pods() -> Result<String> {
    let service = |name: &str, ports: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": { "selector": { "app": name }, "ports": ports },
        })
    };
    let ports = json!([{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53, "protocol": "TCP" }]);
    let corefile = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "dns", "namespace": NAMESPACE },
        "data": { "Corefile": COREFILE },
    });
    let first =
        [service("dns", ports), service("web", json!([{ "port": 80, "targetPort": 8080 }])), corefile];
    kubectl_apply(&json!({ "apiVersion": "v1", "kind": "List", "items": first }).to_string()).await?.ok()?;
    let address = ["get", "service", "-n", NAMESPACE, "dns", "-o", "jsonpath={.spec.clusterIP}"];
    let address = kubectl(&address).await?.ok()?;

    let built = run("hack/build-tools", &["--print-path", "coredns"], "").await?.ok()?;
    let binary = built.split_whitespace().last().context("the path of coredns")?;
    let folder = binary.rsplit_once('/').context("its folder")?.0;
    let pod = |name: &str, spec: Value| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "app": name } }, "spec": spec,
        });
        pod["spec"]["nodeName"] = NODE.into();
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
    Ok(address)
}

/// Calls the Service of web by its name, from a pod.
async fn call(node: &HubNode) -> Result<()> {
    let running = node.running("caller").await?;
    let container = running.first().context("the caller does not run")?;
    let id = format!("call-{}", std::process::id());
    let words = [
        "exec",
        NODE,
        "--",
        "timeout",
        "3",
        "ctr",
        "-n",
        "k8s.io",
        "tasks",
        "exec",
        "--exec-id",
        &id,
        container,
    ];
    // A statically linked busybox looks names up by itself in nslookup only.
    let look = format!(
        "nslookup -type=a web.{NAMESPACE}.svc.cluster.local | awk '/^Name/ {{ f = 1 }} f && /^Address/ {{ print $NF }}'"
    );
    // Its wget dies of a name or an address; nc does not.
    let script = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 $({look}) 80 | tail -1");
    let said = hack_cluster(&[&words[..], &["sh", "-c", &script]].concat()).await?;
    ensure!(said.stdout.trim() == "here", "{said:?}");
    Ok(())
}

/// The addresses in the slices, as the hub shows them.
async fn addresses(node: &HubNode, token: &str) -> Result<Vec<String>> {
    let reply = node.get(SECURE, Some(token), SLICES).await?;
    ensure!(reply.status == 200, "{reply:?}");
    addresses_in(&reply.body)
}

fn addresses_in(list: &str) -> Result<Vec<String>> {
    let list: Value = serde_json::from_str(list)?;
    let slices = list["items"].as_array().context("a list")?.iter();
    let endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    let addresses = endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    let mut addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    addresses.sort_unstable();
    Ok(addresses)
}

/// How many pods the hub says it corrects.
async fn corrected(node: &HubNode) -> Result<u64> {
    let metrics = node.get("http://127.0.0.1:10267", None, "/metrics").await?.body;
    let mut values = metrics.lines().filter(|line| !line.starts_with('#'));
    let line = values.find(|line| line.contains("hub_corrected_pods ")).context("hub_corrected_pods")?;
    Ok(line.rsplit_once(' ').context("a figure")?.1.parse()?)
}

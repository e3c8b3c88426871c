//! A host-network pool on a real kubelet, from the joining of its node to the answer of its pod.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::labels;
use e2e::cleanup::Cleanup;
use e2e::pools::{expect_label, fresh_pool, node_is, remove_pool};
use e2e::{
    client, eventually, fresh_namespace, hack_cluster, kubectl, kubectl_apply, repository, run, set_pool,
};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

const NAMESPACE: &str = "e2e-hostnet";
const NODE: &str = "e2e-shop-1";

/// Runs our binaries as `hack/demo` does: the node's own on the node, the manager's with the user's kubeconfig.
async fn on_node(arguments: &[&str]) -> Result<e2e::Finished> {
    let hub = repository().join("dist/edge-hub");
    let hub = hub.to_str().context("path")?;
    let words: Vec<&str> = ["exec", NODE, "--", hub].into_iter().chain(arguments.iter().copied()).collect();
    hack_cluster(&words).await
}

async fn manager(arguments: &[&str]) -> Result<e2e::Finished> {
    run(repository().join("dist/isthmus-manager"), arguments, "").await
}

#[tokio::test]
async fn a_node_without_cluster_networking_runs_the_pods_of_its_pool() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    kubectl(&["delete", "np", "e2e-shop", "--ignore-not-found"]).await.ok();
    hack_cluster(&["leave", NODE]).await?.ok()?;
    let pool = "apiVersion: apps.openyurt.io/v1beta2\nkind: NodePool\nmetadata: {name: e2e-shop}\nspec: {type: Edge, networkMode: HostNetwork}\n";
    kubectl_apply(pool).await?.ok()?;

    // kube-proxy is kept off, before the node comes, and what else needs a container network; twice changes nothing.
    manager(&["hostnet", "apply", "--undo"]).await?.ok()?;
    let others = Cleanup::kubectl(&["-n", "kube-system", "delete", "deploy/coredns", "ds/kube-flannel-ds"]);
    kubectl_apply(OTHER_COMPONENTS).await?.ok()?;
    let before = affinities().await?;
    manager(&["hostnet", "apply"]).await?.ok()?;
    for (component, affinity) in affinities().await? {
        ensure!(affinity.contains("nodepool.openyurt.io/"), "{component}: {affinity}");
    }
    let again = manager(&["hostnet", "plan", "--detailed-exitcode"]).await?;
    ensure!(again.success, "a second time there is still something to do: {again:?}");

    hack_cluster(&["join", NODE, "--edge", "--cni", "none", "--label", "apps.openyurt.io/nodepool=e2e-shop"])
        .await?
        .ok()?;
    let kubelet = hack_cluster(&["path", NODE, "kubelet-config"]).await?.ok()?;
    let kubelet = ["--kubelet-config", kubelet.trim()];
    ensure!(!ready(&client).await?, "the node is ready without any CNI configuration");
    ensure!(
        !on_node(&["hostnet", "check", kubelet[0], kubelet[1]]).await?.success,
        "check is content with nothing"
    );
    let dry = on_node(&["hostnet", "enable", "--dry-run", kubelet[0], kubelet[1]]).await?.ok()?;
    ensure!(dry.contains("loopback"), "{dry}");
    ensure!(!ready(&client).await?, "a dry run changed something");

    on_node(&["hostnet", "enable", kubelet[0], kubelet[1]]).await?.ok()?;
    on_node(&["hostnet", "enable", kubelet[0], kubelet[1]]).await?.ok().context("a second time")?;
    eventually("the node is ready", Duration::from_secs(90), || async {
        ensure!(ready(&client).await?, "not yet");
        Ok(())
    })
    .await?;
    on_node(&["hostnet", "check", kubelet[0], kubelet[1]]).await?.ok()?;

    // A labelled Deployment: host network, running, answering on the node's address.
    kubectl_apply(&deployment("hello", "nodepool.openyurt.io/desired-nodepool: e2e-shop", "8090"))
        .await?
        .ok()?;
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let address = eventually("the labelled pod runs", Duration::from_secs(90), || async {
        let pods = pods.list(&ListParams::default().labels("app=hello")).await?;
        let pod = pods.items.first().context("no pod")?;
        let (spec, status) = (pod.spec.clone().context("spec")?, pod.status.clone().context("status")?);
        ensure!(spec.host_network == Some(true) && spec.node_name.as_deref() == Some(NODE), "{spec:?}");
        ensure!(status.phase.as_deref() == Some("Running"), "{:?}", status.container_statuses);
        status.host_ip.context("no address")
    })
    .await?;
    let url = format!("http://{address}:8090/");
    let answer = eventually("the pod answers", Duration::from_secs(30), || async {
        hack_cluster(&["exec", NODE, "--", "curl", "-s", "--max-time", "2", &url]).await?.ok()
    })
    .await?;
    ensure!(answer.contains("hello"), "{answer}");

    of_controllers_that_count(&pods).await?;

    // Nothing else runs there. A kube-proxy that came with the node, before its label did, goes again.
    let of_node = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
    eventually("nothing else runs on the node", Duration::from_mins(1), || async {
        let all = Api::<Pod>::all(client.clone()).list(&of_node).await?;
        let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        ensure!(names.iter().all(|name| name.starts_with("hello")), "on the node: {names:?}");
        Ok(())
    })
    .await?;
    kept_off(&client).await?;
    let proxies = Api::<Pod>::namespaced(client.clone(), "kube-system");
    let proxies = proxies.list(&ListParams::default().labels("k8s-app=kube-proxy")).await?;
    ensure!(!proxies.items.is_empty(), "kube-proxy is gone from the other nodes as well");

    let stubborn = "apiVersion: v1\nkind: Pod\nmetadata: {name: stubborn, namespace: e2e-hostnet}\nspec:\n  nodeName: e2e-shop-1\n  \
                    containers: [{name: c, image: \"isthmus.dev/busybox:1\", command: [sleep, inf]}]\n";
    kubectl_apply(stubborn).await?.ok()?;
    let broken =
        kubectl(&["wait", "--for=condition=NetworkModeEnforced=false", "np/e2e-shop", "--timeout=40s"])
            .await?;
    broken.ok()?;
    let described = kubectl(&["describe", "np", "e2e-shop"]).await?.ok()?;
    ensure!(described.contains("e2e-hostnet/stubborn"), "{described}");
    eventually("an event names the pod", Duration::from_secs(20), || async {
        let events = Api::<Event>::namespaced(client.clone(), "default").list(&ListParams::default()).await?;
        let told = |event: &&Event| event.reason.as_deref() == Some("PodsWithoutHostNetwork");
        events.iter().find(told).map(drop).context("no event")
    })
    .await?;
    kubectl(&["-n", NAMESPACE, "delete", "pod", "stubborn", "--force", "--grace-period=0"]).await?.ok()?;
    kubectl(&["wait", "--for=condition=NetworkModeEnforced=true", "np/e2e-shop", "--timeout=40s"])
        .await?
        .ok()?;

    // And back.
    kubectl(&["delete", "namespace", NAMESPACE]).await?.ok()?;
    let loopback = ["exec", NODE, "--", "test", "-e", "/etc/cni/net.d/0-loopback.conf"];
    hack_cluster(&loopback).await?.ok().context("the configuration that enable wrote")?;
    on_node(&["hostnet", "disable"]).await?.ok()?;
    ensure!(!hack_cluster(&loopback).await?.success, "the loopback configuration is still there");
    hack_cluster(&["leave", NODE]).await?.ok()?;
    kubectl(&["delete", "np", "e2e-shop"]).await?.ok()?;
    manager(&["hostnet", "apply", "--undo"]).await?.ok()?;
    let after = affinities().await?;
    ensure!(after == before, "{after:?}, and before {before:?}");
    drop(others);
    Ok(())
}

/// A `StatefulSet` is ready and a Job complete, of pods on the node.
async fn of_controllers_that_count(pods: &Api<Pod>) -> Result<()> {
    kubectl_apply(STATEFUL_SET_AND_JOB).await?.ok()?;
    let [set, job] = ["statefulset/hello-set", "job/hello-job"];
    kubectl(&["-n", NAMESPACE, "rollout", "status", set, "--timeout=60s"]).await?.ok()?;
    kubectl(&["-n", NAMESPACE, "wait", "--for=condition=Complete", job, "--timeout=60s"]).await?.ok()?;
    let found = pods.list(&ListParams::default().labels("of=controller")).await?;
    ensure!(found.items.len() == 2, "{} pods", found.items.len());
    for pod in found {
        let spec = pod.spec.context("spec")?;
        ensure!(spec.host_network == Some(true) && spec.node_name.as_deref() == Some(NODE), "{spec:?}");
    }
    kubectl(&["-n", NAMESPACE, "delete", set, job, "--wait=false"]).await?.ok()?;
    Ok(())
}

const STATEFUL_SET_AND_JOB: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: hello-set, namespace: e2e-hostnet}
spec:
  serviceName: hello-set
  selector: {matchLabels: {app: hello-set}}
  template:
    metadata: {labels: {app: hello-set, of: controller, nodepool.openyurt.io/desired-nodepool: e2e-shop}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: 'isthmus.dev/busybox:1', command: [sleep, '3600'], ports: [{containerPort: 8092}]}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: hello-job, namespace: e2e-hostnet}
spec:
  template:
    metadata: {labels: {of: controller, nodepool.openyurt.io/desired-nodepool: e2e-shop}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: 'isthmus.dev/busybox:1', command: ['true']}]
";

/// Named as they are in clusters that have them; neither runs a pod here.
const OTHER_COMPONENTS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  replicas: 0
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec: {containers: [{name: coredns, image: 'isthmus.dev/busybox:1'}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-flannel-ds, namespace: kube-system, labels: {app: flannel}}
spec:
  selector: {matchLabels: {app: flannel}}
  template:
    metadata: {labels: {app: flannel}}
    spec:
      nodeSelector: {isthmus.dev/nowhere: 'true'}
      containers: [{name: flannel, image: 'isthmus.dev/busybox:1'}]
";

/// The affinity of each component's pods.
async fn affinities() -> Result<BTreeMap<&'static str, String>> {
    let mut affinities = BTreeMap::new();
    for component in ["ds/kube-proxy", "deploy/coredns", "ds/kube-flannel-ds"] {
        let path = "jsonpath={.spec.template.spec.affinity}";
        let found = kubectl(&["-n", "kube-system", "get", component, "-o", path]).await?.ok()?;
        affinities.insert(component, found);
    }
    Ok(affinities)
}

fn deployment(name: &str, label: &str, port: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\nspec:\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata:\n      labels:\n        app: {name}\n        {label}\n    \
         spec:\n      containers:\n      - name: c\n        image: isthmus.dev/busybox:1\n        \
         command: [sh, -c, \"echo hello > /tmp/index.html && exec httpd -f -p {port} -h /tmp\"]\n        \
         ports: [{{containerPort: {port}}}]\n"
    )
}

async fn ready(client: &Client) -> Result<bool> {
    let node = Api::<Node>::all(client.clone()).get(NODE).await?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    Ok(conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}

/// An ordinary Deployment, neither labelled nor annotated, that would like to run everywhere is kept off the pool.
async fn kept_off(client: &Client) -> Result<()> {
    kubectl_apply(&deployment("plain", "tier: plain", "8091")).await?.ok()?;
    kubectl(&["-n", NAMESPACE, "scale", "deployment/plain", "--replicas=8"]).await?.ok()?;
    kubectl(&["-n", NAMESPACE, "rollout", "status", "deployment/plain", "--timeout=120s"]).await?.ok()?;
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let mut used = BTreeSet::new();
    for pod in pods.list(&ListParams::default().labels("app=plain")).await? {
        used.insert(pod.spec.and_then(|spec| spec.node_name).unwrap_or_default());
    }
    ensure!(!used.contains(NODE), "an ordinary pod runs on the pool's node");
    ensure!(used.len() > 1, "the pods did not spread at all: {used:?}");
    // Terms of its own stay alternatives: each is narrowed.
    let affinity = r#"{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms":[{"matchExpressions":[{"key":"e2e","operator":"DoesNotExist"}]},
        {"matchFields":[{"key":"metadata.name","operator":"In","values":["e2e-shop-1"]}]}]}}}}}}}"#;
    kubectl(&["-n", NAMESPACE, "patch", "deployment/plain", "--type=merge", "-p", affinity]).await?.ok()?;
    eventually("each term is narrowed", Duration::from_mins(1), || async {
        let pods = pods.list(&ListParams::default().labels("app=plain")).await?;
        let terms = pods.iter().filter_map(|pod| {
            let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
            Some(&affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms)
        });
        let narrowed = terms.filter(|terms| terms.len() == 2).all(|terms| {
            terms.iter().all(|term| {
                let expressions = term.match_expressions.as_deref().unwrap_or_default();
                expressions.iter().any(|e| e.key == labels::HOST_NETWORK && e.operator == "NotIn")
            })
        });
        let two = pods.iter().any(|pod| format!("{pod:?}").contains("match_fields: Some"));
        ensure!(narrowed && two, "not yet");
        Ok(())
    })
    .await?;
    kubectl(&["-n", NAMESPACE, "delete", "deployment", "plain"]).await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn a_node_that_joins_with_its_labels_never_gets_a_kube_proxy() -> Result<()> {
    const VAN: &str = "e2e-van-1";
    let client = client().await?;
    hack_cluster(&["leave", VAN]).await?.ok()?;
    fresh_pool(&client, "e2e-van", json!({ "networkMode": "HostNetwork" })).await?;
    manager(&["hostnet", "apply"]).await?.ok()?;

    // From before the node comes: the node as it registers, and every pod that is ever bound to it.
    let nodes = Api::<Node>::all(client.clone());
    let registers = WatchParams::default().fields(&format!("metadata.name={VAN}"));
    let mut registers = nodes.watch(&registers, "0").await?.boxed();
    let pods = Api::<Pod>::all(client.clone());
    let bound = WatchParams::default().fields(&format!("spec.nodeName={VAN}"));
    let mut bound = pods.watch(&bound, "0").await?.boxed();

    // The kubelet sets them with its own rights, which admission plugin NodeRestriction limits.
    let mut words: Vec<String> = ["join", VAN, "--edge", "--cni", "none"].map(str::to_owned).into();
    for (key, value) in labels::HOST_NETWORK_NODE.iter().chain(&[(labels::NODE_POOL, "e2e-van")]) {
        words.extend(["--label".to_owned(), format!("{key}={value}")]);
    }
    hack_cluster(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?.ok()?;
    let first = loop {
        match registers.try_next().await?.context("the watch ended")? {
            WatchEvent::Added(node) => break serde_json::to_value(node)?,
            other => ensure!(matches!(other, WatchEvent::Bookmark(_)), "{other:?}"),
        }
    };
    for (key, value) in labels::HOST_NETWORK_NODE {
        expect_label(&first, key, Some(value)).context("as the node registered")?;
    }

    let config = hack_cluster(&["path", VAN, "kubelet-config"]).await?.ok()?;
    let hub = repository().join("dist/edge-hub");
    let enable = ["exec", VAN, "--", hub.to_str().context("path")?, "hostnet", "enable", "--kubelet-config"];
    hack_cluster(&[&enable[..], &[config.trim()]].concat()).await?.ok()?;
    kubectl(&["wait", "--for=condition=Ready", &format!("node/{VAN}"), "--timeout=90s"]).await?.ok()?;
    kubectl(&["-n", "kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=60s"])
        .await?
        .ok()?;
    while let Ok(event) = tokio::time::timeout(Duration::from_secs(5), bound.try_next()).await {
        let event = event?.context("the watch ended")?;
        ensure!(matches!(event, WatchEvent::Bookmark(_)), "a pod came: {event:?}");
    }

    // The pool takes the labels over: they leave with it.
    set_pool(&client, VAN, None).await?;
    node_is(&client, VAN, |node| {
        labels::HOST_NETWORK_NODE.iter().try_for_each(|(key, _)| expect_label(node, key, None))
    })
    .await?;
    hack_cluster(&["leave", VAN]).await?.ok()?;
    manager(&["hostnet", "apply", "--undo"]).await?.ok()?;
    remove_pool(&client, "e2e-van").await
}

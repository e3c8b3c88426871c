//! The manager as a process: start, probes, metrics, hand-over, rights, upgrade and removal.

mod gateways;
mod process;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::names::NODE_PLACES_PREFIX;
use e2e::replicas::{all_ready, replicas};
use e2e::{RELEASE, SYSTEM, client, eventually, kubectl, kubectl_apply, repository, run};
use serde_json::{Value, json};

/// The address of a replica.
async fn address() -> Result<String> {
    let status = replicas(&client().await?).await?.first().and_then(|pod| pod.status.clone());
    status.and_then(|status| status.pod_ip).context("no address")
}

/// What is answered there, and the status code in a line of its own.
async fn curl(url: String, token: Option<String>) -> Result<String> {
    let header = token.map(|token| format!("Authorization: Bearer {token}"));
    let mut arguments = vec!["-sk", "-w", "\n%{http_code}", url.as_str()];
    if let Some(header) = &header {
        arguments.extend(["-H", header]);
    }
    run("curl", &arguments, "").await?.ok()
}

#[tokio::test]
async fn probes_answer_and_metrics_ask_who_is_there() -> Result<()> {
    client().await?;
    all_ready().await?;
    let address = address().await?;
    for path in ["livez", "readyz"] {
        let answer = curl(format!("http://{address}:10272/{path}"), None).await?;
        ensure!(answer.ends_with("\n200"), "{path}: {answer}");
    }
    let metrics = format!("https://{address}:10271/metrics");
    ensure!(curl(metrics.clone(), None).await?.ends_with("\n401"), "metrics without a token");
    ensure!(
        curl(metrics.clone(), Some("nonsense".into())).await?.ends_with("\n401"),
        "metrics with nonsense"
    );

    let manifest = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: e2e-scraper, namespace: default}\n---\n\
                    apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: e2e-scraper}\n\
                    rules: [{nonResourceURLs: [/metrics], verbs: [get]}]\n";
    kubectl_apply(manifest).await?.ok()?;
    let token =
        || async { anyhow::Ok(kubectl(&["create", "token", "e2e-scraper"]).await?.ok()?.trim().to_owned()) };
    kubectl(&["delete", "clusterrolebinding", "e2e-scraper", "--ignore-not-found"]).await?.ok()?;
    ensure!(
        curl(metrics.clone(), Some(token().await?)).await?.ends_with("\n403"),
        "metrics without the right"
    );
    let bind = [
        "create",
        "clusterrolebinding",
        "e2e-scraper",
        "--clusterrole=e2e-scraper",
        "--serviceaccount=default:e2e-scraper",
    ];
    kubectl(&bind).await?.ok()?;
    let answer = eventually("metrics", Duration::from_secs(10), || async {
        let answer = curl(metrics.clone(), Some(token().await?)).await?;
        ensure!(answer.ends_with("\n200"), "{answer}");
        Ok(answer)
    })
    .await?;
    for name in [
        "isthmus_reconcile_total",
        "isthmus_webhook_requests_total",
        "isthmus_leader",
        "process_cpu_seconds_total",
    ] {
        ensure!(answer.contains(name), "no metric {name}");
    }
    kubectl(&["delete", "clusterrolebinding,clusterrole", "e2e-scraper"]).await?.ok()?;
    kubectl(&["delete", "serviceaccount", "e2e-scraper"]).await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn the_manager_may_do_no_more_than_it_must() -> Result<()> {
    client().await?;
    let account = format!("system:serviceaccount:{SYSTEM}:isthmus-manager");
    let can = |what: Vec<&'static str>| {
        let account = account.clone();
        async move {
            let arguments: Vec<&str> = ["auth", "can-i"]
                .into_iter()
                .chain(what.iter().copied())
                .chain(["--as", account.as_str()])
                .collect();
            anyhow::Ok(kubectl(&arguments).await?.stdout.trim() == "yes")
        }
    };
    let may = [
        vec!["patch", "nodes"],
        vec!["watch", "nodepools.apps.openyurt.io"],
        vec!["patch", "nodepools.apps.openyurt.io", "--subresource=status"],
        vec!["patch", "secrets/isthmus-webhook-ca", "-n", SYSTEM],
        vec!["create", "events.events.k8s.io", "-n", "default"],
    ];
    let may_not = [
        vec!["create", "serviceaccounts", "--subresource=token", "-A"],
        vec!["get", "secrets", "-A"],
        vec!["get", "secrets", "-n", SYSTEM],
        vec!["get", "secrets", "-n", "kube-system"],
        vec!["escalate", "clusterroles"],
        vec!["create", "clusterroles"],
        vec!["delete", "nodes"],
        vec!["create", "nodes"],
        vec!["update", "nodes"],
        vec!["create", "pods", "-A"],
        vec!["create", "pods", "--subresource=exec", "-A"],
        vec!["create", "customresourcedefinitions"],
        vec!["patch", "customresourcedefinitions"],
        vec!["patch", "mutatingwebhookconfigurations/another"],
        vec!["create", "configmaps", "-n", "default"],
        vec!["create", "events.events.k8s.io", "-n", "kube-system"],
        vec!["create", "jobs", "-A"],
    ];
    for what in may {
        ensure!(can(what.clone()).await?, "the manager may not {what:?}");
    }
    for what in may_not {
        ensure!(!can(what.clone()).await?, "the manager may {what:?}");
    }
    Ok(())
}

/// Upgrade and removal, last (the name sorts so), since it takes the release away and installs it anew.
#[tokio::test]
async fn z_an_upgrade_keeps_working_and_a_removal_leaves_nothing_but_crds_and_pools() -> Result<()> {
    client().await?;
    all_ready().await?;
    let outcome = upgrade_and_remove().await;
    // The tests after it need the release, whatever came of this one.
    let installed = run(&repository().join("hack/install"), &["--wait"], "").await?.ok();
    outcome?;
    installed?;
    all_ready().await?;
    let pool = json!({ "apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": { "name": "e2e-again" } });
    kubectl_apply(&pool.to_string()).await?.ok()?;
    kubectl(&["wait", "--for=condition=Ready", "np/e2e-again", "--timeout=20s"]).await?.ok()?;
    kubectl(&["delete", "np", "e2e-again"]).await?.ok()?;
    Ok(())
}

/// Two would both lead: a Lease has the name of its release.
async fn a_second_release_is_refused() -> Result<()> {
    let chart = repository().join("charts/isthmus");
    let chart = chart.to_str().context("a path in UTF-8")?;
    let arguments = ["install", "another", chart, "--namespace", "default", "--dry-run=server"];
    let refused = run("helm", &arguments, "").await?;
    let remedy = "release isthmus in namespace isthmus-system is Isthmus already, and a cluster has room for one: upgrade it";
    ensure!(!refused.success && refused.stderr.contains(remedy), "{refused:?}");
    Ok(())
}

async fn upgrade_and_remove() -> Result<()> {
    // An older CRD: the upgrade must bring the new one.
    let columns = || async {
        let path = "jsonpath={.spec.versions[2].additionalPrinterColumns[*].name}";
        kubectl(&["get", "crd", "nodepools.apps.openyurt.io", "-o", path]).await?.ok()
    };
    let before = columns().await?;
    let removal = r#"[{"op":"remove","path":"/spec/versions/2/additionalPrinterColumns/1"}]"#;
    kubectl(&["patch", "crd", "nodepools.apps.openyurt.io", "--type=json", "-p", removal]).await?.ok()?;
    ensure!(columns().await? != before, "the test did not make the CRD older");
    kubectl_apply("apiVersion: apps.openyurt.io/v1beta2\nkind: NodePool\nmetadata: {name: e2e-upgrade}\nspec: {type: Edge}\n")
        .await?
        .ok()?;

    an_unreadable_pool_is_told_of().await?;
    a_second_release_is_refused().await?;

    let install = repository().join("hack/install");
    let values = "log.level=debug,leaderElection.leaseDuration=20s";
    let for_edge_pools = format!("{values},gateways.forEdgePools=true");
    run(&install, &["--set", &for_edge_pools, "--wait"], "").await?.ok()?;
    all_ready().await?;
    ensure!(columns().await? == before, "the upgrade did not bring the CRD up to date");
    ensure!(kubectl(&["get", "np", "e2e-upgrade"]).await?.success, "the upgrade lost a pool");
    gateways::an_edge_pool_has_one("e2e-upgrade").await?;
    // The webhook answers right after the upgrade: its authority is still trusted.
    kubectl(&["delete", "np", "e2e-upgrade"]).await?.ok()?;
    gateways::it_is_gone("e2e-upgrade").await?;

    let logs = kubectl(&["-n", SYSTEM, "logs", "-l", "app.kubernetes.io/component=manager", "--tail=-1"])
        .await?
        .ok()?;
    for secret in ["Bearer ", "eyJ", "PRIVATE KEY"] {
        ensure!(!logs.contains(secret), "the log at level debug contains {secret:?}");
    }
    // What the manager tries and may not do would show here only.
    ensure!(!logs.contains("forbidden: User"), "the manager lacks a right: {logs}");
    for line in logs.lines() {
        let entry: Value = serde_json::from_str(line).with_context(|| format!("not structured: {line}"))?;
        ensure!(entry["level"].is_string() && entry["timestamp"].is_string(), "{line}");
    }

    // A pool outlives the release, and so does what says who leads it.
    let pool = "apiVersion: apps.openyurt.io/v1beta2\nkind: NodePool\nmetadata: {name: e2e-outlives, annotations: {isthmus.dev/gateway: \"false\"}}\n\
                spec: {enableLeaderElection: true, networkMode: HostNetwork}\n";
    kubectl_apply(pool).await?.ok()?;
    // By themselves: the API server may know the slice of the port before for longer than a replica serves on.
    let ports = format!("{values},ports.webhook=10283,ports.metrics=10281");
    run(&install, &["--set", &ports, "--wait"], "").await?.ok()?;
    all_ready().await?;
    the_values_hold().await?;
    let config_map = ["-n", "kube-system", "get", "configmap", "leader-hub-e2e-outlives"];
    eventually("the hubs are told", Duration::from_secs(20), || async { kubectl(&config_map).await?.ok() })
        .await?;

    gateways::one_exposes_the_cloud("e2e-outlives").await?;
    gateways::a_port_of_two_is_one().await?;

    let installed = of_the_release().await?;
    for kind in OF_THE_RELEASE {
        ensure!(
            installed.iter().any(|object| object.starts_with(&format!("{kind} "))),
            "no {kind}: {installed:?}"
        );
    }
    run("helm", &["uninstall", RELEASE, "-n", SYSTEM, "--wait"], "").await?.ok()?;
    // What has an owner that went is collected a little later.
    eventually("nothing of the release is left", Duration::from_mins(2), || async {
        let left = of_the_release().await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    ensure!(
        kubectl(&["get", "crd", "nodepools.apps.openyurt.io"]).await?.success,
        "the CRDs must outlive the release"
    );
    ensure!(kubectl(&["get", "np", "e2e-outlives"]).await?.success, "the pools must outlive the release");
    ensure!(
        kubectl(&config_map).await?.success,
        "the hubs must know their leaders for as long as the pool lives"
    );
    // What else the manager made and stays is what the chart's README names, and goes as it says.
    for object in made_by_the_manager().await? {
        let name = object.rsplit('/').next().unwrap_or_default();
        ensure!(name.starts_with("x-raven-proxy-"), "{object} is left, and not in the chart's README");
    }
    let of = ["-n", "kube-system", "delete"];
    let by = [
        "app.kubernetes.io/managed-by=isthmus-manager",
        "endpointslice.kubernetes.io/managed-by=isthmus-manager",
    ];
    kubectl(&[&of[..], &["service", "-l", by[0]]].concat()).await?.ok()?;
    kubectl(&[&of[..], &["endpointslice", "-l", by[1]]].concat()).await?.ok()?;
    kubectl(&[&of[..], &["configmap", "edge-tunnel-nodes", "--ignore-not-found"]].concat()).await?.ok()?;
    // A node that was here before registers where it was, whoever installs next.
    let places =
        ["-n", "kube-system", "get", "configmap", "-l", "isthmus.dev/node-places=true", "-o", "name"];
    let known = kubectl(&places).await?.ok()?;
    ensure!(known.lines().all(|name| name.contains(NODE_PLACES_PREFIX)) && !known.is_empty(), "{known:?}");
    kubectl(&[&of[..], &["configmap", "-l", "isthmus.dev/node-places=true"]].concat()).await?.ok()?;
    ensure!(kubectl(&places).await?.ok()?.is_empty(), "where nodes were is left");
    kubectl(&["delete", "gateway", "e2e-outlives"]).await?.ok()?;
    let left = made_by_the_manager().await?;
    ensure!(left.is_empty(), "{left:?}");
    kubectl(&["delete", "np", "e2e-outlives"]).await?.ok()?;
    eventually("the ConfigMap goes with its pool", Duration::from_mins(1), || async {
        let asked = kubectl(&config_map).await?;
        ensure!(asked.stderr.contains("NotFound"), "{asked:?}");
        Ok(())
    })
    .await?;
    Ok(())
}

/// What the upgrade set: the webhook and the metrics on other ports, another duration of the Lease. Pool e2e-outlives has host network.
async fn the_values_hold() -> Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "e2e-values", "namespace": "default",
            "labels": { "nodepool.openyurt.io/desired-nodepool": "e2e-outlives" },
        },
        "spec": { "containers": [{ "name": "c", "image": "isthmus.dev/busybox:1" }] },
    });
    eventually("a labelled pod is changed", Duration::from_secs(20), || async {
        let words = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        let made: Value = serde_json::from_str(&run("kubectl", &words, &pod.to_string()).await?.ok()?)?;
        ensure!(made["spec"]["hostNetwork"] == true, "{}", made["spec"]);
        anyhow::Ok(())
    })
    .await?;
    let metrics = curl(format!("https://{}:10281/metrics", address().await?), None).await?;
    ensure!(metrics.ends_with("\n401"), "{metrics}");
    eventually("the Lease has its duration", Duration::from_secs(20), || async {
        let path = "jsonpath={.spec.leaseDurationSeconds}";
        let seconds = kubectl(&["-n", SYSTEM, "get", "lease", "isthmus-manager", "-o", path]).await?.ok()?;
        ensure!(seconds == "20", "{seconds} s");
        Ok(())
    })
    .await
}

/// With a CRD so old that it takes what the manager cannot read; the caller brings it up to date.
async fn an_unreadable_pool_is_told_of() -> Result<()> {
    // All versions alike: the API server refuses selectable fields beside schemas that differ.
    let looser: Vec<Value> = (0..3)
        .flat_map(|version| {
            let spec = format!("/spec/versions/{version}/schema/openAPIV3Schema/properties/spec");
            [
                json!({ "op": "replace", "path": format!("{spec}/properties/hostNetwork"), "value": { "type": "string" } }),
                json!({ "op": "remove", "path": format!("{spec}/x-kubernetes-validations") }),
            ]
        })
        .collect();
    let looser = Value::from(looser).to_string();
    kubectl(&["patch", "crd", "nodepools.apps.openyurt.io", "--type=json", "-p", &looser]).await?.ok()?;
    let pool = json!({ "apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": { "name": "e2e-unreadable" }, "spec": { "hostNetwork": "perhaps" } });
    eventually("the CRD takes it", Duration::from_secs(20), || async {
        kubectl_apply(&pool.to_string()).await?.ok()
    })
    .await?;
    kubectl(&["wait", "--for=condition=Ready=False", "np/e2e-unreadable", "--timeout=30s"]).await?.ok()?;
    let told = kubectl(&["describe", "np", "e2e-unreadable"]).await?.ok()?;
    ensure!(told.matches("perhaps").count() >= 3, "field, condition and event: {told}");
    ensure!(told.contains("Unreadable"), "{told}");
    kubectl(&["delete", "np", "e2e-unreadable"]).await?.ok()?;
    Ok(())
}

/// Every object that says that the manager made it, as `kind/name`.
async fn made_by_the_manager() -> Result<Vec<String>> {
    let kinds = kubectl(&["api-resources", "--verbs=list", "-o", "name"]).await?.ok()?;
    let kinds: Vec<&str> = kinds.lines().filter(|kind| *kind != "componentstatuses").collect();
    let kinds = kinds.join(",");
    let mut made = Vec::new();
    for label in ["app.kubernetes.io/managed-by", "endpointslice.kubernetes.io/managed-by"] {
        let selector = format!("{label}=isthmus-manager");
        let words = ["get", &kinds, "-A", "-l", &selector, "--ignore-not-found", "-o", "name"];
        made.extend(kubectl(&words).await?.ok()?.lines().map(str::to_owned));
    }
    Ok(made)
}

/// Kinds of which the release has objects, so that a look that misses them is noticed.
const OF_THE_RELEASE: [&str; 15] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "Deployment",
    "EndpointSlice",
    "Lease",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Pod",
    "Role",
    "RoleBinding",
    "Secret",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

/// Every object, of whatever kind the API server lists, that stands in the release's namespace or has its name, but for
/// what is in each namespace; as `Kind namespace/name`.
async fn of_the_release() -> Result<Vec<String>> {
    let kinds = kubectl(&["api-resources", "--verbs=list", "-o", "name"]).await?.ok()?;
    let kinds: Vec<&str> =
        kinds.lines().filter(|kind| !kind.starts_with("events") && *kind != "componentstatuses").collect();
    let path = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
    let listed = kubectl(&["get", &kinds.join(","), "-A", "--ignore-not-found", "-o", path]).await?.ok()?;
    let everywhere = [
        format!("Namespace /{SYSTEM}"),
        format!("ConfigMap {SYSTEM}/kube-root-ca.crt"),
        format!("ServiceAccount {SYSTEM}/default"),
    ];
    let ours = |line: &&str| {
        let (namespace, name) =
            line.split_once(' ').and_then(|(_, path)| path.split_once('/')).unwrap_or_default();
        // The kinds that other tests make are named after the project's domain. Where nodes were outlives the release.
        let stays = name.contains("test.isthmus.dev") || name.starts_with(NODE_PLACES_PREFIX);
        namespace == SYSTEM || (name.contains(RELEASE) && !stays)
    };
    let ours = listed.lines().filter(ours).map(str::to_owned);
    Ok(ours.filter(|line| !everywhere.contains(line)).collect())
}

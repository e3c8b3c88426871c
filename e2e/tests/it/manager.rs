//! The manager as a process: start, probes, metrics, hand-over, rights, upgrade and removal.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{RELEASE, SYSTEM, client, eventually, kubectl, kubectl_apply, repository, run};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

async fn holder(client: &Client) -> Result<String> {
    let lease = Api::<Lease>::namespaced(client.clone(), SYSTEM).get("isthmus-manager").await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    ensure!(!holder.is_empty(), "nobody leads");
    Ok(holder)
}

/// The pods of the manager that are not going away, as they are now.
async fn replicas(client: &Client) -> Result<Vec<Pod>> {
    let selector = ListParams::default().labels("app.kubernetes.io/component=manager");
    let pods = Api::<Pod>::namespaced(client.clone(), SYSTEM).list(&selector).await?;
    Ok(pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
}

async fn all_ready() -> Result<()> {
    kubectl(&["-n", SYSTEM, "rollout", "status", "deployment/isthmus-manager", "--timeout=90s"])
        .await?
        .ok()?;
    Ok(())
}

#[tokio::test]
async fn a_replica_that_is_asked_to_end_hands_over_long_before_its_lease_runs_out() -> Result<()> {
    let client = client().await?;
    all_ready().await?;
    let before = holder(&client).await?;
    let leader = replicas(&client).await?;
    let leader =
        leader.iter().find(|pod| before.starts_with(&pod.name_any())).context("no pod of the leader")?;
    let pods = Api::<Pod>::namespaced(client.clone(), SYSTEM);
    let leases = Api::<Lease>::namespaced(client.clone(), SYSTEM);
    let transitions =
        |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    let count = transitions(&leases.get("isthmus-manager").await?);

    let asked = Instant::now();
    pods.delete(&leader.name_any(), &DeleteParams::default()).await?;
    eventually("another leads", Duration::from_secs(20), || async {
        let after = holder(&client).await?;
        ensure!(after != before, "{after} still leads");
        Ok(())
    })
    .await?;
    let took = asked.elapsed();
    // The deletion reaches the process through the kubelet: that is part of it. A lease that ran out would take 15 s.
    println!("hand-over after the deletion of the leader's pod: {took:?}");
    ensure!(took < Duration::from_secs(10), "the hand-over took {took:?}");
    ensure!(transitions(&leases.get("isthmus-manager").await?) == count + 1, "more than one transition");

    // The new leader works: a pool is looked after.
    kubectl_apply("apiVersion: apps.openyurt.io/v1beta2\nkind: NodePool\nmetadata: {name: e2e-handover}\n")
        .await?
        .ok()?;
    kubectl(&["wait", "--for=condition=Ready", "np/e2e-handover", "--timeout=20s"]).await?.ok()?;
    kubectl(&["delete", "np", "e2e-handover"]).await?.ok()?;
    all_ready().await
}

#[tokio::test]
async fn a_replica_is_ready_soon_after_its_start() -> Result<()> {
    let client = client().await?;
    all_ready().await?;
    let pods = Api::<Pod>::namespaced(client.clone(), SYSTEM);
    let victim = replicas(&client).await?.first().context("no replica")?.name_any();
    let known: Vec<String> = replicas(&client).await?.iter().map(ResourceExt::name_any).collect();
    pods.delete(&victim, &DeleteParams::default()).await?;
    let started = eventually("a new replica is ready", Duration::from_mins(1), || async {
        let fresh = replicas(&client).await?.into_iter().find(|pod| !known.contains(&pod.name_any()));
        let status = fresh.context("no new replica")?.status.context("no status")?;
        let conditions = status.conditions.unwrap_or_default();
        let ready =
            conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True").context("not ready")?;
        let ready_at = ready.last_transition_time.clone().context("no time")?.0;
        let running = status.container_statuses.unwrap_or_default();
        let started =
            running.first().and_then(|c| c.state.clone()?.running?.started_at).context("not started")?.0;
        anyhow::Ok(ready_at.duration_since(started))
    })
    .await?;
    println!("ready after the start of the container: {started:#} (the API keeps whole seconds)");
    ensure!(started.as_secs() <= 15, "ready {started} after its start");
    all_ready().await
}

#[tokio::test]
async fn probes_answer_and_metrics_ask_who_is_there() -> Result<()> {
    let client = client().await?;
    all_ready().await?;
    let address = replicas(&client).await?[0].status.clone().and_then(|s| s.pod_ip).context("no address")?;
    let curl = |path: String, token: Option<String>| async move {
        let header = token.map(|token| format!("Authorization: Bearer {token}"));
        let mut arguments = vec!["-sk", "-w", "\n%{http_code}", path.as_str()];
        if let Some(header) = &header {
            arguments.extend(["-H", header]);
        }
        run("curl", &arguments, "").await?.ok()
    };
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
async fn z_an_upgrade_keeps_working_and_a_removal_leaves_nothing_but_the_crds() -> Result<()> {
    let client = client().await?;
    all_ready().await?;
    // An older CRD: the upgrade must bring the new one.
    let columns = || async {
        let path = "jsonpath={.spec.versions[2].additionalPrinterColumns[*].name}";
        kubectl(&["get", "crd", "nodepools.apps.openyurt.io", "-o", path]).await?.ok()
    };
    let before = columns().await?;
    let removal = r#"[{"op":"remove","path":"/spec/versions/2/additionalPrinterColumns/1"}]"#;
    kubectl(&["patch", "crd", "nodepools.apps.openyurt.io", "--type=json", "-p", removal]).await?.ok()?;
    ensure!(columns().await? != before, "the test did not make the CRD older");
    kubectl_apply("apiVersion: apps.openyurt.io/v1beta2\nkind: NodePool\nmetadata: {name: e2e-upgrade}\n")
        .await?
        .ok()?;

    let install = repository().join("hack/install");
    run(&install, &["--set", "log.level=debug", "--wait"], "").await?.ok()?;
    all_ready().await?;
    ensure!(columns().await? == before, "the upgrade did not bring the CRD up to date");
    ensure!(kubectl(&["get", "np", "e2e-upgrade"]).await?.success, "the upgrade lost a pool");
    // The webhook answers right after the upgrade: its authority is still trusted.
    kubectl(&["delete", "np", "e2e-upgrade"]).await?.ok()?;

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

    run("helm", &["uninstall", RELEASE, "-n", SYSTEM, "--wait"], "").await?.ok()?;
    let kinds = "deployment,service,secret,configmap,serviceaccount,role,rolebinding,pdb,job";
    let left =
        kubectl(&["get", kinds, "-n", SYSTEM, "-l", "app.kubernetes.io/instance=isthmus", "-o", "name"])
            .await?
            .ok()?;
    ensure!(left.trim().is_empty(), "left in the namespace: {left}");
    let kinds = "clusterrole,clusterrolebinding,mutatingwebhookconfiguration,validatingwebhookconfiguration,\
                 validatingadmissionpolicy,validatingadmissionpolicybinding";
    let left =
        kubectl(&["get", kinds, "-l", "app.kubernetes.io/instance=isthmus", "-o", "name"]).await?.ok()?;
    ensure!(left.trim().is_empty(), "left in the cluster: {left}");
    ensure!(
        kubectl(&["get", "crd", "nodepools.apps.openyurt.io"]).await?.success,
        "the CRDs must outlive the release"
    );
    let pods = Api::<Pod>::namespaced(client.clone(), SYSTEM);
    eventually("pods are gone", Duration::from_mins(1), || async {
        let left = pods.list(&ListParams::default()).await?.items.len();
        ensure!(left == 0, "{left} are left");
        Ok(())
    })
    .await?;

    run(&install, &["--wait"], "").await?.ok()?;
    all_ready().await?;
    let pool = json!({ "apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": { "name": "e2e-again" } });
    kubectl_apply(&pool.to_string()).await?.ok()?;
    kubectl(&["wait", "--for=condition=Ready", "np/e2e-again", "--timeout=20s"]).await?.ok()?;
    kubectl(&["delete", "np", "e2e-again"]).await?.ok()?;
    Ok(())
}

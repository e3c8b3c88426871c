//! What a `NodePool` does to the nodes in it. The nodes are fake (kwok), so that they can be many and misused; the API
//! server and the controller are the real ones.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use api::{NodePool, annotations, labels};
use e2e::pools::{
    SOON, apply_pool, attributes, condition, expect_label, fresh_pool, leaders_are, node_is, remove_pool,
    taint_value,
};
use e2e::{client, eventually, kubectl, node, patch_node, set_pool, throughout};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

#[tokio::test]
async fn a_node_carries_what_its_pool_says_and_comes_out_as_it_went_in() -> Result<()> {
    let client = client().await?;
    let name = "fake-00000";
    let spec = json!({
        "networkMode": "HostNetwork",
        "labels": { "e2e/zone": "pool", "e2e/same": "same" }, "annotations": { "e2e/note": "pool" },
        "taints": [{ "key": "e2e/only", "value": "pool", "effect": "NoSchedule" }],
    });
    let pools = fresh_pool(&client, "e2e-sync", spec).await?;
    let own = json!({ "metadata": {
        "labels": { "e2e/zone": "own", "e2e/same": "same" }, "annotations": { "e2e/note": "own" },
    } });
    let before = attributes(&patch_node(&client, name, own).await.map(serde_json::to_value)??);

    set_pool(&client, name, Some("e2e-sync")).await?;
    let member = node_is(&client, name, |node| {
        expect_label(node, "e2e/zone", Some("pool"))?;
        for (key, value) in labels::HOST_NETWORK_NODE {
            expect_label(node, key, Some(value))?;
        }
        ensure!(node["metadata"]["annotations"]["e2e/note"] == "pool", "annotation");
        ensure!(taint_value(node, "e2e/only") == Some("pool"), "taint");
        Ok(())
    })
    .await?;
    ensure!(member["spec"]["unschedulable"].is_null(), "joining a pool cordoned the node");

    // Drift is repaired.
    let drift = json!({ "metadata": {
        "labels": { "e2e/zone": "drift", (labels::HOST_NETWORK): null }, "annotations": { "e2e/note": null },
    } });
    patch_node(&client, name, drift).await?;
    node_is(&client, name, |node| {
        expect_label(node, "e2e/zone", Some("pool"))?;
        expect_label(node, labels::HOST_NETWORK, Some("true"))?;
        ensure!(node["metadata"]["annotations"]["e2e/note"] == "pool", "annotation");
        Ok(())
    })
    .await?;

    // What the pool says no more is taken away, and what it newly says is added.
    apply_pool(&pools, "e2e-sync", json!({ "networkMode": "HostNetwork", "labels": { "e2e/new": "1" } }))
        .await?;
    node_is(&client, name, |node| {
        expect_label(node, "e2e/zone", Some("own"))?;
        expect_label(node, "e2e/new", Some("1"))?;
        ensure!(taint_value(node, "e2e/only").is_none(), "taint stays");
        Ok(())
    })
    .await?;

    set_pool(&client, name, None).await?;
    node_is(&client, name, |node| {
        let after = attributes(node);
        ensure!(after == before, "{after} is not {before}");
        Ok(())
    })
    .await?;
    let cleared =
        json!({ "metadata": { "labels": { "e2e/zone": null }, "annotations": { "e2e/note": null } } });
    patch_node(&client, name, cleared).await?;
    remove_pool(&client, "e2e-sync").await
}

#[tokio::test]
async fn a_move_between_pools_reconciles_both() -> Result<()> {
    let client = client().await?;
    let name = "fake-00001";
    let pools = fresh_pool(
        &client,
        "e2e-move-a",
        json!({ "networkMode": "HostNetwork", "labels": { "e2e/a": "1", "e2e/both": "a" } }),
    )
    .await?;
    fresh_pool(&client, "e2e-move-b", json!({ "labels": { "e2e/b": "1", "e2e/both": "b" } })).await?;
    set_pool(&client, name, Some("e2e-move-a")).await?;
    node_is(&client, name, |node| expect_label(node, "e2e/both", Some("a"))).await?;
    set_pool(&client, name, Some("e2e-move-b")).await?;
    node_is(&client, name, |node| {
        expect_label(node, "e2e/a", None)?;
        expect_label(node, "e2e/b", Some("1"))?;
        expect_label(node, "e2e/both", Some("b"))?;
        labels::HOST_NETWORK_NODE.iter().try_for_each(|(key, _)| expect_label(node, key, None))
    })
    .await?;
    for (pool, nodes) in [("e2e-move-a", vec![]), ("e2e-move-b", vec![name.to_owned()])] {
        eventually("both statuses", SOON, || async {
            let status = pools.get_status(pool).await?.status.unwrap_or_default();
            ensure!(status.nodes == nodes, "{pool}: {:?}", status.nodes);
            Ok(())
        })
        .await?;
    }
    remove_pool(&client, "e2e-move-a").await?;
    remove_pool(&client, "e2e-move-b").await
}

#[tokio::test]
async fn one_bad_node_never_wedges_the_pool() -> Result<()> {
    let client = client().await?;
    let (good, odd, fenced) = ("fake-00002", "fake-00003", "fake-00004");
    // A node that the API server refuses to change, for a reason of its own.
    let policy = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-fence}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [nodes], resourceNames: [fake-00004]}]
  validations:
  - expression: "!('e2e/bad' in object.metadata.labels)"
    message: this node is fenced
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: e2e-fence}
spec: {policyName: e2e-fence, validationActions: [Deny]}
"#;
    // Whatever a run that failed left behind.
    kubectl(&[
        "delete",
        "validatingadmissionpolicybinding,validatingadmissionpolicy",
        "e2e-fence",
        "--ignore-not-found",
    ])
    .await?
    .ok()?;
    for name in [good, odd, fenced] {
        let clean = json!({ "metadata": {
            "labels": { "e2e/bad": null, (labels::NODE_POOL): null },
            "annotations": { (annotations::PREVIOUS_ATTRIBUTES): null },
        } });
        eventually("the old fence is gone", SOON, || patch_node(&client, name, clean.clone())).await?;
    }
    e2e::kubectl_apply(policy).await?.ok()?;
    let nodes = Api::<Node>::all(client.clone());
    let probe = Patch::Merge(json!({ "metadata": { "labels": { "e2e/bad": "probe" } } }));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually("fence stands", SOON, || async {
        match nodes.patch(fenced, &dry, &probe).await {
            Err(_) => Ok(()),
            Ok(_) => Err("not yet"),
        }
    })
    .await?;
    patch_node(
        &client,
        odd,
        json!({ "metadata": { "annotations": { (annotations::PREVIOUS_ATTRIBUTES): "{" } } }),
    )
    .await?;
    let pools = fresh_pool(&client, "e2e-bad", json!({ "labels": { "e2e/bad": "1" } })).await?;
    for name in [good, odd, fenced] {
        set_pool(&client, name, Some("e2e-bad")).await?;
    }
    node_is(&client, good, |node| expect_label(node, "e2e/bad", Some("1"))).await?;
    let message = eventually("both bad nodes are named", SOON, || async {
        let message = condition(&pools, "e2e-bad", "NodesSynced", "False").await?;
        ensure!(message.contains(odd) && message.contains(fenced), "{message}");
        Ok(message)
    })
    .await?;
    ensure!(
        message.contains("this node is fenced") && message.contains("kubectl annotate node"),
        "{message}"
    );
    let status = pools.get_status("e2e-bad").await?.status.unwrap_or_default();
    ensure!(
        status.ready_node_num + status.unready_node_num == 3,
        "the status must count all nodes: {status:?}"
    );

    // Once what is wrong is put right, the pool heals by itself.
    kubectl(&["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "e2e-fence"])
        .await?
        .ok()?;
    patch_node(
        &client,
        odd,
        json!({ "metadata": { "annotations": { (annotations::PREVIOUS_ATTRIBUTES): null } } }),
    )
    .await?;
    eventually("the pool heals", Duration::from_secs(90), || {
        condition(&pools, "e2e-bad", "NodesSynced", "True")
    })
    .await?;
    node_is(&client, fenced, |node| expect_label(node, "e2e/bad", Some("1"))).await?;
    remove_pool(&client, "e2e-bad").await
}

/// Someone else writes a label back each time the pool sets it, as a configuration tool does: the pool says so, names node and
/// label, and writes ever less often; what else it has to say reaches the node meanwhile.
#[tokio::test]
async fn a_contested_label_is_named_and_holds_up_nothing_else() -> Result<()> {
    let client = client().await?;
    let (name, label) = ("fake-00005", "e2e/contested");
    let pools = fresh_pool(&client, "e2e-contest", json!({ "labels": { label: "pool" } })).await?;
    set_pool(&client, name, Some("e2e-contest")).await?;
    node_is(&client, name, |node| expect_label(node, label, Some("pool"))).await?;
    let undo = async {
        let nodes = Api::<Node>::all(client.clone());
        loop {
            let found = nodes.get(name).await?;
            if found.labels().get(label).is_some_and(|value| value == "pool") {
                patch_node(&client, name, json!({ "metadata": { "labels": { label: "other" } } })).await?;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        #[expect(unreachable_code, reason = "the loop ends with an error only")]
        anyhow::Ok(())
    };
    let told = async {
        let message = eventually("the contest is told of", SOON, || {
            condition(&pools, "e2e-contest", "NodesSynced", "False")
        })
        .await?;
        ensure!(message.contains(name) && message.contains(label), "{message}");
        apply_pool(&pools, "e2e-contest", json!({ "labels": { label: "pool", "e2e/other": "1" } })).await?;
        node_is(&client, name, |node| expect_label(node, "e2e/other", Some("1"))).await?;
        anyhow::Ok(())
    };
    tokio::select! {
        undone = undo => undone?,
        told = told => told?,
    }
    eventually("left alone, the pool has its way", Duration::from_mins(3), || {
        condition(&pools, "e2e-contest", "NodesSynced", "True")
    })
    .await?;
    node_is(&client, name, |node| expect_label(node, label, Some("pool"))).await?;
    remove_pool(&client, "e2e-contest").await
}

#[tokio::test]
async fn a_pool_with_nodes_is_not_deleted_and_an_empty_one_counts_zero() -> Result<()> {
    let client = client().await?;
    let name = "fake-00005";
    let pools = fresh_pool(&client, "e2e-delete", json!({})).await?;
    condition(&pools, "e2e-delete", "Ready", "True").await?;
    let table = kubectl(&["get", "np", "e2e-delete"]).await?.ok()?;
    let (head, row) = table.split_once('\n').unwrap_or_default();
    ensure!(
        head.split_whitespace().eq(["NAME", "TYPE", "NETWORK", "READY", "NOTREADY", "LEADERS", "AGE"]),
        "columns: {head}"
    );
    let cells: Vec<&str> = row.split_whitespace().collect();
    ensure!(cells[..6] == ["e2e-delete", "Edge", "ContainerNetwork", "0", "0", "0"], "row: {row}");

    eventually("the pool says its type", SOON, || async {
        let labels = pools.get("e2e-delete").await?.metadata.labels.unwrap_or_default();
        ensure!(labels.get(labels::POOL_TYPE).map(String::as_str) == Some("edge"), "{labels:?}");
        Ok(())
    })
    .await?;

    set_pool(&client, name, Some("e2e-delete")).await?;
    let refused = kubectl(&["delete", "np", "e2e-delete"]).await?;
    ensure!(!refused.success, "a pool with a node was deleted");
    for part in ["e2e-delete", name, "kubectl label node"] {
        ensure!(refused.stderr.contains(part), "the refusal does not say {part}: {}", refused.stderr);
    }
    remove_pool(&client, "e2e-delete").await
}

#[tokio::test]
async fn a_node_of_an_unknown_pool_registers_and_joins_when_the_pool_appears() -> Result<()> {
    let client = client().await?;
    remove_pool(&client, "e2e-later").await?;
    kubectl(&["delete", "node", "e2e-registering", "--ignore-not-found"]).await?.ok()?;
    // As a kubelet registers it that was given the labels of a host-network pool (docs/host-network.md, "The node"), and with
    // a kubelet's rights: admission plugin NodeRestriction and the chart's policy for nodes' labels let it.
    let marks = labels::HOST_NETWORK_NODE;
    let mut own: BTreeMap<&str, &str> = marks.into();
    own.insert(labels::NODE_POOL, "e2e-later");
    let manifest = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "e2e-registering", "labels": own } });
    let kubelet = ["create", "-f", "-", "--as=system:node:e2e-registering", "--as-group=system:nodes"];
    e2e::run("kubectl", &kubelet, &manifest.to_string()).await?.ok()?;
    eventually("the node tells what it waits for", SOON, || async {
        let of_node = "involvedObject.name=e2e-registering,reason=NodePoolMissing";
        let words = ["get", "events", "--field-selector", of_node, "-o", "jsonpath={.items[*].message}"];
        let told = kubectl(&words).await?.ok()?;
        ensure!(told.contains("there is no NodePool e2e-later"), "{told}");
        Ok(())
    })
    .await?;
    let marked =
        |node: &Value| marks.iter().try_for_each(|(key, value)| expect_label(node, key, Some(value)));
    marked(&node(&client, "e2e-registering").await?)?;
    let pools = Api::<NodePool>::all(client.clone());
    let spec = json!({ "networkMode": "HostNetwork", "labels": { "e2e/later": "1" } });
    apply_pool(&pools, "e2e-later", spec).await?;
    node_is(&client, "e2e-registering", |node| {
        expect_label(node, "e2e/later", Some("1"))?;
        marked(node)
    })
    .await?;
    condition(&pools, "e2e-later", "Ready", "True").await?;
    kubectl(&["delete", "node", "e2e-registering"]).await?.ok()?;
    remove_pool(&client, "e2e-later").await
}

/// That they follow readiness as well is in `faults.rs`, on a real kubelet.
#[tokio::test]
async fn leaders_follow_labels_and_addresses_and_the_hubs_are_told() -> Result<()> {
    let client = client().await?;
    let members = ["fake-00006", "fake-00007", "fake-00008"];
    let spec = json!({
        "enableLeaderElection": true, "leaderElectionStrategy": "mark", "leaderReplicas": 1,
        "leaderNodeLabelSelector": { "e2e/lead": "yes" },
    });
    let pools = fresh_pool(&client, "e2e-leaders", spec).await?;
    for name in members {
        set_pool(&client, name, Some("e2e-leaders")).await?;
    }
    condition(&pools, "e2e-leaders", "LeaderReady", "False").await?;

    let mark = |value: Option<&str>| json!({ "metadata": { "labels": { "e2e/lead": value } } });
    patch_node(&client, members[0], mark(Some("yes"))).await?;
    leaders_are(&client, "e2e-leaders", &members[..1]).await?;
    // A second candidate does not unseat the first.
    patch_node(&client, members[1], mark(Some("yes"))).await?;
    throughout("the survivor stays", Duration::from_secs(1), || async {
        let status = pools.get_status("e2e-leaders").await?.status.unwrap_or_default();
        ensure!(status.leader_endpoints.iter().all(|leader| leader.node_name == members[0]), "{status:?}");
        Ok(())
    })
    .await?;
    // One mark goes as the other stays: the counts of ready nodes do not change, the leader must.
    patch_node(&client, members[0], mark(None)).await?;
    leaders_are(&client, "e2e-leaders", &members[1..2]).await?;

    // It leads on under another address.
    let nodes = Api::<Node>::all(client.clone());
    let move_to = async |addresses: &Value| {
        let patch = Patch::Merge(json!({ "status": { "addresses": addresses } }));
        nodes.patch_status(members[1], &PatchParams::default(), &patch).await
    };
    let before = node(&client, members[1]).await?["status"]["addresses"].clone();
    move_to(&json!([{ "type": "InternalIP", "address": "192.0.2.7" }])).await?;
    eventually("the status has the new address", SOON, || async {
        let status = pools.get_status("e2e-leaders").await?.status.unwrap_or_default();
        let addresses = status.leader_endpoints.iter().map(|leader| leader.address.as_str());
        ensure!(addresses.eq(["192.0.2.7"]), "{:?}", status.leader_endpoints);
        Ok(())
    })
    .await?;
    leaders_are(&client, "e2e-leaders", &members[1..2]).await?;
    move_to(&before).await?;

    patch_node(&client, members[1], mark(None)).await?;
    leaders_are(&client, "e2e-leaders", &[]).await?;
    remove_pool(&client, "e2e-leaders").await
}

#[tokio::test]
async fn joining_a_pool_starts_no_job() -> Result<()> {
    let client = client().await?;
    let name = "fake-00009";
    fresh_pool(&client, "e2e-jobs", json!({ "type": "Edge" })).await?;
    set_pool(&client, name, Some("e2e-jobs")).await?;
    let jobs = Api::<Job>::all(client.clone());
    throughout("no Job, no cordon", Duration::from_secs(2), || async {
        let found = jobs.list(&kube::api::ListParams::default()).await?.items;
        if let Some(job) = found.iter().find(|job| format!("{job:?}").contains(name)) {
            bail!("a Job for the node: {:?}", job.metadata.name);
        }
        ensure!(node(&client, name).await?["spec"]["unschedulable"].is_null(), "the node is cordoned");
        Ok(())
    })
    .await?;
    remove_pool(&client, "e2e-jobs").await
}

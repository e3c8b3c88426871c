//! Pools under test and what they did to their nodes.

use std::time::Duration;

use anyhow::{Result, ensure};
use api::{NodePool, labels};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::{eventually, kubectl, node};

/// How long the controller may take on a machine that is busy with other things; timings are for benchmarks.
pub const SOON: Duration = Duration::from_secs(20);

/// A pool of that name and spec, made anew; nodes that an earlier run left in it are taken out first.
pub async fn fresh_pool(client: &Client, name: &str, spec: Value) -> Result<Api<NodePool>> {
    remove_pool(client, name).await?;
    let pools = Api::<NodePool>::all(client.clone());
    apply_pool(&pools, name, spec).await?;
    Ok(pools)
}

/// Writes a pool as a user would.
pub async fn apply_pool(pools: &Api<NodePool>, name: &str, spec: Value) -> Result<NodePool> {
    let pool = json!({
        "apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool",
        "metadata": { "name": name }, "spec": spec,
    });
    Ok(pools.patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(&pool)).await?)
}

/// Takes all nodes out of a pool and deletes it.
pub async fn remove_pool(client: &Client, name: &str) -> Result<()> {
    let selector = format!("{}={name}", labels::NODE_POOL);
    kubectl(&["label", "nodes", "-l", &selector, &format!("{}-", labels::NODE_POOL)]).await?.ok()?;
    let pools = Api::<NodePool>::all(client.clone());
    eventually("pool is deleted", SOON, || async {
        match pools.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => Err(format!("{:?}", other.map(drop))),
        }
    })
    .await
}

/// The condition of a pool once it has that status.
pub async fn condition(pools: &Api<NodePool>, name: &str, type_: &str, status: &str) -> Result<String> {
    eventually(&format!("{name}: {type_}={status}"), SOON, || async {
        let pool = pools.get_status(name).await.map_err(|error| error.to_string())?;
        let conditions = pool.status.unwrap_or_default().conditions;
        match conditions.iter().find(|condition| condition.type_ == type_) {
            Some(condition) if condition.status == status => Ok(condition.message.clone()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// Waits until the node fulfils `check`, which says what is amiss.
pub async fn node_is(client: &Client, name: &str, check: impl Fn(&Value) -> Result<()>) -> Result<Value> {
    eventually(&format!("node {name}"), SOON, || async {
        let node = node(client, name).await?;
        check(&node).map(|()| node)
    })
    .await
}

/// The value of a label of the node.
pub fn label<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    node["metadata"]["labels"][key].as_str()
}

/// Fails unless the label has that value, or with `None` is absent.
pub fn expect_label(node: &Value, key: &str, value: Option<&str>) -> Result<()> {
    ensure!(label(node, key) == value, "label {key} is {:?}, not {value:?}", label(node, key));
    Ok(())
}

/// The value of the node's taint with that key.
pub fn taint_value<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    let taints = node["spec"]["taints"].as_array()?;
    taints.iter().find(|taint| taint["key"] == key).and_then(|taint| taint["value"].as_str())
}

/// What is on the node, without what heartbeats and versions change.
pub fn attributes(node: &Value) -> Value {
    let mut attributes = json!({
        "labels": node["metadata"]["labels"], "annotations": node["metadata"]["annotations"],
        "taints": node["spec"]["taints"],
    });
    // The controller manager's own, which comes some time after a node does.
    if let Some(annotations) = attributes["annotations"].as_object_mut() {
        annotations.remove("node.alpha.kubernetes.io/ttl");
    }
    if attributes["taints"].as_array().is_some_and(Vec::is_empty) {
        attributes["taints"] = Value::Null;
    }
    attributes
}

/// Waits until status and `ConfigMap` name these leaders.
pub async fn leaders_are(client: &Client, pool: &str, names: &[&str]) -> Result<()> {
    leaders_are_within(client, pool, names, SOON).await
}

/// The same with another patience.
pub async fn leaders_are_within(client: &Client, pool: &str, names: &[&str], within: Duration) -> Result<()> {
    let pools = Api::<NodePool>::all(client.clone());
    let config_maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    eventually(&format!("the leaders of {pool} are {names:?}"), within, || async {
        let status = pools.get_status(pool).await?.status.unwrap_or_default();
        let elected: Vec<&str> = status.leader_endpoints.iter().map(|l| l.node_name.as_str()).collect();
        ensure!(elected == names, "status: {elected:?}");
        let name = api::names::leader_hub_config_map(pool);
        let data = config_maps.get(&name).await?.data.unwrap_or_default();
        let told: Vec<String> =
            status.leader_endpoints.iter().map(|l| format!("{}/{}", l.node_name, l.address)).collect();
        ensure!(data["leaders"] == told.join(","), "ConfigMap: {data:?}");
        ensure!(data["enable-leader-election"] == "true", "ConfigMap: {data:?}");
        Ok(())
    })
    .await
}

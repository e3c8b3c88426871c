//! A pool that has nodes is deleted although the webhook would refuse it, because for a moment no webhook is configured.

use std::time::Duration;

use anyhow::{Result, ensure};
use api::{NodePool, labels};
use e2e::pools::{SOON, attributes, expect_label, fresh_pool, leaders_are, node_is, remove_pool};
use e2e::replicas::{all_ready, replicas};
use e2e::{SYSTEM, client, eventually, kubectl, patch_node, set_pool};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

#[tokio::test]
async fn nodes_of_a_pool_that_vanished_get_their_own_values_back() -> Result<()> {
    let client = client().await?;
    unguarded(&client, async {
        let expected = member(&client, "fake-00014").await?;
        delete_pool(&client).await?;
        comes_out(&client, "fake-00014", &expected).await
    })
    .await?;
    clean(&client, "fake-00014").await
}

#[tokio::test]
async fn a_manager_that_starts_cleans_up_after_a_pool_it_never_saw() -> Result<()> {
    let client = client().await?;
    let mut expected = Value::Null;
    let outcome = unguarded(&client, async {
        expected = member(&client, "fake-00015").await?;
        scale("--replicas=0").await?;
        eventually("nobody manages", Duration::from_mins(1), || async {
            let left = replicas(&client).await?.len();
            ensure!(left == 0, "{left} replicas");
            Ok(())
        })
        .await?;
        delete_pool(&client).await
    })
    .await;
    scale("--replicas=2").await?;
    all_ready().await?;
    outcome?;
    comes_out(&client, "fake-00015", &expected).await?;
    clean(&client, "fake-00015").await
}

async fn scale(replicas: &str) -> Result<()> {
    kubectl(&["-n", SYSTEM, "scale", "deployment/isthmus-manager", replicas]).await?.ok().map(drop)
}

/// Does something while no webhook is asked about deletions, and puts the configuration back as the chart writes it:
/// without the authority, which the manager has to fill in anew.
async fn unguarded(client: &Client, action: impl Future<Output = Result<()>>) -> Result<()> {
    const NAME: &str = "isthmus";
    let configurations = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let mut spare = configurations.get(NAME).await?;
    let ObjectMeta { name, labels, annotations, .. } = spare.metadata;
    spare.metadata = ObjectMeta { name, labels, annotations, ..ObjectMeta::default() };
    for webhook in spare.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = None;
    }
    configurations.delete(NAME, &DeleteParams::default()).await?;
    let outcome = action.await;
    configurations.create(&PostParams::default(), &spare).await?;
    outcome
}

/// Puts a node with values of its own in a host-network pool; returns what it has to come out with: its membership stays,
/// since that is not the pool's.
async fn member(client: &Client, name: &str) -> Result<Value> {
    let spec = json!({
        "networkMode": "HostNetwork", "enableLeaderElection": true,
        "labels": { "e2e/zone": "pool", "e2e/new": "pool" }, "annotations": { "e2e/note": "pool" },
        "taints": [{ "key": "e2e/only", "value": "pool", "effect": "NoSchedule" }],
    });
    fresh_pool(client, "e2e-bypass", spec).await?;
    let own =
        json!({ "metadata": { "labels": { "e2e/zone": "own" }, "annotations": { "e2e/note": "own" } } });
    let mut expected = attributes(&serde_json::to_value(patch_node(client, name, own).await?)?);
    expected["labels"][labels::NODE_POOL] = json!("e2e-bypass");
    set_pool(client, name, Some("e2e-bypass")).await?;
    node_is(client, name, |node| {
        expect_label(node, "e2e/zone", Some("pool"))?;
        expect_label(node, labels::HOST_NETWORK, Some(labels::TRUE))
    })
    .await?;
    leaders_are(client, "e2e-bypass", &[name]).await?;
    Ok(expected)
}

async fn delete_pool(client: &Client) -> Result<()> {
    let pools = Api::<NodePool>::all(client.clone());
    eventually("the pool is deleted past the webhook", SOON, || async {
        match pools.delete("e2e-bypass", &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => Err(format!("{:?}", other.map(drop))),
        }
    })
    .await
}

async fn comes_out(client: &Client, name: &str, expected: &Value) -> Result<()> {
    node_is(client, name, |node| {
        let after = attributes(node);
        ensure!(after == *expected, "{after} is not {expected}");
        Ok(())
    })
    .await?;
    let config_maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    eventually("the hubs are told of no leaders any more", Duration::from_mins(1), || async {
        ensure!(config_maps.get_opt("leader-hub-e2e-bypass").await?.is_none(), "the ConfigMap stays");
        Ok(())
    })
    .await
}

/// Takes the test's own values away, and sees that the webhook guards again.
async fn clean(client: &Client, name: &str) -> Result<()> {
    let cleared = json!({ "metadata": {
        "labels": { "e2e/zone": null, (labels::NODE_POOL): null }, "annotations": { "e2e/note": null },
    } });
    patch_node(client, name, cleared).await?;
    fresh_pool(client, "e2e-bypass", json!({})).await?;
    set_pool(client, name, Some("e2e-bypass")).await?;
    let pools = Api::<NodePool>::all(client.clone());
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    eventually("the webhook refuses again, with its authority", SOON, || async {
        match pools.delete("e2e-bypass", &dry).await {
            Err(kube::Error::Api(status)) if status.message.contains(name) => Ok(()),
            other => Err(format!("{:?}", other.map(drop))),
        }
    })
    .await?;
    remove_pool(client, "e2e-bypass").await
}

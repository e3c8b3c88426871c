//! The objects: Services without selectors, so that no controller adds to them at its own pace, `EndpointSlices` of five
//! endpoints, and for each Service the empty one that a Service makes by itself.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How many clients write at a time.
const WRITERS: usize = 16;

/// Over how many namespaces the objects are spread.
const NAMESPACES: usize = 20;

/// The annotation whose value says when it was written.
pub(super) const SENT: &str = "bench.isthmus.dev/sent";

/// Makes `count` of each kind; those that are there already stay.
pub(super) async fn load(client: &Client, count: usize) -> Result<()> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let mut missing = false;
    for number in 0..NAMESPACES {
        create(&namespaces, &json!({ "metadata": { "name": namespace(number) } })).await?;
        missing |= !is_loaded::<Service>(client, number, count).await?;
        missing |= !is_loaded::<EndpointSlice>(client, number, 2 * count).await?;
    }
    if !missing {
        return Ok(());
    }
    stream::iter(0..count)
        .map(|i| async move {
            create(&Api::<Service>::namespaced(client.clone(), &namespace(i)), &service(i)).await?;
            let slices = Api::<EndpointSlice>::namespaced(client.clone(), &namespace(i));
            create(&slices, &slice(i)).await?;
            create(&slices, &empty_slice(i)).await
        })
        .buffer_unordered(WRITERS)
        .try_for_each(|()| async { Ok(()) })
        .await
        .context("objects")
}

/// Whether a namespace has its share of `count`.
async fn is_loaded<K>(client: &Client, number: usize, count: usize) -> Result<bool>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let one = ListParams::default().limit(1);
    let api = Api::<K>::namespaced(client.clone(), &namespace(number));
    let page = api.list_metadata(&one).await?;
    let more = page.metadata.remaining_item_count.unwrap_or_default();
    Ok(page.items.len() + usize::try_from(more)? >= count.div_ceil(NAMESPACES))
}

/// Changes Services `first .. first + count` of `objects`, each once, `writers` at a time.
pub(super) async fn change(
    client: &Client,
    objects: usize,
    range: std::ops::Range<usize>,
    writers: usize,
) -> Result<()> {
    stream::iter(range)
        .map(|i| async move {
            let patch = json!({ "metadata": { "annotations": { SENT: nanoseconds().to_string() } } });
            let services = Api::<Service>::namespaced(client.clone(), &namespace(i % objects));
            services.patch_metadata(&name(i % objects), &PatchParams::default(), &Patch::Merge(patch)).await
        })
        .buffer_unordered(writers)
        .try_for_each(|_| async { Ok(()) })
        .await
        .context("changes")
}

/// Changes `count` Services of `objects`, `rate` each second.
pub(super) async fn change_slowly(client: &Client, objects: usize, count: usize, rate: u32) -> Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    for i in 0..count {
        ticks.tick().await;
        change(client, objects, i..i + 1, 1).await?;
    }
    Ok(())
}

/// The path of a Service.
pub(super) fn path(i: usize) -> String {
    format!("/api/v1/namespaces/{}/services/{}", namespace(i), name(i))
}

/// Nanoseconds since 1970.
pub(super) fn nanoseconds() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_nanos())
}

pub(super) async fn create<K>(api: &Api<K>, object: &Value) -> Result<()>
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    match api.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn namespace(i: usize) -> String {
    format!("load-{}", i % NAMESPACES)
}

pub(super) fn name(i: usize) -> String {
    format!("svc-{i:05}")
}

pub(super) fn service(i: usize) -> Value {
    json!({
        "metadata": { "name": name(i), "labels": { "app": format!("app-{i:05}"), "team": format!("team-{}", i % 50) } },
        "spec": { "ports": [
            { "name": "http", "port": 80, "targetPort": 8080 }, { "name": "metrics", "port": 9090, "targetPort": 9090 },
        ] },
    })
}

pub(super) fn slice(i: usize) -> Value {
    let endpoint = |j: usize| {
        json!({
            "addresses": [format!("10.{}.{}.{}", 100 + j, i / 250 % 250, i % 250)],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": format!("node-{:04}", (i * 7 + j) % 1000), "zone": format!("zone-{}", j % 3),
            "targetRef": {
                "kind": "Pod", "namespace": namespace(i), "name": format!("app-{i:05}-{j:05}"),
                "uid": format!("00000000-0000-0000-{j:04}-{i:012}"),
            },
        })
    };
    json!({
        "metadata": { "name": format!("{}-abcde", name(i)), "labels": {
            "kubernetes.io/service-name": name(i), "endpointslice.kubernetes.io/managed-by": "load",
        } },
        "addressType": "IPv4",
        "ports": [
            { "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "metrics", "port": 9090, "protocol": "TCP" },
        ],
        "endpoints": (0..5).map(endpoint).collect::<Vec<_>>(),
    })
}

/// What kube-controller-manager makes for a Service whose selector finds no pod.
fn empty_slice(i: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("{}-fghij", name(i)), "generateName": format!("{}-", name(i)),
            "labels": {
                "app": format!("app-{i:05}"), "team": format!("team-{}", i % 50),
                "kubernetes.io/service-name": name(i),
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.bench",
            },
            "annotations": { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z" },
        },
        "addressType": "IPv4",
        "ports": null,
        "endpoints": [],
    })
}

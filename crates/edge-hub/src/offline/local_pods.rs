//! What the kubelet says of its pods while nobody can be told: where they are, and whether they are ready.
//!
//! Declared policy: a status of a pod that cannot be delivered is refused (503; 504 if it may have been) like every other write, and the kubelet repeats its
//! newest by itself. But its word is the truth of this node, so what it says of addresses and readiness is remembered, and shown in
//! endpoints (`filters::local_pods`) until half a minute after the link is back: by then the kubelet has said it again, and the API
//! server's word counts.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use kube_wire::{
    object::{Encoding, Object},
    request::{RequestInfo, Verb},
    resource::{GroupVersionResource, ObjectKey},
    status::Status,
    transcode,
};
use serde_json::Value;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    authenticate::Caller,
    filters::{LocalPod, LocalPods},
    hub::Hub,
    storage::Storage,
    subscriptions::{Owner, Subscription},
    upstream::LinkState,
};

/// How large a patch may be, in bytes.
const LARGEST: usize = 1 << 20;

/// Where it is kept: a hub that is started again shows the same.
const BLOB: &str = "local-pods";

/// How often it is looked whether the API server's word counts again.
const LOOK: Duration = Duration::from_secs(1);

/// The pod, if the request is the node's patch of the status of one.
pub fn of_node(caller: &Caller, info: &RequestInfo) -> Option<ObjectKey> {
    let path = info.resource()?;
    let status = matches!(caller, Caller::Node)
        && info.verb == Verb::Patch
        && path.resource == pods()
        && path.subresource.as_deref() == Some("status");
    let (namespace, name) = (path.namespace.as_deref()?, path.name.as_deref()?);
    status.then(|| ObjectKey::new(namespace, name))
}

/// Reads the request whole, so that it can be sent and remembered.
pub async fn read(request: Request<Body>) -> Result<Request<Bytes>, Box<Status>> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, LARGEST)
        .await
        .map_err(|error| Box::new(Status::bad_request(format!("edge-hub: status of a pod: {error}"))))?;
    Ok(Request::from_parts(parts, body))
}

/// Remembers what a patch says of a pod. `delivered`: the API server knows it now; only what was remembered before is then brought up
/// to date.
pub fn note(hub: &Hub, pod: &ObjectKey, patch: &[u8], delivered: bool) {
    let Some(held) = hub.subscriptions.object(&Owner::Node, &pods(), pod) else { return };
    let (Some(known), Ok(patch)) = (json(&held), serde_json::from_slice::<Value>(patch)) else { return };
    let uid = held.uid();
    if patch["metadata"]["uid"].as_str().is_some_and(|of| of != uid) {
        return;
    }
    let (before, now) = (facts(&known["status"], &Value::Null), facts(&known["status"], &patch["status"]));
    let noted = hub.filters.view().local_pods.pods.get(uid).cloned();
    if delivered && noted.is_none() {
        return;
    }
    let name = format!("{}/{}", pod.namespace(), pod.name()).into_boxed_str();
    let new = (now != before).then_some(LocalPod { name, addresses: now.0, ready: now.1 });
    if noted == new {
        return;
    }
    info!(pod = %pod.name(), addresses = ?new.as_ref().map(|pod| &pod.addresses), ready = ?new.as_ref().map(|pod| pod.ready), delivered, "the kubelet says where its pod is");
    change(hub, |local| match new {
        Some(new) => drop(local.pods.insert(uid.into(), new)),
        None => drop(local.pods.remove(uid)),
    });
}

/// Whether a pod of this node is there, as far as the node's pods are held.
pub fn may_exist(hub: &Hub, namespace: &str, name: &str, uid: &str) -> bool {
    let own = |subscription: &Arc<Subscription>| {
        let key = subscription.key();
        key.owner == Owner::Node
            && key.resource == pods()
            && key.namespace.is_empty()
            && key.labels.is_empty()
            && (key.fields.is_empty() || key.fields.starts_with("spec.nodeName="))
            && subscription.version().is_some()
    };
    let held = hub.subscriptions.object(&Owner::Node, &pods(), &ObjectKey::new(namespace, name));
    held.map_or_else(|| !hub.subscriptions.all().iter().any(own), |held| held.uid() == uid)
}

/// What was remembered before a restart; the view has it before any client is answered.
pub fn stored(storage: &Storage) -> LocalPods {
    storage.blob(BLOB).and_then(|blob| serde_json::from_slice(&blob).ok()).unwrap_or_default()
}

/// Forgets what is remembered once the API server's word counts again.
pub async fn keep(hub: Arc<Hub>, shutdown: CancellationToken) {
    let mut ticks = interval(LOOK);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let held = match &*hub.upstream.state().borrow() {
            LinkState::Up(session) => session.connected().elapsed(),
            LinkState::Down { .. } => continue,
        };
        let count = hub.filters.view().local_pods.pods.len();
        if count > 0 && held > hub.lifetimes.handover {
            info!(pods = count, "the API server's word on pods of this node counts again");
            change(&hub, |local| local.pods.clear());
        }
    }
}

fn change(hub: &Hub, change: impl FnOnce(&mut LocalPods)) {
    hub.filters.change_view(|view| {
        change(Arc::make_mut(&mut view.local_pods));
    });
    let local = hub.filters.view().local_pods.clone();
    if !local.pods.is_empty() {
        hub.storage.keep_blob(BLOB, &serde_json::to_vec(&*local).unwrap_or_default());
    } else if let Err(error) = hub.storage.remove_blob(BLOB) {
        warn!(%error, "what the kubelet said of its pods cannot be removed");
    }
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn json(object: &Object) -> Option<Value> {
    let text = match object.encoding() {
        Encoding::Json => object.body().to_vec(),
        Encoding::Protobuf => transcode::to_json(&pods(), object.body(), true).ok()?,
    };
    serde_json::from_slice(&text).ok()
}

/// Addresses and readiness of a status after a strategic merge patch, of which only these are looked at.
fn facts(status: &Value, patch: &Value) -> (Vec<IpAddr>, bool) {
    let ready = |status: &Value| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.rfind(|condition| condition["type"] == "Ready");
        ready.and_then(|condition| condition["status"].as_str().map(|status| status == "True"))
    };
    let addresses = addresses(patch).unwrap_or_else(|| addresses(status).unwrap_or_default());
    (addresses, ready(patch).or(ready(status)).unwrap_or(false))
}

/// The addresses that a status or a patch of one names; nothing if it does not speak of them.
fn addresses(status: &Value) -> Option<Vec<IpAddr>> {
    let listed = |name: &str| {
        let list = status[name].as_array()?;
        // A merge by key takes out what has this directive.
        let there = list.iter().filter(|entry| entry["$patch"].is_null());
        Some(there.filter_map(|entry| entry["ip"].as_str()?.parse().ok()).collect::<Vec<_>>())
    };
    // The order of a merged list names all that are in it, also those that did not change.
    let primary = || {
        let one = status.get("podIP")?;
        Some(one.as_str().and_then(|ip| ip.parse().ok()).into_iter().collect())
    };
    listed("$setElementOrder/podIPs").or_else(|| listed("podIPs")).or_else(primary)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_after_a_patch() {
        let status = json!({
            "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }],
            "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Initialized", "status": "True" }],
        });
        let cases = [
            (json!(null), ("10.0.0.1", true)),
            (json!({ "phase": "Running" }), ("10.0.0.1", true)),
            (json!({ "conditions": [{ "type": "Ready", "lastTransitionTime": "x" }] }), ("10.0.0.1", true)),
            (json!({ "conditions": [{ "type": "Ready", "status": "False" }] }), ("10.0.0.1", false)),
            (json!({ "conditions": [{ "type": "Initialized", "status": "False" }] }), ("10.0.0.1", true)),
            (json!({ "podIP": "10.0.0.2" }), ("10.0.0.2", true)),
            (json!({ "podIP": null, "podIPs": null }), ("", true)),
            (
                json!({ "podIP": "10.0.0.2", "podIPs": [{ "$patch": "delete", "ip": "10.0.0.1" }, { "ip": "10.0.0.2" }] }),
                ("10.0.0.2", true),
            ),
            (
                json!({
                    "$setElementOrder/podIPs": [{ "ip": "10.0.0.1" }, { "ip": "fd00::1" }], "podIPs": [{ "ip": "fd00::1" }],
                }),
                ("10.0.0.1,fd00::1", true),
            ),
        ];
        for (patch, (expected, ready)) in cases {
            let (found, is_ready) = facts(&status, &patch);
            let found = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            assert_eq!((found.as_str(), is_ready), (expected, ready), "{patch}");
        }
    }
}

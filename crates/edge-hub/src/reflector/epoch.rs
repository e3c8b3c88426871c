//! Whether upstream is still in the time that this subscription knows.
//!
//! A watch from a version that the server has not come to is silent: a server whose etcd was restored from a backup, or another
//! cluster behind the same name, would be watched without an event until its versions pass ours, and all that it wrote before
//! would be missed. So once a watch is open, before it is read, the most recent version is asked for: one page of one object's
//! metadata. A version below ours means a new epoch, and only a whole list helps.
//!
//! A server that went back and has passed our version already cannot be told by its version. What it can be told by:
//! - an object that it has at a lower version than we do, or at the same one with another UID: versions of an object only grow. Of the
//!   object that changed last it is asked, and it shows one more;
//! - at the version that it was at then, to which the watch comes: that object is still held though the server said that it has none
//!   of that name, or there are not as many objects as it said.
//!
//! What is left are restores by which the object that changed last was not touched, or was changed again since, and that took away as
//! many objects as were made since: then what was changed between the backup and our version is not noticed until it changes again.

use axum::body::Body;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube_wire::{resource::ObjectKey, resource_version::ResourceVersion};
use serde::Deserialize;
use watch_cache::Cache;

use super::{Ended, list};
use crate::{
    subscriptions::Subscription,
    upstream::{Credential, USER_AGENT, Upstream, UpstreamError},
};

/// One object's metadata is far smaller.
const LARGEST: usize = 4 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    metadata: Head,
    /// `null` if there are none.
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
    remaining_item_count: Option<usize>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    resource_version: String,
}

/// What must hold once the watch has come to the version that the server was at.
#[derive(Debug, Default)]
pub(super) struct Expected {
    at: Option<ResourceVersion>,
    /// How many objects there are, if it is known.
    count: Option<usize>,
    /// An object that is held and that the server did not have: an event has told of its end by then.
    gone: Option<(ObjectKey, String)>,
}

impl Expected {
    /// Whether what was told before an event of this version is all up to the version that the server was at.
    pub(super) fn is_due_before(&self, event: ResourceVersion) -> bool {
        self.at.is_some_and(|at| at < event)
    }

    /// The same of all that was told up to this version.
    pub(super) fn is_due_at(&self, version: ResourceVersion) -> bool {
        self.at.is_some_and(|at| at <= version)
    }

    /// Judges, once: fails with [`Ended::Diverged`] if what is held is not what the server had.
    pub(super) fn judge(&mut self, cache: &Cache) -> Result<(), Ended> {
        let Self { at: Some(at), count, gone } = std::mem::take(self) else { return Ok(()) };
        let Some(held) = cache.snapshot() else { return Ok(()) };
        if let Some((key, uid)) = gone
            && held.get(&key).is_some_and(|object| object.uid() == uid)
        {
            return Err(Ended::Diverged(format!("{key} is held and was not there at version {at}")));
        }
        match count {
            Some(count) if count != held.len() => Err(Ended::Diverged(format!(
                "{} are held, and at version {at} there were {count}",
                held.len()
            ))),
            _ => Ok(()),
        }
    }

    /// The same without the number of objects: Kubernetes promises only an estimate.
    pub(super) fn without_count(self) -> Self {
        Self { count: None, ..self }
    }
}

/// Fails if upstream is not, or no longer, in the time that this subscription knows. What cannot be read says nothing.
pub(super) async fn check(
    upstream: &Upstream,
    subscription: &Subscription,
    credential: &Credential,
) -> Result<Expected, Ended> {
    let ours = subscription.version().ok_or(Ended::Expired)?;
    let key = subscription.key();
    let latest = subscription.read(Cache::snapshot).and_then(|held| {
        let latest = held.iter().max_by_key(|object| object.resource_version())?;
        Some((latest.key().clone(), latest.uid().to_owned()))
    });
    let mut gone = None;
    if let Some((latest, uid)) = latest.filter(|_| !key.fields.contains("metadata.name=")) {
        let path = list::by_name(key, &latest);
        if let Some(found) = ask(upstream, credential, &path).await? {
            let items = found.items.unwrap_or_default();
            compare(subscription, &items)?;
            gone = items.is_empty().then_some((latest, uid));
        }
    }
    // After the one above: what was gone before that version is known by then.
    let Some(first) = ask(upstream, credential, &key.path_with("limit=1")).await? else {
        return Ok(Expected::default());
    };
    let Some(theirs) = parsed(&first.metadata.resource_version) else { return Ok(Expected::default()) };
    if theirs < ours {
        return Err(Ended::Rewound { ours, theirs });
    }
    let items = first.items.unwrap_or_default();
    compare(subscription, &items)?;
    let whole = key.labels.is_empty() && key.fields.is_empty();
    let more = if first.metadata.next.is_empty() { Some(0) } else { first.metadata.remaining_item_count };
    let count = more.filter(|_| whole).map(|more| items.len() + more);
    Ok(Expected { at: Some(theirs), count, gone })
}

/// Versions of an object only grow, and no two objects have one.
fn compare(subscription: &Subscription, items: &[Item]) -> Result<(), Ended> {
    let Some(held) = subscription.read(Cache::snapshot) else { return Ok(()) };
    for Item { metadata } in items {
        let key = ObjectKey::new(&metadata.namespace, &metadata.name);
        let (Some(ours), Some(version)) = (held.get(&key), parsed(&metadata.resource_version)) else {
            continue;
        };
        let other = ours.uid() != metadata.uid;
        if ours.resource_version() > version || other && ours.resource_version() == version {
            let ours = ours.resource_version();
            return Err(Ended::Diverged(format!(
                "{key} is held at version {ours} and is at version {version}"
            )));
        }
    }
    Ok(())
}

fn parsed(version: &str) -> Option<ResourceVersion> {
    version.parse().ok()
}

/// The server's most recent version, for who asks for a version that we have not come to; `None` if it does not say.
pub async fn upstream_version(
    upstream: &Upstream,
    subscription: &Subscription,
    credential: &Credential,
) -> Option<ResourceVersion> {
    let listed = ask(upstream, credential, &subscription.key().path_with("limit=1")).await.ok()??;
    parsed(&listed.metadata.resource_version)
}

/// A page of metadata at the server's most recent version: without `resourceVersion` even a server that lags behind others gives it.
async fn ask(upstream: &Upstream, credential: &Credential, path: &str) -> Result<Option<Listed>, Ended> {
    let request = Request::get(path)
        .header(header::ACCEPT, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        .header(header::USER_AGENT, USER_AGENT)
        .body(Body::empty())
        .map_err(|error| Ended::Unreadable(error.to_string()))?;
    let response = upstream.send(credential, request).await?;
    if response.status() != StatusCode::OK {
        return Err(list::refused(response).await);
    }
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| Ended::Link(UpstreamError::Broken(error)))?.to_bytes();
    Ok(serde_json::from_slice(&body).ok())
}

//! Whether upstream is still in the time that this subscription knows.
//!
//! A watch from a version that the server has not come to is silent: a server whose etcd was restored from a backup, or another
//! cluster behind the same name, would be watched without an event until its versions pass ours, and all that it wrote before
//! would be missed. So once a watch is open, before it is read, the most recent version is asked for: one page of one object's
//! metadata. A version below ours means a new epoch, and only a whole list helps.
//!
//! A server that went back and has passed our version already cannot be told by its version.

use axum::body::Body;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube_wire::resource_version::ResourceVersion;
use serde::Deserialize;

use super::{Ended, list};
use crate::{
    subscriptions::Subscription,
    upstream::{Credential, USER_AGENT, Upstream, UpstreamError},
};

/// One object's metadata is far smaller.
const LARGEST: usize = 4 << 20;

#[derive(Deserialize)]
struct Listed {
    metadata: Head,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    resource_version: String,
}

/// Fails with [`Ended::Rewound`] if upstream is behind `ours`. What cannot be read says nothing.
pub(super) async fn check(
    upstream: &Upstream,
    subscription: &Subscription,
    credential: &Credential,
) -> Result<(), Ended> {
    let ours = subscription.version().ok_or(Ended::Expired)?;
    let Some(theirs) = most_recent(upstream, subscription, credential).await? else { return Ok(()) };
    if theirs < ours { Err(Ended::Rewound { ours, theirs }) } else { Ok(()) }
}

/// The server's most recent version, for who asks for a version that we have not come to; `None` if it does not say.
pub async fn upstream_version(
    upstream: &Upstream,
    subscription: &Subscription,
    credential: &Credential,
) -> Option<ResourceVersion> {
    most_recent(upstream, subscription, credential).await.ok().flatten()
}

/// The server's most recent version: without `resourceVersion` even a server that lags behind others gives it.
async fn most_recent(
    upstream: &Upstream,
    subscription: &Subscription,
    credential: &Credential,
) -> Result<Option<ResourceVersion>, Ended> {
    let request = Request::get(subscription.key().path_with("limit=1"))
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
    let listed: Option<Listed> = serde_json::from_slice(&body).ok();
    Ok(listed.and_then(|listed| listed.metadata.resource_version.parse().ok()))
}

//! The API server's release. One that is later than any before may show what is built in with other defaults, at the versions that it had, and a watch
//! that goes on from one of them tells nothing of it: what is held of it is listed anew then, once.
//!
//! While a control plane is upgraded one server after the other, the hub may come to an earlier release once more. That changes nothing, nor does the way back.

use std::time::Duration;

use axum::body::Body;
use serde::Deserialize;
use tokio::time::{sleep, timeout};
use tracing::info;

use super::{DEADLINE, JSON, request, whole};
use crate::{
    hub::Hub,
    upstream::{Credential, jittered},
};

/// The document that has the latest release of all that were seen.
const LATEST: &str = "release";

/// How often a server is asked that does not say. One that has just started may not.
const TRIES: usize = 5;

/// Major, minor, patch. What comes behind says who built it.
type Release = [u64; 3];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

/// Asks the server of a link that is new, and has what is built in listed anew if its release is later than any before.
pub(super) async fn look(hub: &Hub) {
    let spread = || jittered(hub.lifetimes.before_openapi);
    let Some(now) = tried(hub, spread).await else { return };
    let stored = hub.storage.blob(LATEST);
    let latest = stored.and_then(|stored| parsed(std::str::from_utf8(&stored).ok()?));
    if latest.is_some_and(|latest| now <= latest) {
        return;
    }
    let [major, minor, patch] = now;
    let name = format!("v{major}.{minor}.{patch}");
    if latest.is_some() {
        // All hubs of a cluster notice it at about the same time.
        sleep(spread()).await;
        info!(release = name, "the API server is of a later release: what is built in is listed anew");
        hub.subscriptions.outdate();
    }
    // Not before: whoever is killed between the two notices once more.
    hub.storage.keep_blob(LATEST, name.as_bytes());
}

/// The release, as soon as the server says it.
async fn tried(hub: &Hub, pause: impl Fn() -> Duration) -> Option<Release> {
    for _ in 0..TRIES {
        if let Some(body) = ask(hub).await {
            let Version { git_version } = serde_json::from_slice(&body).ok()?;
            return parsed(&git_version);
        }
        sleep(pause()).await;
    }
    None
}

async fn ask(hub: &Hub) -> Option<Vec<u8>> {
    let request = request("/version", JSON, None)?;
    let asked = async {
        let answer = hub.upstream.send(&Credential::Node, request).await.ok()?;
        let (_, body) = whole(answer.map(Body::new)).await.ok()?;
        Some(body)
    };
    timeout(DEADLINE, asked).await.ok()?
}

/// `v1.36.3`, `v1.36.3+k3s1`, `v1.36.3-eks-1a2b3c4`.
fn parsed(name: &str) -> Option<Release> {
    let numbers = name.strip_prefix('v')?.split(['-', '+']).next()?;
    let mut numbers = numbers.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_in_their_order_whoever_built_them() {
        let names = ["v1.9.10", "v1.36.3-eks-1a2b3c4", "v1.36.10+k3s1", "v1.37.0-rc.1", "v2.0.0"];
        let releases: Vec<Release> = names.iter().map(|name| parsed(name).unwrap()).collect();
        assert!(releases.is_sorted(), "{releases:?}");
        assert_eq!(parsed("v1.36.3"), parsed("v1.36.3-eks-1a2b3c4"));
        for name in ["", "1.36.3", "v1.36", "v1.x.3", "v"] {
            assert_eq!(parsed(name), None, "{name:?}");
        }
    }
}

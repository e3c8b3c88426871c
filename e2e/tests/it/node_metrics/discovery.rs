//! What the API server's aggregated discovery says of the API: who goes by it, as the namespace controller does, waits where it is stale.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use serde_json::Value;

pub(super) const GROUP: &str = "slo.koordinator.sh";
pub(super) const VERSION: &str = "v1beta1";

/// How discovery calls what it was told of just now.
pub(super) const CURRENT: &str = "Current";

/// For how long discovery may be stale after a leader was killed: the API server may have asked just that replica, and asks again after half a second,
/// and so on. One that is asked to end takes what is asked of it until nobody asks it any more.
pub(super) const AFTER_A_KILL: Duration = Duration::from_secs(15);

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// How fresh the version is that the manager serves; in other words, if it is not there, or without its resources.
pub(super) async fn freshness(client: &Client) -> Result<String> {
    let versions = versions(client).await?;
    let Some(version) = versions.iter().find(|version| version["version"] == VERSION) else {
        return Ok("not there".to_owned());
    };
    let resources = version["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !resources.iter().any(|resource| resource["resource"] == "nodemetrics") {
        return Ok(format!("without its resources: {version}"));
    }
    Ok(version["freshness"].as_str().unwrap_or_default().to_owned())
}

/// All versions of the group that are told of.
pub(super) async fn versions(client: &Client) -> Result<Vec<Value>> {
    let request = http::Request::get("/apis").header(http::header::ACCEPT, ACCEPT).body(Vec::new())?;
    let document: Value = client.request(request).await?;
    let groups = document["items"].as_array().context("no groups")?;
    let group = groups.iter().find(|group| group["metadata"]["name"] == GROUP);
    Ok(group.and_then(|group| group["versions"].as_array()).cloned().unwrap_or_default())
}

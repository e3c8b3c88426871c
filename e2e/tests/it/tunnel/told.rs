//! What hubs have told of their links, and when they knew: a look at them from outside comes later.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use e2e::{eventually, hack_cluster};
use jiff::Timestamp;

/// How soon what a hub has told is in its log.
const TOLD: Duration = Duration::from_secs(2);

/// How long after `since` each of so many links broke, as the hubs of these nodes have told, or ended in order: where one direction is silent, an end may hear
/// of it from the other one. Of gateways those of `peer` alone.
pub(super) async fn broken(
    nodes: &[&str],
    peer: Option<&str>,
    links: usize,
    since: SystemTime,
) -> Result<Vec<Duration>> {
    let of_peer = peer.map(|node| format!(" node=\"{node}\""));
    eventually("their hubs have told of the links", TOLD, || async {
        let mut told = Vec::new();
        for node in nodes {
            let log = hack_cluster(&["logs", "edge-hub", node]).await?.ok()?;
            let of_links = log.lines().filter(|line| {
                [": link broke ", ": link ended "].iter().any(|what| line.contains(what))
                    && of_peer.as_ref().is_none_or(|peer| line.contains(peer))
            });
            for line in of_links {
                let at: Timestamp = line.split_whitespace().next().context("no time")?.parse()?;
                // Those of before.
                if let Ok(after) = SystemTime::from(at).duration_since(since) {
                    told.push(after);
                }
            }
        }
        ensure!(told.len() == links, "of {links} links {} broke or ended: {told:.1?}", told.len());
        Ok(told)
    })
    .await
}

//! While another replica leads: knows where it is, follows it, and hands requests on to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::names::{NAMESPACE, NODE_METRIC_CONFIG_MAP};
use api::slo::names::LEADER;
use futures::StreamExt;
use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use node_metrics::follow::{self, FollowError};
use node_metrics::proxy::Leader;
use node_report::http::config_map::SERVERS;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::Host;

/// How long to wait before a leader that broke off is asked again.
const RETRY: Duration = Duration::from_millis(500);

/// How long a leader may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(1);

/// Whom a standby follows, and since when: if anything of it is another, it begins anew.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Followed {
    /// `host:port` of the leader.
    leader: String,
    /// Which of its own certificates it shows.
    identity: u64,
    /// How many leaderships of its own are over. While it leads it lets go of whom it followed, so after each it begins anew, be the leader
    /// that it knew the next one, too.
    led: u64,
}

/// What is to be done when something may have changed.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// All stays as it is.
    Stay,
    /// There is nobody to follow.
    Nobody,
    /// Follow this leader, and nobody else.
    Follow(Followed),
}

/// What to do for a standby of address `own` that follows `known`, where `announced` is what the cluster says of the leader. A replica that
/// leads by itself follows nobody, and need not look before its leadership is over.
fn turn(known: Option<&Followed>, announced: Option<Followed>, own: &str, leads: bool) -> Turn {
    match announced {
        // This replica, or one that had its address.
        Some(announced) if announced.leader == own => Turn::Nobody,
        Some(announced) if !leads && known != Some(&announced) => Turn::Follow(announced),
        _ => Turn::Stay,
    }
}

/// Follows whoever the ConfigMap names, for ever.
pub(super) async fn follow(host: Arc<Host>) {
    let api: Api<ConfigMap> = Api::namespaced(host.client.clone(), NAMESPACE);
    let by_name = watcher::Config::default().fields(&format!("metadata.name={NODE_METRIC_CONFIG_MAP}"));
    let mut events =
        std::pin::pin!(watcher(api, by_name).backoff(crate::watches::backoff()).applied_objects());
    let mut identity = host.identity.changes();
    let mut led = host.led.subscribe();
    let mut following = JoinSet::new();
    let mut known: Option<Followed> = None;
    let mut map: Option<ConfigMap> = None;
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(object)) => map = Some(object),
                Some(Err(error)) => {
                    warn!(%error, "cannot watch where the leader of node metrics is");
                    continue;
                }
                None => return,
            },
            // With another certificate of its own a replica asks anew.
            changed = identity.changed() => if changed.is_err() { return },
            changed = led.changed() => if changed.is_err() { return },
        }
        let data = map.as_ref().and_then(|map| map.data.as_ref());
        let leader = data.and_then(|data| data.get(LEADER)).filter(|leader| !leader.is_empty());
        let announced = leader.map(|leader| Followed {
            leader: leader.clone(),
            identity: *identity.borrow_and_update(),
            led: *led.borrow_and_update(),
        });
        let wanted = match turn(known.as_ref(), announced, &host.config.api_at(), host.source.is_leading()) {
            Turn::Stay => continue,
            Turn::Nobody => {
                following.shutdown().await;
                host.proxy.set_leader(None);
                known = None;
                continue;
            }
            Turn::Follow(wanted) => wanted,
        };
        let first = data.and_then(|data| data.get(SERVERS)).and_then(|servers| servers.split(',').next());
        // A list that was given is the same whoever leads: its first need not be the leader.
        *host.reports_at.write() = first.filter(|_| host.config.servers.is_empty()).map(str::to_owned);
        following.shutdown().await;
        known = None;
        let leader = &wanted.leader;
        let client = match host.identity.client(leader, &host.config.server_name(), CONNECT) {
            Ok(client) => client,
            Err(error) => {
                debug!(%error, "no certificate to show to the leader yet");
                continue;
            }
        };
        info!(leader, "follows the leader of node metrics");
        host.proxy.set_leader(Some(Leader { client: client.clone(), address: leader.clone() }));
        following.spawn(copy(Arc::clone(&host), client));
        known = Some(wanted);
    }
}

/// Keeps a copy, as long as there is a leader to copy from: until this replica leads by itself.
async fn copy(host: Arc<Host>, client: Client) {
    loop {
        let mut was_whole = false;
        let whole = || {
            debug!("the copy of the leader is whole");
            was_whole = true;
        };
        let ended = follow::follow(&client, &host.source, whole).await;
        if host.source.is_leading() {
            return;
        }
        if was_whole {
            // Not when it cannot be reached at all: that says no more each time.
            host.broken_off.send_modify(|count| *count += 1);
        }
        match &ended {
            Err(FollowError::Status(StatusCode::SERVICE_UNAVAILABLE)) => {
                host.refusals.fetch_add(1, Ordering::Relaxed);
            }
            other => {
                host.refusals.store(0, Ordering::Relaxed);
                if matches!(other, Err(FollowError::Silent(_))) {
                    host.proxy.let_go();
                }
            }
        }
        if let Err(error) = ended {
            let error: &dyn std::error::Error = &error;
            debug!(error, "the stream of the leader ended");
        }
        tokio::time::sleep(RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(leader: &str, identity: u64, led: u64) -> Followed {
        Followed { leader: leader.to_owned(), identity, led }
    }

    #[test]
    fn a_leader_is_followed_anew_when_anything_of_it_is_another() {
        let known = of("b", 1, 0);
        let cases = [
            (None, Some(of("b", 1, 0)), Turn::Follow(of("b", 1, 0))),
            (Some(&known), Some(of("b", 1, 0)), Turn::Stay),
            (Some(&known), Some(of("c", 1, 0)), Turn::Follow(of("c", 1, 0))),
            (Some(&known), Some(of("b", 2, 0)), Turn::Follow(of("b", 2, 0))),
            (Some(&known), Some(of("a", 1, 0)), Turn::Nobody),
            (Some(&known), None, Turn::Stay),
        ];
        for (known, announced, expected) in cases {
            assert_eq!(turn(known, announced.clone(), "a", false), expected, "{announced:?}");
        }
    }

    #[test]
    fn after_a_leadership_that_nobody_heard_of_the_leader_before_is_followed_again() {
        // B was followed; A leads, and its announcement is not written, or not seen here: B is what the cluster says all the time.
        let known = of("b", 1, 0);
        assert_eq!(turn(Some(&known), Some(of("b", 1, 0)), "a", true), Turn::Stay);
        assert_eq!(turn(None, Some(of("b", 2, 0)), "a", true), Turn::Stay);
        // A leads no more: the proxy was told of nobody and the copy has ended, so B, which is known, is no old news.
        assert_eq!(turn(Some(&known), Some(of("b", 1, 1)), "a", false), Turn::Follow(of("b", 1, 1)));
    }
}

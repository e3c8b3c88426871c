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

/// Follows whoever the ConfigMap names, for ever.
pub(super) async fn follow(host: Arc<Host>) {
    let api: Api<ConfigMap> = Api::namespaced(host.client.clone(), NAMESPACE);
    let by_name = watcher::Config::default().fields(&format!("metadata.name={NODE_METRIC_CONFIG_MAP}"));
    let mut events =
        std::pin::pin!(watcher(api, by_name).backoff(crate::watches::backoff()).applied_objects());
    let mut identity = host.identity.changes();
    let mut following = JoinSet::new();
    let mut known: Option<(String, u64)> = None;
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
        }
        let data = map.as_ref().and_then(|map| map.data.as_ref());
        let Some(leader) = data.and_then(|data| data.get(LEADER)).filter(|leader| !leader.is_empty()) else {
            continue;
        };
        if *leader == host.config.api_at() {
            // This replica, or one that had its address; there is nobody to follow.
            following.shutdown().await;
            host.proxy.set_leader(None);
            known = None;
            continue;
        }
        let wanted = (leader.clone(), *identity.borrow_and_update());
        if known.as_ref() == Some(&wanted) {
            continue;
        }
        let first = data.and_then(|data| data.get(SERVERS)).and_then(|servers| servers.split(',').next());
        // A list that was given is the same whoever leads: its first need not be the leader.
        *host.reports_at.write() = first.filter(|_| host.config.servers.is_empty()).map(str::to_owned);
        following.shutdown().await;
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

/// Keeps a copy, as long as there is a leader to copy from.
async fn copy(host: Arc<Host>, client: Client) {
    loop {
        let ended = follow::follow(&client, &host.source, || debug!("the copy of the leader is whole")).await;
        if host.source.is_leading() {
            return;
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

//! Where the leader is, as the cluster says it.

use anyhow::{Context, Result};
use api::names::{NAMESPACE, NODE_METRIC_CONFIG_MAP};
use api::slo::names::LEADER;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use node_report::http::config_map::{CA, SERVER_NAME, SERVERS};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What `ConfigMap` `isthmus-node-metric` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Where reports go, the leader first.
    pub(super) servers: Vec<String>,
    pub(super) authorities: String,
    pub(super) name: String,
    /// Where the leader's API is.
    pub(super) api: String,
}

impl Place {
    fn of(map: &ConfigMap) -> Self {
        let data = map.data.clone().unwrap_or_default();
        let text = |key: &str| data.get(key).cloned().unwrap_or_default();
        Self {
            servers: text(SERVERS)
                .split(',')
                .filter(|server| !server.is_empty())
                .map(str::to_owned)
                .collect(),
            authorities: text(CA),
            name: text(SERVER_NAME),
            api: text(LEADER),
        }
    }

    fn is_known(&self) -> bool {
        !self.servers.is_empty() && !self.authorities.is_empty() && !self.api.is_empty()
    }
}

/// Follows it; one watch for all simulated nodes, each of which has its own in a cluster.
pub(super) async fn follow(client: &Client, tasks: &mut JoinSet<()>) -> Result<watch::Receiver<Place>> {
    let (sender, mut receiver) = watch::channel(Place::default());
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let by_name = watcher::Config::default().fields(&format!("metadata.name={NODE_METRIC_CONFIG_MAP}"));
    tasks.spawn(async move {
        let mut maps = std::pin::pin!(watcher(api, by_name).default_backoff().applied_objects());
        loop {
            if let Ok(Some(map)) = maps.try_next().await {
                let place = Place::of(&map);
                if place.is_known() {
                    sender.send_if_modified(|before| std::mem::replace(before, place.clone()) != place);
                }
            }
        }
    });
    let known = tokio::time::timeout(std::time::Duration::from_mins(1), receiver.wait_for(Place::is_known));
    known.await.context("nobody leads: is nodeMetrics.enabled set?")??;
    Ok(receiver)
}

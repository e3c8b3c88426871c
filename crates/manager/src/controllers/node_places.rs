//! Writes down where each Node is, and keeps that when the Node is gone.
//!
//! A kubelet brings the labels of its pool when it registers its node. That the key of a node whose Node was deleted registers it anew in another
//! pool, and is elected there, is refused by a policy of the chart (`node-labels.yaml`), which goes by this record: it has to be there *before* a
//! Node is deleted, so it is of all Nodes. It is in sixteen `ConfigMap`s, `isthmus-node-places-0` to `-f`, each of which the policy has for a
//! parameter.

pub(crate) mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::labels;
use api::names::MANAGER;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::plan::{Place, Places, of_part, part, plan};
use crate::leader::{LeadershipGuard, NotLeading};
use crate::nodes::{NodeView, Nodes};

/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long further changes are waited for, so that many nodes that come or move together are few writes.
const SETTLE: Duration = Duration::from_secs(2);

/// After how long the record is read again: somebody may have changed it.
const AGAIN: Duration = Duration::from_mins(10);

/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(10);

/// Why the record is not as it should be.
#[derive(Debug, Error)]
enum WriteError {
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    #[error("no answer within {DEADLINE:?}")]
    Deadline,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Keeps the record.
pub(crate) struct Controller {
    pub(crate) client: Client,
    pub(crate) leadership: LeadershipGuard,
    pub(crate) nodes: Arc<Nodes>,
    /// Becomes true when `nodes` is whole.
    pub(crate) nodes_listed: watch::Receiver<bool>,
    /// The namespace of the `ConfigMap`s.
    pub(crate) namespace: String,
}

impl Controller {
    /// Keeps the record until `end`.
    pub(crate) async fn run(self, end: CancellationToken) {
        tokio::select! {
            () = end.cancelled() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&self) {
        // The sender lives as long as the watch of nodes.
        let _ = self.nodes_listed.clone().wait_for(|listed| *listed).await;
        let mut changes = self.nodes.changes();
        let mut known = None;
        // However often nodes change meanwhile.
        let mut again = Instant::now() + AGAIN;
        loop {
            changes.borrow_and_update();
            if let Err(error) = self.follow(&mut known).await {
                warn!(%error, "where nodes are is not written down; it is tried again");
                known = None;
                again = Instant::now() + RETRY;
            }
            tokio::select! {
                _ = changes.changed() => sleep(SETTLE).await,
                () = sleep_until(again) => {}
            }
            if Instant::now() >= again {
                known = None;
                again = Instant::now() + AGAIN;
            }
        }
    }

    async fn follow(&self, known: &mut Option<Places>) -> Result<(), WriteError> {
        let known = match known {
            Some(known) => known,
            None => known.insert(self.read().await?),
        };
        let present = self.nodes.map(|node| (node.name.clone(), place(node))).into_iter().collect();
        let today = Timestamp::now().as_second().div_euclid(86_400);
        let mut parts: BTreeMap<u32, BTreeMap<String, Option<Place>>> = BTreeMap::new();
        for (node, place) in plan(&present, known, today) {
            parts.entry(part(&node)).or_default().insert(node, place);
        }
        for (part, changes) in parts {
            self.write(part, &changes, known).await?;
            debug!(part, nodes = changes.len(), "where nodes are is written down");
            for (node, place) in changes {
                match place {
                    Some(place) => drop(known.insert(node, place)),
                    None => drop(known.remove(&node)),
                }
            }
        }
        Ok(())
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn read(&self) -> Result<Places, WriteError> {
        let marked = ListParams::default().labels(&format!("{}={}", labels::NODE_PLACES, labels::TRUE));
        let config_maps = self.config_maps();
        let found =
            timeout(DEADLINE, config_maps.list(&marked)).await.map_err(|_| WriteError::Deadline)??;
        let written = found.items.into_iter().filter_map(|config_map| {
            let name = config_map.metadata.name?;
            Some(of_part(&name, config_map.data.unwrap_or_default()))
        });
        Ok(written.flatten().collect())
    }

    /// Writes what changes of a part. One that is not there is made of all that is known of it.
    async fn write(
        &self,
        part: u32,
        changes: &BTreeMap<String, Option<Place>>,
        known: &Places,
    ) -> Result<(), WriteError> {
        let name = plan::name(part);
        let marks = BTreeMap::from([(labels::NODE_PLACES.to_owned(), labels::TRUE.to_owned())]);
        let data: BTreeMap<&String, Option<String>> =
            changes.iter().map(|(node, place)| (node, place.as_ref().map(Place::text))).collect();
        let config_maps = self.config_maps();
        // Of the others nothing is said, so they stay.
        let patch = Patch::Merge(json!({ "metadata": { "labels": marks }, "data": data }));
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = timeout(DEADLINE, config_maps.patch(&name, &parameters, &patch));
        match self.leadership.run(patched).await?.map_err(|_| WriteError::Deadline)? {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
        let data = plan::whole(part, changes, known);
        let new = ConfigMap {
            metadata: ObjectMeta { name: Some(name), labels: Some(marks), ..ObjectMeta::default() },
            data: Some(data.into_iter().map(|(node, place)| (node, place.text())).collect()),
            ..ConfigMap::default()
        };
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let created = timeout(DEADLINE, config_maps.create(&parameters, &new));
        self.leadership.run(created).await?.map_err(|_| WriteError::Deadline)??;
        Ok(())
    }
}

/// Where a node is, as its labels say.
fn place(node: &NodeView) -> Place {
    let label = |key| node.labels.get(key).cloned().unwrap_or_default();
    Place { pool: label(labels::NODE_POOL), gateway: label(labels::GATEWAY), gone: None }
}

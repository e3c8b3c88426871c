//! Writes what a [`Plan`] says. Each node's patch stands alone: one that fails is reported and holds up no other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use api::{NodePool, labels};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::{Api, Resource};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::SemaphorePermit;
use tracing::{debug, info, warn};

use super::contest::{self, Contest};
use super::leader_config::LeaderConfig;
use super::plan::{NodePatch, Plan};
use super::{Context, FIELD_MANAGER};
use crate::leader::NotLeading;

/// What became of a plan's writes.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Applied {
    /// What kept a node from being as its pool says, by node.
    pub(crate) failures: BTreeMap<String, String>,
    /// Nodes whose writes must wait because somebody else keeps undoing them.
    pub(crate) contested: BTreeMap<String, Contest>,
    /// Other writes that failed, to be named in the log and tried again.
    pub(crate) errors: Vec<String>,
    /// Whether some node changed under our hands, so that another look is due.
    pub(crate) stale: bool,
    /// Nodes that were patched.
    pub(crate) written: BTreeSet<String>,
}

/// What became of one node's patch.
enum Outcome {
    Written,
    Stale,
    Gone,
    Failed(String),
}

/// Writes the plan, except for the status and what is in `election`, which the status reports.
pub(crate) async fn apply(context: &Context, name: &str, plan: &Plan) -> Applied {
    let Plan { nodes, refused, pool_labels, election: _, leader_config } = plan;
    let mut applied = Applied::default();
    applied.failures.extend(refused.iter().map(|(node, error)| (node.clone(), error.to_string())));

    // A request is made when it may begin, not before: hundreds that wait are megabytes.
    let mut waiting = nodes.iter();
    let mut next = waiting.next();
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            Ok(permit) = context.progress.write_permits.acquire(), if next.is_some() => {
                under_way.extend(next.map(|patch| patch_node(context, patch, permit)));
                next = waiting.next();
            }
            Some((node, outcome)) = under_way.next() => match outcome {
                Outcome::Written => drop(applied.written.insert(node.clone())),
                Outcome::Gone => {}
                Outcome::Stale => applied.stale = true,
                Outcome::Failed(reason) => {
                    warn!(pool = name, node, reason, "node could not be synced");
                    applied.failures.insert(node.clone(), reason);
                }
            },
            else => break,
        }
    }
    if !nodes.is_empty() {
        info!(pool = name, nodes = nodes.len(), failed = applied.failures.len(), "nodes patched");
    }
    if !pool_labels.is_empty() {
        let patch = json!({ "metadata": { "labels": pool_labels } });
        let pools = Api::<NodePool>::all(context.client.clone());
        note(&mut applied, "labels of the pool", merge(context, &pools, name, &patch).await);
    }
    if let Some(config) = leader_config {
        note(&mut applied, &config.name, write_leader_config(context, config).await);
    }
    applied
}

/// Finds out who else writes what is contested, where that is not known yet, from the record that the API server keeps.
pub(crate) async fn explain(context: &Context, contested: &mut BTreeMap<String, Contest>) {
    for (node, contest) in contested.iter_mut().filter(|(_, contest)| contest.is_unexplained()) {
        let nodes = Api::<Node>::all(context.client.clone());
        match nodes.get_metadata(node).await {
            Ok(found) => {
                let managed = found.metadata.managed_fields.unwrap_or_default();
                let rivals = contest::rivals(&managed, &contest.fields, FIELD_MANAGER);
                context.progress.contests.lock().name_rivals(node, &rivals);
                contest.rivals = Some(rivals);
            }
            Err(error) => debug!(node, %error, "who else writes the node could not be found out"),
        }
    }
}

fn note(applied: &mut Applied, what: &str, result: Result<(), WriteError>) {
    if let Err(error) = result {
        applied.errors.push(format!("{what}: {error}"));
    }
}

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Another replica may lead by now.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The API server refused, or was not reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Patches one node, if it is still as it was when the plan was made.
async fn patch_node<'a>(
    context: &Context,
    patch: &'a NodePatch,
    _permit: SemaphorePermit<'_>,
) -> (&'a String, Outcome) {
    (&patch.node, try_patch(context, patch).await)
}

async fn try_patch(context: &Context, patch: &NodePatch) -> Outcome {
    let NodePatch { node, resource_version, labels, annotations, taints, taint_changes: _ } = patch;
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(resource_version));
    for (field, changes) in [("labels", labels), ("annotations", annotations)] {
        if !changes.is_empty() {
            metadata.insert(field.to_owned(), json!(changes));
        }
    }
    let mut body = json!({ "metadata": Value::Object(metadata) });
    if let Some(taints) = taints {
        body["spec"] = json!({ "taints": taints });
    }
    let written = match context.leadership.run(send(context, node, &body)).await {
        Ok(written) => written,
        Err(lost) => return Outcome::Failed(lost.to_string()),
    };
    match written {
        Ok(written) if written == *resource_version => Outcome::Failed(
            "the API server took the change and then changed nothing: an admission rule undoes it".to_owned(),
        ),
        Ok(_) => {
            context.metrics.writes.inc();
            context.progress.note_written(node, resource_version);
            context.progress.contests.lock().note_written(patch, Instant::now());
            debug!(node, labels = labels.len(), annotations = annotations.len(), "node patched");
            Outcome::Written
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Outcome::Gone,
        Err(kube::Error::Api(status)) if status.is_conflict() => Outcome::Stale,
        Err(kube::Error::Api(status)) => Outcome::Failed(status.message),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// Sends a merge patch of a Node, and returns the version that it made. Nothing else of the answer is decoded: with
/// thousands of nodes that is most of the work.
async fn send(context: &Context, node: &str, body: &Value) -> Result<String, kube::Error> {
    #[derive(Deserialize)]
    struct Written {
        metadata: Version,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        resource_version: String,
    }
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let request = Request::new(Node::url_path(&(), None))
        .patch_metadata(node, &params, &Patch::Merge(body))
        .map_err(kube::Error::BuildRequest)?;
    let Written { metadata: Version { resource_version } } = context.client.request(request).await?;
    Ok(resource_version)
}

/// Merges `patch` into the metadata or spec of an object.
async fn merge(
    context: &Context,
    pools: &Api<NodePool>,
    name: &str,
    patch: &Value,
) -> Result<(), WriteError> {
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    context.leadership.run(pools.patch_metadata(name, &params, &patch)).await??;
    context.metrics.writes.inc();
    Ok(())
}

/// Writes the whole of the `ConfigMap` by server-side apply: whatever else is in it stays.
async fn write_leader_config(context: &Context, config: &LeaderConfig) -> Result<(), WriteError> {
    let LeaderConfig { name, owner, data } = config;
    let mut object = ConfigMap { data: Some(data.clone()), ..ConfigMap::default() };
    object.metadata.name = Some(name.clone());
    object.metadata.labels = Some([(labels::CONFIG_MAP_NAME.to_owned(), name.clone())].into());
    object.metadata.owner_references = owner.clone().map(|owner| vec![owner]);
    let config_maps = Api::<ConfigMap>::namespaced(context.client.clone(), &context.hub_namespace);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    context.leadership.run(config_maps.patch(name, &params, &Patch::Apply(&object))).await??;
    context.metrics.writes.inc();
    Ok(())
}

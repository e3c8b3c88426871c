//! Reports: the status of a pool from what was observed and what became of the plan. [`compute`] is pure; [`write`]
//! writes it and tells of what changed.

use api::{NodePool, NodePoolStatus, conditions, pool_nodes::POOL_NODES_MAX};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::runtime::events::Event;
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::Context;
use super::apply::{Applied, WriteError};
use super::elect::Election;
use super::leader_config;
use super::observe::Observed;
use crate::controllers::{
    self,
    conditions::{Check, event, whole_second},
};

/// Reason of `Ready` where something other than a node could not be written.
const WRITES_FAILED: &str = "WritesFailed";

/// How many nodes or pods a message names before it only counts.
const NAMED: usize = 10;

/// The longest reason quoted for one node, in characters.
const REASON_LENGTH: usize = 300;

/// The status of `pool` at `now`.
pub(crate) fn compute(
    pool: &NodePool,
    observed: &Observed,
    election: &Election,
    applied: &Applied,
    now: Timestamp,
) -> NodePoolStatus {
    let before = pool.status.clone().unwrap_or_default();
    let ready = observed.members.iter().filter(|node| node.ready).count();
    let mut nodes: Vec<String> = observed.members.iter().map(|node| node.name.clone()).collect();
    nodes.sort();

    let mut checks = vec![nodes_synced(pool, observed, applied)];
    if pool.is_host_network() {
        checks.push(network_mode_enforced(observed));
    }
    if pool.spec.enable_leader_election {
        checks.push(leader_ready(election));
    }
    checks.push(overall(&checks, &applied.errors));
    let generation = pool.metadata.generation;
    let mut conditions: Vec<Condition> =
        checks.into_iter().map(|check| check.into_condition(&before.conditions, generation, now)).collect();
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));

    NodePoolStatus {
        ready_node_num: count(ready),
        unready_node_num: count(observed.members.len() - ready),
        nodes,
        leader_num: count(election.leaders.len()),
        leader_endpoints: election.leaders.clone(),
        leader_last_elected_time: if election.changed {
            Some(Time(whole_second(now)))
        } else {
            before.leader_last_elected_time
        },
        network_mode: Some(pool.network_mode()),
        observed_generation: generation,
        conditions,
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Whether it was said before, of the spec as it is, that all nodes are as it says.
fn was_synced(pool: &NodePool) -> bool {
    let status = pool.status.as_ref().filter(|status| status.observed_generation == pool.metadata.generation);
    let mut conditions = status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == conditions::NODES_SYNCED && condition.status == "True")
}

fn nodes_synced(pool: &NodePool, observed: &Observed, applied: &Applied) -> Check {
    let failures = &applied.failures;
    let all = observed.members.len();
    let left = observed.leavers.iter().filter(|node| failures.contains_key(&node.name)).count();
    let contested = applied.contested.iter().map(|(node, contest)| format!("{node}: {contest}"));
    let contested = list(contested, applied.contested.len());
    if failures.is_empty() && !contested.is_empty() {
        return Check {
            type_: conditions::NODES_SYNCED,
            holds: Some(false),
            reason: "Contested",
            message: contested,
        };
    }
    // Of a spec that is new: what was written last may have been what an older one says.
    let is_unsure = applied.stale || !observed.overwritten.is_empty();
    if failures.is_empty() && is_unsure && !was_synced(pool) {
        return Check {
            type_: conditions::NODES_SYNCED,
            holds: None,
            reason: "Syncing",
            message: "some nodes have changed since they were looked at; they are looked at again".to_owned(),
        };
    }
    if failures.is_empty() {
        let mut message = format!("{all} of {all} nodes carry what the pool says");
        if let Some(nodes) = leader_config::untold(pool, &observed.members) {
            message = format!(
                "{message}; the hubs of nodes without a Gateway are not told where the others are, which are {nodes}, more than \
                 {POOL_NODES_MAX}: make more pools of it"
            );
        }
        return Check {
            type_: conditions::NODES_SYNCED,
            holds: Some(true),
            reason: "AllNodesSynced",
            message,
        };
    }
    let named = failures.iter().map(|(node, reason)| format!("{node}: {}", shorten(reason)));
    let counts = match (failures.len() - left, left) {
        (members, 0) => format!("{members} of {all} nodes could not be synced"),
        (0, left) => format!("{left} nodes that left the pool could not be released"),
        (members, left) => {
            format!("{members} of {all} nodes could not be synced, {left} that left could not be released")
        }
    };
    let mut message = format!("{counts}: {}", list(named, failures.len()));
    if !contested.is_empty() {
        message = format!("{message}; {contested}");
    }
    Check { type_: conditions::NODES_SYNCED, holds: Some(false), reason: "NodesFailed", message }
}

fn network_mode_enforced(observed: &Observed) -> Check {
    let Some(violators) = &observed.violators else {
        let message = "the pods have not been listed yet".to_owned();
        return Check {
            type_: conditions::NETWORK_MODE_ENFORCED,
            holds: None,
            reason: "PodsNotListed",
            message,
        };
    };
    if violators.is_empty() {
        let message = if observed.members.is_empty() {
            "the pool has no nodes".to_owned()
        } else {
            "every pod on the pool's nodes uses the network of its node".to_owned()
        };
        return Check {
            type_: conditions::NETWORK_MODE_ENFORCED,
            holds: Some(true),
            reason: "AllPodsHostNetwork",
            message,
        };
    }
    let message = format!(
        "pods without hostNetwork on the pool's nodes: {} ({}); delete them: what Deployments and others like them make anew goes \
         elsewhere, or stays with this pool's name in the label {}; DaemonSets come again, see isthmus-manager hostnet plan; where \
         the chart's policy for ordinary pods is off, give them the annotation {}",
        violators.len(),
        list(violators.iter().cloned(), violators.len()),
        api::labels::DESIRED_NODE_POOL,
        api::annotations::EXCLUDE_HOST_NETWORK_POOL
    );
    Check {
        type_: conditions::NETWORK_MODE_ENFORCED,
        holds: Some(false),
        reason: "PodsWithoutHostNetwork",
        message,
    }
}

fn leader_ready(election: &Election) -> Check {
    let (elected, wanted) = (election.leaders.len(), election.wanted);
    let message = format!("{elected} of {wanted} leaders are elected");
    if elected == wanted {
        return Check { type_: conditions::LEADER_READY, holds: Some(true), reason: "Elected", message };
    }
    let message = format!(
        "{message}: too few of the pool's nodes are ready, have an internal address and carry the labels of a leader, if any are asked for"
    );
    Check { type_: conditions::LEADER_READY, holds: Some(false), reason: "TooFewCandidates", message }
}

/// `Ready` holds when every other condition does and everything else of the pool was written.
fn overall(checks: &[Check], errors: &[String]) -> Check {
    let broken = checks.iter().find(|check| check.holds == Some(false));
    if let (None, false) = (broken, errors.is_empty()) {
        let message = list(errors.iter().map(|error| shorten(error)), errors.len());
        return Check { type_: conditions::READY, holds: Some(false), reason: WRITES_FAILED, message };
    }
    match broken.or_else(|| checks.iter().find(|check| check.holds.is_none())) {
        None => Check {
            type_: conditions::READY,
            holds: Some(true),
            reason: "PoolInForce",
            message: "what the pool says is in force on its nodes".to_owned(),
        },
        Some(broken) => Check {
            type_: conditions::READY,
            holds: broken.holds,
            reason: broken.reason,
            message: format!("{}: {}", broken.type_, broken.message),
        },
    }
}

fn list(items: impl Iterator<Item = String>, all: usize) -> String {
    let more = (all > NAMED).then(|| format!("and {} more", all - NAMED));
    items.take(NAMED).chain(more).collect::<Vec<_>>().join("; ")
}

fn shorten(reason: &str) -> String {
    if reason.chars().count() <= REASON_LENGTH {
        return reason.to_owned();
    }
    reason.chars().take(REASON_LENGTH).chain(['…']).collect()
}

/// Writes the status if it differs from the present one, and tells of changes in events.
pub(crate) async fn write(
    context: &Context,
    pool: &NodePool,
    status: &NodePoolStatus,
) -> Result<(), WriteError> {
    if pool.status.as_ref() == Some(status) {
        return Ok(());
    }
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let pools = Api::<NodePool>::all(context.client.clone());
    let patch = json!({ "status": whole(status) });
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    match context.leadership.run(pools.patch_status(name, &params, &patch)).await? {
        Err(kube::Error::Api(gone)) if gone.is_not_found() => return Ok(()),
        other => other.map(drop)?,
    }
    context.metrics.writes.inc();
    for event in changes(pool.status.as_ref(), status) {
        context.events.tell(&event, &pool.object_ref(&())).await;
    }
    Ok(())
}

/// The status as a merge patch that also removes what is no longer said.
fn whole(status: &NodePoolStatus) -> Value {
    let mut value = json!(status);
    if let Value::Object(fields) = &mut value {
        for field in ["leaderEndpoints", "leaderLastElectedTime"] {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    value
}

/// The events that tell what changed between two statuses.
fn changes(before: Option<&NodePoolStatus>, after: &NodePoolStatus) -> Vec<Event> {
    let previous = before.map(|status| status.conditions.as_slice()).unwrap_or_default();
    // Ready repeats what another condition says, but for what has no condition of its own.
    let telling =
        |condition: &&Condition| condition.type_ != conditions::READY || condition.reason == WRITES_FAILED;
    let mut events: Vec<Event> =
        controllers::conditions::changes(previous, after.conditions.iter().filter(telling)).collect();
    let leaders = |status: &NodePoolStatus| {
        let names = status.leader_endpoints.iter().map(|l| format!("{}/{}", l.node_name, l.address));
        names.collect::<Vec<_>>().join(", ")
    };
    let (was, is) = (before.map(leaders).unwrap_or_default(), leaders(after));
    if was != is {
        let shown = if is.is_empty() { "none" } else { &is };
        events.push(event(true, "LeadersElected", &format!("leaders: {shown}"), "Elect"));
    }
    events
}

#[cfg(test)]
mod tests;

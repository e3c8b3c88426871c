//! Reports: the status of a Gateway from its verdict. [`compute`] and [`changes`] are pure; [`write`] writes it and tells of what
//! changed. It never touches `spec`.

use std::time::Duration;

use api::{Endpoint, EndpointType, Gateway, GatewayLink, GatewayStatus, conditions};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::Event;
use kube::{Api, Resource, ResourceExt as _};
use serde_json::{Value, json};

use super::Context;
use super::dialling::is_dialling;
use super::findings::{ACCEPTING, Finding};
use super::unlinked::PARTLY;
use super::verdict::Verdict;
use crate::controllers::conditions::{Check, changes as condition_changes, event};
use crate::controllers::node_pool::apply::WriteError;

/// How often a status is written for round-trip times alone, or for who is linked to an exposed gateway.
pub(crate) const ROUND_TRIPS: Duration = Duration::from_secs(30);

/// The status that `verdict` makes at `now`. Round-trip times that changed a little stay as they were.
pub(crate) fn compute(verdict: &Verdict, now: Timestamp) -> GatewayStatus {
    let Verdict {
        gateway,
        nodes,
        active,
        addresses,
        links,
        elected,
        exposed,
        connected,
        link_port: _,
        lacking: _,
    } = verdict;
    let before = gateway.status.clone().unwrap_or_default();
    let generation = gateway.metadata.generation;
    let links = steady(links, &before.links);
    let findings = [
        (conditions::ELECTED, Some(elected)),
        (conditions::EXPOSED, exposed.as_ref()),
        (conditions::CONNECTED, Some(connected)),
    ];
    let mut conditions: Vec<Condition> = findings
        .into_iter()
        .filter_map(|(type_, finding)| {
            let Finding { holds, reason, message } = finding?.clone();
            let check = Check { type_, holds: Some(holds), reason, message };
            Some(check.into_condition(&before.conditions, generation, now))
        })
        .collect();
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    let gateways: std::collections::BTreeSet<&str> = links.iter().map(|link| link.gateway.as_str()).collect();
    let shortest = links.iter().map(|link| link.round_trip_millis).filter(|millis| *millis > 0).min();
    let status = GatewayStatus::new(&gateway.spec, nodes.clone(), active.clone());
    GatewayStatus {
        addresses: addresses.clone(),
        connected_to: gateways.into_iter().collect::<Vec<_>>().join(","),
        round_trip: shortest.map(|millis| format!("{millis}ms")).unwrap_or_default(),
        links,
        observed_generation: generation,
        conditions,
        ..status
    }
}

/// The links with the times that they had `before`, where they differ by no more than a quarter or 5 ms.
fn steady(links: &[GatewayLink], before: &[GatewayLink]) -> Vec<GatewayLink> {
    let mut links = links.to_vec();
    for link in &mut links {
        let old = before.iter().find(|old| old.node_name == link.node_name && old.gateway == link.gateway);
        let Some(old) = old.map(|old| old.round_trip_millis).filter(|old| *old > 0) else { continue };
        if (link.round_trip_millis - old).abs() <= (old / 4).max(5) {
            link.round_trip_millis = old;
        }
    }
    links
}

/// Whether the two differ in round-trip times alone, or in who is linked to an exposed gateway.
pub(crate) fn differ_in_times_only(before: &GatewayStatus, after: &GatewayStatus) -> bool {
    let timeless = |status: &GatewayStatus| {
        let mut status = status.clone();
        let names = |condition: &&mut Condition| [ACCEPTING, PARTLY].contains(&condition.reason.as_str());
        for condition in status.conditions.iter_mut().filter(names) {
            condition.message.clear();
        }
        status.round_trip.clear();
        for link in &mut status.links {
            link.round_trip_millis = 0;
        }
        status
    };
    timeless(before) == timeless(after)
}

/// Writes the status, and tells of changes in events. Whether it is news is the caller's to know.
pub(crate) async fn write(
    context: &Context,
    gateway: &Gateway,
    status: &GatewayStatus,
) -> Result<(), WriteError> {
    let name = gateway.name_any();
    let gateways = Api::<Gateway>::all(context.client.clone());
    let patch = json!({ "status": whole(status) });
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    match context.leadership.run(gateways.patch_status(&name, &params, &patch)).await? {
        Err(kube::Error::Api(gone)) if gone.is_not_found() => return Ok(()),
        other => other.map(drop)?,
    }
    context.metrics.writes.inc();
    for event in changes(gateway.status.as_ref(), status) {
        context.events.tell(&event, &gateway.object_ref(&())).await;
    }
    Ok(())
}

/// The status as a merge patch that also removes what is no longer said.
fn whole(status: &GatewayStatus) -> Value {
    let mut value = json!(status);
    if let Value::Object(fields) = &mut value {
        for field in ["activeEndpoint", "addresses", "links", "observedGeneration", "conditions"] {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    value
}

/// Who is active and who no longer, by node and type.
pub(crate) fn election_changes<'a>(
    before: &'a [Endpoint],
    after: &'a [Endpoint],
) -> (Vec<&'a Endpoint>, Vec<&'a Endpoint>) {
    let is_in = |endpoint: &Endpoint, list: &[Endpoint]| {
        list.iter().any(|other| other.node_name == endpoint.node_name && other.type_ == endpoint.type_)
    };
    (
        after.iter().filter(|endpoint| !is_in(endpoint, before)).collect(),
        before.iter().filter(|endpoint| !is_in(endpoint, after)).collect(),
    )
}

/// The events that tell what changed between two statuses.
pub(crate) fn changes(before: Option<&GatewayStatus>, after: &GatewayStatus) -> Vec<Event> {
    let active = before.map(|status| status.active_endpoints.as_slice()).unwrap_or_default();
    let (elected, lost) = election_changes(active, &after.active_endpoints);
    let words = |endpoint: &Endpoint| {
        let type_ = match endpoint.type_ {
            EndpointType::Proxy => "proxy",
            EndpointType::Tunnel => "tunnel",
        };
        let public = if endpoint.public_ip.is_empty() { "none" } else { &endpoint.public_ip };
        format!("publicIP: {public}, type: {type_}")
    };
    let mut events: Vec<Event> = Vec::new();
    events.extend(elected.into_iter().map(|endpoint| {
        let note = format!(
            "The endpoint hosted by node {} has been elected active endpoint, {}",
            endpoint.node_name,
            words(endpoint)
        );
        event(true, "ActiveEndpointElected", &note, "Elect")
    }));
    events.extend(lost.into_iter().map(|endpoint| {
        let note = format!(
            "The endpoint hosted by node {} is no longer active, {}",
            endpoint.node_name,
            words(endpoint)
        );
        event(false, "ActiveEndpointLost", &note, "Elect")
    }));
    let previous = before.map(|status| status.conditions.as_slice()).unwrap_or_default();
    // That who was just elected has no link yet is told once it has had the time for it.
    let told = |condition: &&Condition| condition.reason != PARTLY && !is_dialling(condition);
    let others = after.conditions.iter().filter(told);
    events.extend(condition_changes(previous, others));
    events.extend(partly_changes(previous, &after.conditions));
    events
}

/// The event that a Gateway is connected by some of its endpoints alone, whatever was so before, for somebody should look; or by all again. That it
/// is connected no more is told as of every condition.
fn partly_changes(before: &[Condition], after: &[Condition]) -> Option<Event> {
    let connected = after.iter().find(|c| c.type_ == conditions::CONNECTED && c.status == "True")?;
    let was = before.iter().any(|c| c.type_ == conditions::CONNECTED && c.reason == PARTLY);
    let is = connected.reason == PARTLY;
    (was != is).then(|| event(!is, &connected.reason, &connected.message, "Reconcile"))
}

#[cfg(test)]
mod tests;

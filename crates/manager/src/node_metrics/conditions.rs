//! Nodes say whether they report: condition `NodeMetricFresh`, and an event when that changes. Level-triggered: what the store finds
//! missing is written, again if need be.

use std::sync::Arc;
use std::time::Duration;

use api::slo::names::{NODE_METRIC_FRESH, OUT_OF_VIEW, REPORTING, REPORTS_CEASED};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use node_metrics::freshness::Silence;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{Host, turn};

/// Who writes, in managed fields and events.
pub(super) const FIELD_MANAGER: &str = "isthmus-node-metric";

/// How often it is looked what is missing.
const TURN: Duration = Duration::from_secs(1);

/// How many Nodes are written in a turn: a site that falls silent must not flood the API server.
const AT_ONCE: usize = 20;

/// How many of them at a time.
const WRITERS: usize = 4;

/// A write that takes longer is given up.
const CALL: Duration = Duration::from_secs(5);

/// Keeps conditions while this replica leads. Never ends.
pub(super) async fn keep(host: Arc<Host>) {
    let reporter =
        Reporter { controller: FIELD_MANAGER.into(), instance: Some(host.config.identity.clone()) };
    let nodes: Api<Node> = Api::all(host.client.clone());
    let mut turns = turn::Turns::of(AT_ONCE);
    loop {
        tokio::time::sleep(TURN).await;
        if !host.source.is_leading() {
            continue;
        }
        // Not one for all turns: it keeps each event whole for minutes, of thousands of nodes that is megabytes.
        let recorder = Recorder::new(host.client.clone(), reporter.clone());
        let missing = host.source.read(node_metrics::store::Store::conditions);
        let writes = turns
            .next(missing)
            .into_iter()
            .map(|(name, silence)| write(&host, &nodes, &recorder, name, silence));
        stream::iter(writes).buffer_unordered(WRITERS).collect::<()>().await;
    }
}

/// Writes one condition, and tells of it.
async fn write(host: &Host, nodes: &Api<Node>, recorder: &Recorder, name: Arc<str>, silence: Silence) {
    if !host.source.is_leading() {
        return;
    }
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Strategic(patch(silence, Timestamp::now()));
    match tokio::time::timeout(CALL, nodes.patch_status(&name, &params, &patch)).await {
        Ok(Ok(node)) => {
            info!(node = &*name, reason = reason(silence), "condition {NODE_METRIC_FRESH}");
            let about = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(name.to_string()),
                uid: node.metadata.uid,
                ..ObjectReference::default()
            };
            if let Some(event) = event(silence)
                && let Err(error) = recorder.publish(&event, &about).await
            {
                warn!(%error, "cannot publish an event");
            }
        }
        Ok(Err(error)) => warn!(%error, node = &*name, "cannot write condition {NODE_METRIC_FRESH}"),
        Err(_) => warn!(node = &*name, "cannot write condition {NODE_METRIC_FRESH}: no answer"),
    }
}

fn reason(silence: Silence) -> &'static str {
    match silence {
        Silence::Fresh | Silence::Stale => REPORTING,
        Silence::Expired => REPORTS_CEASED,
        Silence::Hidden => OUT_OF_VIEW,
    }
}

fn message(silence: Silence) -> &'static str {
    match silence {
        Silence::Fresh | Silence::Stale => "the node reports its metrics",
        Silence::Expired => "the node does not report its metrics; the last ones mean nothing any more",
        Silence::Hidden => {
            "the node does not report its metrics; its NodeMetric is out of view until it does"
        }
    }
}

/// The condition, merged by its type; the kubelet's own stay.
fn patch(silence: Silence, now: Timestamp) -> Value {
    let status = if matches!(silence, Silence::Fresh | Silence::Stale) { "True" } else { "False" };
    let now = Time(now.round(jiff::Unit::Second).unwrap_or(now));
    json!({"status": {"conditions": [{
        "type": NODE_METRIC_FRESH,
        "status": status,
        "reason": reason(silence),
        "message": message(silence),
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }]}})
}

/// What people should hear of. Hiding follows from expiry and is no news.
fn event(silence: Silence) -> Option<Event> {
    let type_ = match silence {
        Silence::Fresh => EventType::Normal,
        Silence::Expired => EventType::Warning,
        Silence::Stale | Silence::Hidden => return None,
    };
    Some(Event {
        type_,
        reason: reason(silence).to_owned(),
        note: Some(message(silence).to_owned()),
        action: "Report".to_owned(),
        secondary: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_say_what_the_store_found() {
        let cases = [
            (Silence::Fresh, "True", "Reporting", Some(true)),
            (Silence::Expired, "False", "ReportsCeased", Some(false)),
            (Silence::Hidden, "False", "OutOfView", None),
        ];
        for (silence, status, reason, good_news) in cases {
            let patch = patch(silence, Timestamp::UNIX_EPOCH);
            let condition = &patch["status"]["conditions"][0];
            assert_eq!((&condition["status"], &condition["reason"]), (&json!(status), &json!(reason)));
            assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:00Z");
            let event = event(silence).map(|event| matches!(event.type_, EventType::Normal));
            assert_eq!(event, good_news);
        }
    }
}

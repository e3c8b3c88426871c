//! Events on nodes, each under a name that follows from what it says: a new leader, which remembers nothing, makes no second one.
//!
//! Not by kube's recorder: it keeps each event whole for minutes, to count its repeats, and of thousands of nodes that is megabytes.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tls::digest::Sha256Digest;
use tracing::warn;

use super::Context;
use crate::controllers::told_events::node_reference;

/// Where events are kept of what has no namespace.
const NAMESPACE: &str = "default";

/// The longest note that the API takes.
const NOTE_MAX: usize = 1000;

/// How much of a node's name is part of an event's: names end at 253.
const NAME_MAX: usize = 200;

/// What is told of a node: a warning, for somebody has to do something.
#[derive(Debug, PartialEq)]
pub(super) struct NodeEvent {
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
    pub(super) message: String,
    /// What tells apart two events that say the same; empty for what is said once for as long as it holds.
    pub(super) occasion: String,
}

impl NodeEvent {
    fn name(&self, node: &str) -> String {
        let Self { reason, action: _, message, occasion } = self;
        let digest = Sha256Digest::of([node, reason, message, occasion].join("\n").as_bytes()).to_string();
        let start: String = node.chars().take(NAME_MAX).collect();
        format!("{}.{}", start.trim_end_matches(['.', '-']), &digest[..16])
    }
}

/// Tells `event` of `node`, for the `times`-th time by this process. What is told for the first time may have been told by an earlier
/// leader: then it stands there. API servers forget events after an hour, and it is told anew then.
pub(super) async fn publish(context: &Context, node: &str, event: NodeEvent, times: i32) {
    let events = Api::<Event>::namespaced(context.client.clone(), NAMESPACE);
    let name = event.name(node);
    let object = object(context, node, name.clone(), event);
    let told = match events.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() && times > 1 => {
            let series =
                json!({ "series": { "count": times, "lastObservedTime": MicroTime(Timestamp::now()) } });
            events.patch(&name, &PatchParams::default(), &Patch::Merge(series)).await.map(drop)
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop),
    };
    if let Err(error) = told {
        warn!(node, %error, "event could not be published");
    }
}

fn object(context: &Context, node: &str, name: String, event: NodeEvent) -> Event {
    let NodeEvent { reason, action, message, occasion: _ } = event;
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(action.to_owned()),
        event_time: Some(MicroTime(Timestamp::now())),
        note: Some(message.chars().take(NOTE_MAX).collect()),
        reason: Some(reason.to_owned()),
        regarding: Some(node_reference(node)),
        reporting_controller: Some(context.reporter.controller.clone()),
        reporting_instance: context.reporter.instance.clone(),
        type_: Some("Warning".to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_have_the_same_name_and_others_another() {
        let event = |reason, message: &str, occasion: &str| NodeEvent {
            reason,
            action: "Join",
            message: message.to_owned(),
            occasion: occasion.to_owned(),
        };
        let name = event("Missing", "no pool", "").name("n1");
        assert!(name.starts_with("n1.") && name.len() == 19, "{name}");
        assert_eq!(name, event("Missing", "no pool", "").name("n1"));
        for (node, other) in [
            ("n2", event("Missing", "no pool", "")),
            ("n1", event("Other", "no pool", "")),
            ("n1", event("Missing", "no other pool", "")),
            ("n1", event("Missing", "no pool", "7")),
        ] {
            assert_ne!(name, other.name(node));
        }
        let long = "a.".repeat(126);
        assert!(event("Missing", "", "").name(&long).len() <= 253);
    }
}

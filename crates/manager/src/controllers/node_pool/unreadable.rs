//! A pool that is stored in a form which cannot be read, for it is older than the rules of its CRD: it is left alone,
//! and its users are told in its condition `Ready` and in an event, once for each reason.
//!
//! Must not write anything but the pool's conditions: what cannot be read cannot be judged.

use api::conditions;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource as _};
use serde_json::json;
use tracing::warn;

use super::Context;
use super::apply::WriteError;

/// Reason of the condition and of the event.
const UNREADABLE: &str = "Unreadable";

/// Tells that the pool cannot be read because of `error`, unless that was the last that was told of it.
pub(super) async fn tell(context: &Context, name: &str, error: &str) {
    if !context.progress.is_news(&topic(name), error) {
        return;
    }
    warn!(pool = name, error, "pool cannot be read and is left alone");
    if let Err(failure) = write(context, name, error).await {
        warn!(pool = name, error = %failure, "cannot tell that the pool is unreadable; it is tried again");
        context.progress.forget_told(&topic(name));
    }
}

/// The pool can be read, or is gone.
pub(super) fn forget(context: &Context, name: &str) {
    context.progress.forget_told(&topic(name));
}

/// Nodes and pools share what was told; no node has a name with a slash.
fn topic(name: &str) -> String {
    format!("nodepools/{name}")
}

async fn write(context: &Context, name: &str, error: &str) -> Result<(), WriteError> {
    let pools: Api<DynamicObject> =
        Api::all_with(context.client.clone(), &ApiResource::erase::<api::NodePool>(&()));
    let message = message(error);
    let condition = Condition {
        type_: conditions::READY.to_owned(),
        status: "False".to_owned(),
        reason: UNREADABLE.to_owned(),
        message: message.clone(),
        last_transition_time: Time(Timestamp::now()),
        observed_generation: None,
    };
    // The other conditions speak of a pool that could be read.
    let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
    let written = context.leadership.run(pools.patch_status(name, &PatchParams::default(), &patch)).await?;
    let pool = match written {
        Err(kube::Error::Api(gone)) if gone.is_not_found() => return Ok(()),
        other => other?,
    };
    context.metrics.writes.inc();
    let event = Event {
        type_: EventType::Warning,
        reason: UNREADABLE.to_owned(),
        note: Some(message),
        action: "Read".to_owned(),
        secondary: None,
    };
    let about = pool.object_ref(&ApiResource::erase::<api::NodePool>(&()));
    if let Err(error) = context.recorder.publish(&event, &about).await {
        warn!(pool = name, %error, "event could not be published");
    }
    Ok(())
}

/// What is wrong and what to do, short enough for an event, whose API takes 1,024 bytes.
fn message(error: &str) -> String {
    let reason: String = error.chars().take(200).collect();
    format!(
        "the pool cannot be read: {reason}; its nodes are left as they are, and pods that want it are refused or \
         admitted as the webhook's failurePolicy says: put the field right (kubectl edit nodepool)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_fits_an_event_and_says_why() {
        let message = message(&"ä".repeat(5000));
        assert!(message.len() <= 1024, "{}", message.len());
        assert!(super::message("invalid type: string").contains("invalid type: string"));
    }
}

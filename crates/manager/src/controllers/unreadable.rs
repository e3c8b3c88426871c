//! An object that is stored in a form which cannot be read, for it is older than the rules of its CRD: its users are told in a condition
//! and in an event.
//!
//! Must not write anything but the object's conditions: what cannot be read cannot be judged.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, Resource};
use prometheus_client::metrics::counter::Counter;
use serde_json::json;

use super::conditions::event;
use super::node_pool::apply::WriteError;
use super::told_events::ToldEvents;
use crate::leader::LeadershipGuard;

/// Reason of the condition and of the event.
const UNREADABLE: &str = "Unreadable";

/// By what it is told.
pub(crate) struct Teller<'a> {
    pub(crate) client: &'a Client,
    pub(crate) leadership: &'a LeadershipGuard,
    pub(crate) events: &'a ToldEvents,
    /// Counts the writes.
    pub(crate) writes: &'a Counter,
}

impl Teller<'_> {
    /// Makes the condition `type_` of the `K` of that name false with `message`, and tells it in an event; unless that stands there
    /// already, for an earlier leader has told it.
    pub(crate) async fn tell<K: Resource<DynamicType = ()>>(
        &self,
        name: &str,
        type_: &str,
        message: &str,
    ) -> Result<(), WriteError> {
        let resource = ApiResource::erase::<K>(&());
        let objects: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let Some(present) = objects.get_opt(name).await? else { return Ok(()) };
        if is_told(&present, type_, message) {
            return Ok(());
        }
        let condition = Condition {
            type_: type_.to_owned(),
            status: "False".to_owned(),
            reason: UNREADABLE.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(Timestamp::now()),
            observed_generation: None,
        };
        // The other conditions speak of an object that could be read.
        let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        let written =
            self.leadership.run(objects.patch_status(name, &PatchParams::default(), &patch)).await?;
        let object = match written {
            Err(kube::Error::Api(gone)) if gone.is_not_found() => return Ok(()),
            other => other?,
        };
        self.writes.inc();
        let event = event(false, UNREADABLE, message, "Read");
        self.events.tell(&event, &object.object_ref(&resource)).await;
        Ok(())
    }
}

/// Whether the object says so itself.
fn is_told(object: &DynamicObject, type_: &str, message: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == type_
            && condition["status"] == "False"
            && condition["reason"] == UNREADABLE
            && condition["message"] == message
    })
}

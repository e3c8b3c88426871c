//! Writes a decision into the request, on the condition that the request is still the one that was looked at.

use api::annotations::HUB_BOOTSTRAP_TOKEN;
use k8s_openapi::{
    api::{
        certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::events::{Event, EventType},
};
use serde_json::json;

use super::{
    observe::{Observed, Request},
    plan::{Decision, Entitled},
};
use crate::leader::{LeadershipGuard, NotLeading};

/// Who writes, in managed fields.
const FIELD_MANAGER: &str = "isthmus-hub-identity";

/// Why a decision was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    /// Another replica may lead by now.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The API server refused, or was not reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl ApplyError {
    /// Whether the request changed or is gone.
    pub(super) fn is_race(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if [404, 409].contains(&status.code))
    }
}

/// Writes the decision. What an operator allowed once is taken back first: if the second write fails, it is allowed anew by hand.
pub(super) async fn apply(
    client: &Client,
    leadership: &LeadershipGuard,
    request: &Request,
    node: &str,
    observed: &Observed,
    decision: Decision,
) -> Result<(), ApplyError> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    if decision == Decision::Approve(Entitled::Allowed) {
        let version = observed.node.as_ref().and_then(|node| node.resource_version.clone());
        let patch =
            json!({"metadata": {"resourceVersion": version, "annotations": {(HUB_BOOTSTRAP_TOKEN): null}}});
        let nodes = Api::<Node>::all(client.clone());
        leadership.run(nodes.patch_metadata(node, &params, &Patch::Merge(&patch))).await??;
    }
    let patch = patch(request, decision);
    let requests = Api::<CertificateSigningRequest>::all(client.clone());
    leadership.run(requests.patch_approval(&request.name, &params, &Patch::Merge(&patch))).await??;
    Ok(())
}

fn patch(request: &Request, decision: Decision) -> serde_json::Value {
    let (type_, reason, message) = words(decision);
    let condition = CertificateSigningRequestCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: None::<Time>,
        last_update_time: None,
    };
    let mut conditions = request.conditions.clone();
    conditions.push(condition);
    json!({
        "metadata": { "uid": request.uid, "resourceVersion": request.resource_version },
        "status": { "conditions": conditions },
    })
}

fn words(decision: Decision) -> (&'static str, &'static str, String) {
    match decision {
        Decision::Approve(entitled) => {
            ("Approved", entitled.reason(), "approved by isthmus-manager".to_owned())
        }
        Decision::Deny(refusal) => ("Denied", refusal.reason(), refusal.to_string()),
    }
}

/// What people are told.
pub(super) fn event(decision: Decision) -> Event {
    let (_, reason, message) = words(decision);
    let (type_, action) = match decision {
        Decision::Approve(_) => (EventType::Normal, "Approve"),
        Decision::Deny(_) => (EventType::Warning, "Deny"),
    };
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(message),
        action: action.to_owned(),
        secondary: None,
    }
}

//! `AdmissionReview` v1 on the wire.
//!
//! The objects inside stay raw JSON: nothing of a newer Kubernetes version may get lost. It must not decide anything.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use kube::core::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Why a body is not a request.
#[derive(Debug, Error)]
pub(super) enum ReviewError {
    #[error("the body is no {KIND}: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the body is a {kind:?} of {api_version:?}, not an {KIND} of {API_VERSION}")]
    Kind { api_version: String, kind: String },
    #[error("the {KIND} holds no request")]
    NoRequest,
    #[error("the request has no uid")]
    NoUid,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: Option<Request>,
}

/// What the API server asks.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) uid: String,
    pub(super) operation: Operation,
    #[serde(default)]
    name: String,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) user_info: UserInfo,
    #[serde(default)]
    pub(super) object: Value,
    /// What is to be changed or deleted.
    #[serde(default)]
    old_object: Value,
    #[serde(default)]
    pub(super) dry_run: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct UserInfo {
    #[serde(default)]
    pub(super) username: String,
}

impl Request {
    pub(super) fn from_json(body: &[u8]) -> Result<Self, ReviewError> {
        let Review { api_version, kind, request } = serde_json::from_slice(body)?;
        if api_version != API_VERSION || kind != KIND {
            return Err(ReviewError::Kind { api_version, kind });
        }
        let request = request.ok_or(ReviewError::NoRequest)?;
        if request.uid.is_empty() { Err(ReviewError::NoUid) } else { Ok(request) }
    }

    /// The object's name; for one that the API server has yet to name, what its name will start with. One of a collection
    /// that is deleted is named by itself only.
    pub(super) fn name(&self) -> &str {
        if !self.name.is_empty() {
            return &self.name;
        }
        let deleted = self.old_object.pointer("/metadata/name").and_then(Value::as_str);
        let prefix = || self.object.pointer("/metadata/generateName").and_then(Value::as_str);
        deleted.filter(|name| !name.is_empty()).or_else(prefix).unwrap_or_default()
    }
}

/// What the API server is told.
#[derive(Debug)]
pub(super) enum Answer {
    Allow { patch: Patch, warnings: Vec<String> },
    Refuse { message: String },
}

impl Answer {
    pub(super) fn allow() -> Self {
        Self::Allow { patch: Patch::default(), warnings: Vec::new() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewOut<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: ResponseOut<'a>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseOut<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The response to the request `uid`.
pub(super) fn response(uid: &str, answer: Answer) -> Response {
    let response = match answer {
        Answer::Refuse { message } => {
            ResponseOut { uid, status: Some(forbidden(&message)), ..ResponseOut::default() }
        }
        Answer::Allow { patch, warnings } if patch.is_empty() => {
            ResponseOut { uid, allowed: true, warnings, ..ResponseOut::default() }
        }
        Answer::Allow { patch, warnings } => ResponseOut {
            uid,
            allowed: true,
            patch: Some(STANDARD.encode(patch.to_string())),
            patch_type: Some("JSONPatch"),
            warnings,
            status: None,
        },
    };
    Json(ReviewOut { api_version: API_VERSION, kind: KIND, response }).into_response()
}

fn forbidden(message: &str) -> Status {
    Status::failure(message, "Forbidden").with_code(StatusCode::FORBIDDEN.as_u16())
}

/// What the API server shows of a request that has no answer.
pub(super) fn status(code: u16, message: &str) -> Json<Value> {
    Json(serde_json::json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": message, "code": code
    }))
}

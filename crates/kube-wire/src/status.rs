//! The API server's errors as values: constructors for every answer the contract names, with the API server's words, and the
//! bodies in JSON and protobuf. It decides nothing; no clock, no `Retry-After` of its own.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{resource::GroupVersionResource, resource_version::ResourceVersion};

mod body;
mod field_error;

pub use field_error::FieldError;

/// A `meta/v1` Status: what the API server answers instead of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(default, rename_all = "camelCase")]
#[error("{code} {reason}: {message}")]
pub struct Status {
    /// Metadata of the list that was asked for: the token to go on with, after status 410.
    pub metadata: StatusMetadata,
    /// `Success` or `Failure`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// What went wrong, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What went wrong, for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<StatusDetails>>,
    /// The HTTP status code.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u16,
}

/// `metadata` of a Status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusMetadata {
    /// The token to go on with.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

/// What a Status is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The kind, or the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The identity of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One entry for each thing that went wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// After how many seconds to try again; 0 if nothing is said.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u16,
}

/// One thing that went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// What, for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field that caused it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// The cause by which clients tell "not yet" from other timeouts.
const TOO_LARGE: &str = "ResourceVersionTooLarge";

impl Status {
    fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.to_owned(),
            code,
            ..Self::default()
        }
    }

    fn about(self, resource: &GroupVersionResource, name: &str) -> Self {
        let details = StatusDetails {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..StatusDetails::default()
        };
        Self { details: Some(Box::new(details)), ..self }
    }

    fn retry_after(mut self, seconds: u16) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// 400: the request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// 401: the caller has no valid credential.
    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized")
    }

    /// 403: the caller may not; `why` says what, as in `User "a" cannot list resource "pods" in API group "" …`.
    pub fn forbidden(resource: &GroupVersionResource, name: &str, why: &str) -> Self {
        let message = if resource.resource.is_empty() && resource.group.is_empty() {
            format!("forbidden: {why}")
        } else {
            format!("{} is forbidden: {why}", named(resource, name))
        };
        Self::failure(403, "Forbidden", message).about(resource, name)
    }

    /// 404: there is no such object.
    pub fn not_found(resource: &GroupVersionResource, name: &str) -> Self {
        Self::failure(404, "NotFound", format!("{} not found", named(resource, name))).about(resource, name)
    }

    /// 404: there is no such path.
    pub fn no_such_path() -> Self {
        let status = Self::failure(404, "NotFound", "the server could not find the requested resource");
        Self { details: Some(Box::default()), ..status }
    }

    /// 405: the resource has no such verb.
    pub fn method_not_allowed(resource: &GroupVersionResource, verb: &str) -> Self {
        let kind = crate::quoting::quoted(&qualified(resource));
        Self::failure(405, "MethodNotAllowed", format!("{verb} is not supported on resources of kind {kind}"))
            .about(resource, "")
    }

    /// 406: none of the offered media types is accepted.
    pub fn not_acceptable(offered: &[&str]) -> Self {
        let offered = offered.join(", ");
        Self::failure(406, "NotAcceptable", format!("only the following media types are accepted: {offered}"))
    }

    /// 406: the path has routes, and they give these media types only.
    pub fn no_route(given: &[&str]) -> Self {
        let given = given.join(", ");
        let message = format!("406: Not Acceptable\n\nAvailable representations: {given}");
        Self { details: Some(Box::default()), ..Self::failure(406, "NotAcceptable", message) }
    }

    /// 406 in other words: the representation does not fit what was asked for.
    pub fn not_representable(message: impl Into<String>) -> Self {
        Self::failure(406, "NotAcceptable", message)
    }

    /// 410: the version that was asked for is no longer known.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }

    /// 410 in a watch: the history does not reach back to `asked`, only to `oldest`.
    pub fn too_old(asked: ResourceVersion, oldest: ResourceVersion) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    /// 410 to a list at exactly some version.
    pub fn list_expired() -> Self {
        Self::expired("The resourceVersion for the provided list is too old.")
    }

    /// 410 to a page: `token` goes on at the most recent version, if the client will.
    pub fn continue_expired(token: String) -> Self {
        let status = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
             the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
             Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
             deleted between the time the first chunk was returned and now may show up in the list.",
        );
        Self { metadata: StatusMetadata { continue_token: token }, ..status }
    }

    /// 415: the request's body is of an unknown type.
    pub fn unsupported_media_type(offered: &[&str]) -> Self {
        let offered = offered.join(", ");
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {offered}"
        );
        Self::failure(415, "UnsupportedMediaType", message)
    }

    /// 422: fields of `kind` are invalid.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let words = field_error::aggregate(errors);
        let quoted = crate::quoting::quoted(name);
        let status = Self::failure(422, "Invalid", format!("{qualified} {quoted} is invalid: {words}"));
        let details = StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes: errors.iter().map(FieldError::cause).collect(),
            ..StatusDetails::default()
        };
        Self { details: Some(Box::new(details)), ..status }
    }

    /// 429: not ready yet; `retry_after` in seconds, 0 to say nothing of it.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u16) -> Self {
        Self::failure(429, "TooManyRequests", message).retry_after(retry_after)
    }

    /// 429: nothing complete is held of the resource yet.
    pub fn not_ready(retry_after: u16) -> Self {
        Self::too_many_requests("storage is (re)initializing", retry_after)
    }

    /// 500 without a reason: an error that the API server does not translate.
    pub fn untranslated(message: impl Into<String>) -> Self {
        Self::failure(500, "", message)
    }

    /// 500: something that should not happen did.
    pub fn internal_error(message: &str) -> Self {
        let mut status = Self::failure(500, "InternalError", format!("Internal error occurred: {message}"));
        let cause = StatusCause { message: message.to_owned(), ..StatusCause::default() };
        status.details.get_or_insert_default().causes.push(cause);
        status
    }

    /// 503: nobody can answer now. It carries no `Retry-After`, so that clients fail at once.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message)
    }

    /// 504: there was no answer in time, and what was asked for may have been done. It carries no `Retry-After`, as nobody is to repeat it unseen.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::failure(504, "Timeout", message)
    }

    /// 504: `asked` has not been seen yet; the most recent known is `current`.
    pub fn too_large(asked: ResourceVersion, current: Option<ResourceVersion>) -> Self {
        let current = current.map_or(0, ResourceVersion::get);
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut status = Self::failure(504, "Timeout", message).retry_after(1);
        status.details.get_or_insert_default().causes = vec![StatusCause {
            reason: TOO_LARGE.to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }];
        status
    }

    /// Whether it says that the version that was asked for is no longer known: the client must list again.
    pub fn is_expired(&self) -> bool {
        self.code == 410 || self.reason == "Expired" || self.reason == "Gone"
    }

    /// Whether it says that the version that was asked for is not known yet.
    pub fn is_too_large(&self) -> bool {
        self.details
            .as_ref()
            .is_some_and(|details| details.causes.iter().any(|cause| cause.reason == TOO_LARGE))
    }

    /// For the header `Retry-After`, which the API server sets from the details.
    pub fn retry_after_seconds(&self) -> Option<u16> {
        self.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }
}

/// `services "a"`, `widgets.example.com "a"`, or without the name.
fn named(resource: &GroupVersionResource, name: &str) -> String {
    let qualified = qualified(resource);
    if name.is_empty() { qualified } else { format!("{qualified} {}", crate::quoting::quoted(name)) }
}

fn qualified(resource: &GroupVersionResource) -> String {
    if resource.group.is_empty() {
        resource.resource.to_string()
    } else {
        format!("{}.{}", resource.resource, resource.group)
    }
}

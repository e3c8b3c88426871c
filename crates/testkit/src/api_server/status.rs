//! The API server's errors: status codes and bodies, in its words.

use std::fmt;

use serde_json::{Value, json};

/// A `Status` that is an error.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// The body.
    pub body: Value,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.body["message"].as_str().unwrap_or_default())
    }
}

impl std::error::Error for Status {}

/// Results of requests.
pub type Answer<T> = Result<T, Box<Status>>;

// Answers hold it boxed, so it is made so.
#[allow(clippy::unnecessary_box_returns)]
impl Status {
    /// An error with a message and a reason, if it has one.
    pub fn new(code: u16, reason: &str, message: &str) -> Box<Self> {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code,
        });
        if !reason.is_empty() {
            body["reason"] = reason.into();
        }
        Box::new(Self { code, body })
    }

    fn with_details(mut self: Box<Self>, details: Value) -> Box<Self> {
        self.body["details"] = details;
        self
    }

    fn about(code: u16, reason: &str, group: &str, resource: &str, name: &str, message: &str) -> Box<Self> {
        let mut details = json!({"name": name, "kind": resource});
        if !group.is_empty() {
            details["group"] = group.into();
        }
        Self::new(code, reason, message).with_details(details)
    }

    /// 400.
    pub fn bad_request(message: &str) -> Box<Self> {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Box<Self> {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403.
    pub fn forbidden(
        user: &str,
        verb: &str,
        group: &str,
        resource: &str,
        name: &str,
        namespace: Option<&str>,
    ) -> Box<Self> {
        let id = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let object = if name.is_empty() { id } else { format!("{id} {name:?}") };
        let scope =
            namespace.map_or("at the cluster scope".to_owned(), |ns| format!("in the namespace {ns:?}"));
        let message = format!(
            "{object} is forbidden: User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}"
        );
        let mut status = Self::about(403, "Forbidden", group, resource, name, &message);
        if name.is_empty()
            && let Some(details) = status.body["details"].as_object_mut()
        {
            details.remove("name");
        }
        status
    }

    /// 404 of an object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Box<Self> {
        let id = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        Self::about(404, "NotFound", group, resource, name, &format!("{id} {name:?} not found"))
    }

    /// 404 of a resource within a group that is there.
    pub fn no_such_resource() -> Box<Self> {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    /// 405.
    pub fn method_not_allowed() -> Box<Self> {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_details(json!({}))
    }

    /// 406.
    pub fn not_acceptable(message: &str) -> Box<Self> {
        Self::new(406, "NotAcceptable", message)
    }

    /// 406 where there is no route that gives what is accepted.
    pub fn no_route(message: &str) -> Box<Self> {
        Self::not_acceptable(message).with_details(json!({}))
    }

    /// 409 of a create.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Box<Self> {
        let id = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        Self::about(409, "AlreadyExists", group, resource, name, &format!("{id} {name:?} already exists"))
    }

    /// 409 of an update.
    pub fn conflict(group: &str, resource: &str, name: &str) -> Box<Self> {
        let id = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let message = format!(
            "Operation cannot be fulfilled on {id} {name:?}: the object has been modified; please apply your changes to the latest version and try again"
        );
        Self::about(409, "Conflict", group, resource, name, &message)
    }

    /// 410 of a list, with the token to go on with, if there was a token.
    pub fn expired_list(token: Option<String>) -> Box<Self> {
        let message = if token.is_some() {
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
        } else {
            "The resourceVersion for the provided list is too old."
        };
        let mut status = Self::new(410, "Expired", message);
        if let Some(token) = token {
            status.body["metadata"]["continue"] = token.into();
        }
        status
    }

    /// 410 of a watch.
    pub fn expired_watch(asked: u64, oldest: u64) -> Box<Self> {
        Self::new(410, "Expired", &format!("too old resource version: {asked} ({oldest})"))
    }

    /// 415.
    pub fn unsupported_media_type(message: &str) -> Box<Self> {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 422 of the options of a list or watch: (reason, field, message) of each cause.
    pub fn invalid_options(causes: &[(&str, &str, String)]) -> Box<Self> {
        let said: Vec<_> = causes.iter().map(|(_, field, message)| format!("{field}: {message}")).collect();
        let said = if let [one] = said.as_slice() { one.clone() } else { format!("[{}]", said.join(", ")) };
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {said}");
        let cause = |(reason, field, message): &(&str, &str, String)| json!({"reason": reason, "message": message, "field": field});
        let causes: Vec<_> = causes.iter().map(cause).collect();
        Self::new(422, "Invalid", &message)
            .with_details(json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes}))
    }

    /// 422 of an object.
    pub fn invalid_object(message: &str) -> Box<Self> {
        Self::new(422, "Invalid", message)
    }

    /// 504 of a version that is not reached in time.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Box<Self> {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", &message).with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }

    /// The same without a time to come again.
    pub(crate) fn without_retry(mut self: Box<Self>) -> Box<Self> {
        if let Some(details) = self.body["details"].as_object_mut() {
            details.remove("retryAfterSeconds");
        }
        self
    }

    /// The seconds of its `Retry-After`, if it has one.
    pub fn retry_after(&self) -> Option<u64> {
        self.body["details"]["retryAfterSeconds"].as_u64()
    }
}

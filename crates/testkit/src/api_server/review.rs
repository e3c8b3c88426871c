//! Requests that store nothing: who somebody is, what they may, and a token of theirs.

use http::Method;
use serde_json::Value;

use super::Server;
use super::access::User;
use super::answer::{Question, attributes};
use super::path::ObjectPath;
use super::status::{Answer, Status};

/// The answer to requests that store nothing, if this is one.
pub(super) fn review(
    server: &Server,
    question: &Question,
    path: &ObjectPath,
    user: &User,
) -> Option<Answer<Value>> {
    let access = server.cluster.access();
    let token = path.resource == "serviceaccounts" && path.subresource == "token";
    let group = path.group.as_str();
    let review = matches!(
        (group, path.resource.as_str()),
        ("authentication.k8s.io", "tokenreviews")
            | ("authorization.k8s.io", "subjectaccessreviews" | "selfsubjectaccessreviews")
    );
    if question.method != Method::POST || !(token || review) {
        return None;
    }
    let decide = || {
        let attributes = attributes(user, "create", Some(path), question);
        // Everybody may ask about themselves (system:basic-user).
        if path.resource != "selfsubjectaccessreviews" && !access.allows(&attributes) {
            return Err(Status::forbidden(
                &user.name,
                "create",
                group,
                &path.resource,
                "",
                path.namespace.as_deref(),
            ));
        }
        let request = question.json()?;
        if token {
            let namespace = path.namespace.as_deref().unwrap_or_default();
            return access.token_request(namespace, path.name.as_deref().unwrap_or_default(), &request);
        }
        access.review(&path.resource, user, &request).ok_or_else(Status::no_such_resource)
    };
    Some(decide())
}

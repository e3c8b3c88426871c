//! Asking the API server: with the caller's own token where there is one, on behalf of a certificate's user otherwise.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use tls::digest::Sha256Digest;

use super::Attributes;
use crate::{
    authenticate::{Token, User},
    upstream::{
        Credential, Upstream,
        json::{JsonError, post},
    },
};

/// Whose access is in question.
#[derive(Debug, Clone)]
pub enum Subject {
    /// The node, with the hub's certificate.
    Node {
        /// `system:node:<name>`.
        name: Box<str>,
    },
    /// The owner of a token; it asks for itself.
    Token {
        /// Who that is.
        user: Arc<User>,
        /// The token.
        token: Token,
    },
    /// The owner of a client certificate; the hub asks about it.
    Certificate(Arc<User>),
}

impl Subject {
    /// The user's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Node { name } => name,
            Self::Token { user, .. } | Self::Certificate(user) => &user.name,
        }
    }

    /// The groups that its credential names; the node's are always the same.
    pub(super) fn groups(&self) -> &[Box<str>] {
        match self {
            Self::Node { .. } => &[],
            Self::Token { user, .. } | Self::Certificate(user) => &user.groups,
        }
    }

    /// What tells its credential from others of the same user, if it asks with one of its own.
    pub(super) fn credential_digest(&self) -> Option<Sha256Digest> {
        match self {
            Self::Token { token, .. } => Some(token.digest()),
            Self::Node { .. } | Self::Certificate(_) => None,
        }
    }
}

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error(transparent)]
    Request(#[from] JsonError),
    #[error("the review has no answer")]
    Empty,
}

impl ReviewError {
    /// Whether the API server does not take the caller's credential.
    pub(super) fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Request(JsonError::Status(StatusCode::UNAUTHORIZED)))
    }

    /// Whether the API server could not answer just now.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_passing())
    }

    /// Whether it is one that says nothing of the link: the API server said that it cannot answer, or said nothing in time.
    pub(super) fn is_undecided(&self) -> bool {
        self.is_passing() || matches!(self, Self::Request(JsonError::Deadline))
    }
}

/// Whether the API server allows it.
pub(super) async fn ask(
    upstream: &Upstream,
    subject: &Subject,
    attributes: &Attributes,
) -> Result<bool, ReviewError> {
    let (kind, credential, user) = match subject {
        Subject::Node { .. } => ("SelfSubjectAccessReview", Credential::Node, None),
        Subject::Token { token, .. } => ("SelfSubjectAccessReview", token.credential(), None),
        Subject::Certificate(user) => ("SubjectAccessReview", Credential::Node, Some(user)),
    };
    let path = format!("/apis/authorization.k8s.io/v1/{}s", kind.to_lowercase());
    let answer = post(upstream, &credential, &path, &review(kind, attributes, user)).await?;
    answer["status"]["allowed"].as_bool().ok_or(ReviewError::Empty)
}

fn review(kind: &str, attributes: &Attributes, user: Option<&Arc<User>>) -> Value {
    let Attributes { verb, group, version, resource, namespace, name, labels, fields } = attributes;
    let mut named = json!({ "verb": verb, "group": group, "version": version, "resource": resource });
    for (field, value) in [("namespace", namespace), ("name", name)] {
        if !value.is_empty() {
            named[field] = json!(value);
        }
    }
    for (field, value) in [("labelSelector", labels), ("fieldSelector", fields)] {
        if !value.is_empty() {
            named[field] = json!({ "rawSelector": value });
        }
    }
    let mut spec = json!({ "resourceAttributes": named });
    if let Some(user) = user {
        spec["user"] = json!(user.name);
        spec["groups"] = json!(user.groups);
    }
    json!({ "apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::UpstreamError;

    #[test]
    fn only_what_the_api_server_leaves_open_is_undecided() {
        let status = |code| JsonError::Status(StatusCode::from_u16(code).unwrap());
        for (error, expected) in [
            (JsonError::Deadline, true),
            (status(429), true),
            (status(503), true),
            (status(401), false),
            (JsonError::Upstream(UpstreamError::Offline("cut".to_owned())), false),
            (JsonError::Upstream(UpstreamError::Broken("reset".into())), false),
        ] {
            let error = ReviewError::from(error);
            assert_eq!(error.is_undecided(), expected, "{error}");
        }
    }

    #[test]
    fn a_review_names_what_is_read_and_for_whom() {
        let attributes = Attributes {
            verb: "list".into(),
            group: "".into(),
            version: "v1".into(),
            resource: "pods".into(),
            namespace: "".into(),
            name: "".into(),
            labels: "".into(),
            fields: "spec.nodeName=a".into(),
        };
        let user = Arc::new(User { name: "u".into(), groups: vec!["g".into()] });
        let expected = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "u",
                "groups": ["g"],
                "resourceAttributes": {
                    "verb": "list", "group": "", "version": "v1", "resource": "pods",
                    "fieldSelector": { "rawSelector": "spec.nodeName=a" },
                },
            },
        });
        assert_eq!(review("SubjectAccessReview", &attributes, Some(&user)), expected);
        let own = review("SelfSubjectAccessReview", &attributes, None);
        assert_eq!(own["spec"].as_object().map(serde_json::Map::len), Some(1), "it names no user");
    }
}

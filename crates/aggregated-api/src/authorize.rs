//! What a caller may do: what an authorizer is told, and what it says. [`DelegatingAuthorizer`] asks the API server.

use futures::future::BoxFuture;
use kube_wire::{request::RequestInfo, selector_requirements::SelectorRequirements};

use crate::authenticate::User;

mod delegating;

pub(crate) use delegating::path_verb;
pub use delegating::{AccessReviewer, DelegatingAuthorizer};

/// What somebody wants to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Who.
    pub user: User,
    /// What.
    pub request: RequestInfo,
    /// Of which objects alone: who may not read all may read those of a node.
    pub selectors: SelectorRequirements,
}

/// Whether they may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// They may.
    Allowed,
    /// They may not; why, if it is known.
    Denied(String),
}

/// There was nobody to ask: status 500, as the API server says.
#[derive(Debug, thiserror::Error)]
#[error("cannot find out what the caller may do")]
pub struct AuthorizationError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Decides what callers may do.
pub trait Authorizer: Send + Sync + 'static {
    /// Whether this is allowed.
    fn authorize<'a>(
        &'a self,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, AuthorizationError>>;
}

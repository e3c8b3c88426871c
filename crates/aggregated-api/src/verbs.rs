//! The verbs of a resource: a request that was authenticated and authorized in, an answer out.

use std::sync::Arc;

use http::HeaderMap;
use kube_wire::{
    object::Object,
    request::{ResourcePath, Verb},
    resource::ObjectKey,
    status::Status,
};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use watch_cache::Scope;

use crate::{
    answer::{refusal, warn},
    authenticate::User,
    served::Served,
    storage::{Intent, StorageError},
};

mod admit;
mod delete;
mod patch;
mod read;
mod watch;
mod write;

/// A request for a resource, its body read.
pub(crate) struct Call<'a> {
    pub(crate) served: &'a Arc<Served>,
    pub(crate) path: &'a ResourcePath,
    pub(crate) query: &'a str,
    pub(crate) user: &'a User,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// What to warn of, whatever the answer.
    pub(crate) warnings: &'a Mutex<Vec<String>>,
}

impl Call<'_> {
    /// The namespace of the path; empty without one.
    fn namespace(&self) -> &str {
        self.path.namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }

    fn scope(&self) -> Scope {
        match self.path.namespace.as_deref() {
            Some(namespace) if self.served.info.namespaced => Scope::Namespace(namespace.into()),
            _ => Scope::Cluster,
        }
    }

    /// `status`, or nothing.
    fn subresource(&self) -> &str {
        self.path.subresource.as_deref().unwrap_or_default()
    }

    fn is_status(&self) -> bool {
        self.subresource() == "status"
    }

    /// Whether the storage lets the caller change the object, or its status if that is what the path is of.
    fn admit_update(&self) -> Result<(), StorageError> {
        let intent = if self.is_status() { Intent::UpdateStatus } else { Intent::Update };
        self.served.storage.admit(self.user, &self.key(), intent)
    }

    /// What the storage said, as a status.
    fn status(&self, error: StorageError) -> Status {
        match error {
            // Whoever could wait for it has done so.
            StorageError::Behind { current } => Status::too_large(current, Some(current)),
            StorageError::Expired { .. } => Status::list_expired(),
            StorageError::Conflict => self.served.conflict(
                self.name(),
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            StorageError::Unavailable { message, retry_after } => unavailable(message, retry_after),
            StorageError::Refused(status) => *status,
        }
    }

    /// The object now; status 404 without one.
    async fn current(&self) -> Result<Arc<Object>, Status> {
        self.existing(self.served.storage.get(&self.key()).await)
    }

    /// The same for a write.
    async fn current_to_write(&self) -> Result<Arc<Object>, Status> {
        self.existing(self.served.storage.get_to_write(&self.key()).await)
    }

    fn existing(&self, found: Result<Option<Arc<Object>>, StorageError>) -> Result<Arc<Object>, Status> {
        found.map_err(|error| self.status(error))?.ok_or_else(|| self.served.not_found(self.name()))
    }
}

/// Status 503 that says when to try again.
fn unavailable(message: String, retry_after: u16) -> Status {
    let mut status = Status::service_unavailable(message);
    if retry_after > 0 {
        status.details.get_or_insert_default().retry_after_seconds = retry_after;
    }
    status
}

/// The members of a stored object.
fn members(object: &Object) -> Result<Map<String, Value>, Status> {
    serde_json::from_slice(object.body()).map_err(|error| Status::internal_error(&error.to_string()))
}

/// Answers a request. `None` if there is no such path, which is no status.
pub(crate) async fn answer(verb: Verb, call: &Call<'_>) -> Option<axum::response::Response> {
    let served = call.served;
    let across = matches!(verb, Verb::List | Verb::Watch);
    let namespaced = call.path.namespace.is_some();
    if namespaced != served.info.namespaced && (namespaced || !across) {
        return None;
    }
    if let Some(subresource) = call.path.subresource.as_deref()
        && !(subresource == "status" && served.info.status)
    {
        return Some(refusal(call.headers, call.query, &served.not_found(call.name())));
    }
    let result = match verb {
        Verb::Get | Verb::Update | Verb::Patch if served.can(verb) => {
            match (verb, call.path.name.is_some()) {
                (_, false) => Err(Status::bad_request("name must be provided")),
                (Verb::Get, _) => read::get(call).await,
                (Verb::Update, _) => write::update(call).await,
                _ => patch::patch(call).await,
            }
        }
        // The status alone is neither made nor removed.
        _ if call.is_status() => Err(not_allowed(call, verb)),
        Verb::List if served.can(verb) => read::list(call).await,
        Verb::Watch if served.can(verb) => watch::watch(call).await,
        Verb::Create if served.can(verb) => write::create(call).await,
        Verb::Delete if served.can(verb) => delete::delete(call).await,
        Verb::DeleteCollection if served.can(verb) => delete::delete_collection(call).await,
        _ => Err(not_allowed(call, verb)),
    };
    let mut response = result.unwrap_or_else(|status| refusal(call.headers, call.query, &status));
    warn(response.headers_mut(), &call.warnings.lock());
    Some(response)
}

fn not_allowed(call: &Call<'_>, verb: Verb) -> Status {
    Status::method_not_allowed(&call.served.resource, verb_name(verb))
}

/// A verb as authorization calls it.
pub(crate) fn verb_name(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Watch => "watch",
        Verb::Create => "create",
        Verb::Update => "update",
        Verb::Patch => "patch",
        Verb::Delete => "delete",
        Verb::DeleteCollection => "deletecollection",
        Verb::Other => "",
    }
}

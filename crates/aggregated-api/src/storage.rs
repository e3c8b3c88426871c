//! Where the objects of a resource are: what this crate asks, and of what it takes the answers to be true.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use kube_wire::{
    list_options::{ListRequest, WatchRequest},
    object::{MalformedObject, Object},
    resource::ObjectKey,
    resource_version::ResourceVersion,
    status::Status,
};
use serde_json::{Map, Value};
use tokio::sync::watch;
use watch_cache::{Delivery, Page, Scope};

/// The objects of one resource.
///
/// Resource versions are of the whole storage: every write gets one above all before it, and a list has that of its last write.
/// Objects handed out are JSON with `apiVersion` and `kind`.
pub trait Storage: Send + Sync + 'static {
    /// The object now, if there is one.
    fn get<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Option<Arc<Object>>, StorageError>>;

    /// A list. [`StorageError::Behind`] is waited out by the caller, with [`Storage::reached`].
    fn list<'a>(
        &'a self,
        scope: &'a Scope,
        request: &'a ListRequest,
    ) -> BoxFuture<'a, Result<Page, StorageError>>;

    /// Begins a watch. [`StorageError::Behind`] is waited out by the caller.
    fn watch<'a>(
        &'a self,
        scope: &'a Scope,
        request: &'a WatchRequest,
    ) -> BoxFuture<'a, Result<Box<dyn Watcher>, StorageError>>;

    /// The version that the storage is at. The sender lives as long as the storage.
    fn version(&self) -> watch::Receiver<u64>;

    /// Waits until the storage is at `version` or above; for ever, if it never comes so far. Cancelling is safe.
    fn reached(&self, version: ResourceVersion) -> BoxFuture<'_, ()> {
        let mut reached = self.version();
        async move {
            // An error means that the sender is gone, and with it the storage.
            let _ = reached.wait_for(|current| *current >= version.get()).await;
        }
        .boxed()
    }

    /// Stores an object under a new resource version, if what is there is as `expected`; returns what was stored.
    /// [`StorageError::Conflict`] if not.
    fn write<'a>(
        &'a self,
        key: &'a ObjectKey,
        expected: Expected,
        object: Draft,
    ) -> BoxFuture<'a, Result<Arc<Object>, StorageError>>;

    /// Removes the object of exactly this version; returns its last state, under the version of its removal.
    fn remove<'a>(
        &'a self,
        key: &'a ObjectKey,
        expected: ResourceVersion,
    ) -> BoxFuture<'a, Result<Arc<Object>, StorageError>>;
}

/// One watch of one client. Dropping it ends it.
pub trait Watcher: Send {
    /// What happened next: at least one delivery, waiting until there is one. Cancelling is safe: nothing is lost.
    /// [`StorageError::Expired`] ends the watch with status 410; so does any other error with its own.
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Delivery>, StorageError>>;

    /// Everything up to this version was told, or was not to be seen: what a bookmark may say. `None` while that is not so, as
    /// before the end of the initial state.
    fn told(&self) -> Option<ResourceVersion>;
}

/// What must be there for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Absent,
    /// An object of this version.
    Version(ResourceVersion),
}

/// Why a storage did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// It has not come to the version that is asked for.
    #[error("at version {current} only")]
    Behind {
        /// How far it has come.
        current: ResourceVersion,
    },
    /// Its history does not reach back to the version that is asked for.
    #[error("too old resource version: {asked} ({oldest})")]
    Expired {
        /// What was asked for.
        asked: ResourceVersion,
        /// How far it reaches.
        oldest: ResourceVersion,
    },
    /// What is there is not as expected. The caller reads again and decides.
    #[error("another write came first")]
    Conflict,
    /// It does not hold everything yet, or no longer: status 503 with this message, and `Retry-After` in seconds.
    #[error("{message}")]
    Unavailable {
        /// For people.
        message: String,
        /// After how many seconds to try again; 0 to say nothing of it.
        retry_after: u16,
    },
    /// It has an answer of its own: what it refuses, in the words of the API.
    #[error(transparent)]
    Refused(Box<Status>),
}

/// An object that is about to be stored: complete but for its resource version.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft(pub Map<String, Value>);

impl Draft {
    /// The object under its resource version, encoded once.
    pub fn into_object(self, version: ResourceVersion) -> Result<Arc<Object>, MalformedObject> {
        let Self(mut object) = self;
        if let Some(metadata) =
            object.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
        {
            metadata.insert("resourceVersion".to_owned(), version.to_string().into());
        }
        let body =
            serde_json::to_vec(&object).map_err(|error| MalformedObject::Undecodable(error.to_string()))?;
        Object::from_json(body.into()).map(Arc::new)
    }
}

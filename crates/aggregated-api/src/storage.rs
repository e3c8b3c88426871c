//! Where the objects of a resource are: what this crate asks, and of what it takes the answers to be true.

use std::{fmt, sync::Arc};

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
use watch_cache::{Delivery, Scope};

use crate::authenticate::User;

/// The objects of one resource.
///
/// Resource versions are of the whole storage: every write gets one above all before it, and a list has that of its last write.
/// Objects handed out are JSON with `apiVersion` and `kind`.
pub trait Storage: Send + Sync + 'static {
    /// The object now, if there is one.
    fn get<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Option<Arc<Object>>, StorageError>>;

    /// The object as a write is computed from it. A storage that takes writes while it may not be read gives it to those who write.
    fn get_to_write<'a>(
        &'a self,
        key: &'a ObjectKey,
    ) -> BoxFuture<'a, Result<Option<Arc<Object>>, StorageError>> {
        self.get(key)
    }

    /// A list, all of one version. [`StorageError::Behind`] is waited out by the caller, with [`Storage::reached`].
    fn list<'a>(
        &'a self,
        scope: &'a Scope,
        request: &'a ListRequest,
    ) -> BoxFuture<'a, Result<Page, StorageError>>;

    /// Begins a watch of `user`. [`StorageError::Behind`] is waited out by the caller.
    fn watch<'a>(
        &'a self,
        user: &'a User,
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

    /// Whether the storage lets `user` do that to the object, by what it alone knows: asked before each write that was authorized, and of trials (`dryRun`),
    /// which come no further. Everybody may, unless a storage says otherwise.
    fn admit(&self, _user: &User, _key: &ObjectKey, _intent: Intent) -> Result<(), StorageError> {
        Ok(())
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

/// Some objects of one version.
pub struct Page {
    /// The objects, in the order of their keys.
    pub objects: Box<dyn Objects>,
    /// The version of the list: of all its pages the same.
    pub resource_version: ResourceVersion,
    /// `metadata.continue`, if there are more objects.
    pub continue_token: Option<String>,
    /// `metadata.remainingItemCount`: how many objects come after this page; only without selectors, as the API server does.
    pub remaining: Option<u64>,
}

/// The objects of a list. Each is asked for when its turn to be sent comes, so a storage may make it then, and need not hold a long list
/// whole for a client that reads slowly. Whatever happens meanwhile, they are those of the list's version.
pub trait Objects: Send + Sync + 'static {
    /// How many there are.
    fn count(&self) -> usize;

    /// One of them, from 0. An error breaks off the answer, if it has begun.
    fn object(&self, index: usize) -> Result<Arc<Object>, StorageError>;

    /// The same for who asks neither for it nor for those before it again: what they need may be let go.
    fn take(&self, index: usize) -> Result<Arc<Object>, StorageError> {
        self.object(index)
    }
}

impl Objects for Vec<Arc<Object>> {
    fn count(&self) -> usize {
        self.len()
    }

    fn object(&self, index: usize) -> Result<Arc<Object>, StorageError> {
        let found = self.get(index).map(Arc::clone);
        found.ok_or_else(|| StorageError::Refused(Box::new(Status::internal_error("no such object"))))
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, resource_version, continue_token: _, remaining } = self;
        let count = objects.count();
        f.debug_struct("Page")
            .field("count", &count)
            .field("resource_version", resource_version)
            .field("remaining", remaining)
            .finish_non_exhaustive()
    }
}

impl Page {
    /// The objects, one by one, each made when it is come to.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = Result<Arc<Object>, StorageError>> {
        (0..self.objects.count()).map(|index| self.objects.object(index))
    }

    /// The same, for who sends them.
    pub fn into_objects(
        self,
    ) -> impl ExactSizeIterator<Item = Result<Arc<Object>, StorageError>> + Send + 'static {
        let objects = self.objects;
        (0..objects.count()).map(move |index| objects.take(index))
    }
}

impl From<watch_cache::Page> for Page {
    fn from(page: watch_cache::Page) -> Self {
        let watch_cache::Page { objects, resource_version, continue_token, remaining } = page;
        Self { objects: Box::new(objects), resource_version, continue_token, remaining }
    }
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

/// What a request means to do to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Make it.
    Create,
    /// Change it, but for its status where that has a path of its own.
    Update,
    /// Change its status.
    UpdateStatus,
    /// Take it away, or begin to.
    Remove,
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

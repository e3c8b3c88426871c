//! NodeLoads as an aggregated API reads them: they follow from reports, so nobody writes them.

use std::sync::Arc;

use aggregated_api::{Draft, Expected, Page, Storage, StorageError, User, Watcher};
use futures::future::{self, BoxFuture, FutureExt};
use kube_wire::list_options::{ListRequest, WatchRequest};
use kube_wire::object::Object;
use kube_wire::resource::ObjectKey;
use kube_wire::resource_version::ResourceVersion;
use kube_wire::status::Status;
use tokio::sync::watch;
use watch_cache::Scope;

use super::NodeMetrics;
use super::kind::Load;

/// The NodeLoads of [`NodeMetrics`] as a storage that takes no writes.
#[derive(Clone, Debug)]
pub struct NodeLoadStorage(pub Arc<NodeMetrics>);

impl Storage for NodeLoadStorage {
    fn get<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Option<Arc<Object>>, StorageError>> {
        future::ready(self.0.get_now::<Load>(key)).boxed()
    }

    fn list<'a>(
        &'a self,
        _scope: &'a Scope,
        request: &'a ListRequest,
    ) -> BoxFuture<'a, Result<Page, StorageError>> {
        self.0.page::<Load>(request).boxed()
    }

    fn watch<'a>(
        &'a self,
        user: &'a User,
        _scope: &'a Scope,
        request: &'a WatchRequest,
    ) -> BoxFuture<'a, Result<Box<dyn Watcher>, StorageError>> {
        future::ready(self.0.begin::<Load>(user, request)).boxed()
    }

    fn version(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    fn write<'a>(
        &'a self,
        _key: &'a ObjectKey,
        _expected: Expected,
        _object: Draft,
    ) -> BoxFuture<'a, Result<Arc<Object>, StorageError>> {
        future::ready(Err(read_only())).boxed()
    }

    fn remove<'a>(
        &'a self,
        _key: &'a ObjectKey,
        _expected: ResourceVersion,
    ) -> BoxFuture<'a, Result<Arc<Object>, StorageError>> {
        future::ready(Err(read_only())).boxed()
    }
}

fn read_only() -> StorageError {
    StorageError::Refused(Box::new(Status::bad_request(
        "NodeLoads follow from reports and are not written".to_owned(),
    )))
}

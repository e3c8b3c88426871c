//! The watches that fill the controller's indexes, and wake it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use api::labels;
use api::names::{MANAGER, NAMESPACE};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::Context;
use crate::watches::{self, Index};

/// Watches all that is in the context but nodes and pools, and returns what says that the indexes are whole.
pub(super) fn all(
    context: &Context,
    wake: &Arc<Notify>,
    tasks: &mut JoinSet<()>,
) -> Vec<watch::Receiver<bool>> {
    let marked = |label: &str| watcher::Config::default().labels(&format!("{label}={MANAGER}"));
    let client = &context.client;
    let told = Told { wake: Arc::clone(wake), restored: context.configs.hubs.restored() };
    vec![
        follow(Api::all(client.clone()), watcher::Config::default(), &context.gateways, &told, tasks),
        follow(system(client), watcher::Config::default(), &context.configs, &told, tasks),
        follow(system(client), marked(labels::MANAGED_BY), &context.services, &told, tasks),
        follow(system(client), marked(labels::ENDPOINT_SLICE_MANAGED_BY), &context.slices, &told, tasks),
    ]
}

/// Whom a watch tells of changes, and who tells it to begin anew.
#[derive(Clone)]
struct Told {
    wake: Arc<Notify>,
    /// Changes when etcd may have been restored: a watch that went on would be silent until the versions of before are passed.
    restored: watch::Receiver<()>,
}

fn system<K>(client: &Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), NAMESPACE)
}

fn follow<K, I>(
    api: Api<K>,
    config: watcher::Config,
    index: &Arc<I>,
    told: &Told,
    tasks: &mut JoinSet<()>,
) -> watch::Receiver<bool>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    I: Index<K>,
{
    let (whole, listed) = watch::channel(false);
    let (index, Told { wake, mut restored }) = (Arc::clone(index), told.clone());
    tasks.spawn(async move {
        loop {
            let changed = |keys: BTreeSet<String>| {
                if !keys.is_empty() {
                    wake.notify_one();
                }
            };
            let synced = || {
                whole.send_replace(true);
            };
            tokio::select! {
                () = watches::keep(api.clone(), config.clone(), Arc::clone(&index), changed, synced) => return,
                Ok(()) = restored.changed() => {}
            }
        }
    });
    listed
}

//! Watches that keep an index: list, watch, resume, for as long as the process runs.
//!
//! For kinds whose form the API server itself guarantees (nodes, pods, config maps): they are decoded in one pass, without
//! the guard that [`crate::pools`] puts around a kind of which old objects may not fit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::StreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::ExponentialBackoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tracing::{debug, warn};

/// Makes a type with a field `metadata` a kind of the core group: what of a kind is decoded is the type's own affair.
macro_rules! core_kind {
    ($type:ty, $kind:literal, $plural:literal, $scope:ty) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                "".into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                "v1".into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use core_kind;

/// Something that is kept up to date by a watch. Each call returns the keys of the reconciliations that the change
/// concerns; none if nothing changed that a decision depends on.
pub(crate) trait Index<K>: Send + Sync + 'static {
    /// An object was added or changed.
    fn apply(&self, object: K) -> BTreeSet<String>;
    /// An object was deleted.
    fn delete(&self, object: K) -> BTreeSet<String>;
    /// All objects are about to be listed: what [`Self::replace`] is told next was so at some time after this.
    fn listing(&self) {}
    /// These are all objects there are.
    fn replace(&self, objects: Vec<K>) -> BTreeSet<String>;
    /// The watch failed: what changes from now on may be told late.
    fn interrupted(&self) {}
}

/// How long a watch that failed waits before it is tried again: soon after a hiccup, and at most 8 s (the upper bound, 4 s,
/// and as much of jitter). That of client-go grows to 30 s, and further with jitter, in an outage of a dozen seconds: what
/// users change right after it would stay undone that long.
pub(crate) fn backoff() -> impl Backoff {
    let bounds = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(4))
        .with_jitter()
        .without_max_times();
    ExponentialBackoff::from(bounds)
}

/// Keeps `index` up to date from a watch of `api`, tells `changed` the keys of what changed, and calls `synced` once
/// the first complete list is in the index. Never ends.
pub(crate) async fn keep<K, I>(
    api: Api<K>,
    config: watcher::Config,
    index: Arc<I>,
    changed: impl Fn(BTreeSet<String>) + Send,
    synced: impl FnOnce() + Send,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    I: Index<K>,
{
    let mut synced = Some(synced);
    let mut listed: Vec<K> = Vec::new();
    let mut events = std::pin::pin!(watcher(api, config).backoff(backoff()));
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                index.listing();
            }
            Ok(watcher::Event::InitApply(object)) => listed.push(object),
            Ok(watcher::Event::InitDone) => {
                debug!(kind = %K::kind(&()), count = listed.len(), "listed");
                changed(index.replace(std::mem::take(&mut listed)));
                if let Some(synced) = synced.take() {
                    synced();
                }
            }
            Ok(watcher::Event::Apply(object)) => changed(index.apply(object)),
            Ok(watcher::Event::Delete(object)) => changed(index.delete(object)),
            Err(error) => {
                warn!(kind = %K::kind(&()), %error, "watch failed; it is tried again");
                index.interrupted();
            }
        }
    }
}

/// An index of whole objects by name, for kinds of which there are few. Keys of changes are the objects' names.
pub(crate) struct ByName<K> {
    objects: RwLock<BTreeMap<String, Arc<K>>>,
}

impl<K> Default for ByName<K> {
    fn default() -> Self {
        Self { objects: RwLock::default() }
    }
}

impl<K> ByName<K> {
    /// The object of that name, if it exists.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<K>> {
        self.objects.read().get(name).cloned()
    }

    /// All objects, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.objects.read().values().cloned().collect()
    }
}

impl<K: Resource<DynamicType = ()> + Send + Sync + 'static> Index<K> for ByName<K> {
    fn apply(&self, object: K) -> BTreeSet<String> {
        let name = object.name_any();
        self.objects.write().insert(name.clone(), Arc::new(object));
        [name].into()
    }

    fn delete(&self, object: K) -> BTreeSet<String> {
        let name = object.name_any();
        self.objects.write().remove(&name);
        [name].into()
    }

    fn replace(&self, objects: Vec<K>) -> BTreeSet<String> {
        let fresh: BTreeMap<_, _> = objects.into_iter().map(|o| (o.name_any(), Arc::new(o))).collect();
        let mut present = self.objects.write();
        let touched = present.keys().chain(fresh.keys()).cloned().collect();
        *present = fresh;
        touched
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use parking_lot::Mutex;
    use tower::service_fn;

    use super::*;

    /// What happens, in order.
    #[derive(Clone, Default)]
    struct Happened(Arc<Mutex<Vec<&'static str>>>);

    impl Happened {
        fn note(&self, what: &'static str) -> BTreeSet<String> {
            self.0.lock().push(what);
            BTreeSet::new()
        }
    }

    impl Index<ConfigMap> for Happened {
        fn apply(&self, _: ConfigMap) -> BTreeSet<String> {
            self.note("applied")
        }
        fn delete(&self, _: ConfigMap) -> BTreeSet<String> {
            self.note("deleted")
        }
        fn replace(&self, _: Vec<ConfigMap>) -> BTreeSet<String> {
            self.note("replaced")
        }
        fn listing(&self) {
            self.note("listing");
        }
    }

    #[tokio::test]
    async fn an_index_knows_of_a_list_before_it_is_asked_for() {
        let happened = Happened::default();
        let server = service_fn({
            let happened = happened.clone();
            move |request: Request<Body>| {
                let watched = request.uri().query().unwrap_or_default().contains("watch=");
                if !watched {
                    happened.note("asked");
                }
                async move {
                    if watched {
                        std::future::pending::<()>().await;
                    }
                    let list = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
                    Ok::<_, std::convert::Infallible>(Response::new(Body::from(list.as_bytes().to_vec())))
                }
            }
        });
        let api = Api::default_namespaced(Client::new(server, "default"));
        let index = Arc::new(happened.clone());
        let (synced, whole) = tokio::sync::oneshot::channel();
        let synced = move || synced.send(()).unwrap();
        tokio::select! {
            () = keep(api, watcher::Config::default(), index, |_| {}, synced) => unreachable!("it never ends"),
            listed = whole => listed.unwrap(),
        }
        assert_eq!(*happened.0.lock(), ["listing", "asked", "replaced"]);
    }

    #[test]
    fn a_failing_watch_is_tried_again_within_eight_seconds_for_ever() {
        let mut backoff = backoff();
        let waits: Vec<Duration> = backoff.by_ref().take(1000).collect();
        assert_eq!(waits.len(), 1000, "it never gives up");
        assert!(waits[0] <= Duration::from_secs(1), "{:?}", waits[0]);
        assert!(waits[10..].iter().all(|wait| (4..=8).contains(&wait.as_secs())), "{waits:?}");
        backoff.reset();
        assert!(backoff.next().is_some_and(|wait| wait <= Duration::from_secs(1)));
    }
}

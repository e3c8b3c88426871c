//! All subscriptions: opened at the first request or by configuration, one upstream stream each, closed when nobody needs them.

mod key;
mod subscription;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use kube_wire::{
    object::Object,
    resource::{GroupVersionResource, ObjectKey},
    transcode,
};
use parking_lot::Mutex;
use watch_cache::{Cache, Limits};

pub use self::key::{Key, Owner};
pub use self::subscription::{Progress, Subscription, Traffic};
use crate::{reflector::Reflector, run::Sharing, status::resource_name, tasks::Tasks, upstream::Credential};

/// How many subscriptions there may be; requests beyond are handed on. A client cannot make the hub hold the whole cluster
/// piece by piece.
const MOST: usize = 512;

/// How long a subscription that the API server refuses is tried again without anybody asking.
const REFUSED: Duration = Duration::from_secs(30);

/// The subscriptions of the hub.
pub struct Subscriptions {
    reflector: Reflector,
    tasks: Tasks,
    /// How long a subscription that only lists opened is kept without another list.
    idle: Duration,
    open: Mutex<BTreeMap<Key, Entry>>,
    /// What the store had of subscriptions that nobody asked for yet.
    restored: Mutex<HashMap<String, Cache>>,
}

struct Entry {
    subscription: Arc<Subscription>,
    credential: Arc<Mutex<Credential>>,
    /// Kept without clients: configured, or restored and pooled.
    pinned: bool,
}

impl Subscriptions {
    /// No subscription yet; `restored` is what the store had, by the names of subscriptions.
    pub fn new(reflector: Reflector, tasks: Tasks, idle: Duration, restored: HashMap<String, Cache>) -> Self {
        Self { reflector, tasks, idle, open: Mutex::default(), restored: Mutex::new(restored) }
    }

    /// The subscription that answers `wanted`: one that is open and covers it, or a new one. `None` if there are too many.
    ///
    /// The credential is that of the latest caller: tokens change, their owner does not.
    pub fn open(
        &self,
        wanted: &Key,
        protobuf: bool,
        credential: &Credential,
        pinned: bool,
    ) -> Option<Arc<Subscription>> {
        let mut open = self.open.lock();
        if let Some(entry) = covering(&mut open, wanted) {
            *entry.credential.lock() = credential.clone();
            entry.pinned |= pinned;
            entry.subscription.touch();
            return Some(entry.subscription.clone());
        }
        if open.len() >= MOST {
            return None;
        }
        let cache = self.restored.lock().remove(&wanted.to_string());
        let cache = cache.unwrap_or_else(|| Cache::new(Limits::default()));
        let closed = self.tasks.shutdown().child_token();
        let subscription = Subscription::new(wanted.clone(), protobuf, cache, closed);
        if subscription.kind().is_none()
            && let Some(kind) = self.reflector.kind(&wanted.resource)
        {
            subscription.set_kind(&kind);
        }
        let credential = Arc::new(Mutex::new(credential.clone()));
        self.tasks.spawn(self.reflector.clone().run(subscription.clone(), credential.clone()));
        open.insert(wanted.clone(), Entry { subscription: subscription.clone(), credential, pinned });
        Some(subscription)
    }

    /// Opens the subscription of a pooled resource, which is fetched and kept before any client asks.
    pub fn open_pooled(&self, resource: &GroupVersionResource) -> Option<Arc<Subscription>> {
        self.open(&Key::pooled(resource), transcode::knows(resource), &Credential::Node, true)
    }

    /// A subscription that is open, or was stored, and covers `wanted`; opens nothing upstream that was not there.
    pub fn find(&self, wanted: &Key, protobuf: bool, credential: &Credential) -> Option<Arc<Subscription>> {
        if let Some(entry) = covering(&mut self.open.lock(), wanted) {
            entry.subscription.touch();
            return Some(entry.subscription.clone());
        }
        let stored = self.restored.lock().contains_key(&wanted.to_string());
        if stored { self.open(wanted, protobuf, credential, false) } else { None }
    }

    /// An object from any whole stream of that owner, however narrow.
    pub fn object(
        &self,
        owner: &Owner,
        resource: &GroupVersionResource,
        key: &ObjectKey,
    ) -> Option<Arc<Object>> {
        self.holding(owner, resource, key)?.read(Cache::snapshot)?.get(key).cloned()
    }

    /// A whole stream of that owner that has this object.
    pub fn holding(
        &self,
        owner: &Owner,
        resource: &GroupVersionResource,
        object: &ObjectKey,
    ) -> Option<Arc<Subscription>> {
        let open = self.open.lock();
        let of = open.iter().filter(|(key, _)| key.owner == *owner && key.resource == *resource);
        let mut having = of.filter(|(_, entry)| {
            entry.subscription.read(Cache::snapshot).is_some_and(|held| held.get(object).is_some())
        });
        having.next().map(|(_, entry)| entry.subscription.clone())
    }

    /// Whether all that `wanted` asks for is held, under its own owner, or was stored.
    pub fn holds(&self, wanted: &Key) -> bool {
        let open = self.open.lock();
        let whole =
            |(key, entry): (&Key, &Entry)| key.covers(wanted) && entry.subscription.version().is_some();
        open.iter().any(whole) || self.restored.lock().contains_key(&wanted.to_string())
    }

    /// Which pooled resources are still on their way. What the API server refuses is not: one missing right must not make all of
    /// the hub look broken, and the status tells of it.
    pub fn missing(&self, sharing: &Sharing) -> Vec<String> {
        let open = self.open.lock();
        let settled = |resource: &GroupVersionResource| {
            open.get(&Key::pooled(resource)).is_some_and(|entry| {
                let refused = matches!(*entry.subscription.progress().borrow(), Progress::Refused(_));
                refused || entry.subscription.version().is_some()
            })
        };
        let pooled = sharing.pooled.iter().filter(|resource| sharing.pools(resource));
        pooled.filter(|resource| !settled(resource)).map(resource_name).collect()
    }

    /// Ends a subscription; its upstream stream closes and its memory is freed.
    pub fn close(&self, key: &Key) {
        if let Some(entry) = self.open.lock().remove(key) {
            entry.subscription.close();
            self.reflector.forget(key);
        }
    }

    /// Ends those that nobody has used for long.
    pub fn sweep(&self) {
        let idle: Vec<Key> = {
            let open = self.open.lock();
            let unused = |entry: &Entry| {
                let refused = entry.subscription.progress().borrow().is_gone();
                let kept = if refused { REFUSED.min(self.idle) } else { self.idle };
                !entry.pinned && entry.subscription.idle() > kept
            };
            open.iter().filter(|(_, entry)| unused(entry)).map(|(key, _)| key.clone()).collect()
        };
        for key in &idle {
            self.close(key);
        }
    }

    /// All that are open, in the order of their keys.
    pub fn all(&self) -> Vec<Arc<Subscription>> {
        self.open.lock().values().map(|entry| entry.subscription.clone()).collect()
    }
}

fn covering<'a>(open: &'a mut BTreeMap<Key, Entry>, wanted: &Key) -> Option<&'a mut Entry> {
    // The exact one first: it is the one whose version the client knows.
    if open.contains_key(wanted) {
        return open.get_mut(wanted);
    }
    open.iter_mut().find(|(key, _)| key.covers(wanted)).map(|(_, entry)| entry)
}

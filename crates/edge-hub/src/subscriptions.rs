//! All subscriptions: opened at the first request or by configuration, one upstream stream each, closed when nobody needs them.

mod as_json;
mod attached;
mod carried;
mod carriers;
mod catching_up;
mod covering;
mod key;
mod leaving;
mod node_or_users;
#[cfg(test)]
mod offline;
mod room;
mod stored;
mod subscription;
mod traffic;
mod unasked;
mod versions;
mod written_events;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use kube_wire::{
    object::Object,
    resource::{GroupVersionResource, ObjectKey},
    resource_version::ResourceVersion,
    transcode,
};
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};
use tracing::{debug, info, warn};
use watch_cache::{Cache, Limits};

pub use self::attached::Attached;
pub use self::carriers::Carrier;
pub use self::catching_up::Brings;
pub use self::key::{Key, Owner};
pub use self::stored::Stored;
pub use self::subscription::{Progress, Subscription};
pub use self::traffic::Traffic;
use self::{
    covering::covering,
    leaving::{Leaving, Left},
    room::{Open, Room, room},
    unasked::Unasked,
};
use crate::{
    reflector::{Reflector, Scopes},
    run::{Lifetimes, Sharing},
    status::resource_name,
    tasks::Tasks,
    upstream::Credential,
};

/// How long a subscription that the API server refuses is tried again without anybody asking.
const REFUSED: Duration = Duration::from_secs(30);

/// The subscriptions of the hub.
pub struct Subscriptions {
    reflector: Reflector,
    tasks: Tasks,
    /// How long a subscription that only lists opened is kept without another list, while there is a link.
    idle: Duration,
    /// How long what the store had is kept without anybody asking, while there is a link.
    unasked_for: Duration,
    open: Mutex<BTreeMap<Key, Entry>>,
    restored: Mutex<Unasked>,
    leaving: Leaving,
    /// When there was a link at the last look at what is idle.
    swept: Mutex<Option<Instant>>,
    /// How many requests found no room for a subscription.
    crowded_out: AtomicU64,
}

struct Entry {
    subscription: Arc<Subscription>,
    /// To let it go.
    leave: oneshot::Sender<Left>,
    /// Who was the first to ask.
    opener: Owner,
    kept: Kept,
    /// Whether a client has asked for it, and not only the hub.
    asked: bool,
    /// For how long nobody has asked, while there was a link. Without one a client may be away that needs it all the more.
    unused: Duration,
}

/// Why a subscription is kept without clients.
#[derive(Debug, Clone, Default)]
struct Kept {
    /// What the configuration names clients that asked: components, or `*`.
    agents: BTreeSet<Box<str>>,
    /// The configuration says that it is shared.
    shared: bool,
    /// The hub itself reads it.
    own: bool,
}

impl Kept {
    fn is_pinned(&self) -> bool {
        !self.agents.is_empty() || self.shared || self.own
    }
}

impl Subscriptions {
    /// No subscription yet; `restored` is what the store had, by the names of subscriptions, and `waited` what
    /// [`Subscriptions::export`] gave in an earlier run.
    pub fn new(
        reflector: Reflector,
        tasks: Tasks,
        lifetimes: &Lifetimes,
        restored: HashMap<String, Cache>,
        waited: Option<&[u8]>,
    ) -> Self {
        Self {
            reflector,
            tasks,
            idle: lifetimes.idle,
            unasked_for: lifetimes.unasked_for,
            open: Mutex::default(),
            restored: Mutex::new(Unasked::new(restored, waited)),
            leaving: Leaving::default(),
            swept: Mutex::default(),
            crowded_out: AtomicU64::new(0),
        }
    }

    /// The subscription that answers `wanted`: one that is open and covers it, or a new one. `None` if there are too many.
    ///
    /// Who asks may read all of `wanted`, and may carry it from then on. While the configuration names any of `agents` it is kept, however seldom it
    /// is asked for.
    pub fn open(
        &self,
        wanted: &Key,
        protobuf: bool,
        carrier: &Carrier,
        agents: BTreeSet<Box<str>>,
    ) -> Option<Arc<Subscription>> {
        self.open_for(wanted, protobuf, carrier, Kept { agents, ..Kept::default() })
    }

    fn open_for(
        &self,
        wanted: &Key,
        protobuf: bool,
        carrier: &Carrier,
        kept: Kept,
    ) -> Option<Arc<Subscription>> {
        let mut open = self.open.lock();
        let asked = !kept.own && !kept.shared;
        if let Some((key, entry)) = covering(&mut open, wanted, &carrier.user) {
            entry.subscription.present(carrier);
            entry.asked |= asked;
            entry.kept.agents.extend(kept.agents);
            entry.kept.shared |= kept.shared;
            // A wider one is there for somebody else, and the hub reads it for as long.
            entry.kept.own |= kept.own && key == wanted;
            entry.subscription.touch();
            return Some(entry.subscription.clone());
        }
        if !self.make_room(&mut open, wanted, &carrier.user) {
            return None;
        }
        let name = wanted.to_string();
        let stored = self.is_stored(wanted);
        let cache = self.restored.lock().take(&name).filter(|_| stored);
        // After that: what was let go of what was stored is leaving by now.
        let (stay, leave) = self.leaving.come(&name);
        let cache = cache.unwrap_or_else(|| Cache::new(Limits::default()));
        let closed = self.tasks.shutdown().child_token();
        let subscription = Subscription::new(wanted.clone(), protobuf, cache, carrier, closed);
        if subscription.kind().is_none()
            && let Some(kind) = self.reflector.kind(&wanted.resource)
        {
            subscription.set_kind(&kind);
        }
        self.tasks.spawn(stay.run(self.reflector.clone(), subscription.clone(), self.tasks.clone()));
        let opener = carrier.user.clone();
        let unused = Duration::ZERO;
        let entry = Entry { subscription: subscription.clone(), leave, opener, kept, asked, unused };
        open.insert(wanted.clone(), entry);
        Some(subscription)
    }

    /// Whether resources have namespaces, as far as the API server showed that.
    pub fn scopes(&self) -> &Scopes {
        self.reflector.scopes()
    }

    /// The API server's most recent version, for who asks for one that is not held yet; `None` if it does not say.
    pub async fn upstream_version(
        &self,
        subscription: &Subscription,
        credential: &Credential,
    ) -> Option<ResourceVersion> {
        self.reflector.upstream_version(subscription, credential).await
    }

    /// The API server is of a later release than any before: what is built in is listed anew.
    pub fn outdate(&self) {
        self.reflector.outdate();
    }

    /// Whether another one may be opened for that user; one that is unused makes room for it. Not without a link: what is held cannot be
    /// had again then, and what is not stored cannot be had either.
    fn make_room(&self, open: &mut BTreeMap<Key, Entry>, wanted: &Key, opener: &Owner) -> bool {
        let linked = self.reflector.is_linked();
        if !linked && self.is_stored(wanted) {
            return true;
        }
        let all = open.iter().map(|(key, Entry { subscription, opener, kept, .. })| Open {
            key,
            opener,
            idle: subscription.idle(),
            pinned: kept.is_pinned(),
            bytes: subscription.bytes(),
        });
        match room(all, opener) {
            Room::Free => true,
            Room::After(keys) if linked => {
                for key in keys {
                    debug!(%key, "closed for another one: nobody has used it for longest");
                    self.close(open, &key);
                }
                true
            }
            Room::After(_) | Room::Full => {
                if self.crowded_out.fetch_add(1, Relaxed) == 0 {
                    warn!(key = %wanted, ?opener, "no room for another subscription: such requests are handed on, and cannot be answered without a link");
                }
                false
            }
        }
    }

    /// How many requests found no room for a subscription.
    pub fn crowded_out(&self) -> u64 {
        self.crowded_out.load(Relaxed)
    }

    /// Opens the subscription of a pooled resource, which is fetched and kept before any client asks.
    pub fn open_pooled(&self, resource: &GroupVersionResource) -> Option<Arc<Subscription>> {
        let shared = Kept { shared: true, ..Kept::default() };
        self.open_for(&Key::pooled(resource), transcode::knows(resource), &Carrier::node(), shared)
    }

    /// Opens what the hub reads itself.
    pub fn open_own(&self, key: &Key) -> Option<Arc<Subscription>> {
        let own = Kept { own: true, ..Kept::default() };
        self.open_for(key, transcode::knows(&key.resource), &Carrier::node(), own)
    }

    /// Whether the hub itself reads it.
    pub fn is_own(&self, key: &Key) -> bool {
        self.open.lock().get(key).is_some_and(|entry| entry.kept.own)
    }

    /// The configuration names these agents alone now: what others asked for is let go as anything is that nobody asks for.
    pub fn keep_agents(&self, named: &BTreeSet<Box<str>>) {
        for entry in self.open.lock().values_mut() {
            entry.kept.agents.retain(|agent| named.contains(agent));
        }
    }

    /// No longer shares the stream of a resource: it ends, and watches on it, unless the hub reads it itself. Then they go on, and
    /// are reviewed as before. Without a link what is held cannot be had again, and it ends as soon as there is one and nobody uses it.
    pub fn unshare(&self, resource: &GroupVersionResource) {
        let (mut open, key) = (self.open.lock(), Key::pooled(resource));
        let Some(entry) = open.get_mut(&key) else { return };
        entry.kept.shared = false;
        match entry.kept.own {
            true => {}
            false if self.reflector.is_linked() => self.close(&mut open, &key),
            false => entry.unused = self.idle,
        }
    }

    /// The hub itself no longer reads this: it ends, unless it is shared. Where clients are answered from it, too, it ends when nobody uses it, with
    /// a link: without one what is held cannot be had again.
    pub fn close_own(&self, key: &Key) {
        let mut open = self.open.lock();
        let Some(entry) = open.get_mut(key) else { return };
        entry.kept.own = false;
        if !entry.kept.shared && !entry.asked {
            self.close(&mut open, key);
        }
    }

    /// A subscription that is open, or was stored, and covers `wanted`; opens nothing upstream that was not there.
    pub fn find(&self, wanted: &Key, protobuf: bool, carrier: &Carrier) -> Option<Arc<Subscription>> {
        if let Some((_, entry)) = covering(&mut self.open.lock(), wanted, &carrier.user) {
            entry.asked = true;
            entry.subscription.touch();
            return Some(entry.subscription.clone());
        }
        if self.is_stored(wanted) { self.open(wanted, protobuf, carrier, BTreeSet::new()) } else { None }
    }

    /// An object from any whole stream of that owner, however narrow.
    pub fn object(
        &self,
        owner: &Owner,
        resource: &GroupVersionResource,
        key: &ObjectKey,
    ) -> Option<Arc<Object>> {
        self.holding(owner, resource, key, |_| true)?.read(Cache::snapshot)?.get(key).cloned()
    }

    /// A whole stream of that owner that has this object, of those that are good enough the one that has its most recent version.
    pub fn holding(
        &self,
        owner: &Owner,
        resource: &GroupVersionResource,
        object: &ObjectKey,
        good: impl Fn(&Key) -> bool,
    ) -> Option<Arc<Subscription>> {
        let is_meant = |key: &Key| key.owner == *owner && key.resource == *resource && good(key);
        // Read when the lock is gone: a writer may be busy with any of them.
        let of: Vec<_> = self.all().into_iter().filter(|subscription| is_meant(subscription.key())).collect();
        let having = of.into_iter().filter_map(|subscription| {
            let held = subscription.read(Cache::snapshot)?;
            Some((held.get(object)?.resource_version(), subscription))
        });
        having.max_by_key(|(version, _)| *version).map(|(_, subscription)| subscription)
    }

    /// Which pooled resources are still on their way. What the API server refuses is not: one missing right must not make all of
    /// the hub look broken, and the status tells of it.
    pub fn missing(&self, sharing: &Sharing) -> Vec<String> {
        let open = self.open.lock();
        let settled = |resource: &GroupVersionResource| {
            open.get(&Key::pooled(resource)).is_some_and(|entry| {
                let refused = entry.subscription.progress().borrow().is_refused();
                refused || entry.subscription.is_whole()
            })
        };
        let pooled = sharing.pooled.iter().filter(|resource| sharing.pools(resource));
        pooled.filter(|resource| !settled(resource)).map(resource_name).collect()
    }

    /// Ends those that nobody has used for long. Time without a link does not count: what is held cannot be had again then.
    pub fn sweep(&self) {
        let now = self.reflector.is_linked().then(Instant::now);
        let last = std::mem::replace(&mut *self.swept.lock(), now);
        let (Some(now), Some(last)) = (now, last) else { return };
        let passed = now - last;
        self.close_where(|_, entry| {
            let idle = entry.subscription.idle();
            entry.unused = if idle < passed { idle } else { entry.unused + passed };
            let refused = entry.subscription.progress().borrow().is_gone();
            let kept = if refused { REFUSED.min(self.idle) } else { self.idle };
            !entry.kept.is_pinned() && entry.unused > kept
        });
        for name in self.forget(|unasked| unasked.pass(passed, self.unasked_for)) {
            info!(subscription = name, "what was stored is let go: nobody has asked for it since long");
        }
    }

    /// How long what the store had has waited for somebody to ask, to be stored, once an hour.
    pub fn export(&self) -> Option<Vec<u8>> {
        self.restored.lock().export()
    }

    /// The API server has just answered a read of that resource. Where it had said that there is none, what is held is of the time before.
    pub fn passed_by(&self, resource: &GroupVersionResource) {
        let open = self.open.lock();
        let missing = open.iter().filter(|(key, entry)| {
            key.resource == *resource && entry.subscription.progress().borrow().is_missing()
        });
        missing.for_each(|(_, entry)| entry.subscription.pass_by());
    }

    /// Whether anything of that resource is held, in any version of its group.
    pub fn are_of(&self, resource: &GroupVersionResource) -> bool {
        let same = |key: &Key| {
            (&key.resource.group, &key.resource.resource) == (&resource.group, &resource.resource)
        };
        self.open.lock().keys().any(same)
    }

    /// All that are open, in the order of their keys.
    pub fn all(&self) -> Vec<Arc<Subscription>> {
        self.open.lock().values().map(|entry| entry.subscription.clone()).collect()
    }
}

//! How often upstream went back in time, of each resource, as any subscription has noticed.
//!
//! A subscription whose version upstream has passed again cannot always tell by itself ([`epoch`](super::epoch)). But all of one
//! resource are kept in one etcd: what one has noticed holds for the others, those among them that wait on the disk for a reader, too, and
//! those whose watch goes on already. And a list of one at a lower version than any of them had shows it.
//!
//! The API server's own resources are in the etcd that has those of its definitions, too. So what is certain of one of its own holds for all
//! there are: a resource in which one object changes all the time shows nothing by itself. Of others nobody knows whether the API server
//! keeps them or an API behind it, which may begin anew each time that it starts: there it holds for that resource alone.
//!
//! The same way all that is built in hears that the API server is of a later release, and shows what it has at the same versions otherwise. Nothing is in
//! doubt for that: what is held is shown until the new list is there.

use std::collections::HashMap;

use kube_wire::{resource::GroupVersionResource, resource_version::ResourceVersion, transcode};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{Reflector, course::Course, epoch};
use crate::{
    metrics::Resync,
    storage::Storage,
    subscriptions::{Key, Progress, Subscription},
    upstream::Credential,
};

/// The name of what is noticed of all resources at once.
const OF_ALL: &str = "undone";

/// The name of how often the API server was of a later release than any before.
const LATER: &str = "later releases";

/// What one of those counts, beside how often upstream went back in time, in the number after which something was listed.
const RELEASE: u64 = 1 << 32;

/// What is noticed in this run and was in those before it.
pub(super) struct Undone {
    storage: Storage,
    /// Of each name, as it is stored.
    noticed: Mutex<HashMap<String, u64>>,
    /// Who notices looks whether anybody else has, and then says so.
    noticing: Mutex<()>,
    /// Tells of each time that it is noticed.
    changes: watch::Sender<()>,
    /// Of each resource, how far any subscription came, and after how many times that one was listed.
    come: Mutex<HashMap<String, (u64, ResourceVersion)>>,
    /// How far those came that the store had, by their names, until their resource is asked for.
    stored: Mutex<Vec<(String, ResourceVersion)>>,
}

impl Undone {
    /// `stored`: the subscriptions that the store had, and how far they came.
    pub(super) fn new(storage: Storage, stored: Vec<(String, ResourceVersion)>) -> Self {
        let changes = watch::Sender::new(());
        Self {
            storage,
            noticed: Mutex::default(),
            noticing: Mutex::default(),
            changes,
            come: Mutex::default(),
            stored: Mutex::new(stored),
        }
    }

    /// So often it was noticed of this resource, and of all together; and so many later releases there were, if it is built in.
    pub(super) fn times(&self, resource: &GroupVersionResource) -> u64 {
        let releases = if transcode::knows(resource) { self.read(LATER.to_owned()) } else { 0 };
        self.read(of_resource(resource)) + self.read(OF_ALL.to_owned()) + RELEASE * releases
    }

    /// The API server is of a later release than any before.
    pub(super) fn later(&self) {
        let _one_at_a_time = self.noticing.lock();
        self.write(LATER.to_owned(), self.read(LATER.to_owned()) + 1);
        self.changes.send_replace(());
    }

    /// A subscription notices it that was listed after so many times. Whether nobody else has since: then it is once more; `is_certain`: it was no sign alone,
    /// for which not everything is listed anew.
    pub(super) fn notice(
        &self,
        resource: &GroupVersionResource,
        listed_after: u64,
        is_certain: bool,
    ) -> bool {
        let _one_at_a_time = self.noticing.lock();
        let is_new = undone(self.times(resource)) == undone(listed_after);
        if is_new {
            let of_all = is_certain && transcode::knows(resource);
            let name = if of_all { OF_ALL.to_owned() } else { of_resource(resource) };
            let times = self.read(name.clone());
            self.write(name, times + 1);
            self.changes.send_replace(());
        }
        is_new
    }

    /// Waits until somebody has noticed it since the subscription of this name was listed.
    pub(super) async fn since(&self, resource: &GroupVersionResource, name: &str) {
        let mut changes = self.changes.subscribe();
        while !self.is_undone(resource, name) {
            // The sender lives as long as this.
            let _ = changes.changed().await;
        }
    }

    /// Waits until the API server is of a later release than when the subscription of this name was listed.
    pub(super) async fn outdated(&self, resource: &GroupVersionResource, name: &str) {
        let mut changes = self.changes.subscribe();
        while !self.is_outdated(resource, name) {
            let _ = changes.changed().await;
        }
    }

    fn is_undone(&self, resource: &GroupVersionResource, name: &str) -> bool {
        undone(self.times(resource)) != undone(self.listed_after(name))
    }

    fn is_outdated(&self, resource: &GroupVersionResource, name: &str) -> bool {
        self.times(resource) / RELEASE != self.listed_after(name) / RELEASE
    }

    /// After how many times the subscription of this name was listed, with what is held of it.
    pub(super) fn listed_after(&self, name: &str) -> u64 {
        self.read(of_subscription(name))
    }

    /// It is listed after so many. What a restart finds is of the time before if the list is not stored.
    pub(super) fn list(&self, name: &str, times: u64, is_stored: bool) {
        if is_stored {
            self.write(of_subscription(name), times);
        } else {
            self.noticed.lock().insert(of_subscription(name), times);
        }
    }

    /// A subscription that was listed after so many times has come to a version.
    pub(super) fn come(&self, resource: &GroupVersionResource, listed_after: u64, version: ResourceVersion) {
        let reached = (undone(listed_after), version);
        let mut all = self.come.lock();
        let furthest = all.entry(of_resource(resource)).or_insert(reached);
        *furthest = reached.max(*furthest);
    }

    /// How far any subscription of this resource has come since it was noticed last; versions of one etcd only grow.
    pub(super) fn furthest(&self, resource: &GroupVersionResource) -> Option<ResourceVersion> {
        let is_of_it = |(name, _): &mut (String, _)| Key::is_name_of(name, resource);
        {
            // Locked until all are read: whoever asks meanwhile must not find that there is nothing.
            let mut stored = self.stored.lock();
            for (name, version) in stored.extract_if(.., is_of_it) {
                self.come(resource, self.listed_after(&name), version);
            }
        }
        let times = undone(self.times(resource));
        let furthest = self.come.lock().get(&of_resource(resource)).copied();
        furthest.filter(|(listed_after, _)| *listed_after == times).map(|(_, version)| version)
    }

    /// Nothing is held of the subscription of this name any more.
    pub(super) fn forget(&self, name: &str) {
        let name = of_subscription(name);
        let is_stored = self.read(name.clone()) > 0;
        self.noticed.lock().remove(&name);
        if is_stored && let Err(error) = self.storage.remove_blob(&name) {
            warn!(name, %error, "cannot remove from the store when a subscription was listed");
        }
    }

    fn read(&self, name: String) -> u64 {
        let stored = |name: &String| {
            let stored = self.storage.blob(name)?;
            std::str::from_utf8(&stored).ok()?.parse().ok()
        };
        let mut noticed = self.noticed.lock();
        *noticed.entry(name).or_insert_with_key(|name| stored(name).unwrap_or(0))
    }

    fn write(&self, name: String, times: u64) {
        if self.read(name.clone()) == times {
            return;
        }
        if let Err(error) = self.storage.put_blob(&name, times.to_string().as_bytes()) {
            warn!(name, %error, "cannot store that upstream went back in time");
        }
        self.noticed.lock().insert(name, times);
    }
}

impl Reflector {
    /// Whether upstream went back in time, as any subscription of the resource has noticed, since this one was listed.
    pub fn is_undone(&self, key: &Key) -> bool {
        self.undone.is_undone(&key.resource, &key.to_string())
    }

    /// The API server is of a later release than any before.
    pub fn outdate(&self) {
        self.undone.later();
    }

    /// Has everything listed, if what was noticed since it was wants that.
    pub(super) fn heed(&self, subscription: &Subscription, course: &mut Course) {
        let key = subscription.key();
        if course.relist.is_some() {
            return;
        }
        if self.is_undone(key) {
            warn!(%key, "upstream went back in time, as was noticed elsewhere: it is listed anew");
            subscription.doubt(true);
            subscription.set_progress(Progress::Interrupted);
            course.anew(Resync::Diverged);
        } else if self.undone.is_outdated(&key.resource, &key.to_string()) {
            info!(%key, "the API server is of a later release since: it is listed anew");
            subscription.set_progress(Progress::Interrupted);
            course.anew(Resync::Upgraded);
        }
    }

    /// The API server's most recent version, for who asks for one that is not held yet; `None` if it does not say. Who goes on from there has seen
    /// that time, so it counts as come to.
    pub async fn upstream_version(
        &self,
        subscription: &Subscription,
        credential: &Credential,
    ) -> Option<ResourceVersion> {
        let key = subscription.key();
        // Before: what is listed meanwhile may be of another time.
        let listed_after = self.undone.listed_after(&key.to_string());
        let version = epoch::most_recent(&self.upstream, subscription, credential).await?;
        self.undone.come(&key.resource, listed_after, version);
        Some(version)
    }

    /// Takes note of how far a subscription has come, which was listed after so many times: what others of the resource hear of upstream is held
    /// against that.
    pub(super) fn come(&self, subscription: &Subscription, listed_after: u64) {
        if let Some(version) = subscription.version() {
            self.undone.come(&subscription.key().resource, listed_after, version);
        }
    }
}

/// How often upstream went back in time, of a number after which something was listed.
fn undone(times: u64) -> u64 {
    times % RELEASE
}

/// Whatever its version: those of a group have one etcd.
fn of_resource(resource: &GroupVersionResource) -> String {
    format!("undone {}/{}", resource.group, resource.resource)
}

fn of_subscription(name: &str) -> String {
    format!("listed after {name}")
}

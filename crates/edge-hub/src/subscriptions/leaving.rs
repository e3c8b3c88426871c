//! Who writes what is stored under a name: one subscription after another.
//!
//! Each has a task of its own, which alone stores what is held of it. When it is let go its stream ends first, then the task removes
//! what it has stored, and that is the last that it does. Another of the same name may be opened at any time: it begins with nothing,
//! and its task waits until the one before is through. So nobody who asks for something else, or stores it, waits while one is forgotten,
//! nothing is stored of what was forgotten, and nothing removed of what came after it. The end of the hub lets nothing go; what was let go
//! just before is forgotten when all tasks have ended.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use kube_wire::resource::GroupVersionResource;
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{Entry, Key, Subscription, Subscriptions, unasked::Unasked};
use crate::{
    reflector::{Reflector, Writing},
    tasks::Tasks,
};

/// What held more than this is given back to the system, in bytes: the allocator keeps what is freed in small pieces. Not for less, as it takes a while.
const LARGE: usize = 1 << 20;

/// Who reads what has ended has let go of it by then.
const READERS_LEAVE: Duration = Duration::from_secs(1);

/// The names of which something is yet to be removed; what is cancelled when the last of each was.
type Names = Arc<Mutex<HashMap<String, CancellationToken>>>;

/// The names of which the end of the hub kept a task from removing anything.
type Rest = Arc<Mutex<Vec<String>>>;

/// What was let go and is not forgotten yet.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    names: Names,
    rest: Rest,
}

impl Leaving {
    /// What is stored under this name is to be removed; who is opened under it from now on waits until what is given back is dropped.
    pub(super) fn leave(&self, name: &str) -> Left {
        let gone = CancellationToken::new();
        self.names.lock().insert(name.to_owned(), gone.clone());
        let (names, rest) = (self.names.clone(), self.rest.clone());
        Left { name: name.to_owned(), is_forgotten: false, gone, names, rest }
    }

    /// Who is opened under this name, and how it is let go.
    pub(super) fn come(&self, name: &str) -> (Stay, oneshot::Sender<Left>) {
        let (leave, left) = oneshot::channel();
        (Stay { before: self.names.lock().get(name).cloned(), left }, leave)
    }
}

/// A name whose content is being removed.
#[derive(Debug)]
pub(super) struct Left {
    name: String,
    is_forgotten: bool,
    gone: CancellationToken,
    names: Names,
    rest: Rest,
}

impl Left {
    /// Removes it, on this thread.
    pub(super) fn forget(mut self, reflector: &Reflector) {
        reflector.forget(&self.name);
        self.is_forgotten = true;
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if !self.is_forgotten {
            self.rest.lock().push(self.name.clone());
        }
        self.gone.cancel();
        let mut names = self.names.lock();
        // Not the one after it, which may have left already and waits for this one.
        if names.get(&self.name).is_some_and(CancellationToken::is_cancelled) {
            names.remove(&self.name);
        }
    }
}

/// When the task of a subscription begins, and how it ends.
pub(super) struct Stay {
    before: Option<CancellationToken>,
    left: oneshot::Receiver<Left>,
}

impl Stay {
    /// Keeps the subscription until it is closed, and forgets it if it was let go.
    pub(super) async fn run(mut self, reflector: Reflector, subscription: Arc<Subscription>, tasks: Tasks) {
        if let Some(before) = self.before {
            before.cancelled().await;
        }
        let writing = Writing::new(tasks);
        reflector.run(&subscription, &writing).await;
        if let Ok(left) = self.left.try_recv() {
            writing.write(move || left.forget(&reflector)).await;
            let bytes = subscription.bytes();
            drop(subscription);
            if bytes > LARGE {
                sleep(READERS_LEAVE).await;
                writing.write(heap::give_back).await;
            }
        }
    }
}

impl Subscriptions {
    /// Ends a subscription of those that are `open`, which are locked; its upstream stream closes and its memory is freed.
    pub(super) fn close(&self, open: &mut BTreeMap<Key, Entry>, key: &Key) {
        if let Some(entry) = open.remove(key) {
            self.end(key, entry);
        }
    }

    /// Ends all of which that holds, under one lock: nobody opens one or asks for it in between.
    pub(super) fn close_where(&self, over: impl Fn(&Key, &mut Entry) -> bool) {
        for (key, entry) in self.open.lock().extract_if(.., over) {
            self.end(&key, entry);
        }
    }

    /// Keeps nothing of a resource any more, whoever asked for it, and what nobody has asked for since the start no less. What the hub itself reads
    /// stays, for the hub; so does what was the node's and `may_be_own`, if nobody has asked for it since the start, until the hub does, or nobody did for long.
    pub fn let_go(&self, resource: &GroupVersionResource, may_be_own: bool) {
        self.close_where(|key, entry| key.resource == *resource && !entry.kept.own);
        let stays = |name: &str| may_be_own && Key::is_name_of_nodes(name);
        self.forget(|unasked| unasked.let_go(|name| Key::is_name_of(name, resource) && !stays(name)));
    }

    /// Lets go of one that is no longer among those that are open, while they are locked: who opens it anew waits for the end of this one. Its
    /// own task removes what it has stored.
    fn end(&self, key: &Key, entry: Entry) {
        let left = self.leaving.leave(&key.to_string());
        // Before it is closed: its task looks for that then.
        if let Err(left) = entry.leave.send(left) {
            self.remove(left);
        }
        entry.subscription.close();
    }

    /// Removes what nobody has asked for from the store. Gives its names.
    pub(super) fn forget(&self, let_go: impl FnOnce(&mut Unasked) -> Vec<String>) -> Vec<String> {
        let mut restored = self.restored.lock();
        let names = let_go(&mut restored);
        // While it is locked: who asks for one of these now waits until it is gone.
        let left: Vec<Left> = names.iter().map(|name| self.leaving.leave(name)).collect();
        drop(restored);
        for left in left {
            self.remove(left);
        }
        names
    }

    /// Leaves the store as the next process wants it, at the end of the hub, whose tasks have all ended by now: what was let go just before is
    /// removed, and of what is kept it is stored how far it had come, though nothing has changed for long. Waits for the disk.
    pub fn leave(&self) {
        for (key, Entry { subscription, .. }) in self.open.lock().iter() {
            if let Some(version) = subscription.version()
                && subscription.stored().lock().behind(version) > 0
            {
                self.reflector.bookmark(key, version);
            }
        }
        for name in std::mem::take(&mut *self.leaving.rest.lock()) {
            self.reflector.forget(&name);
        }
    }

    fn remove(&self, left: Left) {
        let reflector = self.reflector.clone();
        self.tasks.spawn_blocking(move || left.forget(&reflector));
    }
}

//! What a subscription has yet to be told: what happened during a cut, or while a list was on its way; and what brings it.
//!
//! What makes waiting end changes under the lock of the progress, and whoever waits looks at that.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Progress, Subscription};

/// How long over one link anything may be missing before readers are no longer to wait for it: an API server keeps for no longer what the next page of a list is read from.
const LATE: Duration = Duration::from_mins(5);

/// What is missing of what is held.
pub(super) struct CatchingUp {
    /// Whether the upstream watch was cut, or has not run yet, and has not told since what happened meanwhile.
    behind: AtomicBool,
    /// Whether the upstream watch that runs has yet to tell what happened before it was open.
    untold: AtomicBool,
    /// Whether a list is on its way that brings it.
    listing: AtomicBool,
    /// Whether attempts have failed over a link that stands, and nothing has been whole since.
    in_vain: AtomicBool,
    /// Since when anything is missing, over the link that there is.
    since: Mutex<Option<Instant>>,
}

impl Default for CatchingUp {
    /// Nothing was told yet.
    fn default() -> Self {
        Self {
            behind: AtomicBool::new(true),
            untold: AtomicBool::default(),
            listing: AtomicBool::default(),
            in_vain: AtomicBool::default(),
            since: Mutex::default(),
        }
    }
}

impl CatchingUp {
    /// What happens from now on is missed. Called under the lock of the progress.
    pub(super) fn cut(&self) {
        let (was_behind, was_listed) = (self.behind.swap(true, Relaxed), self.listing.swap(false, Relaxed));
        let mut since = self.since.lock();
        if !was_behind && !was_listed {
            *since = None;
        }
        since.get_or_insert_with(Instant::now);
    }

    /// The API server refuses, for which nobody waits: how long that lasts says nothing of what comes after it.
    pub(super) fn refused(&self) {
        *self.since.lock() = None;
    }
}

/// What brings that which is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brings {
    /// The upstream watch, which goes on from what is held, or tries to.
    Watch,
    /// A list.
    List,
}

impl Subscription {
    /// All that happened before the upstream watch was open was told.
    pub fn caught_up(&self) {
        self.progress.send_if_modified(|_| {
            let of = &self.catching_up;
            of.in_vain.store(false, Relaxed);
            of.behind.swap(false, Relaxed) | of.untold.swap(false, Relaxed)
        });
    }

    /// All that happened until now comes with a list that begins.
    pub fn list_begins(&self) {
        self.progress.send_modify(|_| {
            let of = &self.catching_up;
            of.listing.store(true, Relaxed);
            of.behind.store(false, Relaxed);
            of.untold.store(false, Relaxed);
        });
    }

    /// A list that begins is not refused, however the one before was: it is on its way. That there is no such thing, or no right to it, is said until a watch runs.
    pub fn is_answered(&self) {
        let on_its_way = self.on_its_way();
        self.progress.send_if_modified(|current| {
            let passes = current.is_refused() && !current.is_gone();
            if passes {
                *current = on_its_way;
            }
            passes
        });
    }

    /// How the upstream side is while nothing runs, and nothing speaks against it.
    pub fn on_its_way(&self) -> Progress {
        if self.version().is_some() { Progress::Interrupted } else { Progress::Syncing }
    }

    /// The list is whole, and held.
    pub(super) fn list_is_held(&self) {
        self.progress.send_modify(|_| {
            self.catching_up.listing.store(false, Relaxed);
            self.catching_up.in_vain.store(false, Relaxed);
        });
    }

    /// Attempts fail, though there is a link: whether the next one brings anything nobody knows.
    pub fn tries_in_vain(&self) {
        self.progress.send_if_modified(|_| !self.catching_up.in_vain.swap(true, Relaxed));
    }

    /// The link is gone: over the next one attempts may come to more.
    pub fn tries_anew(&self) {
        *self.catching_up.since.lock() = None;
        self.catching_up.in_vain.store(false, Relaxed);
    }

    /// What brings what is missing, if anything is and may be waited for: not while the API server refuses it, attempts fail, or it lasts for ever.
    /// `progress` is this subscription's, as it is now: nothing changes while it is looked at.
    pub fn brought_by(&self, progress: &Progress) -> Option<Brings> {
        let of = &self.catching_up;
        let is_late = of.since.lock().is_some_and(|since| since.elapsed() > LATE);
        if progress.is_refused() || of.in_vain.load(Relaxed) || is_late {
            return None;
        }
        let by_list = of.listing.load(Relaxed).then_some(Brings::List);
        by_list.or_else(|| self.is_behind().then_some(Brings::Watch))
    }

    /// Whether what is held may be of the time before a cut, though the upstream watch runs again.
    pub fn is_behind(&self) -> bool {
        self.catching_up.behind.load(Relaxed)
    }

    /// The upstream watch is open, and upstream was at a later version than what is held.
    pub fn has_to_be_told(&self) {
        self.catching_up.untold.store(true, Relaxed);
    }

    /// Whether that or a cut has yet to be told of: what is held is of the last sign of life before.
    pub fn is_untold(&self) -> bool {
        self.is_behind() || self.catching_up.untold.load(Relaxed)
    }

    /// Since now it is about to go on: a list or a watch is being opened.
    pub fn goes_on(&self, now: Instant) {
        *self.went_on.lock() = Some(now);
        self.catching_up.since.lock().get_or_insert(now);
    }

    /// Since when it is about to go on, or has.
    pub fn went_on(&self) -> Option<Instant> {
        *self.went_on.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderValue;
    use kube_wire::{resource::GroupVersionResource, status::Status};
    use tokio::time::advance;
    use tokio_util::sync::CancellationToken;
    use watch_cache::{Cache, Limits};

    use super::*;
    use crate::{
        subscriptions::{Carrier, Key, Owner},
        upstream::Credential,
    };

    fn subscription() -> Arc<Subscription> {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let credential = Credential::Bearer(HeaderValue::from_static("a"));
        let carrier = Carrier { user: Owner::User("a".into()), credential };
        let cache = Cache::new(Limits::default());
        Subscription::new(Key::pooled(&pods), true, cache, &carrier, CancellationToken::new())
    }

    fn brought_by(subscription: &Subscription) -> Option<Brings> {
        let progress = subscription.progress();
        let progress = progress.borrow();
        subscription.brought_by(&progress)
    }

    #[tokio::test]
    async fn a_list_is_waited_for_until_it_is_held() {
        let subscription = subscription();
        assert_eq!(brought_by(&subscription), Some(Brings::Watch));
        subscription.list_begins();
        assert!(!subscription.is_behind(), "all that happened comes with it");
        assert_eq!(brought_by(&subscription), Some(Brings::List));
        // A page breaks off: what happens after the first one is missed by then.
        subscription.set_progress(Progress::Interrupted);
        assert_eq!(brought_by(&subscription), Some(Brings::Watch));
        let mut progress = subscription.progress();
        progress.mark_unchanged();
        subscription.became_whole(Instant::now());
        assert!(progress.has_changed().unwrap(), "who waits for it is told");
        assert_eq!(brought_by(&subscription), Some(Brings::Watch));
        subscription.caught_up();
        assert_eq!(brought_by(&subscription), None);
        subscription.list_begins();
        subscription.became_whole(Instant::now());
        assert_eq!(brought_by(&subscription), None);
    }

    /// Its readers would ask again for good, though the API server can be asked.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_waited_for_that_does_not_come() {
        let subscription = subscription();
        subscription.list_begins();
        let mut progress = subscription.progress();
        progress.mark_unchanged();
        subscription.tries_in_vain();
        assert!(progress.has_changed().unwrap(), "who waits for it is told");
        subscription.set_progress(Progress::Interrupted);
        assert_eq!(brought_by(&subscription), None);
        subscription.list_begins();
        assert_eq!(brought_by(&subscription), None, "the next one is as good");
        subscription.became_whole(Instant::now());
        subscription.set_progress(Progress::Interrupted);
        assert_eq!(brought_by(&subscription), Some(Brings::Watch));
        subscription.tries_in_vain();
        subscription.tries_anew();
        assert_eq!(brought_by(&subscription), Some(Brings::Watch), "over another link");
        subscription.goes_on(Instant::now());
        subscription.list_begins();
        advance(LATE).await;
        assert_eq!(brought_by(&subscription), Some(Brings::List));
        advance(Duration::from_secs(1)).await;
        assert_eq!(brought_by(&subscription), None, "it lasts for ever");
        subscription.set_progress(Progress::Interrupted);
        assert_eq!(brought_by(&subscription), None, "the next attempt may as well");
        subscription.became_whole(Instant::now());
        subscription.caught_up();
        advance(LATE * 2).await;
        subscription.set_progress(Progress::Interrupted);
        assert_eq!(brought_by(&subscription), Some(Brings::Watch), "that is missing since now");
        let refused = |code| Progress::Refused(Box::new(Status { code, ..Status::default() }));
        subscription.set_progress(refused(500));
        assert_eq!(brought_by(&subscription), None);
        advance(LATE * 2).await;
        subscription.goes_on(Instant::now());
        assert!(subscription.watches());
        assert_eq!(brought_by(&subscription), Some(Brings::Watch), "what was refused is not late");
        for (code, expected) in [(503, Some(Brings::List)), (404, None)] {
            subscription.set_progress(refused(code));
            subscription.list_begins();
            assert_eq!(brought_by(&subscription), None, "it may be refused again");
            subscription.is_answered();
            assert_eq!(brought_by(&subscription), expected, "{code}");
        }
    }
}

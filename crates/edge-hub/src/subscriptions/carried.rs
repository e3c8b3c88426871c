//! How the upstream side of a subscription is, who carries it on, and who wakes it when it was refused.
//!
//! What wakes it looks at its progress, which changes meanwhile. So who changes that looks for it in turn, after the change or at once
//! with it: nothing is missed between the two.

use std::sync::atomic::Ordering::Relaxed;

use super::{Carrier, Owner, Progress, Subscription, carriers::Carriers};
use crate::upstream::Credential;

impl Subscription {
    /// Says how the upstream side is.
    pub fn set_progress(&self, progress: Progress) {
        let refused = matches!(&progress, Progress::Refused(status) if [401, 403].contains(&status.code));
        self.progress.send_if_modified(|current| {
            // It is never said here that the watch runs: what happens from now on is missed.
            self.catching_up.cut();
            if progress.is_refused() {
                self.catching_up.refused();
            }
            let changed = *current != progress;
            *current = progress;
            changed
        });
        // All were refused, as it was known until now: a credential that came meanwhile woke nobody.
        if refused && self.carriers.lock().has_next() {
            self.carried.notify_one();
        }
    }

    /// Says that the upstream watch runs. Not if a reader has passed by, which this says then: the watch goes on from the time before.
    pub fn watches(&self) -> bool {
        let mut passed_by = false;
        self.progress.send_if_modified(|current| {
            passed_by = self.passed_by.swap(false, Relaxed);
            let changed = !passed_by && *current != Progress::Watching;
            if changed {
                *current = Progress::Watching;
            }
            changed
        });
        !passed_by
    }

    /// The resource was listed: who had passed by knows no more than what is held now.
    pub(super) fn is_there(&self) {
        self.progress.send_if_modified(|current| {
            self.passed_by.store(false, Relaxed);
            let was_missing = current.is_missing();
            if was_missing {
                *current = Progress::Interrupted;
            }
            was_missing
        });
    }

    /// Somebody who may read all of it asks, and may carry it from now on. Of an owner tokens change: the latest counts.
    pub fn present(&self, carrier: &Carrier) {
        self.change_carriers(|carriers| carriers.present(carrier));
    }

    /// A watcher may still read all of it: its credential serves again, if another of the same user's took its place and was refused.
    pub fn offer(&self, carrier: &Carrier) {
        self.change_carriers(|carriers| carriers.offer(carrier));
    }

    /// Wakes a subscription that was refused if, after the change, there is a credential that was not there or could not be used then.
    pub(super) fn change_carriers(&self, change: impl FnOnce(&mut Carriers) -> bool) {
        let usable = change(&mut self.carriers.lock());
        if usable && self.progress.borrow().is_refused() {
            self.carried.notify_one();
        }
    }

    /// Whether this user may carry it.
    pub fn is_carried_by(&self, user: &Owner) -> bool {
        self.carriers.lock().has(user)
    }

    /// The credential to go upstream with now.
    pub fn credential(&self) -> Credential {
        self.carriers.lock().current()
    }

    /// The API server does not take that credential for it. Whether somebody else's is left to try.
    pub fn refuse(&self, credential: &Credential) -> bool {
        self.carriers.lock().refuse(credential)
    }

    /// A reader was given by the API server what it had said there is not: what is held is of the time before. Unless that is no longer
    /// so: the hub goes on itself.
    pub fn pass_by(&self) {
        self.progress.send_if_modified(|progress| {
            if progress.is_missing() {
                self.passed_by.store(true, Relaxed);
            }
            false
        });
        self.carried.notify_one();
    }

    /// Whether a reader has passed by since the last call.
    pub fn was_passed_by(&self) -> bool {
        self.passed_by.swap(false, Relaxed)
    }

    /// Waits, after all were refused, for a credential that was not there then.
    pub async fn carried_anew(&self) {
        self.carried.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use futures::FutureExt;
    use http::HeaderValue;
    use kube_wire::{resource::GroupVersionResource, status::Status};
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;
    use watch_cache::{Cache, Limits};

    use super::*;
    use crate::subscriptions::Key;

    fn carrier(name: &str) -> Carrier {
        let credential = Credential::Bearer(HeaderValue::from_str(name).unwrap());
        Carrier { user: Owner::User(name.into()), credential }
    }

    fn subscription() -> Arc<Subscription> {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let cache = Cache::new(Limits::default());
        Subscription::new(Key::pooled(&pods), true, cache, &carrier("a"), CancellationToken::new())
    }

    fn refused(code: u16) -> Progress {
        Progress::Refused(Box::new(Status { code, ..Status::default() }))
    }

    /// Whether it is woken at once.
    fn is_woken(subscription: &Subscription) -> bool {
        subscription.carried_anew().now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_credential_that_comes_between_the_refusal_and_the_word_of_it_is_not_missed() {
        let subscription = subscription();
        assert!(!subscription.refuse(&carrier("a").credential), "there is no other");
        subscription.present(&carrier("b"));
        subscription.set_progress(refused(403));
        assert!(is_woken(&subscription));
        assert!(!subscription.refuse(&carrier("b").credential));
        subscription.set_progress(refused(403));
        assert!(!is_woken(&subscription), "nobody came");
        subscription.present(&carrier("c"));
        assert!(is_woken(&subscription));
    }

    #[tokio::test]
    async fn what_is_not_there_is_not_asked_for_without_a_pause() {
        let subscription = subscription();
        subscription.set_progress(refused(404));
        assert!(!is_woken(&subscription));
    }

    #[tokio::test]
    async fn a_watch_that_runs_after_a_cut_is_behind_until_it_has_told_all() {
        let subscription = subscription();
        assert!(
            subscription.watches() && subscription.is_behind(),
            "what the store had is of some time before"
        );
        subscription.caught_up();
        assert!(!subscription.is_behind());
        subscription.set_progress(Progress::Interrupted);
        assert!(subscription.watches() && subscription.is_behind());
        subscription.prove();
        assert_eq!(
            subscription.age(true).proved,
            Duration::MAX,
            "that it is alive says nothing of what is held"
        );
        let mut progress = subscription.progress();
        progress.mark_unchanged();
        subscription.caught_up();
        assert!(progress.has_changed().unwrap(), "who waits for it is told");
        subscription.prove();
        assert!(subscription.age(true).watching && subscription.age(true).proved < Duration::MAX);
    }

    /// The watch is opened while readers are given what it said there is not.
    #[tokio::test]
    async fn a_watch_does_not_go_on_from_before_what_a_reader_has_seen() {
        let subscription = subscription();
        subscription.set_progress(refused(404));
        subscription.pass_by();
        assert!(!subscription.watches(), "a reader knows more");
        assert!(subscription.progress().borrow().is_missing());
        assert!(subscription.watches(), "it is said once");
        subscription.pass_by();
        assert!(!subscription.was_passed_by(), "it goes on itself");
        subscription.set_progress(refused(404));
        subscription.pass_by();
        subscription.became_whole(Instant::now());
        assert!(!subscription.progress().borrow().is_missing());
        assert!(subscription.watches(), "all was listed since");
    }
}

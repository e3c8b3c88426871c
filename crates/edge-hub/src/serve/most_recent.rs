//! Whether what is held will do for a read of the most recent state; what that takes is waited for, shortly.

use std::time::Duration;

use kube_wire::resource::ObjectKey;
use tokio::time::{Instant, timeout, timeout_at};
use watch_cache::Cache;

use super::Asked;
use crate::{
    freshness::{self, Age, Policy, Verdict},
    own_writes::Held,
    subscriptions::{Brings, Progress, Subscription},
    upstream::LinkState,
};

/// How long a filtered read of the most recent state waits for a sign of life, if there is a link and the upstream watch does not run.
const PROOF: Duration = Duration::from_secs(3);

/// How long a stream is waited for to be told of what was written through the hub.
const TOLD: Duration = Duration::from_secs(1);

/// How long a watch waits while what happened during a cut is told, before its client is to ask again. Over a line on which that takes longer a state of its own
/// would take longer still.
const CATCHES_UP: Duration = Duration::from_secs(30);

/// How long an upstream watch takes to go on from what is held, over a link that is no worse than most.
const RESUMES: Duration = Duration::from_secs(1);

impl Asked<'_> {
    /// How old what the subscription holds may be.
    pub(super) fn age(&self, subscription: &Subscription) -> Age {
        subscription.age(self.hub.upstream.is_up())
    }

    /// The same for a read of the most recent state: a watch that has yet to tell what happened during a cut is as good as none.
    fn current_age(&self, subscription: &Subscription) -> Age {
        let age = self.age(subscription);
        Age { watching: age.watching && !subscription.is_behind(), ..age }
    }

    /// The same once more: a watch whose connection was silent for longer than the policy allows, as an idle one is, is asked for a sign of life
    /// first, which costs less than to ask for the state.
    pub(super) async fn proved_age(&self, subscription: &Subscription, policy: Policy) -> Age {
        let age = self.current_age(subscription);
        let Policy::Bounded(within) = policy else { return age };
        if !age.watching || age.proved <= within {
            return age;
        }
        if let Some(source) = subscription.source() {
            source.prove(within).await;
        }
        self.current_age(subscription)
    }

    /// Whether what the subscription holds will do for a read of the most recent state. What is filtered is answered here or not at all, and so is whoever has
    /// nothing to show the API server. `first`: it has waited for the first list. Until the watch has told what happened while a list was on its way, readers are
    /// shown that list with its age, too.
    pub(super) async fn most_recent(&self, subscription: &Subscription, first: bool) -> Verdict {
        let policy = self.hub.sharing.load().freshness(&self.key().resource);
        let may_ask = self.goes_on && self.may_ask();
        if !self.sees_own_writes(subscription, policy, None).await && may_ask {
            return Verdict::Forward;
        }
        if let Some(listed) = subscription.listed().filter(|_| first || subscription.is_untold())
            && let Some(verdict) = freshness::first_list(policy, listed >= self.came, listed.elapsed())
        {
            return verdict;
        }
        if may_ask {
            // What was missed may not be told yet when the watch is open.
            if matches!(policy, Policy::Bounded(_))
                && self.resumed(subscription).await
                && self.hub.upstream.is_up()
            {
                return Verdict::Forward;
            }
            let age = self.proved_age(subscription, policy).await;
            return freshness::most_recent(policy, age, self.hub.upstream.is_up());
        }
        let began = Instant::now();
        let verdict = || freshness::most_recent_held(policy, self.current_age(subscription), began.elapsed());
        let within = match policy {
            Policy::Bounded(within) => within,
            Policy::Strict | Policy::Any => Duration::ZERO,
        };
        let mut progress = subscription.progress();
        let mut link = self.hub.upstream.state();
        let proof = async {
            while verdict() != (Verdict::Held { stale: None }) && self.hub.upstream.is_up() {
                progress.borrow_and_update();
                link.borrow_and_update();
                if let Some(source) = subscription.source() {
                    source.prove(within).await;
                    if verdict() == (Verdict::Held { stale: None }) {
                        return;
                    }
                }
                let changed = tokio::select! {
                    changed = progress.changed() => changed,
                    changed = link.changed() => changed,
                };
                if changed.is_err() {
                    return;
                }
            }
        };
        if policy != Policy::Any {
            // Without a proof in time it is as old as it is.
            let _ = timeout(PROOF, proof).await;
        }
        verdict()
    }

    /// Waits while what happened during a cut is on its way, and says whether it was waited for with a list; `None`: it is on its way still. A watch that is handed on
    /// crosses the link for its reader alone for as long as it lasts, on top of what is being told. Without a link what is held is all that there is.
    pub(super) async fn catches_up(&self, subscription: &Subscription) -> Option<bool> {
        let policy = self.hub.sharing.load().freshness(&self.key().resource);
        if !matches!(policy, Policy::Bounded(_)) || self.filter.is_some() || !self.goes_on {
            return Some(false);
        }
        let (mut progress, mut link) = (subscription.progress(), self.hub.upstream.state());
        let told = async {
            let mut waited_for = None;
            loop {
                link.borrow_and_update();
                let brings = subscription.brought_by(&progress.borrow_and_update());
                if brings.is_none() || !self.hub.upstream.is_up() {
                    return waited_for;
                }
                waited_for = brings;
                let changed = tokio::select! {
                    changed = progress.changed() => changed,
                    changed = link.changed() => changed,
                    () = subscription.closed().cancelled() => return None,
                };
                if changed.is_err() {
                    return None;
                }
            }
        };
        match timeout(CATCHES_UP, told).await {
            Ok(waited_for) => Some(waited_for == Some(Brings::List)),
            Err(_) => (!self.hub.upstream.is_up()).then_some(false),
        }
    }

    /// Waits a moment for what was written through the hub before, to that object if it is about one. Says whether the subscription has it, or nobody
    /// else can be asked.
    pub(super) async fn sees_own_writes(
        &self,
        subscription: &Subscription,
        policy: Policy,
        one: Option<&ObjectKey>,
    ) -> bool {
        let writes = &self.hub.own_writes;
        if policy == Policy::Strict || !writes.are_any(&self.key().resource) {
            return true;
        }
        let held = || {
            let held = subscription.read(Cache::snapshot);
            held.map_or(Held::All, |held| writes.are_held(subscription.key(), &held, one))
        };
        let mut news = subscription.changes();
        let mut link = self.hub.upstream.state();
        let told = async {
            while held() == Held::NotYet && self.hub.upstream.is_up() {
                let next = tokio::select! {
                    next = news.changed() => next,
                    next = link.changed() => next,
                };
                if next.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(TOLD, told).await;
        !self.hub.upstream.is_up() || held() == Held::All
    }

    /// The same of a read that names a version. That may be of a time that what is held is not of: while something says so it is to be asked again,
    /// also without a link, for its reader keeps what it has and misses nothing that could be told. The API server is not asked about a doubt: it
    /// cannot tell a version of another time, its answer may be ahead of what is held for long, and without a link nobody could go on from there.
    /// Without a doubt it is, while it says that there is no such resource any more. Whoever is shown a filtered view has all versions from here.
    pub(super) async fn at_version(&self, subscription: &Subscription) -> Verdict {
        self.resumed(subscription).await;
        if self.filter.is_none() {
            if subscription.is_doubted() {
                return Verdict::NotYet;
            }
            if self.hub.upstream.is_up() && subscription.progress().borrow().is_gone() {
                return Verdict::Forward;
            }
        }
        freshness::any(self.age(subscription))
    }

    /// Waits a moment while the upstream watch is about to go on from what is held, and says whether it did: what is held is known then
    /// to be of the time that the API server is in. Versions that a client has seen say nothing of one before that.
    async fn resumed(&self, subscription: &Subscription) -> bool {
        if self.age(subscription).watching {
            return false;
        }
        // One that was opened for this read has not begun.
        let went_on = subscription.went_on().unwrap_or_else(Instant::now);
        let (mut progress, mut link) = (subscription.progress(), self.hub.upstream.state());
        let settled = async {
            tokio::select! {
                _ = link.wait_for(|state| !matches!(state, LinkState::Up(_))) => {}
                _ = progress.wait_for(|progress| matches!(progress, Progress::Watching | Progress::Refused(_))) => {}
            }
        };
        let _ = timeout_at(went_on + RESUMES, settled).await;
        true
    }
}

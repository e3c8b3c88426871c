//! Keeps one subscription as upstream has it: lists once, then watches, and goes on from where it was after every cut.
//!
//! ```text
//!  link up ─► list (pages, kept over cuts) ─► replace ─► watch ─► apply ─► … cut ─► watch from the same version
//!                 ▲                                        │ 410
//!                 └────────────────────────────────────────┘
//! ```
//! What changed is given to the store before any reader sees it, so that a client never knows more than the disk after `kill -9`, as long as the disk
//! takes anything.

mod course;
mod ended;
mod epoch;
mod kinds;
mod list;
mod pauses;
mod scopes;
mod telling;
mod timer;
mod undone;
mod watch;
mod writing;

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube_wire::{resource_version::ResourceVersion, status::Status};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};
use watch_cache::{Cache, Replaced};

use self::{
    course::Course,
    ended::Ended,
    epoch::Believed,
    pauses::{Attempt, Pauses},
    undone::Undone,
};
pub use self::{scopes::Scopes, writing::Writing};
use crate::{
    metrics::{Meters, Resync},
    storage::Storage,
    subscriptions::{Key, Progress, Subscription},
    upstream::{Credential, LinkState, Upstream},
};

/// How long after a link's end the next attempt is made.
const SPREAD: Duration = Duration::from_millis(20);

/// A watch that the server ended sooner told nothing, and another is not asked for at once.
const SHORT: Duration = Duration::from_secs(1);

/// How long the API server says that there is no such resource before what is held of it is withdrawn, from the disk too: one that
/// has just started may not know its custom resources yet.
pub(crate) const WITHDRAWN: Duration = Duration::from_secs(5);

/// Runs subscriptions against one upstream and one store.
#[derive(Clone)]
pub struct Reflector {
    upstream: Upstream,
    storage: Storage,
    meters: Meters,
    undone: Arc<Undone>,
    scopes: Arc<Scopes>,
}

impl Reflector {
    /// A reflector for all subscriptions of the hub; `restored` is what the store had, by their names.
    pub fn new(
        upstream: Upstream,
        storage: Storage,
        meters: Meters,
        restored: &HashMap<String, Cache>,
    ) -> Self {
        let stored =
            restored.iter().filter_map(|(name, cache)| Some((name.clone(), cache.resource_version()?)));
        let undone = Arc::new(Undone::new(storage.clone(), stored.collect()));
        Self { upstream, storage, meters, undone, scopes: Arc::default() }
    }

    /// Whether there is a link.
    pub fn is_linked(&self) -> bool {
        self.upstream.is_up()
    }

    /// Forgets what the store has of the subscription of that name.
    pub fn forget(&self, name: &str) {
        if let Err(error) = self.storage.forget(name) {
            warn!(key = name, %error, "cannot remove a subscription from the store");
        }
        self.undone.forget(name);
    }

    /// Stores that nothing else happened to the subscription up to `version`.
    pub fn bookmark(&self, key: &Key, version: ResourceVersion) {
        self.storage.bookmark(key, version);
    }

    /// Keeps `subscription` until it is closed. A list may be on its way to the disk still.
    pub async fn run(&self, subscription: &Subscription, writing: &Writing) {
        let listed_after = self.undone.listed_after(&subscription.key().to_string());
        let mut course = Course::new(subscription.version(), listed_after);
        tokio::select! {
            () = subscription.closed().cancelled() => {}
            () = self.keep(subscription, writing, &mut course) => {}
        }
        self.come(subscription, course.listed_after);
    }

    async fn keep(&self, subscription: &Subscription, writing: &Writing, course: &mut Course) {
        let resource = &subscription.key().resource;
        let mut pauses = Pauses::new();
        let mut missing: Option<Instant> = None;
        loop {
            self.linked(subscription).await;
            self.heed(subscription, course);
            let current = subscription.credential();
            let mut link = self.upstream.state();
            link.mark_unchanged();
            let began = Instant::now();
            subscription.goes_on(began);
            let (watches, pages) = (course.relist.is_none(), course.listing.pages());
            let Err(ended) = self.go_on(subscription, writing, &current, course).await else { continue };
            subscription.was_cut();
            self.come(subscription, course.listed_after);
            let came = course.listing.pages().saturating_sub(pages);
            let attempt = if watches { Attempt::Watch(began.elapsed()) } else { listed(&ended, came) };
            pauses.ended(attempt);
            course.diverged &= !(watches && attempt.came_to_something());
            debug!(key = %subscription.key(), %ended, "upstream");
            let is_missing = matches!(&ended, Ended::Refused(status) if status.code == 404);
            missing = missing.filter(|_| is_missing).or(is_missing.then_some(began));
            let in_vain = is_in_vain(&ended, watches, &pauses);
            match ended {
                Ended::Done if began.elapsed() > SHORT => continue,
                // The next may be as short. Readers wait for it, if it is soon.
                Ended::Done => {
                    subscription.goes_on(Instant::now() + pauses.now().min(SHORT));
                    subscription.set_progress(Progress::Interrupted);
                }
                Ended::Expired => {
                    course.anew(Resync::Expired);
                    // Not at once: a server whose history is short would be listed without end.
                    subscription.set_progress(Progress::Interrupted);
                }
                Ended::Rewound { known, theirs } => {
                    warn!(key = %subscription.key(), %known, %theirs, "upstream went back in time: it is listed anew");
                    subscription.doubt(true);
                    subscription.set_progress(Progress::Interrupted);
                    self.undone.notice(resource, course.listed_after, true);
                    // A list that does not help either is of an API that has versions of its own for each caller.
                    course.believed.others = course.diverges();
                    if course.believed.others {
                        continue;
                    }
                }
                Ended::Diverged { reason, is_certain } => {
                    warn!(key = %subscription.key(), reason, "what is held is not what upstream has: it is listed anew");
                    subscription.doubt(true);
                    subscription.set_progress(Progress::Interrupted);
                    // A list that does not help either is what upstream has; then it miscounts.
                    course.believed.counts = course.diverges();
                    if course.believed.counts {
                        self.undone.notice(resource, course.listed_after, is_certain);
                        continue;
                    }
                }
                Ended::Passed => {
                    self.withdraw(subscription, writing, course).await;
                    continue;
                }
                Ended::Link(_) => {
                    subscription.set_progress(subscription.on_its_way());
                    // The link's own pauses hold where it broke; this one spreads the subscriptions.
                    sleep(SPREAD).await;
                    let broke = link.has_changed().unwrap_or(true);
                    if !broke && !watches {
                        course.listing.broke_off();
                    }
                    if broke || pauses.first_that_broke_off() {
                        continue;
                    }
                }
                Ended::Refused(status) if passes_on(subscription, &current, &status) => continue,
                Ended::Refused(status) => {
                    let withdrawn = missing.is_some_and(|since| since.elapsed() > WITHDRAWN);
                    self.refused(subscription, status, withdrawn);
                    if withdrawn {
                        self.withdraw(subscription, writing, course).await;
                    }
                }
                Ended::Unreadable(reason) => {
                    warn!(key = %subscription.key(), %reason, "cannot read what upstream sent");
                    subscription.set_progress(subscription.on_its_way());
                    course.anew(Resync::Unreadable);
                }
            }
            if in_vain {
                subscription.tries_in_vain();
            }
            self.pause(subscription, link, pauses.now(), course.relist.is_some()).await;
            // It is there again, and readers know more of it than what is held, which is of the time before.
            if is_missing && subscription.was_passed_by() {
                self.withdraw(subscription, writing, course).await;
            }
            pauses.made();
        }
    }

    /// Waits before the next attempt, unless something is new: another link, since this one was begun to be used, too. That upstream went back in time is known to readers meanwhile, too; `relists`: the
    /// next attempt is a list in any case.
    async fn pause(
        &self,
        subscription: &Subscription,
        mut link: tokio::sync::watch::Receiver<LinkState>,
        pause: Duration,
        relists: bool,
    ) {
        let undone = async {
            self.undone.since(&subscription.key().resource, &subscription.key().to_string()).await;
            subscription.doubt(true);
            if relists {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = subscription.carried_anew() => {}
            _ = link.changed() => {}
            () = undone => {}
        }
    }

    /// Lists, or watches until that ends.
    async fn go_on(
        &self,
        subscription: &Subscription,
        writing: &Writing,
        credential: &Credential,
        course: &mut Course,
    ) -> Result<(), Ended> {
        // Of what was cut short before.
        writing.done().await;
        if let Some(why) = course.relist {
            self.relist(subscription, writing, credential, course, why).await?;
            (course.relist, course.holds) = (None, true);
            self.meters.resync(why);
            return Ok(());
        }
        let (upstream, storage) = (&self.upstream, &self.storage);
        let key = subscription.key();
        let name = key.to_string();
        let known = (&*self.undone, course.believed);
        let watch =
            watch::run(upstream, (storage, writing), subscription, credential, known, &mut course.holds);
        let watched = tokio::select! {
            watched = watch => watched.map(|never| match never {}),
            () = self.undone.since(&key.resource, &name) => Ok(()),
            () = self.undone.outdated(&key.resource, &name) => Ok(()),
        };
        if matches!(watched, Err(Ended::Link(_))) {
            subscription.was_lost();
        }
        subscription.set_source(None);
        watched
    }

    /// The API server refuses; `for_long`: it has said for a while that there is no such resource.
    fn refused(&self, subscription: &Subscription, status: Box<Status>, for_long: bool) {
        // One that has just started may not know its definitions yet.
        if status.code == 404 && (for_long || subscription.version().is_none()) {
            self.scopes.hear(subscription.key(), false);
        }
        if *subscription.progress().borrow() != Progress::Refused(status.clone()) {
            info!(key = %subscription.key(), reason = status.message, "the API server refuses");
        }
        subscription.set_progress(Progress::Refused(status));
    }

    /// Lets go of what is held, if there is anything: all is listed next.
    async fn withdraw(&self, subscription: &Subscription, writing: &Writing, course: &mut Course) {
        if subscription.version().is_none() {
            return;
        }
        info!(key = %subscription.key(), "there is no such resource any more: what was held is withdrawn");
        subscription.write(Cache::reset);
        let (this, name) = (self.clone(), subscription.key().to_string());
        writing.write(move || this.forget(&name)).await;
        course.anew(Resync::First);
    }

    async fn linked(&self, subscription: &Subscription) {
        let mut state = self.upstream.state();
        if !matches!(*state.borrow(), LinkState::Up(_)) {
            subscription.set_progress(subscription.on_its_way());
            subscription.tries_anew();
        }
        // The sender lives as long as the process.
        let _ = state.wait_for(|state| matches!(state, LinkState::Up(_))).await;
    }

    async fn relist(
        &self,
        subscription: &Subscription,
        writing: &Writing,
        credential: &Credential,
        course: &mut Course,
        why: Resync,
    ) -> Result<(), Ended> {
        let (name, resource) = (subscription.key().to_string(), &subscription.key().resource);
        if !course.listing.has_begun() {
            course.before = (self.undone.times(resource), self.undone.furthest(resource));
        }
        course.listing.fetch(&self.upstream, subscription, credential).await?;
        let (objects, version, began) = std::mem::take(&mut course.listing).finish().ok_or(Ended::Expired)?;
        let (mut undone, furthest) = course.before;
        let furthest = furthest.filter(|furthest| course.believed.others && version < *furthest);
        if let Some(furthest) = furthest {
            warn!(key = name, %furthest, %version, "upstream went back in time, as a list shows");
            undone += u64::from(self.undone.notice(resource, undone, true));
        }
        let count = objects.len();
        // Before the lock that readers need: the disk takes its time for a whole list, and nobody else writes this subscription.
        let (this, key, kind, listed) =
            (self.clone(), subscription.key().clone(), subscription.kind(), objects.clone());
        let store = move || {
            let is_stored = this.storage.replace(&key, &listed, version);
            this.undone.list(&key.to_string(), undone, is_stored);
            this.keep_kind(&key.resource, kind.as_deref());
        };
        subscription.stored().lock().is_at(None);
        writing.write(store).await;
        let replaced = subscription.write(|cache| {
            if why == Resync::Diverged || furthest.is_some() {
                // What led there is not what happened, though the list may be the same.
                cache.reset();
            }
            match cache.replace(objects.clone(), version) {
                Ok(replaced) => replaced,
                Err(rewind) => {
                    warn!(key = name, %rewind, "upstream went back in time: a new epoch begins");
                    cache.reset();
                    // A cache that was just reset takes any list.
                    cache.replace(objects, version).unwrap_or(Replaced::First)
                }
            }
        });
        subscription.stored().lock().is_at(Some(version));
        course.listed_after = undone;
        subscription.became_whole(began);
        self.scopes.hear(subscription.key(), true);
        if subscription.in_namespaces() == Some(true) {
            self.scopes.say(&subscription.key().resource, true);
        }
        info!(key = %subscription.key(), objects = count, %version, ?replaced, "listed");
        Ok(())
    }
}

/// The attempt of a list of which so many pages came.
fn listed(ended: &Ended, pages: usize) -> Attempt {
    // None of them is kept.
    let is_lost = matches!(ended, Ended::Expired | Ended::Unreadable(_));
    Attempt::List(if is_lost { 0 } else { pages })
}

/// Whether readers are not to wait for what the next attempt brings, if a pause comes after this one: however well the link stands, it may come to no more. That all has to be
/// listed is no such reason, and of a refusal the progress tells.
fn is_in_vain(ended: &Ended, watches: bool, pauses: &Pauses) -> bool {
    match ended {
        Ended::Link(_) => true,
        // The list takes longer than the API server keeps what it is read from, or there is no reading it. After a watch a list may be better.
        Ended::Expired | Ended::Unreadable(_) => !watches,
        // A server may end, once.
        Ended::Done => !pauses.is_first(),
        Ended::Rewound { .. } | Ended::Diverged { .. } | Ended::Passed | Ended::Refused(_) => false,
    }
}

/// Whether it was the credential that was refused, and another of those who read the subscription goes on with its own: nobody of them
/// notices.
fn passes_on(subscription: &Subscription, credential: &Credential, status: &Status) -> bool {
    if ![401, 403].contains(&status.code) || !subscription.refuse(credential) {
        return false;
    }
    info!(key = %subscription.key(), reason = status.message, "another of its users carries it on");
    subscription.set_progress(subscription.on_its_way());
    true
}

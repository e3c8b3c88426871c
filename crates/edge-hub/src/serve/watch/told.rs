//! What one watcher is told, and what else may happen to it meanwhile.

mod goes_on;
mod otherwise;

use std::{sync::Arc, time::Duration};

use axum::body::Bytes;
use futures::{
    Stream, StreamExt,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};
use kube_wire::{resource_version::ResourceVersion, status::Status};
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};
use watch_cache::{Cursor, Delivery, Step};

use super::{outgoing::Outgoing, view_changed};
use crate::{
    authorize::{Attributes, Subject, Undecided},
    filters::{Client, Filter},
    hub::Hub,
    serve::{Asked, TOO_LARGE, encode::Encoder, filtered::Filtered},
    subscriptions::{Attached, Carrier, Progress, Subscription},
};

/// How many events or objects are looked at under one lock.
const BUDGET: usize = 64;

/// A chunk ends at this many bytes.
const LENGTH: usize = 64 << 10;

/// How often a watch that asked for bookmarks gets one, as the API server does.
const BOOKMARK: Duration = Duration::from_mins(1);

/// How long before its end a watch gets a last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// How long a watch from a version that the hub has not come to waits before the API server is asked whether it has.
const AHEAD: Duration = TOO_LARGE;

/// One client's watch.
///
/// With many watchers an event costs the processor what each of them does to be told and to wait again. So all but the next change of
/// the cache is waited for by one future, which is made anew only after it has come to pass, and of which nothing is asked before.
pub(super) struct Watch {
    /// What else may happen, one at a time.
    seldom: FuturesUnordered<BoxFuture<'static, Seldom>>,
    /// Whether the API server says that there is nothing to watch any more.
    gone: bool,
    /// Whether there is nothing to tell but what comes with the next change of the cache.
    looked: bool,
    hub: Arc<Hub>,
    subject: Subject,
    attributes: Attributes,
    subscription: Arc<Subscription>,
    /// For as long the watcher may carry the subscription.
    _attached: Attached,
    /// What is newer than this is told as an event, and what is not as the initial state.
    began: ResourceVersion,
    /// Whether something came that cannot be written: the watch ends before it, and its client goes on at the API server.
    untold: bool,
    cursor: Cursor<Filtered>,
    client: Client,
    /// By what name it is remembered how the client was shown it.
    reader: Box<str>,
    revision: Receiver<u64>,
    /// The filter in force when that was last looked at: another than the one that it goes by if it could not turn to it yet.
    in_force: Option<Arc<Filter>>,
    changes: Receiver<u64>,
    progress: Receiver<Progress>,
    /// Where the watch began, while that lies in the future; when that is looked into, and with whose credential; a review
    /// that goes well offers it to the stream.
    ahead: Option<ResourceVersion>,
    look: Instant,
    carrier: Carrier,
    encoder: Encoder,
    ends: Instant,
    bookmark: Instant,
    review: Instant,
    undecided: Undecided,
}

type Chunk = Result<Bytes, std::convert::Infallible>;

/// What a watch waits for besides changes of what it tells.
enum Seldom {
    /// A time that was set: for a bookmark, a review, a look or the end.
    Due,
    /// The upstream side is otherwise.
    Progress,
    /// Filters are.
    Revision,
    /// The subscription or the hub ends.
    Over,
}

impl Watch {
    /// A watch of that client, from where it begins on, for as long as a watch lasts that says nothing of that.
    pub(super) fn new(
        asked: &Asked<'_>,
        subscription: Arc<Subscription>,
        (cursor, began): (Cursor<Filtered>, ResourceVersion),
        encoder: Encoder,
        revision: Receiver<u64>,
    ) -> Self {
        let (hub, now) = (asked.hub.clone(), Instant::now());
        Self {
            seldom: FuturesUnordered::new(),
            gone: false,
            looked: false,
            ahead: None,
            look: now + AHEAD,
            carrier: asked.carrier.clone(),
            progress: subscription.progress(),
            subject: asked.named.subject.clone(),
            attributes: asked.attributes.clone(),
            changes: subscription.changes(),
            _attached: subscription.attach(&asked.carrier.user),
            subscription,
            began,
            untold: false,
            cursor,
            client: asked.client.clone(),
            reader: asked.reader.clone(),
            revision,
            in_force: asked.filter.clone(),
            encoder,
            ends: now,
            bookmark: now,
            review: now + hub.lifetimes.review,
            undecided: Undecided::default(),
            hub,
        }
    }

    /// The same, from a version that may lie in the future.
    pub(super) fn from(self, ahead: Option<ResourceVersion>) -> Self {
        Self { ahead, ..self }
    }

    /// The same, for so long.
    pub(super) fn lasts(self, lasts: Duration) -> Self {
        let now = Instant::now();
        let bookmark = now + BOOKMARK.min(lasts.saturating_sub(LAST_BOOKMARK));
        Self { ends: now + lasts, bookmark, ..self }
    }

    /// What it tells, until it ends.
    pub(super) fn chunks(self) -> impl Stream<Item = Chunk> + Send {
        stream::unfold(Some(Box::new(self)), async |watch| watch?.next().await)
    }

    /// The next chunk and the watch that goes on, or `None` at its end.
    async fn next(mut self: Box<Self>) -> Option<(Chunk, Option<Box<Self>>)> {
        loop {
            // Here, too: who is always behind never comes to wait below.
            if self.subscription.closed().is_cancelled() {
                return None;
            }
            // In a box of its own while it lasts: a review takes much room, and each watch would have it all the time.
            if Instant::now() >= self.next_due()
                && let Some(status) = Box::pin(self.due()).await?
            {
                return Some((Ok(self.encoder.error(&status)), None));
            }
            if !self.looked || self.changes.has_changed().unwrap_or(true) || self.is_to_turn() {
                let mut out = Outgoing::default();
                let mut status = self.fill(&mut out);
                // After the cache was looked at: nothing that came after a filter was replaced goes out by that filter without the rest.
                if status.is_none() && !self.untold && self.is_to_turn() {
                    status = Box::pin(self.turn(&mut out)).await;
                }
                if let Some(status) = status {
                    out.push(self.encoder.error(&status));
                    return Some((Ok(out.take()?), None));
                }
                match out.take() {
                    out if self.untold => return out.map(|out| (Ok(out), None)),
                    Some(out) => return Some((Ok(out), Some(self))),
                    None => {}
                }
            }
            if self.seldom.is_empty() {
                // The progress is known from here on: what changes later is told.
                let progress = self.progress.borrow_and_update().clone();
                self.gone = progress.is_gone() || progress.is_unauthorized() && self.has_another_stream();
                self.seldom.push(self.seldom());
            }
            // As the API server does when a definition is deleted, or access to all of it.
            if self.gone {
                return None;
            }
            let seldom = tokio::select! {
                biased;
                seldom = self.seldom.next() => seldom,
                changed = self.changes.changed() => {
                    // Not yet seen: it is looked at now.
                    self.looked = false;
                    if changed.is_err() { return None }
                    continue;
                }
            };
            match seldom {
                Some(Seldom::Due | Seldom::Progress | Seldom::Revision) => {}
                Some(Seldom::Over) | None => return None,
            }
            // What was told before the upstream side changed comes before what follows from that.
            self.looked = false;
        }
    }

    /// Waits for what happens besides changes of the cache. It has seen what the watch has seen.
    fn seldom(&self) -> BoxFuture<'static, Seldom> {
        let (mut progress, mut revision) = (self.progress.clone(), self.revision.clone());
        let closed = self.subscription.closed().clone();
        let due = self.next_due();
        Box::pin(async move {
            tokio::select! {
                () = sleep_until(due) => Seldom::Due,
                changed = progress.changed() => changed.map_or(Seldom::Over, |()| Seldom::Progress),
                changed = revision.changed() => changed.map_or(Seldom::Over, |()| Seldom::Revision),
                () = closed.cancelled() => Seldom::Over,
            }
        })
    }

    /// The next time that was set: for a bookmark, the end, a review, or a look at a version that lies in the future.
    fn next_due(&self) -> Instant {
        let due = self.bookmark.min(self.ends).min(self.review);
        self.ahead.map_or(due, |_| due.min(self.look))
    }

    /// Does what is due now; `None` at the end of the watch, a status to end it with.
    async fn due(&mut self) -> Option<Option<Status>> {
        let now = Instant::now();
        if self.ahead.is_some()
            && now >= self.look
            && let Some(status) = self.never_comes().await
        {
            return Some(Some(status));
        }
        if now >= self.bookmark {
            self.bookmark_due();
        }
        let ends = now >= self.ends || now >= self.review && !self.may_go_on().await;
        (!ends).then_some(None)
    }

    /// Writes what there is to tell, up to a chunk. A status ends the watch.
    fn fill(&mut self, out: &mut Outgoing) -> Option<Status> {
        self.looked = false;
        // Before the cache is looked at: a change after that wakes us again.
        self.changes.mark_unchanged();
        while out.len() < LENGTH {
            let cursor = &mut self.cursor;
            match self.subscription.read(|cache| cursor.next(cache, BUDGET)) {
                Step::Events(deliveries) if !deliveries.is_empty() && self.encoder.is_of_lists() => {
                    self.untold = true;
                    return None;
                }
                Step::Events(deliveries) => {
                    for delivery in deliveries {
                        if self.is_corrected(&delivery) {
                            return Some(view_changed());
                        }
                        let is_news = self.is_news(&delivery);
                        let delivery = self.cursor.selects().shown(delivery, self.began);
                        match self.encoder.delivery(&delivery, is_news, &self.hub.meters) {
                            Ok(text) => out.push(text),
                            Err(error) => {
                                warn!(key = %self.subscription.key(), %error, "an object cannot be shown as JSON");
                                self.untold(&delivery);
                                return None;
                            }
                        }
                    }
                    self.looked = self.cursor.has_caught_up();
                    if self.looked {
                        return None;
                    }
                }
                Step::Idle => {
                    self.looked = true;
                    return None;
                }
                Step::Expired { oldest, asked } => {
                    self.hub.meters.watch_expired();
                    debug!(key = %self.subscription.key(), %asked, "a watch has expired");
                    let status = match oldest {
                        Some(oldest) => Status::too_old(asked, oldest),
                        None => Status::expired("edge-hub: the API server began anew, and is being listed"),
                    };
                    return Some(status);
                }
            }
        }
        None
    }

    /// The filter that it goes by.
    fn filter(&self) -> Option<&Arc<Filter>> {
        self.cursor.selects().filter()
    }

    /// Whether it is an event, and no part of the state that the watch begins with: others are told of it, too.
    fn is_news(&self, delivery: &Delivery) -> bool {
        match delivery {
            Delivery::Added(object) | Delivery::Modified(object) => object.resource_version() > self.began,
            Delivery::Deleted(_) => true,
            Delivery::InitialEnd(_) | Delivery::Bookmark(_) => false,
        }
    }

    /// Ends the watch before `delivery`. Its client, which has all before it, goes on from there at the API server.
    fn untold(&mut self, delivery: &Delivery) {
        if let Delivery::Added(object) | Delivery::Modified(object) | Delivery::Deleted(object) = delivery {
            self.subscription.untold_as_json(object.resource_version());
        }
        self.untold = true;
    }

    /// Whether the version from which the watch began belongs to a time that the API server does not know: it was restored
    /// from a backup since. An API server is silent then until its versions come that far, and what it wrote before is missed.
    async fn never_comes(&mut self) -> Option<Status> {
        let began = self.ahead?;
        if self.subscription.version().is_some_and(|current| current >= began) {
            self.ahead = None;
            return None;
        }
        self.look = Instant::now() + AHEAD;
        let subscriptions = &self.hub.subscriptions;
        let theirs = subscriptions.upstream_version(&self.subscription, &self.carrier.credential).await?;
        // It has come there: its events are on their way, or none of them is about this resource.
        self.ahead = None;
        (theirs < began).then(|| Status::too_large(began, Some(theirs)))
    }

    /// Whether it is an event about an object that is shown with a correction. Clients go on from the version in an event, and that of
    /// a correction is none to go on from: they list anew.
    fn is_corrected(&self, delivery: &Delivery) -> bool {
        let (Some(filter), Delivery::Added(object) | Delivery::Modified(object)) = (self.filter(), delivery)
        else {
            return false;
        };
        self.is_news(delivery) && filter.corrects(object)
    }

    fn bookmark_due(&mut self) {
        self.cursor.request_bookmark();
        let now = Instant::now();
        let last = self.ends.checked_sub(LAST_BOOKMARK).unwrap_or(self.ends);
        // After the last one no other comes before the end.
        self.bookmark = if now >= last { self.ends + BOOKMARK } else { (now + BOOKMARK).min(last) };
    }
}

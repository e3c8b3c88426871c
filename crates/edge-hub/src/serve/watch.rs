//! A watch on what is held. It stays open while the link is cut; its cursor reads the shared history when the client is ready
//! for more, so a client that does not read holds nobody up.

use std::{sync::Arc, time::Duration};

use axum::body::{Body, Bytes};
use futures::stream;
use http::{HeaderValue, Response};
use kube_wire::{
    list_options::{WatchRequest, WatchStart},
    request::Verb,
    resource_version::ResourceVersion,
    status::Status,
};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};
use watch_cache::{Cache, Cursor, Delivery, Step, WatchAnswer};

use super::{
    Asked, Rather, Read, complete, counted,
    encode::Encoder,
    filtered::{self, Filtered},
    headers, reached,
};
use crate::{
    authorize::{Attributes, Decision, Subject},
    filters::{Client, Filter},
    freshness::{self, Verdict},
    hub::Hub,
    reflector::upstream_version,
    subscriptions::{Attached, Carrier, Progress, Subscription},
};

/// How many events or objects are looked at under one lock.
const BUDGET: usize = 64;

/// A chunk ends at this many bytes.
const CHUNK: usize = 64 << 10;

/// How often a watch that asked for bookmarks gets one, as the API server does.
const BOOKMARK: Duration = Duration::from_mins(1);

/// How long before its end a watch gets a last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// How long a watch from a version that the hub has not come to waits before the API server is asked whether it has.
const AHEAD: Duration = super::TOO_LARGE;

/// The shortest life of a watch that names none; the longest is twice that.
const LIFE: Duration = Duration::from_mins(30);

pub(super) async fn answer(asked: &Asked<'_>, request: WatchRequest) -> Result<Read, Box<Status>> {
    let hub = asked.hub;
    if matches!(asked.table, Rather::TableOnly(_)) {
        return Err(Box::new(Status::not_acceptable(&["application/json"])));
    }
    let opened =
        hub.subscriptions.open(&asked.key, asked.is_protobuf(), &asked.carrier, asked.is_cache_agent());
    let Some(subscription) = opened else { return Ok(Read::HandOn) };
    let first = subscription.version().is_none();
    match complete(hub, &subscription).await {
        Ok(true) => {}
        Ok(false) => return Ok(Read::HandOn),
        Err(status) if status.code == 503 => return Err(Box::new(Status::not_ready(5))),
        Err(status) => return Err(status),
    }
    let Some(encoder) = asked.encoder(&subscription) else { return Ok(Read::HandOn) };
    let from = match request.start {
        WatchStart::After(version) => Some(version),
        WatchStart::Initial { .. } | WatchStart::Live { .. } => None,
    };
    if encoder.transcodes() && subscription.is_told_as_json(from).is_err() {
        return if hub.upstream.is_up() { Ok(Read::HandOn) } else { Err(Box::new(Status::not_ready(5))) };
    }
    let stale = match verdict(asked, &subscription, &request.start, first).await {
        Verdict::Held { stale } => stale,
        Verdict::Forward => return Ok(Read::HandOn),
        Verdict::Unavailable => return Err(Box::new(Status::not_ready(5))),
    };
    let mut revision = hub.filters.revision();
    // The filter was chosen before: a change since then is noticed at once.
    revision.mark_changed();
    let start = match &request.start {
        WatchStart::Initial { at_least: Some(version), .. } if !reached(&subscription, *version).await => {
            // Upstream tells of versions without a change once a minute: it may have come there, and alone knows. What is filtered
            // is answered here or not at all.
            if hub.upstream.is_up() && asked.filter.is_none() {
                return Ok(Read::HandOn);
            }
            Err(Status::too_large(*version, subscription.version()))
        }
        _ => begin(&subscription, &request, asked),
    };
    let lasts = request.timeout.unwrap_or_else(life);
    let now = Instant::now();
    let content_type = HeaderValue::from_static(encoder.watch_content_type());
    let body = match start {
        // The request was good; that it cannot be served is told within the stream, where clients look for it.
        Err(status) => Body::from(encoder.error(&status)),
        Ok((cursor, began)) => {
            let counting = subscription.clone();
            let watch = Watch {
                ahead: from.filter(|version| subscription.version().is_none_or(|current| current < *version)),
                look: now + AHEAD,
                carrier: asked.carrier.clone(),
                progress: subscription.progress(),
                hub: hub.clone(),
                subject: asked.named.subject.clone(),
                attributes: asked.attributes.clone(),
                changes: subscription.changes(),
                _attached: subscription.attach(&asked.carrier.user),
                subscription,
                began,
                untold: false,
                cursor,
                client: asked.client.clone(),
                filter: asked.filter.clone(),
                revision,
                encoder,
                ends: now + lasts,
                bookmark: now + BOOKMARK.min(lasts.saturating_sub(LAST_BOOKMARK)),
                review: now + hub.lifetimes.review,
            };
            let chunks = stream::unfold(Some(Box::new(watch)), async |watch| watch?.next().await);
            counted(Body::from_stream(chunks), hub, &counting)
        }
    };
    let mut response = Response::new(body);
    headers(&mut response, content_type, stale);
    Ok(Read::Answer(response))
}

/// Whether what is held is recent enough for the watch to begin with, as for a list.
async fn verdict(asked: &Asked<'_>, subscription: &Subscription, start: &WatchStart, first: bool) -> Verdict {
    match start {
        // The first list was made after this request came.
        WatchStart::Initial { most_recent: true, .. } | WatchStart::Live { most_recent: true } if !first => {
            asked.most_recent(subscription).await
        }
        _ => freshness::any(asked.age(subscription)),
    }
}

fn begin(
    subscription: &Subscription,
    request: &WatchRequest,
    asked: &Asked<'_>,
) -> Result<(Cursor<Filtered>, ResourceVersion), Status> {
    match request.start {
        WatchStart::After(_)
            if !asked.hub.filters.saw(&asked.client, &asked.key, asked.filter.as_deref()) =>
        {
            return Err(view_changed());
        }
        WatchStart::Initial { .. } => asked.record(false),
        WatchStart::After(_) | WatchStart::Live { .. } => {}
    }
    let begin = |cache: &Cache| {
        let cursor = filtered::watch(cache, request, asked.scope.clone(), asked.filter.clone())?;
        let began = cursor.resource_version();
        Ok((cursor, began))
    };
    subscription.read(begin).map_err(|answer| match answer {
        WatchAnswer::Expired { oldest, asked } => Status::too_old(asked, oldest),
        WatchAnswer::Behind { current } => Status::too_large(current, Some(current)),
        WatchAnswer::NotComplete => Status::not_ready(1),
    })
}

/// Ends a watch whose client was shown the objects otherwise than it would be now: it lists anew, from the hub.
fn view_changed() -> Status {
    Status::expired("edge-hub: a filter of this client, or what the filter looks at, has changed")
}

/// Between the shortest and the longest life, spread by the clock: watches that began together do not end together.
fn life() -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let thousandths = now.map_or(0, |now| now.subsec_nanos() % 1000);
    LIFE + LIFE.mul_f64(f64::from(thousandths) / 1000.0)
}

/// One client's watch.
struct Watch {
    hub: Arc<Hub>,
    subject: Subject,
    attributes: Attributes,
    subscription: Arc<Subscription>,
    /// For as long the watcher may carry the subscription.
    _attached: Attached,
    /// What is newer than this is told as an event, and what is not as the initial state.
    began: ResourceVersion,
    /// Whether something came that the hub cannot write: the watch ends before it, and its client goes on at the API server.
    untold: bool,
    cursor: Cursor<Filtered>,
    client: Client,
    filter: Option<Arc<Filter>>,
    revision: tokio::sync::watch::Receiver<u64>,
    changes: tokio::sync::watch::Receiver<u64>,
    progress: tokio::sync::watch::Receiver<Progress>,
    /// Where the watch began, while that lies in the future; when that is looked into, and with whose credential; a review
    /// that goes well offers it to the stream.
    ahead: Option<ResourceVersion>,
    look: Instant,
    carrier: Carrier,
    encoder: Encoder,
    ends: Instant,
    bookmark: Instant,
    review: Instant,
}

type Chunk = Result<Bytes, std::convert::Infallible>;

impl Watch {
    /// The next chunk and the watch that goes on, or `None` at its end.
    async fn next(mut self: Box<Self>) -> Option<(Chunk, Option<Box<Self>>)> {
        loop {
            if self.revision.has_changed().unwrap_or(false) && self.is_filtered_otherwise() {
                return Some((Ok(self.encoder.error(&view_changed())), None));
            }
            // Before the cache is looked at: a change after that wakes us again.
            self.changes.borrow_and_update();
            let gone = self.progress.borrow_and_update().is_gone();
            let mut out = Vec::new();
            match self.fill(&mut out) {
                None if self.untold => return (!out.is_empty()).then(|| (Ok(out.into()), None)),
                None if !out.is_empty() => return Some((Ok(out.into()), Some(self))),
                // As the API server does when a definition is deleted, or access to all of it.
                None if gone => return None,
                None => {}
                Some(status) => {
                    out.extend_from_slice(&self.encoder.error(&status));
                    return Some((Ok(out.into()), None));
                }
            }
            let Self {
                changes,
                progress,
                revision,
                subscription,
                hub,
                bookmark,
                ends,
                review,
                ahead,
                look,
                ..
            } = &mut *self;
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return None },
                changed = progress.changed() => if changed.is_err() { return None },
                _ = revision.changed() => self.revision.mark_changed(),
                () = sleep_until(*look), if ahead.is_some() => if let Some(status) = self.never_comes().await {
                    return Some((Ok(self.encoder.error(&status)), None));
                },
                () = sleep_until(*bookmark) => self.bookmark_due(),
                () = sleep_until(*ends) => return None,
                () = sleep_until(*review) => if !self.may_go_on().await { return None },
                () = subscription.closed().cancelled() => return None,
                () = hub.tasks.shutdown().cancelled() => return None,
            }
        }
    }

    /// Writes what there is to tell, up to a chunk. A status ends the watch.
    fn fill(&mut self, out: &mut Vec<u8>) -> Option<Status> {
        while out.len() < CHUNK {
            let cursor = &mut self.cursor;
            match self.subscription.read(|cache| cursor.next(cache, BUDGET)) {
                Step::Events(deliveries) => {
                    for delivery in deliveries {
                        if self.is_corrected(&delivery) {
                            return Some(view_changed());
                        }
                        let delivery = match &self.filter {
                            Some(filter) => filtered::shown(delivery, filter, self.began),
                            None => delivery,
                        };
                        if let Err(error) = self.encoder.delivery(&delivery, out) {
                            warn!(key = %self.subscription.key(), %error, "an object cannot be shown as JSON");
                            self.untold(&delivery);
                            return None;
                        }
                    }
                }
                Step::Idle => return None,
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
        let theirs =
            upstream_version(&self.hub.upstream, &self.subscription, &self.carrier.credential).await?;
        // It has come there: its events are on their way, or none of them is about this resource.
        self.ahead = None;
        (theirs < began).then(|| Status::too_large(began, Some(theirs)))
    }

    /// Whether it is an event about an object that is shown with a correction. Clients go on from the version in an event, and that of
    /// a correction is none to go on from: they list anew.
    fn is_corrected(&self, delivery: &Delivery) -> bool {
        let (Some(filter), Delivery::Added(object) | Delivery::Modified(object)) = (&self.filter, delivery)
        else {
            return false;
        };
        object.resource_version() > self.began && filter.corrects(object)
    }

    /// Whether another filter took the place of the one that the watch began with.
    fn is_filtered_otherwise(&mut self) -> bool {
        self.revision.borrow_and_update();
        let Attributes { resource, group, version, namespace, .. } = &self.attributes;
        let resource = kube_wire::resource::GroupVersionResource::new(group, version, resource);
        let now = self.hub.filters.choose(&self.client, Verb::Watch, &resource, namespace);
        now.as_ref().map(Arc::as_ptr) != self.filter.as_ref().map(Arc::as_ptr)
    }

    fn bookmark_due(&mut self) {
        self.cursor.request_bookmark();
        let now = Instant::now();
        let last = self.ends.checked_sub(LAST_BOOKMARK).unwrap_or(self.ends);
        // After the last one no other comes before the end.
        self.bookmark = if now >= last { self.ends + BOOKMARK } else { (now + BOOKMARK).min(last) };
    }

    /// Whether the watcher still may read this. That nobody can say ends no watch: it went on before. That its token has expired is
    /// known without a link, too.
    async fn may_go_on(&mut self) -> bool {
        self.review = Instant::now() + self.hub.lifetimes.review;
        if let Subject::Token { token, .. } = &self.subject
            && token.has_expired()
        {
            debug!(key = %self.subscription.key(), "a watch ends: its token has expired");
            return false;
        }
        match self.hub.may(&self.subject, &self.attributes).await {
            Decision::Allowed => {
                self.subscription.offer(&self.carrier);
                true
            }
            Decision::Unknown(_) => true,
            Decision::Denied(why) | Decision::Unauthorized(why) => {
                debug!(key = %self.subscription.key(), %why, "a watch ends: access was revoked");
                false
            }
        }
    }
}

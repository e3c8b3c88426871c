//! A watch on what is held. It stays open while the link is cut; its cursor reads the shared history when the client is ready
//! for more, so a client that does not read holds nobody up.

mod outgoing;
mod told;

use std::{slice, time::Duration};

use axum::body::{Body, Bytes};
use futures::StreamExt as _;
use http::{HeaderValue, Response};
use kube_wire::{
    list_options::{WatchRequest, WatchStart},
    resource_version::ResourceVersion,
    status::Status,
};
use watch_cache::{Cache, Cursor, WatchAnswer};

use self::told::Watch;
use super::{
    Asked, Rather, Read, beyond, catching_up, complete,
    counted::counter,
    doubted,
    encode::Encoder,
    filtered::{self, Filtered},
    reached,
};
use crate::{
    filters::Place,
    freshness::{self, Verdict},
    listen::chunks::Chunks,
    subscriptions::Subscription,
};

/// The shortest life of a watch that names none; the longest is twice that.
const LIFE: Duration = Duration::from_mins(30);

pub(super) async fn answer(asked: &Asked<'_>, request: WatchRequest) -> Result<Read, Box<Status>> {
    let hub = asked.hub;
    if matches!(asked.table, Rather::TableOnly(_)) {
        return Err(Box::new(Status::not_acceptable(&["application/json"])));
    }
    let from = match request.start {
        WatchStart::After(version) => Some(version),
        WatchStart::Initial { .. } | WatchStart::Live { .. } => None,
    };
    asked.take_wider(from);
    let opened = hub.subscriptions.open(asked.key(), asked.is_protobuf(), &asked.carrier, asked.agents());
    let Some(subscription) = opened else { return Ok(Read::HandOn) };
    let first = subscription.version().is_none();
    match complete(hub, &subscription).await {
        Ok(true) => {}
        // The API server cannot tell a version of a time before from one of its own.
        Ok(false) if from.is_some() && subscription.is_doubted() => return Err(Box::new(doubted())),
        Ok(false) => return Ok(Read::HandOn),
        Err(status) if status.code == 503 => return Err(Box::new(Status::not_ready(5))),
        Err(status) => return Err(status),
    }
    let stale = match verdict(asked, &subscription, &request.start, first).await? {
        Verdict::Held { stale } => stale,
        Verdict::Forward => return Ok(Read::HandOn),
        Verdict::Unavailable => return Err(Box::new(Status::not_ready(5))),
        Verdict::NotYet => return Err(Box::new(doubted())),
    };
    let Some(encoder) = asked.encoder(&subscription) else { return Ok(Read::HandOn) };
    if encoder.transcodes() && !is_told(asked, &subscription, &encoder, from) {
        return if hub.upstream.is_up() { Ok(Read::HandOn) } else { Err(Box::new(Status::not_ready(5))) };
    }
    let mut revision = hub.filters.revision();
    // The filter was chosen before: a change since then is noticed at once.
    revision.mark_changed();
    let start = match &request.start {
        WatchStart::Initial { at_least: Some(version), .. } if !reached(&subscription, *version).await => {
            // Upstream tells of versions without a change once a minute: it may have come there, and alone knows. What is filtered,
            // or was, is answered here or not at all.
            match beyond(hub, &subscription, *version) {
                _ if hub.upstream.is_up() && asked.may_ask() => return Ok(Read::HandOn),
                status if status.code == 429 => return Err(Box::new(status)),
                status => Err(status),
            }
        }
        _ => begin(&subscription, &request, asked),
    };
    let lasts = request.timeout.unwrap_or_else(life);
    let content_type = HeaderValue::from_static(encoder.watch_content_type());
    let mut response = match start {
        // The request was good; that it cannot be served is told within the stream, where clients look for it.
        Err(status) => Response::new(Body::from(encoder.error(&status))),
        Ok(begun) => {
            let ahead =
                from.filter(|version| subscription.version().is_none_or(|current| current < *version));
            let count = counter(hub, &subscription);
            let watch = Watch::new(asked, subscription, begun, encoder, revision).from(ahead).lasts(lasts);
            let chunks = watch.chunks().inspect(move |chunk| count(chunk.as_ref().map_or(0, Bytes::len)));
            let chunks = Chunks::new(chunks);
            let mut response = Response::new(chunks.body());
            response.extensions_mut().insert(chunks);
            response
        }
    };
    asked.head(&mut response, content_type, stale);
    Ok(Read::Answer(response))
}

/// Whether all that is held can be told in the form that is written, as far as that is known.
fn is_told(
    asked: &Asked<'_>,
    subscription: &Subscription,
    encoder: &Encoder,
    from: Option<ResourceVersion>,
) -> bool {
    if asked.is_protobuf() {
        return subscription.is_told_as_json(from).is_ok();
    }
    let held = subscription.read(Cache::snapshot);
    held.is_none_or(|held| held.iter().all(|object| encoder.check(slice::from_ref(object)).is_ok()))
}

/// Whether what is held is recent enough for the watch to begin with, as for a list.
async fn verdict(
    asked: &Asked<'_>,
    subscription: &Subscription,
    start: &WatchStart,
    first: bool,
) -> Result<Verdict, Box<Status>> {
    Ok(match start {
        WatchStart::Initial { most_recent: true, .. } | WatchStart::Live { most_recent: true } => {
            let listed = asked.catches_up(subscription).await.ok_or_else(|| Box::new(catching_up()))?;
            asked.most_recent(subscription, first || listed).await
        }
        WatchStart::Initial { at_least: Some(_), .. } | WatchStart::After(_) => {
            asked.at_version(subscription).await
        }
        _ => freshness::any(asked.age(subscription)),
    })
}

fn begin(
    subscription: &Subscription,
    request: &WatchRequest,
    asked: &Asked<'_>,
) -> Result<(Cursor<Filtered>, ResourceVersion), Status> {
    if let WatchStart::After(version) = request.start
        && !asked.hub.filters.goes_on(&asked.reader, asked.filter.as_deref(), version)
    {
        return Err(view_changed());
    }
    let begin = |cache: &Cache| {
        let cursor = filtered::watch(cache, request, asked)?;
        let began = cursor.resource_version();
        if matches!(request.start, WatchStart::Initial { .. }) {
            asked.record(began, Place::WHOLE);
        }
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

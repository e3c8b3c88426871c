//! The upstream watch of a subscription: what it tells is stored, then shown.
//!
//! After an outage what is held and what upstream had when the watch was opened differ by what the watch has yet to tell, or because
//! upstream went back in time. Which of both is [known](epoch::Expected::doubt) as soon as all was told; until then nothing of it is
//! shown: a reader would see new changes beside objects that are not there.

mod missed;

use std::{sync::Arc, time::SystemTime};

use axum::body::{Body, Bytes};
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Frame;
use kube_wire::{
    frame::read::{ITEM_MAX, WatchEvent, WatchReader},
    object::Object,
    resource_version::ResourceVersion,
    status::Status,
};
use tokio::time::sleep;
use watch_cache::{Cache, Change, Event};

use self::missed::{Missed, SILENT};
use super::{Believed, Ended, Undone, Writing, epoch, list, telling::Telling};
use crate::{
    storage::Storage,
    subscriptions::{Progress, Subscription},
    upstream::{Answer, Credential, Source, USER_AGENT, Upstream, UpstreamError},
};

/// How long a watch is asked to last; spread, so that those of a node do not end together. As long as those are that name no time:
/// each new one costs the link some two kilobytes.
const LIFE: (u64, u64) = (1800, 3600);

/// More than this is not held back, in bytes: it would be in memory twice. What it was held back for is still judged.
const HELD_BACK: usize = 8 << 20;

/// Watches from the version that is held, until the stream ends. `known`: of all streams of the resource, and of upstream; `holds`: whether
/// what is told is held back while there is a doubt, which says whether the next watch does.
pub(super) async fn run(
    upstream: &Upstream,
    (storage, writing): (&Storage, &Writing),
    subscription: &Subscription,
    credential: &Credential,
    known: (&Undone, Believed),
    holds: &mut bool,
) -> Result<std::convert::Infallible, Ended> {
    let response = open(upstream, subscription, credential).await?;
    let encoding = list::encoding(response.headers().get(header::CONTENT_TYPE));
    // Not before: a server that is restored later ends this watch, one that was restored between the two would not.
    let mut expected = epoch::check(upstream, subscription, credential, known).await?;
    let mut reader = WatchReader::new(encoding, ITEM_MAX);
    let source = response.body().source();
    let mut missed = Missed::new(upstream, subscription, credential, expected.at(), source.clone());
    // A list may have been on its way for long.
    if expected.at().is_some_and(|at| subscription.version() < Some(at)) {
        subscription.has_to_be_told();
    }
    // Nothing may be missing.
    missed.came();
    let is_watching = || {
        subscription.doubt(false);
        subscription.prove();
        subscription.set_source(Some(source.clone()));
        store_accepted(storage, subscription, &source);
        if subscription.watches() { Ok(()) } else { Err(Ended::Passed) }
    };
    let mut held_back: Option<HeldBack> = None;
    if expected.doubt().is_some() && *holds {
        subscription.doubt(true);
        held_back = Some(HeldBack::default());
    } else {
        is_watching()?;
    }
    let mut body = response.into_body();
    let mut telling = Telling::new(subscription);
    loop {
        let frame = tokio::select! {
            biased;
            () = telling.is_due() => {
                telling.tell();
                continue;
            }
            frame = body.frame() => frame,
            () = sleep(SILENT), if held_back.is_some() => {
                let asked = held_back.as_mut().is_some_and(|held_back| std::mem::replace(&mut held_back.asked, true));
                if let Some(reason) = expected.doubt().filter(|_| asked) {
                    return Err(Ended::Diverged { reason, is_certain: false });
                }
                // It may be the link that was silent: then what comes with the answer is read before it is judged.
                expected = expected.again(epoch::check(upstream, subscription, credential, known).await?);
                Some(Ok(Frame::data(Bytes::new())))
            }
            () = missed.is_told(), if held_back.is_none() && subscription.is_untold() => {
                subscription.caught_up();
                subscription.prove();
                continue;
            }
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| Ended::Link(UpstreamError::Broken(Box::new(error))))?;
        let Ok(data) = frame.into_data() else { continue };
        subscription.traffic().fetched(data.len());
        let mut told = Vec::new();
        let read = reader.push(&data, &mut told);
        for event in &told {
            expected.note(event)?;
        }
        let doubt = expected.doubt().is_some();
        if doubt && *holds && held_back.is_none() {
            subscription.doubt(true);
            subscription.set_progress(Progress::Interrupted);
            held_back = Some(HeldBack::default());
        }
        let is_released = held_back.is_some();
        if let Some(mut waiting) = held_back.take() {
            waiting.add(told, data.len())?;
            // What is held back when the link breaks comes again, and must not be held back for ever.
            *holds = !doubt || waiting.told.is_empty();
            if doubt && waiting.bytes < HELD_BACK {
                held_back = Some(waiting);
                read.map_err(|error| Ended::Unreadable(error.to_string()))?;
                continue;
            }
            told = waiting.told;
        }
        let is_whole = !told.is_empty();
        let ended = take(storage, subscription, told);
        // Most of a long event comes before its end.
        if is_whole {
            telling.changed();
        }
        store_whole(storage, subscription, writing).await;
        read.map_err(|error| Ended::Unreadable(error.to_string()))?;
        ended?;
        missed.came();
        if is_released {
            is_watching()?;
        } else {
            subscription.prove();
        }
    }
    Err(reader.finish().map_or_else(|error| Ended::Unreadable(error.to_string()), |()| Ended::Done))
}

async fn open(
    upstream: &Upstream,
    subscription: &Subscription,
    credential: &Credential,
) -> Result<Response<Answer>, Ended> {
    let version = subscription.version().ok_or(Ended::Expired)?;
    let life = seconds();
    let path = subscription.key().path_with(&format!(
        "watch=1&allowWatchBookmarks=true&timeoutSeconds={life}&resourceVersion={version}"
    ));
    let request = Request::get(path)
        .header(header::ACCEPT, list::accept(subscription, true))
        .header(header::USER_AGENT, USER_AGENT)
        .body(Body::empty())
        .map_err(|error| Ended::Unreadable(error.to_string()))?;
    let response = upstream.send(credential, request).await?;
    if response.status() == StatusCode::OK { Ok(response) } else { Err(list::refused(response).await) }
}

/// What was told while there was a doubt.
#[derive(Default)]
struct HeldBack {
    told: Vec<WatchEvent>,
    bytes: usize,
    /// Whether the server was asked again since something came.
    asked: bool,
}

impl HeldBack {
    /// Takes what came, of so many bytes. Fails if the server says that it has no more to tell.
    fn add(&mut self, mut told: Vec<WatchEvent>, bytes: usize) -> Result<(), Ended> {
        if let Some(WatchEvent::Error(status)) = told.pop_if(|event| matches!(event, WatchEvent::Error(_))) {
            return Err(refused(status));
        }
        self.asked &= bytes == 0;
        self.bytes += bytes;
        self.told.append(&mut told);
        Ok(())
    }
}

/// Stores and applies what was told, and wakes nobody. What comes before an error counts.
fn take(storage: &Storage, subscription: &Subscription, told: Vec<WatchEvent>) -> Result<(), Ended> {
    let mut ended = Ok(());
    let mut changes: Vec<(Change, Arc<Object>)> = Vec::with_capacity(told.len());
    let mut bookmark: Option<ResourceVersion> = None;
    for event in told {
        match event {
            WatchEvent::Added(object) => changes.push((Change::Added, Arc::new(object))),
            WatchEvent::Modified(object) => changes.push((Change::Modified, Arc::new(object))),
            WatchEvent::Deleted(object) => changes.push((Change::Deleted, Arc::new(object))),
            WatchEvent::Bookmark { resource_version, initial_end: _ } => bookmark = Some(resource_version),
            WatchEvent::Error(status) => ended = Err(refused(status)),
        }
    }
    // Under the writer's lock: readers see a change only when its file has it.
    subscription.write_quietly(|cache| {
        let mut events: Vec<Arc<Event>> = Vec::with_capacity(changes.len());
        let mut applied = Ok(());
        for (change, object) in changes {
            match cache.apply(change, object) {
                Ok(event) => events.extend(event),
                Err(error) => {
                    applied = Err(Ended::Unreadable(error.to_string()));
                    break;
                }
            }
        }
        storage.apply(subscription.key(), &events);
        let mut stored = subscription.stored().lock();
        if let Some(event) = events.last() {
            stored.is_at(Some(event.resource_version));
        }
        applied?;
        if let Some(version) = bookmark {
            cache.bookmark(version);
            if stored.is_due(subscription.key(), version) {
                storage.bookmark(subscription.key(), version);
                stored.is_at(Some(version));
            }
        }
        Ok::<_, Ended>(())
    })?;
    ended
}

/// Stores the version from which a watch was opened over another connection than the one before.
fn store_accepted(storage: &Storage, subscription: &Subscription, source: &Source) {
    let Some(version) = subscription.version() else { return };
    let (key, mut stored) = (subscription.key(), subscription.stored().lock());
    if stored.is_accepted_over(source, key, version) {
        storage.bookmark(key, version);
        stored.is_at(Some(version));
    }
}

/// Stores all that is held, if changes were lost to the disk.
async fn store_whole(storage: &Storage, subscription: &Subscription, writing: &Writing) {
    if storage.wants_whole(subscription.key())
        && let Some(all) = subscription.read(Cache::snapshot)
    {
        let (storage, key) = (storage.clone(), subscription.key().clone());
        // Without the lock that readers need: the disk takes its time for all of it, and nobody else writes this subscription.
        writing.write(move || _ = storage.replace(&key, all.iter(), all.resource_version())).await;
    }
}

fn refused(status: Status) -> Ended {
    if status.is_expired() { Ended::Expired } else { Ended::Refused(Box::new(status)) }
}

fn seconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let spread = now.map_or(0, |now| u64::from(now.subsec_micros()));
    LIFE.0 + spread % (LIFE.1 - LIFE.0)
}

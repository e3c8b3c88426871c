//! What a node's programs ask first of any API server, asked for by the hub itself when a link comes up: a node that nobody asked while
//! there was one can say without it which resources there are.
//!
//! Not again within the hour, unless a resource has come into use that discovery does not name, and then only if it has changed. Some 17 kB at once, 12 kB a minute or two later: API servers compress nothing
//! below 128 kB, so discovery of all groups comes as protobuf, 14 kB in place of 70, and is kept as the JSON that clients ask for. The
//! groups alone, as older clients ask for them, are in it. Last come the documents of `OpenAPI`, which are most by far: unless it is configured
//! otherwise, no more of them than are of use here. Of which release the server is, is asked at each new link.

mod followed;
mod named;
mod openapi;
mod release;
mod renewals;

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube_wire::transcode;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

pub use self::followed::OpenApi;
use self::{followed::Followed, renewals::Renewals};
use super::{
    coding::{Coding, LARGEST},
    documents::forms::{AGGREGATED, AGGREGATED_PROTOBUF, JSON},
};
use crate::{
    hub::Hub,
    upstream::{Credential, LinkState, USER_AGENT, jittered},
};

/// Paths, and the forms in which clients ask for them. The plain `/api` says at which addresses the server is, which nothing else does.
/// Health is plain text whatever is asked for, and a few bytes: programs of the node ask for it before they begin.
const FIRST: [(&str, &str); 7] = [
    ("/api", AGGREGATED),
    ("/apis", AGGREGATED),
    ("/api", JSON),
    ("/version", JSON),
    ("/healthz", JSON),
    ("/livez", JSON),
    ("/readyz", JSON),
];

/// The list of documents of `OpenAPI`, and with it what it names.
const OPENAPI: (&str, &str) = ("/openapi/v3", JSON);

/// How old what is kept may be for a new link not to ask again.
const OLD: Duration = Duration::from_hours(1);

/// First comes what clients wait for.
const LATER: Duration = Duration::from_secs(2);

/// How long one of them may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// When that list is asked for again while the link stays: it has no `ETag`, and is 12 kB each time. Not before that is a document tried again
/// that did not come. Sooner, but not within the hour, where it does not name what has come into use since, and at once where discovery did not.
const AGAIN: Duration = Duration::from_hours(6);

/// Asks at each new link, until the shutdown.
pub async fn keep(hub: Arc<Hub>, shutdown: CancellationToken) {
    let mut link = hub.upstream.state();
    let mut down = hub.upstream.state();
    let keep = async {
        let mut tries = openapi::Tries::default();
        let (came, coming) = mpsc::unbounded_channel();
        let mut renewals = Renewals::new(coming);
        loop {
            let _ = link.wait_for(|state| matches!(state, LinkState::Up(_))).await;
            sleep(LATER).await;
            for (path, accept) in FIRST {
                refresh(&hub, path, accept).await;
            }
            let later = async {
                let (mut looked, mut asked) = (None::<Instant>, None::<Instant>);
                loop {
                    let next = Instant::now() + jittered(hub.lifetimes.before_openapi);
                    renewals.until(&hub, &mut tries, next).await;
                    let Some(followed) = followed(&hub) else { continue };
                    let now = Instant::now();
                    let is_due = looked.is_none_or(|at| now.duration_since(at) >= AGAIN);
                    // However it went: a list that does not come is not asked for each minute.
                    let may_ask = asked.is_none_or(|at| now.duration_since(at) >= OLD);
                    let age = || hub.documents.age(OPENAPI.0, OPENAPI.1);
                    let is_outdated = may_ask && tries.want_list(age, now);
                    let looks = is_due || is_outdated;
                    if looks && refresh(&hub, OPENAPI.0, OPENAPI.1).await {
                        asked = Some(now);
                    }
                    // What is followed may be more than it was: of another group there is a stream, or the configuration says so.
                    if looks || !tries.are_done(&followed) {
                        openapi::fetch(&hub, &mut tries, followed, now).await;
                    }
                    if looks {
                        looked = Some(Instant::now());
                    }
                }
            };
            let ended =
                async { down.wait_for(|state| matches!(state, LinkState::Down { .. })).await.is_err() };
            let later = async { tokio::join!(later, named::keep(&hub, &came), release::look(&hub)) };
            tokio::select! {
                ((), (), ()) = later => {}
                ended = ended => if ended { return },
            }
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = keep => {}
    }
}

/// Which documents of version 3 are to be fetched, as things are now; `None` if nothing of `OpenAPI` is.
fn followed(hub: &Hub) -> Option<Followed> {
    Followed::new(hub.sharing.load().openapi, &hub.subscriptions.versions(), hub.documents.asked())
}

/// Asks for a document if there is a link and what is kept of it is old; whether it did.
async fn refresh(hub: &Hub, path: &str, accept: &'static str) -> bool {
    if !hub.upstream.is_up() || hub.documents.age(path, accept).is_some_and(|age| age <= OLD) {
        return false;
    }
    fetch(hub, path, accept).await;
    true
}

/// Asks for a document, in its short form if it has one.
async fn fetch(hub: &Hub, path: &str, accept: &'static str) {
    if accept != AGGREGATED || !ask_in_protobuf(hub, path).await {
        ask(hub, path, accept, hub.documents.tag(path, accept), DEADLINE).await;
    }
}

/// Asks for a document, unless it is still the one of which `tag` is the `ETag`, and keeps it as if a client had. Whether the API server says that
/// it is: that what it gives is kept, nobody promises.
async fn ask(hub: &Hub, path: &str, accept: &'static str, tag: Option<String>, within: Duration) -> bool {
    let Some(request) = request(path, accept, tag) else { return false };
    let headers = request.headers().clone();
    let asked = timeout(within, async {
        let answer = hub.upstream.send(&Credential::Node, request).await?.map(Body::new);
        let status = answer.status();
        if status == StatusCode::NOT_MODIFIED {
            hub.documents.confirm(path, accept);
        }
        let mut body = hub.documents.keep(path, &headers, answer).into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok::<_, axum::BoxError>(status)
    });
    match asked.await {
        Ok(Ok(status)) => {
            debug!(path, accept, %status, "asked for a document about the API");
            return status == StatusCode::NOT_MODIFIED;
        }
        Ok(Err(error)) => debug!(path, accept, %error, "a document about the API cannot be asked for"),
        Err(_) => debug!(path, accept, "a document about the API took too long"),
    }
    false
}

/// Asks for discovery of all groups in its short form; whether it is kept now. If not, the server is older or newer than what is
/// understood of that form.
async fn ask_in_protobuf(hub: &Hub, path: &str) -> bool {
    let tag = hub.documents.tag(path, AGGREGATED);
    let Some(request) = request(path, AGGREGATED_PROTOBUF, tag) else { return false };
    let asked = timeout(DEADLINE, async {
        let answer = hub.upstream.send(&Credential::Node, request).await?.map(Body::new);
        if answer.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        let (headers, plain) = whole(answer).await?;
        Ok::<_, axum::BoxError>(Some((headers, transcode::discovery_to_json(&plain)?)))
    });
    match asked.await {
        Ok(Ok(None)) => {
            hub.documents.confirm(path, AGGREGATED);
            true
        }
        Ok(Ok(Some((headers, json)))) => {
            hub.documents.keep_as(path, AGGREGATED, &headers, &json);
            true
        }
        Ok(Err(error)) => {
            debug!(path, %error, "discovery is not understood as protobuf; JSON is asked for");
            false
        }
        Err(_) => false,
    }
}

/// What is answered, plain, with its headers; an error unless it is 200 and whole.
async fn whole(answer: Response<Body>) -> Result<(HeaderMap, Vec<u8>), axum::BoxError> {
    let (head, body) = answer.into_parts();
    let coding = Coding::of(&head.headers).filter(|_| head.status == StatusCode::OK);
    let coding = coding.ok_or_else(|| format!("answered {}", head.status))?;
    let body = Limited::new(body, LARGEST).collect().await?.to_bytes();
    let plain = coding.plain(body.into()).ok_or("it is not whole")?;
    Ok((head.headers, plain))
}

/// A request for a document, unless it is still the one that is kept: its `ETag` is the same in every form.
fn request(path: &str, accept: &'static str, kept: Option<String>) -> Option<Request<Body>> {
    let mut request = Request::get(path)
        .header(header::ACCEPT, HeaderValue::from_static(accept))
        .header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))
        .header(header::USER_AGENT, USER_AGENT);
    if let Some(tag) = kept {
        request = request.header(header::IF_NONE_MATCH, tag);
    }
    request.body(Body::empty()).ok()
}

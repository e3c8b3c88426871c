//! What a node's programs ask first of any API server, asked for by the hub itself when a link comes up: a node that nobody asked while
//! there was one can say without it which resources there are.
//!
//! Not again within the hour. Some 33 kB: API servers compress nothing below 128 kB, so discovery of all groups comes as protobuf, 14 kB in
//! place of 70, and is kept as the JSON that clients ask for.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube_wire::transcode;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    coding::{Coding, LARGEST},
    documents::forms::{AGGREGATED, AGGREGATED_PROTOBUF, JSON},
};
use crate::{
    hub::Hub,
    upstream::{Credential, LinkState, USER_AGENT},
};

/// Paths, and the forms in which clients ask for them.
const WANTED: [(&str, &str); 6] = [
    ("/api", AGGREGATED),
    ("/apis", AGGREGATED),
    ("/api", JSON),
    ("/apis", JSON),
    ("/version", JSON),
    ("/openapi/v3", JSON),
];

/// How old what is kept may be for a new link not to ask again.
const OLD: Duration = Duration::from_hours(1);

/// First comes what clients wait for.
const LATER: Duration = Duration::from_secs(2);

/// How long one of them may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Asks at each new link, until the shutdown.
pub async fn keep(hub: Arc<Hub>, shutdown: CancellationToken) {
    let mut link = hub.upstream.state();
    let keep = async {
        loop {
            let _ = link.wait_for(|state| matches!(state, LinkState::Up(_))).await;
            sleep(LATER).await;
            for (path, accept) in WANTED {
                if hub.upstream.is_up() && hub.documents.age(path, accept).is_none_or(|age| age > OLD) {
                    fetch(&hub, path, accept).await;
                }
            }
            if link.wait_for(|state| matches!(state, LinkState::Down { .. })).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = keep => {}
    }
}

async fn fetch(hub: &Hub, path: &str, accept: &'static str) {
    if accept != AGGREGATED || !ask_in_protobuf(hub, path).await {
        ask(hub, path, accept).await;
    }
}

/// Asks for a document, and keeps it as if a client had.
async fn ask(hub: &Hub, path: &str, accept: &'static str) {
    let Some(request) = request(path, accept) else { return };
    let headers = request.headers().clone();
    let asked = timeout(DEADLINE, async {
        let answer = hub.upstream.send(&Credential::Node, request).await?.map(Body::new);
        let status = answer.status();
        let mut body = hub.documents.keep(path, &headers, answer).into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok::<_, axum::BoxError>(status)
    });
    match asked.await {
        Ok(Ok(status)) => debug!(path, accept, %status, "asked for what clients ask first"),
        Ok(Err(error)) => debug!(path, accept, %error, "what clients ask first cannot be asked for"),
        Err(_) => debug!(path, accept, "what clients ask first took too long"),
    }
}

/// Asks for discovery of all groups in its short form; whether it is kept now. If not, the server is older or newer than what is
/// understood of that form.
async fn ask_in_protobuf(hub: &Hub, path: &str) -> bool {
    let Some(request) = request(path, AGGREGATED_PROTOBUF) else { return false };
    let asked = timeout(DEADLINE, async {
        let (head, body) = hub.upstream.send(&Credential::Node, request).await?.into_parts();
        let coding = Coding::of(&head.headers).filter(|_| head.status == StatusCode::OK);
        let coding = coding.ok_or_else(|| format!("answered {}", head.status))?;
        let body = Limited::new(body, LARGEST).collect().await?.to_bytes();
        let plain = coding.plain(body.into()).ok_or("it is not whole")?;
        Ok::<_, axum::BoxError>((head.headers, transcode::discovery_to_json(&plain)?))
    });
    match asked.await {
        Ok(Ok((headers, json))) => {
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

fn request(path: &str, accept: &'static str) -> Option<Request<Body>> {
    let request = Request::get(path)
        .header(header::ACCEPT, HeaderValue::from_static(accept))
        .header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))
        .header(header::USER_AGENT, USER_AGENT);
    request.body(Body::empty()).ok()
}

//! Documents about the API itself: discovery, `OpenAPI`, version, health. Handed on while there is a link, and kept as they came;
//! answered from what was kept while there is none.
//!
//! Every authenticated user may read them (the role `system:discovery`), so they are kept once for all.

pub mod forms;
mod groups;

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use axum::body::{Body, Bytes};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tls::digest::Sha256Digest;
use tracing::{debug, warn};

use super::coding::{Coding, LARGEST};
use crate::storage::Storage;

/// How long what was answered again is not written again, in seconds: only how old it is would be another.
const WRITTEN_AGAIN: u64 = 3600;

/// Of how many documents it is known when they were answered last.
const CONFIRMED: usize = 1024;

/// Headers that a client needs to read or to revalidate the document.
const KEPT_HEADERS: [header::HeaderName; 4] =
    [header::CONTENT_TYPE, header::ETAG, header::VARY, header::CACHE_CONTROL];

/// Whether the path names such a document.
pub fn is_document(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    match first {
        "version" | "healthz" | "livez" | "readyz" | "openapi" | "openid" | ".well-known" => true,
        // /api, /api/v1; /apis, /apis/group, /apis/group/version: anything longer is about objects.
        "api" => path.trim_matches('/').split('/').count() <= 2,
        "apis" => path.trim_matches('/').split('/').count() <= 3,
        _ => false,
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    headers: Vec<(String, String)>,
    digest: String,
    /// When it was answered, in Unix seconds.
    #[serde(default)]
    at: u64,
}

/// Keeps documents and gives them back.
#[derive(Clone)]
pub struct Documents {
    storage: Storage,
    /// When those were answered again that did not change, in Unix seconds.
    confirmed: Arc<Mutex<HashMap<String, u64>>>,
}

impl Documents {
    /// Documents in `storage`.
    pub fn new(storage: Storage) -> Self {
        Self { storage, confirmed: Arc::default() }
    }

    /// How long ago the API server gave the document to whoever accepts exactly that; nothing if it is not kept.
    pub fn age(&self, path_and_query: &str, accept: &str) -> Option<Duration> {
        let name = named(path_and_query, accept);
        let (head, _) = self.head(&name)?;
        Some(since(self.last(&name, &head)))
    }

    /// The `ETag` of the document that is kept for whoever accepts exactly that.
    pub fn tag(&self, path_and_query: &str, accept: &str) -> Option<String> {
        let (head, _) = self.head(&named(path_and_query, accept))?;
        head.headers.into_iter().find(|(name, _)| name == header::ETAG.as_str()).map(|(_, tag)| tag)
    }

    /// The API server says that the document that is kept is still the one.
    pub fn confirm(&self, path_and_query: &str, accept: &str) {
        self.note(&named(path_and_query, accept), unix_seconds());
    }

    /// Keeps the answer of upstream as its body passes, if it is a whole document.
    pub fn keep(&self, path_and_query: &str, accept: &HeaderMap, response: Response<Body>) -> Response<Body> {
        let coding = Coding::of(response.headers()).filter(|_| response.status() == StatusCode::OK);
        let Some(coding) = coding else { return response };
        let name = name(path_and_query, accept);
        let headers = kept(response.headers());
        let documents = self.clone();
        response.map(|body| {
            Body::new(Tee::new(body, move |bytes: Vec<u8>| {
                if let Some(plain) = coding.plain(bytes) {
                    documents.store(&name, headers, &plain);
                }
            }))
        })
    }

    /// Keeps `body` as what whoever accepts exactly `accept` would have been answered: for what came in another form.
    pub fn keep_as(&self, path_and_query: &str, accept: &'static str, headers: &HeaderMap, body: &[u8]) {
        let mut headers = headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(accept));
        self.store(&named(path_and_query, accept), kept(&headers), body);
    }

    fn store(&self, name: &str, headers: Vec<(String, String)>, body: &[u8]) {
        let (digest, at) = (Sha256Digest::of(body).to_string(), unix_seconds());
        self.note(name, at);
        let is_recent = |head: &Head| head.at.saturating_add(WRITTEN_AGAIN) > at;
        if self.head(name).is_some_and(|(head, _)| head.digest == digest && is_recent(&head)) {
            return;
        }
        let Ok(mut blob) = serde_json::to_vec(&Head { headers, digest, at }) else { return };
        blob.push(b'\n');
        blob.extend_from_slice(body);
        if let Err(error) = self.storage.put_blob(name, &blob) {
            warn!(name, %error, "a document about the API cannot be kept");
        }
    }

    /// Notes that a document was answered then.
    fn note(&self, name: &str, at: u64) {
        let mut confirmed = self.confirmed.lock();
        if confirmed.len() < CONFIRMED || confirmed.contains_key(name) {
            confirmed.insert(name.to_owned(), at);
        }
    }

    fn head(&self, name: &str) -> Option<(Head, Bytes)> {
        let blob = self.storage.blob(name)?;
        let end = blob.iter().position(|byte| *byte == b'\n')?;
        let head = serde_json::from_slice(&blob[..end]).ok()?;
        Some((head, blob.slice(end + 1..)))
    }

    /// When a document that is kept was last answered.
    fn last(&self, name: &str, head: &Head) -> u64 {
        self.confirmed.lock().get(name).copied().unwrap_or(0).max(head.at)
    }

    /// The document as it was kept, with its age, or `None`. If the client's own form of it is not there, or an older one than that of
    /// all clients, it gets that.
    pub fn answer(&self, path_and_query: &str, request: &HeaderMap) -> Option<Response<Body>> {
        let found = |name: String| {
            let (head, body) = self.head(&name)?;
            Some((self.last(&name, &head), head, body))
        };
        let newer = |one: Option<(u64, Head, Bytes)>, other: Option<(u64, Head, Bytes)>| match (one, other) {
            (Some(one), Some(other)) => Some(if other.0 > one.0 { other } else { one }),
            (one, other) => one.or(other),
        };
        // The groups alone are in discovery of all that they have.
        let groups = || {
            let (at, head, body) = found(named(path_and_query, forms::AGGREGATED))?;
            let groups = groups::alone(path_and_query, &body)?;
            let headers = vec![(header::CONTENT_TYPE.to_string(), forms::JSON.to_owned())];
            Some((at, Head { headers, ..head }, groups.into()))
        };
        let common = forms::accepted(request).into_iter().find_map(|form| {
            let groups = if form == forms::JSON { groups() } else { None };
            newer(found(named(path_and_query, form)), groups)
        });
        let newer = newer(found(name(path_and_query, request)), common);
        let (at, head, body) = newer?;
        let mut response = Response::new(Body::empty());
        for (header, value) in &head.headers {
            if let (Ok(header), Ok(value)) =
                (header.parse::<header::HeaderName>(), HeaderValue::from_str(value))
            {
                response.headers_mut().insert(header, value);
            }
        }
        let known = request.get(header::IF_NONE_MATCH);
        if known.is_some() && known == response.headers().get(header::ETAG) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            *response.body_mut() = Body::from(body);
        }
        response.headers_mut().insert(header::WARNING, warning(since(at)));
        debug!(path_and_query, "answered from what was kept");
        Some(response)
    }
}

fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let kept = KEPT_HEADERS.iter().filter_map(|header| {
        let value = headers.get(header)?.to_str().ok()?;
        Some((header.to_string(), value.to_owned()))
    });
    kept.collect()
}

/// One document has several forms; the `Accept` header chooses.
fn name(path_and_query: &str, headers: &HeaderMap) -> String {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    named(path_and_query, accept)
}

fn named(path_and_query: &str, accept: &str) -> String {
    let digest = Sha256Digest::of(format!("{path_and_query}\n{accept}").as_bytes()).to_string();
    format!("document-{digest}")
}

fn since(at: u64) -> Duration {
    Duration::from_secs(unix_seconds().saturating_sub(at))
}

/// Hands a body on and collects it; calls `done` when the whole of it has passed.
pub(super) struct Tee<F> {
    inner: Body,
    seen: Option<Vec<u8>>,
    done: Option<F>,
}

impl<F: FnOnce(Vec<u8>) + Unpin> Tee<F> {
    /// Calls `done` with all of `inner`, if it is not too large.
    pub(super) fn new(inner: Body, done: F) -> Self {
        Self { inner, seen: Some(Vec::new()), done: Some(done) }
    }
}

impl<F: FnOnce(Vec<u8>) + Unpin> http_body::Body for Tee<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(seen), Some(data)) = (&mut self.seen, frame.data_ref()) {
                    if seen.len() + data.len() > LARGEST {
                        self.seen = None;
                    } else {
                        seen.extend_from_slice(data);
                    }
                }
            }
            Poll::Ready(Some(Err(_))) => self.seen = None,
            Poll::Ready(None) | Poll::Pending => {}
        }
        // Whoever writes an answer of known length does not ask again after its last byte.
        let over = matches!(polled, Poll::Ready(None)) || self.inner.is_end_stream();
        let me = &mut *self;
        if over && let (Some(seen), Some(done)) = (me.seen.take(), me.done.take()) {
            done(seen);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.done.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

/// How old an answer from what was kept may be, as the `Warning` header tells it (RFC 7234, 5.5.4: 110 is "stale"; Kubernetes
/// clients show 299 only).
pub fn warning(age: Duration) -> HeaderValue {
    let text = if age > Duration::from_hours(8760) {
        "299 edge-hub \"no link to the API server: answered from what was stored before this start\""
            .to_owned()
    } else {
        format!(
            "299 edge-hub \"no link to the API server: answered from what was known {}s ago\"",
            age.as_secs()
        )
    };
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("299 edge-hub \"stale\""))
}

/// Now, in Unix seconds.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// Now, in Unix milliseconds.
pub fn unix_milliseconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::is_document;

    #[test]
    fn documents_are_about_the_api_and_not_about_objects() {
        for path in [
            "/version",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/openapi/v3/apis/apps/v1",
            "/readyz",
            "/openid/v1/jwks",
        ] {
            assert!(is_document(path), "{path}");
        }
        for path in ["/api/v1/pods", "/apis/apps/v1/deployments", "/metrics", "/", "/logs/x", "/apix"] {
            assert!(!is_document(path), "{path}");
        }
    }
}

//! Tokens of the node's pods while there is no link: what the API server gave for the very same request, while it is good.
//!
//! A kubelet that starts anew without a link has forgotten its pods' tokens, and starts no container without them. What it asked
//! for before is kept, encrypted, and given again to the node alone, and only for a request that is the same in every byte: it
//! names the pod by its uid. Nothing is ever forged or prolonged; without a good token the kubelet is told so.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use kube_wire::{
    edit::{Field, Message},
    request::{RequestInfo, Verb},
    status::Status,
};
use serde::{Deserialize, Serialize};
use tls::digest::Sha256Digest;
use tokio::task::spawn_blocking;
use tracing::{debug, warn};

use super::documents::unix_seconds;
use crate::{
    authenticate::{Caller, jwt::claims, known_time::KnownTime},
    storage::Storage,
};

/// How large a request or an answer may be, in bytes.
const LARGEST: usize = 64 << 10;

/// How many answers are kept: a node has some hundred pods with a token or two each.
const KEPT: usize = 512;

/// A token with less left than this is not worth giving.
const LEFT: Duration = Duration::from_secs(10);

/// The index of what is kept.
const INDEX: &str = "node-tokens";

/// How the names of answers begin.
const PREFIX: &str = "node-token-";

/// Whether this is the node's request for a token of one of its pods.
pub fn is_request(caller: &Caller, info: &RequestInfo) -> bool {
    let Some(path) = info.resource() else { return false };
    matches!(caller, Caller::Node)
        && info.verb == Verb::Create
        && path.resource.group.is_empty()
        && &*path.resource.resource == "serviceaccounts"
        && path.subresource.as_deref() == Some("token")
}

/// Reads the request whole, so that it can be asked and remembered.
pub async fn read(request: Request<Body>) -> Result<Request<Bytes>, Box<Status>> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, LARGEST)
        .await
        .map_err(|error| Box::new(Status::bad_request(format!("edge-hub: TokenRequest: {error}"))))?;
    Ok(Request::from_parts(parts, body))
}

/// The name of the answer: one for each different request.
pub fn name(request: &Request<Bytes>) -> String {
    let header = |name: header::HeaderName| -> &[u8] {
        request.headers().get(name).map_or(&[], HeaderValue::as_bytes)
    };
    let path = request.uri().path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    let parts = [path.as_bytes(), header(header::CONTENT_TYPE), header(header::ACCEPT), request.body()];
    let digests: Vec<u8> =
        parts.iter().flat_map(|part| Sha256Digest::of(part).to_string().into_bytes()).collect();
    format!("{PREFIX}{}", Sha256Digest::of(&digests))
}

/// What is kept, what ends first before the others.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Index {
    /// Names and ends (Unix seconds).
    tokens: Vec<(String, u64)>,
    /// When the one was issued that was kept last.
    #[serde(default)]
    newest: i64,
}

/// A time that has been, whatever the clock says: when the token was issued that was kept last (Unix seconds).
pub fn newest(storage: &Storage) -> Option<i64> {
    let index: Index = serde_json::from_slice(&storage.blob(INDEX)?).ok()?;
    Some(index.newest)
}

/// Keeps the answer as it passes, if it holds a token, which tells what time it is.
pub async fn keep(
    storage: &Storage,
    time: &KnownTime,
    name: &str,
    response: Response<Body>,
) -> Response<Body> {
    if !response.status().is_success() || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let Ok(body) = axum::body::to_bytes(body, LARGEST).await else {
        return crate::proxy::refusal(
            None,
            &Status::internal_error("edge-hub: a TokenRequest was answered with too much"),
        );
    };
    if let Some(Claims { exp: end, iat, .. }) = claims_of_token(&body) {
        time.has_been(i64::try_from(iat).unwrap_or(0));
        let content_type = parts.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let (storage, name, content_type) = (storage.clone(), name.to_owned(), content_type.to_vec());
        let kept = body.clone();
        // It waits for the disk, and for its turn: a kubelet asks for the tokens of all its pods at once.
        let stored = spawn_blocking(move || {
            storage.exclusively(|storage| store(storage, &name, [iat, end], &content_type, &kept))
        });
        if let Ok(Err(error)) = stored.await {
            warn!(%error, "a pod's token cannot be kept for when there is no link");
        }
    }
    Response::from_parts(parts, body.into())
}

fn store(
    storage: &Storage,
    name: &str,
    [issued, end]: [u64; 2],
    content_type: &[u8],
    body: &[u8],
) -> Result<(), crate::storage::StorageError> {
    let index = storage.blob(INDEX).and_then(|blob| serde_json::from_slice(&blob).ok());
    let mut index: Index = index.map_or_else(|| found(storage), Ok)?;
    let now = unix_seconds();
    index.tokens.retain(|(other, _)| other != name);
    while index.tokens.first().is_some_and(|(_, end)| *end <= now) || index.tokens.len() >= KEPT {
        let (gone, _) = index.tokens.remove(0);
        storage.remove_blob(&gone)?;
    }
    index.tokens.push((name.to_owned(), end));
    // Whichever API server issued it: one whose clock was ahead is taken back by the next.
    index.newest = issued.try_into().unwrap_or(0);
    index.tokens.sort_by_key(|(_, end)| *end);
    // The index first: what it does not tell of nothing would remove.
    storage.put_blob(INDEX, &serde_json::to_vec(&index).unwrap_or_default())?;
    storage.put_sealed_blob(name, &[content_type, b"\n", body].concat())
}

/// An index of the answers that are there, where there is none or it cannot be read: what no index tells of would stay for ever. To find that out
/// takes a look at all documents. What cannot be read is removed.
fn found(storage: &Storage) -> Result<Index, crate::storage::StorageError> {
    let mut index = Index::default();
    for name in storage.blob_names(|name| name.starts_with(PREFIX))? {
        // What the disk does not give now it may give later.
        let Some(blob) = storage.blob(&name) else { continue };
        match body_of(&blob).and_then(|(_, body)| claims_of_token(body)) {
            Some(Claims { exp, .. }) => index.tokens.push((name, exp)),
            None => storage.remove_blob(&name)?,
        }
    }
    index.tokens.sort_by_key(|(_, end)| *end);
    Ok(index)
}

/// The content type and the body of an answer as it is kept.
fn body_of(blob: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = blob.iter().position(|byte| *byte == b'\n')?;
    Some((&blob[..at], &blob[at + 1..]))
}

/// What was answered before, if its token is still good at `now` (Unix seconds), and its pod is there (`exists`: by namespace, name and UID).
pub fn answer(
    storage: &Storage,
    name: &str,
    now: i64,
    exists: impl FnOnce(&str, &str, &str) -> bool,
) -> Option<Response<Body>> {
    let blob = storage.blob(name)?;
    let (content_type, body) = body_of(&blob)?;
    let body = blob.slice_ref(body);
    let Claims { exp, kubernetes, .. } = claims_of_token(&body)?;
    if exp <= u64::try_from(now).unwrap_or(0) + LEFT.as_secs() {
        return None;
    }
    if let Some(pod) = &kubernetes.pod
        && !exists(&kubernetes.namespace, &pod.name, &pod.uid)
    {
        debug!(pod = pod.name, "the token of a pod that is gone is withdrawn");
        if let Err(error) = storage.remove_blob(name) {
            warn!(%error, "the token of a pod that is gone cannot be removed");
        }
        return None;
    }
    debug!("a pod's token is given again");
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::CREATED;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_bytes(content_type).ok()?);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    *response.headers_mut() = headers;
    Some(response)
}

/// What a token says of itself.
#[derive(Debug, Deserialize)]
struct Claims {
    /// When it ends (RFC 7519, 4.1.4).
    exp: u64,
    /// When it was issued (4.1.6).
    #[serde(default)]
    iat: u64,
    #[serde(default, rename = "kubernetes.io")]
    kubernetes: Bound,
}

/// What a token is bound to.
#[derive(Debug, Default, Deserialize)]
struct Bound {
    #[serde(default)]
    namespace: String,
    pod: Option<BoundPod>,
}

#[derive(Debug, Deserialize)]
struct BoundPod {
    name: String,
    uid: String,
}

/// Of `runtime.Unknown`, which is around protobuf.
const RAW: Field = Field::new("raw", 2);
const STATUS: Field = Field::new("status", 3);
const TOKEN: Field = Field::new("token", 1);

/// The claims of the token in an answer. It is read where it stands: audiences, which are before it, are the words of whoever made the pod.
fn claims_of_token(body: &[u8]) -> Option<Claims> {
    let answer = match body.strip_prefix(b"k8s\0") {
        Some(envelope) => Message::Protobuf(Bytes::copy_from_slice(envelope)).message(RAW)?,
        None => Message::Json(serde_json::from_slice(body).ok()?),
    };
    claims(&answer.message(STATUS)?.text(TOKEN)?)
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};

    use super::*;

    #[test]
    fn the_end_of_a_token_is_found_in_json_and_in_protobuf() {
        let token = format!("eyJhbGciOiJub25lIn0.{}.c2ln", BASE64.encode(br#"{"exp":1700000000,"sub":"x"}"#));
        // As whoever makes a pod may call an audience.
        let audience = format!("eyJ.{}.x", BASE64.encode(br#"{"exp":9999999999,"iat":9999999999}"#));
        let json = format!(
            r#"{{"spec":{{"audiences":["{audience}"]}},"status":{{"token":"{token}","expirationTimestamp":"…"}}}}"#
        );
        let field = |number: u8, content: &[u8]| {
            let length = u8::try_from(content.len() % 128).unwrap() | 0x80;
            let more = u8::try_from(content.len() / 128).unwrap();
            [&[number << 3 | 2, length, more], content].concat()
        };
        let spec = field(2, &field(1, audience.as_bytes()));
        let status = field(3, &[field(1, token.as_bytes()), field(2, b"")].concat());
        let kind = field(1, &field(2, b"TokenRequest"));
        let protobuf = [b"k8s\0".to_vec(), kind, field(2, &[spec, status].concat())].concat();
        for body in [json.into_bytes(), protobuf] {
            assert_eq!(claims_of_token(&body).map(|claims| claims.exp), Some(1_700_000_000));
        }
        for none in [&b""[..], b"eyJ", b"eyJ.eyJ.", b"{\"token\":\"\"}"] {
            assert!(claims_of_token(none).is_none());
        }
    }

    #[test]
    fn only_the_same_request_has_the_same_name() {
        let request = |path: &str, body: &'static str| {
            Request::post(path).header("content-type", "application/json").body(Bytes::from(body)).unwrap()
        };
        let one = name(&request("/a/token", "x"));
        assert_eq!(one, name(&request("/a/token", "x")));
        assert!(one != name(&request("/b/token", "x")) && one != name(&request("/a/token", "y")));
    }

    /// What is kept and ends then.
    fn put(storage: &Storage, name: &str, end: u64) {
        let token = format!("eyJhbGciOiJub25lIn0.{}.c2ln", BASE64.encode(format!(r#"{{"exp":{end}}}"#)));
        let body = format!(r#"{{"status":{{"token":"{token}"}}}}"#);
        store(storage, name, [0, end], b"application/json", body.as_bytes()).unwrap();
    }

    #[test]
    fn what_an_index_that_cannot_be_read_told_of_is_kept_and_goes_in_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, _) = Storage::open(folder.path(), [7; 32]).unwrap();
        let (late, early) = (unix_seconds() + 7200, unix_seconds() + 3600);
        let kept = || {
            let mut names = storage.blob_names(|name| name.starts_with(PREFIX)).unwrap();
            names.sort();
            names
        };
        put(&storage, "node-token-first", early);
        storage.put_sealed_blob("node-token-strange", b"no token").unwrap();
        storage.put_blob("document", b"stays").unwrap();
        storage.put_blob(INDEX, b"no index").unwrap();
        put(&storage, "node-token-second", late);
        assert_eq!(kept(), ["node-token-first", "node-token-second"]);
        assert!(answer(&storage, "node-token-first", 0, |_, _, _| true).is_some());
        assert_eq!(storage.blob("document").unwrap(), "stays");
        // The first ends first, and is known: it makes room.
        for n in 0..KEPT - 1 {
            put(&storage, &format!("node-token-x{n}"), late);
        }
        let names = kept();
        assert_eq!(names.len(), KEPT);
        assert!(!names.contains(&"node-token-first".to_owned()));
    }
}

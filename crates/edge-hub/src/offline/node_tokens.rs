//! Tokens of the node's pods while there is no link: what the API server gave for the very same request, while it is good.
//!
//! A kubelet that starts anew without a link has forgotten its pods' tokens, and starts no container without them. What it asked
//! for before is kept, encrypted, and given again to the node alone, and only for a request that is the same in every byte: it
//! names the pod by its uid. Nothing is ever forged or prolonged; without a good token the kubelet is told so.

use std::time::Duration;

use axum::body::{Body, Bytes};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use kube_wire::{
    request::{RequestInfo, Verb},
    status::Status,
};
use serde::{Deserialize, Serialize};
use tls::digest::Sha256Digest;
use tokio::task::spawn_blocking;
use tracing::{debug, warn};

use super::documents::unix_seconds;
use crate::{authenticate::Caller, storage::Storage};

/// How large a request or an answer may be, in bytes.
const LARGEST: usize = 64 << 10;

/// How many answers are kept: a node has some hundred pods with a token or two each.
const KEPT: usize = 512;

/// A token with less left than this is not worth giving.
const LEFT: Duration = Duration::from_secs(10);

/// The index of what is kept.
const INDEX: &str = "node-tokens";

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
    format!("node-token-{}", Sha256Digest::of(&digests))
}

/// What is kept, what ends first before the others.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Index {
    /// Names and ends (Unix seconds).
    tokens: Vec<(String, u64)>,
}

/// Keeps the answer as it passes, if it holds a token.
pub async fn keep(storage: &Storage, name: &str, response: Response<Body>) -> Response<Body> {
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
    if let Some(end) = claims_of_token(&body).map(|claims| claims.exp) {
        let content_type = parts.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let (storage, name, content_type) = (storage.clone(), name.to_owned(), content_type.to_vec());
        let kept = body.clone();
        // It waits for the disk, and for its turn: a kubelet asks for the tokens of all its pods at once.
        let stored = spawn_blocking(move || {
            storage.exclusively(|storage| store(storage, &name, end, &content_type, &kept))
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
    end: u64,
    content_type: &[u8],
    body: &[u8],
) -> Result<(), crate::storage::StorageError> {
    let mut index: Index =
        storage.blob(INDEX).and_then(|blob| serde_json::from_slice(&blob).ok()).unwrap_or_default();
    let now = unix_seconds();
    index.tokens.retain(|(other, _)| other != name);
    while index.tokens.first().is_some_and(|(_, end)| *end <= now) || index.tokens.len() >= KEPT {
        let (gone, _) = index.tokens.remove(0);
        storage.remove_blob(&gone)?;
    }
    index.tokens.push((name.to_owned(), end));
    index.tokens.sort_by_key(|(_, end)| *end);
    // The index first: what it does not tell of nothing would remove.
    storage.put_blob(INDEX, &serde_json::to_vec(&index).unwrap_or_default())?;
    storage.put_sealed_blob(name, &[content_type, b"\n", body].concat())
}

/// What was answered before, if its token is still good, and its pod is there (`exists`: by namespace, name and UID).
pub fn answer(
    storage: &Storage,
    name: &str,
    exists: impl FnOnce(&str, &str, &str) -> bool,
) -> Option<Response<Body>> {
    let blob = storage.blob(name)?;
    let at = blob.iter().position(|byte| *byte == b'\n')?;
    let body = blob.slice(at + 1..);
    let Claims { exp, kubernetes } = claims_of_token(&body)?;
    if exp <= unix_seconds() + LEFT.as_secs() {
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
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_bytes(&blob[..at]).ok()?);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    *response.headers_mut() = headers;
    Some(response)
}

/// What a token says of itself.
#[derive(Debug, Deserialize)]
struct Claims {
    /// When it ends (RFC 7519, 4.1.4).
    exp: u64,
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

/// The claims of the token in an answer, in whichever encoding the answer is: a token has the same letters in all of
/// them, and none of these stands before or after it.
fn claims_of_token(body: &[u8]) -> Option<Claims> {
    let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    body.split(|byte| !letter(byte)).find_map(|word| {
        // A length that is a letter may stand before it in protobuf.
        let start = word.windows(3).position(|three| three == b"eyJ")?;
        let mut parts = word[start..].split(|byte| *byte == b'.');
        let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
        serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_token_is_found_in_json_and_in_protobuf() {
        let token = format!("eyJhbGciOiJub25lIn0.{}.c2ln", BASE64.encode(br#"{"exp":1700000000,"sub":"x"}"#));
        let json = format!(
            r#"{{"spec":{{"audiences":["a.b.c"]}},"status":{{"token":"{token}","expirationTimestamp":"…"}}}}"#
        );
        // A length between 'A' and 'z' before the token, and the tag of the next field behind it.
        let protobuf = [b"k8s\0\x0a\x01a.b.c\x1a", &b"\x0aA"[..], token.as_bytes(), b"\x12\x08"].concat();
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
}

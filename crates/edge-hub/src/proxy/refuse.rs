//! Answers of the hub's own that are errors, in the encoding that the client accepts.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use kube_wire::{
    accept::{MediaType, negotiate_error},
    status::Status,
};

/// The response for a `Status`.
pub fn refusal(accept: Option<&HeaderValue>, status: &Status) -> Response<Body> {
    let accept = accept.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = negotiate_error(accept, &[MediaType::Json, MediaType::Protobuf])
        .map_or(MediaType::Json, |representation| representation.encoding);
    let body = match encoding {
        MediaType::Protobuf => status.to_protobuf(),
        MediaType::Json | MediaType::Yaml => [&status.to_json()[..], b"\n"].concat(),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.as_str()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if let Some(seconds) = status.retry_after_seconds() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

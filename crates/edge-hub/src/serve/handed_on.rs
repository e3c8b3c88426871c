//! What the API server says of one object whose reader is shown it through a filter.

use axum::body::{Body, Bytes, to_bytes};
use http::{HeaderMap, Response, StatusCode, header};
use kube_wire::{
    frame::{self, Form, Projection, TypeMeta, read::envelope},
    object::{Encoding, Object},
    status::Status,
};

use crate::filters::{Filter, Outcome, Telling};

/// What is larger is no object: etcd takes none of more than a few MiB.
const LARGEST: usize = 16 << 20;

/// Shows an answer to a GET through a filter. What is no object, or none that the hub can read, stays as it is.
pub async fn through(filter: &Filter, response: Response<Body>) -> Result<Response<Body>, Box<Status>> {
    let Some(encoding) = encoding(response.headers()).filter(|_| response.status() == StatusCode::OK) else {
        return Ok(response);
    };
    let (mut head, body) = response.into_parts();
    let body = to_bytes(body, LARGEST).await.map_err(|error| {
        Box::new(Status::service_unavailable(format!("edge-hub: the answer of the API server: {error}")))
    })?;
    let shown = shown(filter, encoding, &body).unwrap_or(body);
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, Body::from(shown)))
}

/// In which encoding an object may be, if it is whole and plain.
fn encoding(headers: &HeaderMap) -> Option<Encoding> {
    let media = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    match media {
        _ if headers.contains_key(header::CONTENT_ENCODING) => None,
        "application/json" => Some(Encoding::Json),
        "application/vnd.kubernetes.protobuf" => Some(Encoding::Protobuf),
        _ => None,
    }
}

/// The bytes in which the object is shown; `None`: those in which it came.
fn shown(filter: &Filter, encoding: Encoding, body: &Bytes) -> Option<Bytes> {
    let ((api_version, kind), object) = match encoding {
        Encoding::Json => (Default::default(), Object::from_json(body.clone()).ok()?),
        Encoding::Protobuf => envelope(body).ok()?,
    };
    let Outcome::Replace(shown) = filter.outcome(&object.into(), Telling::State) else { return None };
    let form = Form { encoding, projection: Projection::Whole };
    let type_meta = TypeMeta { api_version: &api_version, kind: &kind };
    Some(frame::object(form, type_meta, &*shown).concat().into())
}

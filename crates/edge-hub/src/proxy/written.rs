//! Takes note of what was written: the answer of the API server says what is there now.

use axum::body::Body;
use http::{Response, Uri};
use kube_wire::{
    frame::read::envelope,
    object::{Encoding, Object},
    request::{RequestInfo, ResourcePath, Verb},
};
use tokio::time::Instant;

use super::whole;
use crate::{
    hub::Hub,
    own_writes::{After, Part},
    serve::{handed_on::encoding, place},
};

/// A write, before it is answered.
pub(super) struct Write<'a> {
    verb: Verb,
    part: Part,
    path: &'a ResourcePath,
    asked: Instant,
}

/// The write that a request is, if it is one.
pub(super) fn of<'a>(info: &RequestInfo, path: &'a ResourcePath, uri: &Uri) -> Option<Write<'a>> {
    let verb = info.verb;
    let writes =
        matches!(verb, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection);
    let part = Part::of(path.subresource.as_deref())?;
    let tries = uri.query().unwrap_or_default().split('&').any(|parameter| parameter.starts_with("dryRun="));
    (writes && !tries).then(|| Write { verb, part, path, asked: Instant::now() })
}

/// Takes note of it before its writer has the answer, who may read at once.
pub(super) async fn note(hub: &Hub, write: Option<Write<'_>>, answer: Response<Body>) -> Response<Body> {
    let succeeded = answer.status().is_success();
    // Only now: somebody may have begun to read meanwhile.
    let is_held = |write: &Write<'_>| succeeded && hub.subscriptions.are_of(&write.path.resource);
    let Some(Write { verb, part, path, asked }) = write.filter(is_held) else { return answer };
    let (head, body) = answer.into_parts();
    let (object, body) = match encoding(&head.headers) {
        None => (None, body),
        Some(encoding) => match whole::read(body, head.extensions.get()).await {
            Ok(whole) => {
                let bytes = whole.bytes.clone();
                let object = match encoding {
                    Encoding::Json => Object::from_json(bytes.clone()).ok(),
                    Encoding::Protobuf => envelope(&bytes).ok().map(|(_, object)| object),
                };
                (object, whole.body(bytes))
            }
            Err((_, body)) => (None, body),
        },
    };
    let (namespace, name): (Box<str>, Box<str>) = if let Some(object) = &object {
        (object.key().namespace().into(), object.key().name().into())
    } else {
        (place(path).unwrap_or_default(), path.name.clone().unwrap_or_default())
    };
    hub.own_writes.note(&path.resource, &namespace, &name, asked, After::of(verb, part, object));
    Response::from_parts(head, body)
}

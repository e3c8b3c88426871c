//! Takes note of what was written: the answer of the API server says what is there now.

use axum::body::Body;
use http::{Response, Uri};
use kube_wire::{
    frame::read::envelope,
    object::{Encoding, Object},
    request::{RequestInfo, ResourcePath, Verb},
    status::Status,
};
use tokio::time::Instant;

use super::{unanswered, whole};
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
    (writes && !tries(uri)).then(|| Write { verb, part, path, asked: Instant::now() })
}

/// Whether it is a dry run, which stores nothing.
pub(super) fn tries(uri: &Uri) -> bool {
    uri.query().unwrap_or_default().split('&').any(|parameter| parameter.starts_with("dryRun="))
}

/// Takes note of it before its writer has the answer, who may read at once; also of one that may have been done, which its writer looks for.
pub(super) async fn note(
    hub: &Hub,
    write: Option<Write<'_>>,
    answer: Result<Response<Body>, Box<Status>>,
) -> Result<Response<Body>, Box<Status>> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(status) => {
            let may_be_held = |write: &Write<'_>| {
                unanswered::may_be_done(&status) && hub.subscriptions.are_of(&write.path.resource)
            };
            if let Some(write) = write.filter(may_be_held) {
                let (namespace, name) = named(write.path);
                hub.own_writes.note(&write.path.resource, &namespace, &name, write.asked, After::Unknown);
            }
            return Err(status);
        }
    };
    let succeeded = answer.status().is_success();
    // Only now: somebody may have begun to read meanwhile.
    let is_held = |write: &Write<'_>| succeeded && hub.subscriptions.are_of(&write.path.resource);
    let Some(Write { verb, part, path, asked }) = write.filter(is_held) else { return Ok(answer) };
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
        named(path)
    };
    hub.own_writes.note(&path.resource, &namespace, &name, asked, After::of(verb, part, object));
    Ok(Response::from_parts(head, body))
}

/// The namespace and the name that the path of a write has.
fn named(path: &ResourcePath) -> (Box<str>, Box<str>) {
    (place(path).unwrap_or_default(), path.name.clone().unwrap_or_default())
}

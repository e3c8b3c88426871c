//! What stands in protobuf answers, in the form in which it is compared: objects to the byte.

use std::borrow::Cow;

use anyhow::Result;
use kube_wire::frame::read::{ITEM_MAX, ListReader, WatchEvent, WatchReader};
use kube_wire::object::{Encoding, Object};
use kube_wire::status::Status;
use testkit::differential::{self, Case, Landmarks, Said, Verb, is_written, list_metadata, wording};

/// A part of an answer: what it is, and its bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    what: String,
    body: Vec<u8>,
    is_error: bool,
    /// Of the object; empty for what has none.
    namespace: String,
}

/// Whether an answer has objects, and no error.
pub(super) fn is_good(case: &Case, said: &Said, landmarks: &Landmarks) -> Result<bool> {
    let parts = decoded(case, said, landmarks)?.unwrap_or_default();
    Ok(said.reply.is_good() && !parts.iter().any(|part| part.is_error))
}

/// Whether an answer is that what was asked for is gone: 410, which within a watch is its one event.
pub(super) fn is_gone(case: &Case, said: &Said, landmarks: &Landmarks) -> Result<bool> {
    Ok(match decoded(case, said, landmarks)? {
        _ if said.reply.status != 200 => said.reply.status == 410,
        Some(parts) => matches!(&*parts, [only] if only.is_error && only.what.starts_with("410 ")),
        None => {
            matches!(&*said.reply.values, [only] if only["type"] == "ERROR" && only["object"]["code"] == 410)
        }
    })
}

impl Part {
    fn new(what: &str, body: &[u8]) -> Self {
        Self { what: what.to_owned(), body: body.to_vec(), is_error: false, namespace: String::new() }
    }

    /// Whether this is an object of the test, or none at all.
    pub(super) fn is_written(&self) -> bool {
        is_written(&self.namespace)
    }
}

/// The parts of an answer, in their order; nothing if it is no protobuf.
pub(super) fn decoded(case: &Case, said: &Said, landmarks: &Landmarks) -> Result<Option<Vec<Part>>> {
    let kind = said.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/vnd.kubernetes.protobuf") {
        return Ok(None);
    }
    if said.reply.status != 200 {
        return Ok(Some(vec![failed(Status::from_protobuf(&said.body))]));
    }
    Ok(Some(match case.verb {
        Verb::Get => vec![Part::new("the object", &said.body)],
        Verb::List => {
            let mut reader = ListReader::new(Encoding::Protobuf, ITEM_MAX);
            let mut objects = Vec::new();
            reader.push(&as_v1(&said.body), &mut objects)?;
            let list = reader.finish()?;
            let metadata = list_metadata(list.resource_version.get(), &list.continue_token, landmarks);
            let (version, kind, remaining) = (list.api_version, list.kind, list.remaining);
            let list = Part::new(&format!("{version} {kind} {metadata}, {remaining:?} remain"), &[]);
            objects.iter().map(|object| part("item", object)).chain([list]).collect()
        }
        Verb::Watch => {
            let mut reader = WatchReader::new(Encoding::Protobuf, ITEM_MAX);
            let mut events = Vec::new();
            reader.push(&said.body, &mut events)?;
            reader.finish()?;
            events.into_iter().filter_map(event).collect()
        }
    }))
}

/// The token of a page for the next one, in whatever encoding; none on the last.
pub(super) fn token(said: &Said) -> Result<Option<String>> {
    let kind = said.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/vnd.kubernetes.protobuf") {
        return Ok(differential::token(said));
    }
    let mut reader = ListReader::new(Encoding::Protobuf, ITEM_MAX);
    reader.push(&as_v1(&said.body), &mut Vec::new())?;
    Ok(Some(reader.finish()?.continue_token).filter(|token| !token.is_empty()))
}

/// A list of metadata of `v1beta1` with the numbers of fields that `v1` has, which is all that they differ in; any other list as it is.
fn as_v1(body: &[u8]) -> Cow<'_, [u8]> {
    let is_older = body.windows(BETA.len()).take(16).any(|part| part == BETA);
    is_older.then(|| exchanged(body)).flatten().map_or(Cow::Borrowed(body), Cow::Owned)
}

const BETA: &[u8] = b"meta.k8s.io/v1beta1";

/// With its metadata first. `None` for what is no such list.
fn exchanged(body: &[u8]) -> Option<Vec<u8>> {
    // "k8s\0"; what it is; the list.
    let (_, kind) = lengths(body.get(4..)?)?;
    let (header, list) = lengths(body.get(4 + kind..)?)?;
    let (start, end) = (4 + kind + header, 4 + kind + list);
    let (mut metadata, mut items, mut at) = (Vec::new(), Vec::new(), start);
    while at < end {
        let (_, field) = lengths(body.get(at..)?)?;
        let (to, tag) = if body[at] == 0x0a { (&mut items, 0x12) } else { (&mut metadata, 0x0a) };
        to.push(tag);
        to.extend_from_slice(body.get(at + 1..at + field)?);
        at += field;
    }
    Some([&body[..start], &metadata, &items, body.get(end..)?].concat())
}

/// How long the header of a field of bytes is, and the field with it; its number is a small one.
fn lengths(field: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for (at, byte) in field.get(1..)?.iter().enumerate().take(5) {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((at + 2, at + 2 + length));
        }
    }
    None
}

/// An event; nothing if servers are free to send it or not.
fn event(event: WatchEvent) -> Option<Part> {
    Some(match event {
        WatchEvent::Added(object) => part("ADDED", &object),
        WatchEvent::Modified(object) => part("MODIFIED", &object),
        WatchEvent::Deleted(object) => part("DELETED", &object),
        WatchEvent::Bookmark { initial_end: false, .. } => return None,
        // Its version is the moment's.
        WatchEvent::Bookmark { .. } => Part::new("the end of the state", &[]),
        WatchEvent::Error(status) => failed(Some(status)),
    })
}

fn part(what: &str, object: &Object) -> Part {
    Part { namespace: object.key().namespace().to_owned(), ..Part::new(what, object.body()) }
}

/// An error; numbers of versions within its words are the moment's.
fn failed(status: Option<Status>) -> Part {
    let what = status.map_or_else(
        || "an error that cannot be read".to_owned(),
        |Status { reason, message, details, code, .. }| {
            let words = format!("{reason} {} {details:?}", wording(&message));
            let words: String = words.chars().filter(|character| !character.is_ascii_digit()).collect();
            format!("{code} {words}")
        },
    );
    Part { is_error: true, ..Part::new(&what, &[]) }
}

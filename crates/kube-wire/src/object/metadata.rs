//! Reads an object's metadata in place, in either encoding: where it stands, what the cache indexes by, labels and annotations.

use std::{borrow::Cow, ops::Range};

use super::{Encoding, MalformedObject};
use crate::{
    json::{self, Members},
    protobuf::{self, Field, Fields, Value},
};

/// Tags of `k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta`.
mod tag {
    pub(super) const NAME: u64 = 1;
    pub(super) const NAMESPACE: u64 = 3;
    pub(super) const UID: u64 = 5;
    pub(super) const RESOURCE_VERSION: u64 = 6;
    pub(super) const LABELS: u64 = 11;
    pub(super) const ANNOTATIONS: u64 = 12;
}

/// What is read of an object once, when it arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head<'a> {
    /// `ObjectMeta`: the message's content, or the JSON object.
    pub(super) metadata: Range<usize>,
    pub(super) name: Cow<'a, str>,
    pub(super) namespace: Cow<'a, str>,
    pub(super) resource_version: Cow<'a, str>,
    pub(super) uid: Range<usize>,
}

impl Head<'_> {
    /// That of an object whose `metadata` has no field that is read.
    fn empty(metadata: Range<usize>) -> Self {
        Self {
            metadata,
            name: Cow::Borrowed(""),
            namespace: Cow::Borrowed(""),
            resource_version: Cow::Borrowed(""),
            uid: 0..0,
        }
    }
}

/// Reads the head of a raw protobuf message.
pub(super) fn protobuf_head(body: &[u8]) -> Result<Head<'_>, MalformedObject> {
    let mut metadata = None;
    // Every field is passed, so that a message that is cut off is found here and not by a client.
    for field in Fields::of(body) {
        if let Field { number: 1, value: Value::Bytes(range), .. } = field?
            && metadata.replace(range).is_some()
        {
            return Err(MalformedObject::Undecodable("metadata stands twice".to_owned()));
        }
    }
    let metadata = metadata.ok_or(MalformedObject::Missing("metadata"))?;
    let mut head = Head::empty(metadata.clone());
    for field in Fields::within(body, metadata) {
        let field = field?;
        let Value::Bytes(range) = field.value else { continue };
        match field.number {
            tag::NAME => head.name = Cow::Borrowed(protobuf::text(body, range)?),
            tag::NAMESPACE => head.namespace = Cow::Borrowed(protobuf::text(body, range)?),
            tag::RESOURCE_VERSION => head.resource_version = Cow::Borrowed(protobuf::text(body, range)?),
            tag::UID => {
                protobuf::text(body, range.clone())?;
                head.uid = range;
            }
            _ => {}
        }
    }
    Ok(head)
}

/// Reads the head of a JSON object that is known to be well-formed.
pub(super) fn json_head(body: &[u8]) -> Result<Head<'_>, MalformedObject> {
    let metadata =
        Members::within(body, 0..body.len()).get("metadata").ok_or(MalformedObject::Missing("metadata"))?;
    let mut head = Head::empty(metadata.clone());
    for member in Members::within(body, metadata) {
        let place = if member.is(body, "name") {
            &mut head.name
        } else if member.is(body, "namespace") {
            &mut head.namespace
        } else if member.is(body, "resourceVersion") {
            &mut head.resource_version
        } else if member.is(body, "uid") {
            // A uid is lent as it stands; one with escapes was made by no API server.
            head.uid = match json::string(body, member.value.clone()) {
                Some(Cow::Borrowed(_)) => member.value.start + 1..member.value.end - 1,
                _ => return Err(MalformedObject::Undecodable("metadata.uid is no plain string".to_owned())),
            };
            continue;
        } else {
            continue;
        };
        *place = json::string(body, member.value)
            .ok_or_else(|| MalformedObject::Undecodable("a name in metadata is no string".to_owned()))?;
    }
    Ok(head)
}

/// The body with another resource version; all other bytes as they were. `None` if it has none to replace.
pub(super) fn splice(
    body: &[u8],
    metadata: Range<usize>,
    encoding: Encoding,
    version: &str,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len() + version.len() + 8);
    let rest = match encoding {
        Encoding::Json => {
            let old = Members::within(body, metadata)
                .filter(|member| member.is(body, "resourceVersion"))
                .last()
                .map(|member| member.value)?;
            out.extend_from_slice(&body[..=old.start]);
            out.extend_from_slice(version.as_bytes());
            old.end - 1
        }
        Encoding::Protobuf => {
            let tagged = |fields: Fields<'_>, number| {
                fields.flatten().filter(move |field| field.number == number).last()
            };
            let outer = tagged(Fields::of(body), 1)?;
            let old = tagged(Fields::within(body, metadata.clone()), tag::RESOURCE_VERSION)?;
            let Value::Bytes(old_text) = old.value else { return None };
            let length = metadata.len() - (old_text.end - old.start) + protobuf::field_length(version.len());
            out.extend_from_slice(&body[..outer.start]);
            protobuf::put_header(&mut out, 1, length);
            out.extend_from_slice(&body[metadata.start..old.start]);
            protobuf::put_bytes(&mut out, tag::RESOURCE_VERSION, version.as_bytes());
            old_text.end
        }
    };
    out.extend_from_slice(&body[rest..]);
    Some(out)
}

/// A map of strings in an object's metadata, read in place: labels or annotations.
#[derive(Debug, Clone)]
pub struct Entries<'a>(Inner<'a>);

#[derive(Debug, Clone)]
enum Inner<'a> {
    Json { body: &'a [u8], members: Members<'a> },
    Protobuf { body: &'a [u8], tag: u64, fields: Fields<'a> },
}

impl<'a> Entries<'a> {
    pub(super) fn labels(body: &'a [u8], metadata: Range<usize>, encoding: Encoding) -> Self {
        Self::of(body, metadata, encoding, "labels", tag::LABELS)
    }

    pub(super) fn annotations(body: &'a [u8], metadata: Range<usize>, encoding: Encoding) -> Self {
        Self::of(body, metadata, encoding, "annotations", tag::ANNOTATIONS)
    }

    fn of(body: &'a [u8], metadata: Range<usize>, encoding: Encoding, member: &str, tag: u64) -> Self {
        Self(match encoding {
            Encoding::Json => {
                let range = Members::within(body, metadata).get(member).unwrap_or(0..0);
                Inner::Json { body, members: Members::within(&body[..range.end], range) }
            }
            Encoding::Protobuf => {
                let end = metadata.end;
                // Positioned at the first entry, so that each look-up passes over the entries alone.
                let first = Fields::within(body, metadata)
                    .flatten()
                    .find(|field| field.number >= tag)
                    .map_or(end, |field| field.start);
                Inner::Protobuf { body, tag, fields: Fields::within(body, first..end) }
            }
        })
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<Cow<'a, str>> {
        match &self.0 {
            Inner::Json { body, members } => json::string(body, members.clone().get(key)?),
            Inner::Protobuf { body, tag, fields } => {
                // Entries stand together; what comes after them has greater tags.
                fields.clone().flatten().take_while(|field| field.number <= *tag).find_map(|field| {
                    let (found, value) = entry(body, *tag, &field)?;
                    (body.get(found)? == key.as_bytes())
                        .then(|| protobuf::text(body, value).ok().map(Cow::Borrowed))?
                })
            }
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Cow<'a, str>, Cow<'a, str>);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Inner::Json { body, members } => {
                members.find_map(|member| Some((member.key(body)?, json::string(body, member.value)?)))
            }
            Inner::Protobuf { body, tag, fields } => fields.flatten().find_map(|field| {
                let (key, value) = entry(body, *tag, &field)?;
                let text = |range| protobuf::text(body, range).ok().map(Cow::Borrowed);
                Some((text(key)?, text(value)?))
            }),
        }
    }
}

/// Where key and value of a map's entry stand, if `field` is one.
fn entry(body: &[u8], tag: u64, field: &Field) -> Option<(Range<usize>, Range<usize>)> {
    let Field { number, value: Value::Bytes(entry), .. } = field else { return None };
    if *number != tag {
        return None;
    }
    let (mut key, mut value) = (0..0, 0..0);
    for field in Fields::within(body, entry.clone()).flatten() {
        match field {
            Field { number: 1, value: Value::Bytes(range), .. } => key = range,
            Field { number: 2, value: Value::Bytes(range), .. } => value = range,
            _ => {}
        }
    }
    Some((key, value))
}

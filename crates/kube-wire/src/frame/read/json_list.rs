//! A JSON list as it arrives: its members in any order, the elements of `items` one by one.

use bytes::Bytes;
use serde::Deserialize;

use super::{Buffer, ReadError, json_value::ValueScan, list::Parts, malformed};
use crate::{
    json::{self, Members},
    object::Object,
};

/// Reads a JSON list.
#[derive(Debug)]
pub(super) struct JsonList {
    buffer: Buffer,
    place: Place,
    /// Of the value that is not complete yet.
    scan: ValueScan,
    parts: Parts,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Start,
    /// A member, or the object's end; a comma before it if it is not the first.
    Member {
        first: bool,
    },
    Colon(Key),
    Value(Key),
    /// An element of the items, or their end.
    Item {
        first: bool,
    },
    Done,
}

/// Which member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    ApiVersion,
    Kind,
    Metadata,
    Items,
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    continue_token: String,
    remaining_item_count: Option<u64>,
}

impl JsonList {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            buffer: Buffer::new(limit),
            place: Place::Start,
            scan: ValueScan::default(),
            parts: Parts::default(),
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8], items: &mut Vec<Object>) -> Result<(), ReadError> {
        self.buffer.push(chunk);
        while self.step(items)? {}
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Parts, ReadError> {
        if self.place == Place::Done { Ok(self.parts) } else { Err(ReadError::CutOff) }
    }

    /// Reads one token; whether there may be another.
    fn step(&mut self, items: &mut Vec<Object>) -> Result<bool, ReadError> {
        self.buffer.read = json::blank(&self.buffer.bytes, self.buffer.read);
        let Some(next) = self.buffer.unread().first().copied() else { return Ok(false) };
        self.place = match (self.place.clone(), next) {
            (Place::Member { .. }, b'}') => self.passed(Place::Done),
            (Place::Start, b'{') | (Place::Member { first: false }, b',') => {
                self.passed(Place::Member { first: true })
            }
            (Place::Member { first: true }, b'"') => {
                let Some(key) = self.value()? else { return Ok(false) };
                Place::Colon(match serde_json::from_slice::<String>(&key).as_deref() {
                    Ok("apiVersion") => Key::ApiVersion,
                    Ok("kind") => Key::Kind,
                    Ok("metadata") => Key::Metadata,
                    Ok("items") => Key::Items,
                    Ok(_) => Key::Other,
                    Err(error) => return Err(ReadError::Malformed(error.to_string())),
                })
            }
            (Place::Colon(key), b':') => self.passed(Place::Value(key)),
            (Place::Value(Key::Items), b'[') | (Place::Item { first: false }, b',') => {
                self.passed(Place::Item { first: true })
            }
            (Place::Value(key), _) => {
                let Some(value) = self.value()? else { return Ok(false) };
                self.member(key, &value)?;
                Place::Member { first: false }
            }
            (Place::Item { .. }, b']') => self.passed(Place::Member { first: false }),
            (Place::Item { first: true }, b'{') => {
                let Some(item) = self.value()? else { return Ok(false) };
                items.push(Object::from_json(self.typed(item))?);
                Place::Item { first: false }
            }
            (_, other) => return Err(malformed(&format!("unexpected {:?}", char::from(other)))),
        };
        Ok(true)
    }

    fn passed(&mut self, place: Place) -> Place {
        self.buffer.read += 1;
        place
    }

    /// The value that comes next, once it is complete.
    fn value(&mut self) -> Result<Option<Bytes>, ReadError> {
        let end = self.scan.end(self.buffer.unread());
        let Some(length) = end else {
            if self.buffer.unread().len() > self.buffer.limit {
                return Err(ReadError::TooLong(self.buffer.limit));
            }
            return Ok(None);
        };
        self.scan = ValueScan::default();
        if length == 0 {
            return Err(malformed("a value is missing"));
        }
        Ok(self.buffer.take(length)?.map(Bytes::copy_from_slice))
    }

    fn member(&mut self, key: Key, value: &[u8]) -> Result<(), ReadError> {
        let undecodable = |error: serde_json::Error| ReadError::Malformed(error.to_string());
        match key {
            Key::ApiVersion => self.parts.api_version = serde_json::from_slice(value).map_err(undecodable)?,
            Key::Kind => self.parts.kind = serde_json::from_slice(value).map_err(undecodable)?,
            Key::Metadata => {
                let metadata: Metadata = serde_json::from_slice(value).map_err(undecodable)?;
                let Metadata { resource_version, continue_token, remaining_item_count } = metadata;
                self.parts.resource_version = resource_version;
                self.parts.continue_token = continue_token;
                self.parts.remaining = remaining_item_count;
            }
            Key::Items if value != b"null" => return Err(malformed("items are no array")),
            Key::Items | Key::Other => {}
        }
        Ok(())
    }

    /// The item with its `apiVersion` and `kind`, which items of built-in kinds lack; their lists say first what they are.
    fn typed(&self, item: Bytes) -> Bytes {
        let Parts { api_version, kind, .. } = &self.parts;
        let Some(kind) = kind.strip_suffix("List") else { return item };
        if api_version.is_empty() || Members::within(&item, 0..item.len()).get("kind").is_some() {
            return item;
        }
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let rest = &item[1..];
        let comma = if rest.get(json::blank(rest, 0)) == Some(&b'}') { "" } else { "," };
        let head = format!("{{\"kind\":{},\"apiVersion\":{}{comma}", quoted(kind), quoted(api_version));
        [head.as_bytes(), rest].concat().into()
    }
}

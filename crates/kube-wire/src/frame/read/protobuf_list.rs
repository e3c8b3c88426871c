//! A protobuf list as it arrives: the envelope's fields one by one, and within its raw message the list's.

use bytes::Bytes;

use super::{Buffer, ReadError, list::Parts, malformed};
use crate::{
    object::Object,
    protobuf::{self, Field, Fields, MAGIC, Malformed, Value, varint},
};

/// Reads a protobuf list.
#[derive(Debug)]
pub(super) struct ProtobufList {
    buffer: Buffer,
    place: Place,
    /// Whether the raw message was read to its end.
    whole: bool,
    parts: Parts,
}

/// Where the next bytes belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Magic,
    Envelope,
    /// In the raw message, of which so many bytes are still to come.
    Raw(usize),
}

/// A field whose content may be yet to come.
struct Header {
    number: u64,
    wire_type: u64,
    /// Of tag and length.
    length: usize,
    content: usize,
}

impl ProtobufList {
    pub(super) fn new(limit: usize) -> Self {
        Self { buffer: Buffer::new(limit), place: Place::Magic, whole: false, parts: Parts::default() }
    }

    pub(super) fn push(&mut self, chunk: &[u8], items: &mut Vec<Object>) -> Result<(), ReadError> {
        self.buffer.push(chunk);
        while self.step(items)? {}
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Parts, ReadError> {
        let done = self.whole && self.place == Place::Envelope && self.buffer.unread().is_empty();
        if done { Ok(self.parts) } else { Err(ReadError::CutOff) }
    }

    /// Reads one field; whether there may be another.
    fn step(&mut self, items: &mut Vec<Object>) -> Result<bool, ReadError> {
        match self.place {
            Place::Magic => {
                let Some(magic) = self.buffer.take(MAGIC.len())? else { return Ok(false) };
                if magic != MAGIC {
                    return Err(malformed("it does not begin as protobuf of Kubernetes does"));
                }
                self.place = Place::Envelope;
                Ok(true)
            }
            Place::Envelope => self.envelope_field(),
            Place::Raw(0) => {
                self.whole = true;
                self.place = Place::Envelope;
                Ok(true)
            }
            Place::Raw(left) => self.list_field(left, items),
        }
    }

    fn envelope_field(&mut self) -> Result<bool, ReadError> {
        let Some(header) = header(self.buffer.unread())? else { return Ok(false) };
        if header.number == 2 && header.wire_type == 2 {
            self.buffer.read += header.length;
            self.place = Place::Raw(header.content);
            return Ok(true);
        }
        let Some(field) = self.buffer.take(header.length.saturating_add(header.content))? else {
            return Ok(false);
        };
        if header.number == 1 && header.wire_type == 2 {
            let (api_version, kind) = protobuf::type_meta(field, header.length..field.len())?;
            (self.parts.api_version, self.parts.kind) = (api_version.to_owned(), kind.to_owned());
        }
        Ok(true)
    }

    fn list_field(&mut self, left: usize, items: &mut Vec<Object>) -> Result<bool, ReadError> {
        let unread = self.buffer.unread();
        let Some(header) = header(&unread[..unread.len().min(left)])? else {
            return if unread.len() >= left { Err(Malformed::CutOff.into()) } else { Ok(false) };
        };
        let whole = header.length.saturating_add(header.content);
        if whole > left {
            return Err(Malformed::CutOff.into());
        }
        let Some(field) = self.buffer.take(whole)? else { return Ok(false) };
        match (header.number, header.wire_type) {
            (1, 2) => list_meta(field, header.length, &mut self.parts)?,
            // A copy of its own, so that an object that stays does not hold its neighbours in memory.
            (2, 2) => items.push(Object::from_protobuf(Bytes::copy_from_slice(&field[header.length..]))?),
            _ => {}
        }
        self.place = Place::Raw(left - whole);
        Ok(true)
    }
}

/// The tag and length that `bytes` begins with; `None` if more bytes are needed.
fn header(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let Some((tag, tag_length)) = varint(bytes)? else { return Ok(None) };
    let (number, wire_type) = (tag >> 3, tag & 7);
    if number == 0 {
        return Err(Malformed::Tag);
    }
    let header = |length, content| Some(Header { number, wire_type, length, content });
    let value = || varint(&bytes[tag_length..]);
    Ok(match wire_type {
        0 => value()?.and_then(|(_, length)| header(tag_length + length, 0)),
        1 => header(tag_length, 8),
        2 => match value()? {
            Some((content, length)) => {
                header(tag_length + length, usize::try_from(content).map_err(|_| Malformed::CutOff)?)
            }
            None => None,
        },
        5 => header(tag_length, 4),
        _ => return Err(Malformed::Tag),
    })
}

fn list_meta(bytes: &[u8], start: usize, parts: &mut Parts) -> Result<(), Malformed> {
    for field in Fields::within(bytes, start..bytes.len()) {
        match field? {
            Field { number: 2, value: Value::Bytes(range), .. } => {
                protobuf::text(bytes, range)?.clone_into(&mut parts.resource_version);
            }
            Field { number: 3, value: Value::Bytes(range), .. } => {
                protobuf::text(bytes, range)?.clone_into(&mut parts.continue_token);
            }
            Field { number: 4, value: Value::Varint(count), .. } => parts.remaining = Some(count),
            _ => {}
        }
    }
    Ok(())
}

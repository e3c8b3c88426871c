//! A list as it arrives, in either encoding.

use super::{ReadError, json_list::JsonList, protobuf_list::ProtobufList};
use crate::{
    object::{Encoding, Object},
    resource_version::ResourceVersion,
};

/// Reads a list.
#[derive(Debug)]
pub struct ListReader(Inner);

#[derive(Debug)]
enum Inner {
    Json(JsonList),
    Protobuf(ProtobufList),
}

/// What a list said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEnd {
    /// The `apiVersion` of the list.
    pub api_version: String,
    /// The kind of the list: that of its items, and `List`.
    pub kind: String,
    /// The version of the state that it shows.
    pub resource_version: ResourceVersion,
    /// The token for the rest; empty if there is none.
    pub continue_token: String,
    /// How many objects are in the rest, if it was said.
    pub remaining: Option<u64>,
}

/// The same, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) resource_version: String,
    pub(super) continue_token: String,
    pub(super) remaining: Option<u64>,
}

impl ListReader {
    /// A reader of a body of this encoding, of items up to `limit` bytes.
    pub fn new(encoding: Encoding, limit: usize) -> Self {
        Self(match encoding {
            Encoding::Json => Inner::Json(JsonList::new(limit)),
            Encoding::Protobuf => Inner::Protobuf(ProtobufList::new(limit)),
        })
    }

    /// Takes a piece of the body and appends the items that it completes to `items`; also those before an error.
    pub fn push(&mut self, chunk: &[u8], items: &mut Vec<Object>) -> Result<(), ReadError> {
        match &mut self.0 {
            Inner::Json(reader) => reader.push(chunk, items),
            Inner::Protobuf(reader) => reader.push(chunk, items),
        }
    }

    /// Ends the body.
    pub fn finish(self) -> Result<ListEnd, ReadError> {
        let Parts { api_version, kind, resource_version, continue_token, remaining } = match self.0 {
            Inner::Json(reader) => reader.finish()?,
            Inner::Protobuf(reader) => reader.finish()?,
        };
        if !kind.ends_with("List") {
            return Err(ReadError::Malformed(format!("it is a {kind:?}, not a list")));
        }
        let resource_version = resource_version
            .parse()
            .map_err(|error| ReadError::Object(crate::object::MalformedObject::from(error)))?;
        Ok(ListEnd { api_version, kind, resource_version, continue_token, remaining })
    }
}

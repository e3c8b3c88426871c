//! Push-parsers of upstream's streams: bytes go in as they arrive, cut anywhere, objects come out as they complete. No more is kept
//! than the item that is not complete yet, up to a limit. After an error a reader is of no more use.

use bytes::Bytes;
use thiserror::Error;

use crate::{
    object::{MalformedObject, Object},
    protobuf::{Envelope, open_envelope},
};

pub use list::{ListEnd, ListReader};
pub use watch::{WatchEvent, WatchReader};

mod json_list;
mod json_value;
mod list;
mod protobuf_list;
mod watch;

/// The limit that is enough for any object that an API server stores: they are at most a few MiB.
pub const ITEM_MAX: usize = 32 << 20;

/// What came is not what was expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// One item is longer than the limit.
    #[error("an item is longer than {0} bytes")]
    TooLong(usize),
    /// The stream is not of the format.
    #[error("the stream cannot be decoded: {0}")]
    Malformed(String),
    /// The stream ended within an item.
    #[error("the stream was cut off")]
    CutOff,
    /// An item is no object.
    #[error(transparent)]
    Object(#[from] MalformedObject),
}

impl From<crate::protobuf::Malformed> for ReadError {
    fn from(malformed: crate::protobuf::Malformed) -> Self {
        Self::Malformed(malformed.to_string())
    }
}

/// One object as a GET is answered in protobuf, in its envelope, which says its `apiVersion` and `kind`.
pub fn envelope(answer: &Bytes) -> Result<((String, String), Object), ReadError> {
    let Envelope { api_version, kind, raw } = open_envelope(answer)?;
    let object = Object::from_protobuf(answer.slice(raw))?;
    Ok(((api_version.to_owned(), kind.to_owned()), object))
}

fn malformed(what: &str) -> ReadError {
    ReadError::Malformed(what.to_owned())
}

/// The bytes that were pushed and not yet read.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    /// Up to here they were read.
    read: usize,
    limit: usize,
}

impl Buffer {
    fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), read: 0, limit }
    }

    fn push(&mut self, chunk: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        // A burst need not be remembered for the life of a stream.
        if self.bytes.capacity() > 1 << 20 && self.bytes.len() + chunk.len() < 1 << 16 {
            self.bytes.shrink_to(1 << 16);
        }
        self.bytes.extend_from_slice(chunk);
    }

    fn unread(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// The next `length` bytes, if they are there; an error if there is no use in waiting for so many.
    fn take(&mut self, length: usize) -> Result<Option<&[u8]>, ReadError> {
        if length > self.limit {
            return Err(ReadError::TooLong(self.limit));
        }
        let start = self.read;
        if self.bytes.len() - start < length {
            return Ok(None);
        }
        self.read += length;
        Ok(Some(&self.bytes[start..start + length]))
    }
}

//! A watch as it arrives: JSON lines, or frames of protobuf with their length before them.

use bytes::Bytes;

use super::{Buffer, ReadError, malformed};
use crate::{
    frame::INITIAL_EVENTS_END,
    json::{self, Members},
    object::{Encoding, Object, Progress},
    protobuf::{Field, Fields, Value, open_envelope, text},
    resource_version::ResourceVersion,
    status::Status,
};

/// One event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// An object is new to the watch.
    Added(Object),
    /// An object changed.
    Modified(Object),
    /// An object is gone; its version is that of the event.
    Deleted(Object),
    /// Everything up to this version was sent.
    Bookmark {
        /// The version.
        resource_version: ResourceVersion,
        /// Whether it ends the whole state that the watch began with.
        initial_end: bool,
    },
    /// The watch failed.
    Error(Status),
}

/// Reads a watch.
#[derive(Debug)]
pub struct WatchReader {
    encoding: Encoding,
    buffer: Buffer,
    /// How much of what is unread has no line's end in it.
    searched: usize,
}

impl WatchReader {
    /// A reader of a stream of this encoding, of events up to `limit` bytes.
    pub fn new(encoding: Encoding, limit: usize) -> Self {
        Self { encoding, buffer: Buffer::new(limit), searched: 0 }
    }

    /// Takes a piece of the stream and appends the events that it completes to `events`; also those before an error.
    pub fn push(&mut self, chunk: &[u8], events: &mut Vec<WatchEvent>) -> Result<(), ReadError> {
        self.buffer.push(chunk);
        match self.encoding {
            Encoding::Json => {
                while let Some(line) = self.line()? {
                    if !line.trim_ascii().is_empty() {
                        events.push(json_event(line)?);
                    }
                }
            }
            Encoding::Protobuf => {
                while let Some(frame) = self.frame()? {
                    events.push(protobuf_event(frame)?);
                }
            }
        }
        Ok(())
    }

    /// Ends the stream. An error if it was cut within an event; that event was not seen.
    pub fn finish(self) -> Result<(), ReadError> {
        if self.buffer.unread().trim_ascii().is_empty() { Ok(()) } else { Err(ReadError::CutOff) }
    }

    fn line(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let unread = self.buffer.unread();
        let Some(length) = unread[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = unread.len();
            if self.searched > self.buffer.limit {
                return Err(ReadError::TooLong(self.buffer.limit));
            }
            return Ok(None);
        };
        let length = self.searched + length + 1;
        self.searched = 0;
        self.buffer.take(length)
    }

    fn frame(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let Some(length) = self.buffer.unread().first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        // The length is taken together with what it counts, so that it is read again if that is not there yet.
        let framed = self.buffer.take(length.saturating_add(4))?;
        Ok(framed.map(|frame| &frame[4..]))
    }
}

fn event(name: &str, body: Bytes, encoding: Encoding) -> Result<WatchEvent, ReadError> {
    let object = |body| match encoding {
        Encoding::Json => Object::from_json(body),
        Encoding::Protobuf => Object::from_protobuf(body),
    };
    Ok(match name {
        "ADDED" => WatchEvent::Added(object(body)?),
        "MODIFIED" => WatchEvent::Modified(object(body)?),
        "DELETED" => WatchEvent::Deleted(object(body)?),
        "BOOKMARK" => {
            let Progress { resource_version, annotations } = Progress::read(&body, encoding)?;
            let initial_end = annotations.get(INITIAL_EVENTS_END).as_deref() == Some("true");
            WatchEvent::Bookmark { resource_version, initial_end }
        }
        other => return Err(ReadError::Malformed(format!("unknown event {other:?}"))),
    })
}

fn json_event(line: &[u8]) -> Result<WatchEvent, ReadError> {
    let members = Members::within(line, 0..line.len());
    let name = members.clone().get("type").and_then(|range| json::string(line, range));
    let name = name.ok_or_else(|| malformed("an event has no type"))?;
    let object = members.get("object").ok_or_else(|| malformed("an event has no object"))?;
    let object = &line[object];
    if name == "ERROR" {
        let status = Status::from_json(object).ok_or_else(|| malformed("an error is no Status"))?;
        return Ok(WatchEvent::Error(status));
    }
    event(&name, Bytes::copy_from_slice(object), Encoding::Json)
}

fn protobuf_event(frame: &[u8]) -> Result<WatchEvent, ReadError> {
    let (mut name, mut object) = ("", 0..0);
    for field in Fields::of(frame) {
        match field? {
            Field { number: 1, value: Value::Bytes(range), .. } => name = text(frame, range)?,
            Field { number: 2, value: Value::Bytes(extension), .. } => {
                for field in Fields::within(frame, extension) {
                    if let Field { number: 1, value: Value::Bytes(range), .. } = field? {
                        object = range;
                    }
                }
            }
            _ => {}
        }
    }
    let object = &frame[object];
    if name == "ERROR" {
        let status = Status::from_protobuf(object).ok_or_else(|| malformed("an error is no Status"))?;
        return Ok(WatchEvent::Error(status));
    }
    let raw = open_envelope(object)?.raw;
    event(name, Bytes::copy_from_slice(&object[raw]), Encoding::Protobuf)
}

//! A Status on the wire: JSON as Go writes it, protobuf in its envelope; and back.

use std::ops::Range;

use serde::Serialize;

use super::{Status, StatusCause, StatusDetails, StatusMetadata};
use crate::protobuf::{
    self, ENVELOPE_TRAILER, Field, Fields, Malformed, Value, envelope_header, open_envelope, put_bytes,
    put_number,
};

/// Kind and version stand before all else.
#[derive(Serialize)]
struct Typed<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    #[serde(flatten)]
    status: &'a Status,
}

impl Status {
    /// The JSON object, without a line's end.
    pub fn to_json(&self) -> Vec<u8> {
        let typed = Typed { kind: "Status", api_version: "v1", status: self };
        let text = serde_json::to_vec(&typed).unwrap_or_default();
        // Go escapes what could be taken for HTML; those characters stand in strings only.
        let mut out = Vec::with_capacity(text.len());
        for byte in text {
            match byte {
                b'<' => out.extend_from_slice(b"\\u003c"),
                b'>' => out.extend_from_slice(b"\\u003e"),
                b'&' => out.extend_from_slice(b"\\u0026"),
                other => out.push(other),
            }
        }
        out
    }

    /// The protobuf message in its envelope.
    pub fn to_protobuf(&self) -> Vec<u8> {
        let raw = self.raw();
        let mut out = envelope_header("v1", "Status", raw.len());
        out.extend_from_slice(&raw);
        out.extend_from_slice(ENVELOPE_TRAILER);
        out
    }

    /// Every field that is no pointer in Go is written, empty or not.
    fn raw(&self) -> Vec<u8> {
        let Self { metadata, status, message, reason, details, code } = self;
        let mut list_meta = Vec::new();
        put_bytes(&mut list_meta, 1, b"");
        put_bytes(&mut list_meta, 2, b"");
        put_bytes(&mut list_meta, 3, metadata.continue_token.as_bytes());
        let mut out = Vec::with_capacity(message.len() + 64);
        put_bytes(&mut out, 1, &list_meta);
        put_bytes(&mut out, 2, status.as_bytes());
        put_bytes(&mut out, 3, message.as_bytes());
        put_bytes(&mut out, 4, reason.as_bytes());
        if let Some(details) = details {
            put_bytes(&mut out, 5, &details.raw());
        }
        put_number(&mut out, 6, u64::from(*code));
        out
    }

    /// Reads a JSON Status; `None` for anything else.
    pub fn from_json(bytes: &[u8]) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Kind {
            kind: String,
        }
        let Kind { kind } = serde_json::from_slice(bytes).ok()?;
        if kind == "Status" { serde_json::from_slice(bytes).ok() } else { None }
    }

    /// Reads a protobuf Status in its envelope; `None` for anything else.
    pub fn from_protobuf(bytes: &[u8]) -> Option<Self> {
        let envelope = open_envelope(bytes).ok()?;
        if envelope.kind != "Status" {
            return None;
        }
        Self::from_raw(bytes, envelope.raw).ok()
    }

    fn from_raw(bytes: &[u8], range: Range<usize>) -> Result<Self, Malformed> {
        let mut status = Self::default();
        for field in Fields::within(bytes, range) {
            match field? {
                Field { number: 1, value: Value::Bytes(range), .. } => {
                    status.metadata = StatusMetadata { continue_token: string(bytes, range, 3)? };
                }
                Field { number: 2, value: Value::Bytes(range), .. } => status.status = owned(bytes, range)?,
                Field { number: 3, value: Value::Bytes(range), .. } => status.message = owned(bytes, range)?,
                Field { number: 4, value: Value::Bytes(range), .. } => status.reason = owned(bytes, range)?,
                Field { number: 5, value: Value::Bytes(range), .. } => {
                    status.details = Some(Box::new(StatusDetails::from_raw(bytes, range)?));
                }
                Field { number: 6, value: Value::Varint(code), .. } => {
                    status.code = u16::try_from(code).unwrap_or_default();
                }
                _ => {}
            }
        }
        Ok(status)
    }
}

impl StatusDetails {
    fn raw(&self) -> Vec<u8> {
        let Self { name, group, kind, uid, causes, retry_after_seconds } = self;
        let mut out = Vec::new();
        put_bytes(&mut out, 1, name.as_bytes());
        put_bytes(&mut out, 2, group.as_bytes());
        put_bytes(&mut out, 3, kind.as_bytes());
        for StatusCause { reason, message, field } in causes {
            let mut cause = Vec::new();
            put_bytes(&mut cause, 1, reason.as_bytes());
            put_bytes(&mut cause, 2, message.as_bytes());
            put_bytes(&mut cause, 3, field.as_bytes());
            put_bytes(&mut out, 4, &cause);
        }
        put_number(&mut out, 5, u64::from(*retry_after_seconds));
        put_bytes(&mut out, 6, uid.as_bytes());
        out
    }

    fn from_raw(bytes: &[u8], range: Range<usize>) -> Result<Self, Malformed> {
        let mut details = Self::default();
        for field in Fields::within(bytes, range) {
            match field? {
                Field { number: 1, value: Value::Bytes(range), .. } => details.name = owned(bytes, range)?,
                Field { number: 2, value: Value::Bytes(range), .. } => details.group = owned(bytes, range)?,
                Field { number: 3, value: Value::Bytes(range), .. } => details.kind = owned(bytes, range)?,
                Field { number: 4, value: Value::Bytes(range), .. } => details.causes.push(StatusCause {
                    reason: string(bytes, range.clone(), 1)?,
                    message: string(bytes, range.clone(), 2)?,
                    field: string(bytes, range, 3)?,
                }),
                Field { number: 5, value: Value::Varint(seconds), .. } => {
                    details.retry_after_seconds = u16::try_from(seconds).unwrap_or(u16::MAX);
                }
                Field { number: 6, value: Value::Bytes(range), .. } => details.uid = owned(bytes, range)?,
                _ => {}
            }
        }
        Ok(details)
    }
}

fn owned(bytes: &[u8], range: Range<usize>) -> Result<String, Malformed> {
    protobuf::text(bytes, range).map(str::to_owned)
}

/// The string field `number` of a message.
fn string(bytes: &[u8], range: Range<usize>, number: u64) -> Result<String, Malformed> {
    let mut found = String::new();
    for field in Fields::within(bytes, range) {
        let field = field?;
        if let (true, Value::Bytes(range)) = (field.number == number, field.value) {
            found = owned(bytes, range)?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Status;

    proptest! {
        #[test]
        fn a_status_is_read_as_written(message: String, code in 0..600_u16, token: String, detail: Option<String>) {
            let mut status = Status { message, code, ..Status::default() };
            status.metadata.continue_token = token;
            status.details = detail.map(|message| Status::internal_error(&message).details.unwrap());
            prop_assert_eq!(Status::from_json(&status.to_json()), Some(status.clone()));
            prop_assert_eq!(Status::from_protobuf(&status.to_protobuf()), Some(status));
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes: Vec<u8>, at: usize, with: u8) {
            let _ = (Status::from_json(&bytes), Status::from_protobuf(&bytes));
            let mut changed = Status::internal_error("x").to_protobuf();
            let length = changed.len();
            changed[at % length] = with;
            let _ = Status::from_protobuf(&changed);
        }
    }
}

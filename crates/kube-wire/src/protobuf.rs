//! The protobuf wire format, as far as Kubernetes needs it: fields of a message as ranges of its bytes, and the few pieces
//! that are written. In: bytes of anybody. It knows no message but the `k8s\0` envelope and never recurses.

use std::ops::Range;

use thiserror::Error;

/// What stands before every object in `application/vnd.kubernetes.protobuf`.
pub(crate) const MAGIC: &[u8; 4] = b"k8s\0";

/// The longest varint: 64 bits in groups of seven.
const VARINT_MAX: usize = 10;

/// The bytes are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Malformed {
    /// A field reaches beyond the end of its message.
    #[error("a field is cut off")]
    CutOff,
    /// A number of more than 64 bits, a field number of zero, or a wire type that Kubernetes does not use.
    #[error("a field has no valid tag")]
    Tag,
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// A number, a bool or an enum.
    Varint(u64),
    /// A string, bytes or a message: where its content stands.
    Bytes(Range<usize>),
    /// Four or eight bytes; nothing that is read here is written so.
    Fixed,
}

/// One field of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) number: u64,
    pub(crate) value: Value,
    /// The whole field, from its tag on.
    pub(crate) start: usize,
}

/// The fields of the message that stands at a range of some bytes. All positions are relative to those bytes.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// The fields of the message in `bytes[range]`.
    pub(crate) fn within(bytes: &'a [u8], range: Range<usize>) -> Self {
        Self { bytes: bytes.get(..range.end).unwrap_or(bytes), at: range.start }
    }

    /// The fields of the message `bytes`.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn read(&mut self) -> Result<Field, Malformed> {
        let start = self.at;
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 {
            return Err(Malformed::Tag);
        }
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.skip(8).map(|_| Value::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed::CutOff)?;
                Value::Bytes(self.skip(length)?)
            }
            5 => self.skip(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed::Tag),
        };
        Ok(Field { number, value, start })
    }

    fn skip(&mut self, length: usize) -> Result<Range<usize>, Malformed> {
        let end =
            self.at.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or(Malformed::CutOff)?;
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let (number, length) =
            varint(self.bytes.get(self.at..).unwrap_or_default())?.ok_or(Malformed::CutOff)?;
        self.at += length;
        Ok(number)
    }
}

impl Iterator for Fields<'_> {
    type Item = Result<Field, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

/// The number that `bytes` begins with, and its length; `None` if more bytes are needed.
pub(crate) fn varint(bytes: &[u8]) -> Result<Option<(u64, usize)>, Malformed> {
    let mut number = 0_u64;
    for (index, byte) in bytes.iter().take(VARINT_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if index == VARINT_MAX - 1 && bits > 1 {
            return Err(Malformed::Tag);
        }
        number |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((number, index + 1)));
        }
    }
    if bytes.len() >= VARINT_MAX { Err(Malformed::Tag) } else { Ok(None) }
}

/// How many bytes `number` takes as a varint.
pub(crate) fn varint_length(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Writes `number` as a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Writes the tag and the length of a field whose content follows.
pub(crate) fn put_header(out: &mut Vec<u8>, number: u64, length: usize) {
    put_varint(out, number << 3 | 2);
    put_varint(out, length as u64);
}

/// Writes a string, bytes or message field.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    put_header(out, number, content.len());
    out.extend_from_slice(content);
}

/// Writes a number field.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 3);
    put_varint(out, value);
}

/// How many bytes a field of `length` bytes of content takes, for field numbers below 16.
pub(crate) fn field_length(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

/// What stands after the raw message in the envelope: empty content encoding and type, always written by the API server.
pub(crate) const ENVELOPE_TRAILER: &[u8] = &[0x1a, 0x00, 0x22, 0x00];

/// The envelope up to the raw message: the magic, `runtime.Unknown{1: {1: apiVersion, 2: kind}, 2: raw}`.
pub(crate) fn envelope_header(api_version: &str, kind: &str, raw_length: usize) -> Vec<u8> {
    let type_meta = field_length(api_version.len()) + field_length(kind.len());
    let mut out = Vec::with_capacity(MAGIC.len() + type_meta + 16);
    out.extend_from_slice(MAGIC);
    put_header(&mut out, 1, type_meta);
    put_bytes(&mut out, 1, api_version.as_bytes());
    put_bytes(&mut out, 2, kind.as_bytes());
    put_header(&mut out, 2, raw_length);
    out
}

/// What an envelope says and where its raw message stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Envelope<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) raw: Range<usize>,
}

/// Opens an envelope.
pub(crate) fn open_envelope(bytes: &[u8]) -> Result<Envelope<'_>, Malformed> {
    if !bytes.starts_with(MAGIC) {
        return Err(Malformed::Tag);
    }
    let mut envelope = Envelope { api_version: "", kind: "", raw: bytes.len()..bytes.len() };
    for field in Fields::within(bytes, MAGIC.len()..bytes.len()) {
        match field? {
            Field { number: 1, value: Value::Bytes(range), .. } => {
                (envelope.api_version, envelope.kind) = type_meta(bytes, range)?;
            }
            Field { number: 2, value: Value::Bytes(range), .. } => envelope.raw = range,
            _ => {}
        }
    }
    Ok(envelope)
}

/// The `apiVersion` and `kind` of a `TypeMeta`.
pub(crate) fn type_meta(bytes: &[u8], range: Range<usize>) -> Result<(&str, &str), Malformed> {
    let (mut api_version, mut kind) = ("", "");
    for field in Fields::within(bytes, range) {
        match field? {
            Field { number: 1, value: Value::Bytes(range), .. } => api_version = text(bytes, range)?,
            Field { number: 2, value: Value::Bytes(range), .. } => kind = text(bytes, range)?,
            _ => {}
        }
    }
    Ok((api_version, kind))
}

/// A string field.
pub(crate) fn text(bytes: &[u8], range: Range<usize>) -> Result<&str, Malformed> {
    bytes.get(range).and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or(Malformed::Tag)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        Field, Fields, Malformed, Value, open_envelope, put_bytes, put_number, put_varint, varint,
        varint_length,
    };

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, 1, b"abc");
        put_number(&mut bytes, 17, 300);
        let fields: Result<Vec<_>, _> = Fields::of(&bytes).collect();
        let expected = [
            Field { number: 1, value: Value::Bytes(2..5), start: 0 },
            Field { number: 17, value: Value::Varint(300), start: 5 },
        ];
        assert_eq!(fields.unwrap(), expected);
    }

    #[test]
    fn what_is_cut_off_or_has_no_tag_is_an_error() {
        for (bytes, error) in [
            (&[0x0a, 0x05, b'a'][..], Malformed::CutOff),
            (&[0x0a], Malformed::CutOff),
            (&[0x00, 0x00], Malformed::Tag),
            (&[0x0b], Malformed::Tag),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Malformed::Tag),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Malformed::CutOff),
        ] {
            assert_eq!(Fields::of(bytes).last(), Some(Err(error)), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn varints_are_read_as_written(number: u64) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            prop_assert_eq!(bytes.len(), varint_length(number));
            prop_assert_eq!(varint(&bytes), Ok(Some((number, bytes.len()))));
            prop_assert_eq!(varint(&bytes[..bytes.len() - 1]), Ok(None));
        }

        #[test]
        fn arbitrary_bytes_end(bytes: Vec<u8>) {
            for field in Fields::of(&bytes).flatten() {
                if let Value::Bytes(range) = field.value {
                    prop_assert!(bytes.get(range).is_some());
                }
            }
            let _ = open_envelope(&[b"k8s\0", &bytes[..]].concat());
        }
    }
}

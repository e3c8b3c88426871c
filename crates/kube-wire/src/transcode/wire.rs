//! The protobuf wire format: tags, varints, lengths, over a part of the message. It knows nothing of fields.

use super::TranscodeError;

/// A part of the message: from, to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    /// Not on the wire.
    pub(super) const ABSENT: Self = Self { start: u32::MAX, end: u32::MAX };

    /// Whether it is on the wire.
    pub(super) fn is_present(self) -> bool {
        self != Self::ABSENT
    }

    /// The bytes; none if absent.
    pub(super) fn of(self, raw: &[u8]) -> &[u8] {
        raw.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// How a value is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireType {
    Varint,
    Fixed64,
    Length,
}

/// One field as it stands on the wire.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// Where the tag begins.
    pub(super) tag_at: u32,
    pub(super) number: u64,
    pub(super) wire_type: WireType,
    /// The value without its tag and length.
    pub(super) value: Span,
}

/// Reads the fields of one part.
#[derive(Debug)]
pub(super) struct Records<'a> {
    raw: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Records<'a> {
    /// The fields in a part; none if it is absent.
    pub(super) fn new(raw: &'a [u8], span: Span) -> Self {
        let (at, end) = if span.is_present() { (span.start as usize, span.end as usize) } else { (0, 0) };
        Self { raw, at, end: end.min(raw.len()) }
    }

    /// The next field.
    pub(super) fn next(&mut self) -> Result<Option<Record>, TranscodeError> {
        if self.at >= self.end {
            return Ok(None);
        }
        let tag_at = position(self.at)?;
        let tag = self.varint()?;
        let number = tag >> 3;
        let (wire_type, start) = match tag & 7 {
            0 => {
                let start = self.at;
                self.varint()?;
                (WireType::Varint, start)
            }
            1 => (WireType::Fixed64, self.skip(8)?),
            2 => {
                let length = self.varint()?;
                (WireType::Length, self.skip(length)?)
            }
            // Groups and numbers of 32 bits stand in no published type.
            _ => return Err(TranscodeError::Malformed("wire type")),
        };
        let value = Span { start: position(start)?, end: position(self.at)? };
        Ok(Some(Record { tag_at, number, wire_type, value }))
    }

    /// The next varint.
    pub(super) fn varint(&mut self) -> Result<u64, TranscodeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some(byte) = self.raw.get(self.at).filter(|_| self.at < self.end) else {
                return Err(TranscodeError::Malformed("cut varint"));
            };
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(TranscodeError::Malformed("long varint"))
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// Passes over that many bytes; returns where they begin.
    fn skip(&mut self, length: u64) -> Result<usize, TranscodeError> {
        let start = self.at;
        let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
        self.at = end.filter(|end| *end <= self.end).ok_or(TranscodeError::Malformed("cut field"))?;
        Ok(start)
    }
}

/// The value of a varint; zero if absent.
pub(super) fn varint(raw: &[u8], span: Span) -> Result<u64, TranscodeError> {
    if span.is_present() { Records::new(raw, span).varint() } else { Ok(0) }
}

/// A position counted in 32 bits; the length of the whole was checked.
fn position(at: usize) -> Result<u32, TranscodeError> {
    u32::try_from(at).map_err(|_| TranscodeError::TooLarge(at))
}

//! Writes one value: numbers, text, and the types that have a JSON form of their own in Go.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::message::Writer;
use super::table::{MessageId, Value};
use super::wire::{Record, Records, Span, WireType, varint};
use super::{TranscodeError, embedded, text, time};

impl Writer<'_> {
    /// Writes a value; one that is absent is zero.
    pub(super) fn value(&mut self, value: Value, span: Span) -> Result<(), TranscodeError> {
        match value {
            Value::Message(message) => self.object(b"{", message, span)?,
            Value::VolumeClaim(message) => {
                self.object(b"{\"kind\":\"PersistentVolumeClaim\",\"apiVersion\":\"v1\"", message, span)?;
            }
            Value::SchemaOrBool(message) => self.schema_or_bool(message, span)?,
            Value::SchemaOrArray(message) => {
                let (schema, list) = self.schema_or_list(span)?;
                self.alternatives(Value::Message(message), schema, list)?;
            }
            Value::SchemaOrStringArray(message) => {
                let (schema, list) = self.schema_or_list(span)?;
                if list.is_present() {
                    self.list_of(2, Value::Text, list)?;
                } else {
                    self.alternatives(Value::Message(message), schema, list)?;
                }
            }
            Value::Bool => self.literal(if varint(self.raw, span)? == 0 { "false" } else { "true" }),
            Value::Int32 => self.integer(i64::from(int32(varint(self.raw, span)?))),
            Value::Int64 => self.integer(varint(self.raw, span)?.cast_signed()),
            Value::Double => self.double(span)?,
            Value::Text => text::write(&mut self.out, span.of(self.raw)),
            Value::Bytes => self.bytes(span)?,
            Value::Time => match self.time(span)? {
                Some((seconds, _)) => time::write_seconds(&mut self.out, seconds)?,
                None => self.null(),
            },
            Value::MicroTime => match self.time(span)? {
                Some((seconds, nanoseconds)) => {
                    time::write_microseconds(&mut self.out, seconds, nanoseconds)?;
                }
                None => self.null(),
            },
            Value::Duration => {
                let [nanoseconds] = self.parts(span, [WireType::Varint])?;
                time::write_duration(&mut self.out, varint(self.raw, nanoseconds)?.cast_signed());
            }
            Value::Quantity => self.quantity(span)?,
            Value::IntOrString => self.int_or_string(span)?,
            Value::RawExtension => {
                let [json] = self.parts(span, [WireType::Length])?;
                if json.is_present() {
                    embedded::write(&mut self.out, json.of(self.raw))?;
                } else {
                    self.null();
                }
            }
            Value::RawJson => {
                let [json] = self.parts(span, [WireType::Length])?;
                let json = json.of(self.raw);
                if json.is_empty() { self.null() } else { embedded::write(&mut self.out, json)? }
            }
            Value::StringList => {
                // In Go an empty message of this type is an empty list, not none.
                let list = self.whole_list(span, 1)?;
                if list.is_present() { self.list_of(1, Value::Text, list)? } else { self.literal("[]") }
            }
        }
        Ok(())
    }

    /// Whether Go's `omitempty` leaves a value out that is neither pointer, list nor map. Structs never are.
    pub(super) fn is_go_empty(&self, value: Value, span: Span) -> Result<bool, TranscodeError> {
        Ok(match value {
            Value::Bool | Value::Int32 | Value::Int64 => varint(self.raw, span)? == 0,
            Value::Double => span.of(self.raw).iter().all(|byte| *byte == 0),
            Value::Text | Value::Bytes | Value::StringList => span.of(self.raw).is_empty(),
            _ => false,
        })
    }

    /// Whether a time is the one that Go calls zero.
    pub(super) fn is_zero_time(&self, span: Span) -> Result<bool, TranscodeError> {
        Ok(self.time(span)?.is_none())
    }

    /// Writes `null`.
    pub(super) fn null(&mut self) {
        self.literal("null");
    }

    fn literal(&mut self, literal: &str) {
        self.out.extend_from_slice(literal.as_bytes());
    }

    fn object(&mut self, opening: &[u8], message: MessageId, span: Span) -> Result<(), TranscodeError> {
        self.out.extend_from_slice(opening);
        self.members(message, span, opening.len() == 1)?;
        self.out.push(b'}');
        Ok(())
    }

    fn integer(&mut self, number: i64) {
        // Writing into memory does not fail.
        let _ = write!(self.out, "{number}");
    }

    fn double(&mut self, span: Span) -> Result<(), TranscodeError> {
        let bytes = <[u8; 8]>::try_from(span.of(self.raw)).unwrap_or_default();
        let number = f64::from_le_bytes(bytes);
        let size = number.abs();
        if !number.is_finite() {
            return Err(TranscodeError::Malformed("a number that JSON has not"));
        }
        // Go changes over to exponents as JavaScript does.
        let _ = if size != 0.0 && size < 1e-6 {
            write!(self.out, "{number:e}")
        } else if size >= 1e21 {
            write!(self.out, "{}", format!("{number:e}").replace('e', "e+"))
        } else {
            write!(self.out, "{number}")
        };
        Ok(())
    }

    fn bytes(&mut self, span: Span) -> Result<(), TranscodeError> {
        if !span.is_present() {
            self.null();
            return Ok(());
        }
        let bytes = span.of(self.raw);
        self.out.push(b'"');
        let begin = self.out.len();
        self.out.resize(begin + bytes.len().div_ceil(3) * 4, 0);
        let written = STANDARD.encode_slice(bytes, &mut self.out[begin..]);
        let written = written.map_err(|_| TranscodeError::TooLarge(bytes.len()))?;
        self.out.truncate(begin + written);
        self.out.push(b'"');
        Ok(())
    }

    fn quantity(&mut self, span: Span) -> Result<(), TranscodeError> {
        let [canonical] = self.parts(span, [WireType::Length])?;
        match canonical.of(self.raw) {
            [] if canonical.is_present() => return Err(TranscodeError::Malformed("an empty quantity")),
            [] => self.literal("\"0\""),
            canonical => text::write(&mut self.out, canonical),
        }
        Ok(())
    }

    fn int_or_string(&mut self, span: Span) -> Result<(), TranscodeError> {
        let [kind, number, string] =
            self.parts(span, [WireType::Varint, WireType::Varint, WireType::Length])?;
        match varint(self.raw, kind)? {
            0 => self.integer(i64::from(int32(varint(self.raw, number)?))),
            1 => text::write(&mut self.out, string.of(self.raw)),
            _ => return Err(TranscodeError::Malformed("neither number nor string")),
        }
        Ok(())
    }

    /// Seconds and nanoseconds since 1970; `None` for Go's zero time.
    fn time(&self, span: Span) -> Result<Option<(i64, i32)>, TranscodeError> {
        let [seconds, nanoseconds] = self.parts(span, [WireType::Varint; 2])?;
        if span.of(self.raw).is_empty() {
            return Ok(None);
        }
        let seconds = varint(self.raw, seconds)?.cast_signed();
        Ok((seconds != time::GO_ZERO).then_some((seconds, int32(varint(self.raw, nanoseconds)?))))
    }

    fn schema_or_bool(&mut self, message: MessageId, span: Span) -> Result<(), TranscodeError> {
        let [allows, schema] = self.parts(span, [WireType::Varint, WireType::Length])?;
        if schema.is_present() {
            return self.value(Value::Message(message), schema);
        }
        self.value(Value::Bool, allows)
    }

    /// The parts of a message with a schema as field 1 and a list as field 2.
    fn schema_or_list(&self, span: Span) -> Result<(Span, Span), TranscodeError> {
        let schema = self.whole_list(span, 1)?;
        Ok((schema, self.whole_list(span, 2)?))
    }

    /// Writes the list if there is one, else the schema.
    fn alternatives(&mut self, of: Value, schema: Span, list: Span) -> Result<(), TranscodeError> {
        if list.is_present() {
            return self.list_of(2, of, list);
        }
        let mut records = Records::new(self.raw, schema);
        match records.next()? {
            Some(record) if records.is_empty() => self.value(of, record.value)?,
            Some(_) => return Err(TranscodeError::Malformed("a field stands twice")),
            None => self.null(),
        }
        Ok(())
    }

    fn list_of(&mut self, number: u64, of: Value, span: Span) -> Result<(), TranscodeError> {
        let mut records = Records::new(self.raw, span);
        let mut opening = b'[';
        while let Some(record) = records.next()?.filter(|record| record.number == number) {
            self.out.push(opening);
            opening = b',';
            self.value(of, record.value)?;
        }
        self.out.push(b']');
        Ok(())
    }

    /// From the first record of a number to its last, in a message that has only fields 1 and 2 with a length.
    fn whole_list(&self, span: Span, number: u64) -> Result<Span, TranscodeError> {
        let mut whole = Span::ABSENT;
        let mut records = Records::new(self.raw, span);
        while let Some(Record { tag_at, number: found, wire_type, value }) = records.next()? {
            if wire_type != WireType::Length || found > 2 {
                return Err(TranscodeError::UnknownField { number: found });
            }
            if found == number {
                whole = Span { start: whole.start.min(tag_at), end: value.end };
            }
        }
        Ok(whole)
    }

    /// The values of fields 1, 2, … of a message that has only these, each at most once.
    fn parts<const N: usize>(
        &self,
        span: Span,
        expected: [WireType; N],
    ) -> Result<[Span; N], TranscodeError> {
        let mut parts = [Span::ABSENT; N];
        let mut records = Records::new(self.raw, span);
        while let Some(Record { tag_at: _, number, wire_type, value }) = records.next()? {
            let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
            let index = index.filter(|index| *index < N).ok_or(TranscodeError::UnknownField { number })?;
            if wire_type != expected[index] || parts[index].is_present() {
                return Err(TranscodeError::Malformed("wire type of a field"));
            }
            parts[index] = value;
        }
        Ok(parts)
    }
}

/// The lower half: numbers of 32 bits are sent with the sign extended.
fn int32(number: u64) -> i32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

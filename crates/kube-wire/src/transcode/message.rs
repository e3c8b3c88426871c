//! Walks a message by the table and writes an object: finds where its fields stand on the wire, then writes them in the
//! order of their declaration, each by its shape and rule of omission.

use super::TranscodeError;
use super::table::{self, Field, Message, MessageId, Place, Shape, Value};
use super::text;
use super::wire::{Record, Records, Span, WireType};

/// Deeper than any object: the deepest are schemas of CRDs, one message a level, some thirty levels. A thread of 2 MiB
/// carries more than twice as many, unoptimized.
const DEPTH_MAX: usize = 100;

/// What is written as `kind` and `apiVersion`.
pub(super) struct TypeOf {
    pub(super) kind: &'static str,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
}

/// The JSON of a whole message.
pub(super) fn object(
    message: MessageId,
    raw: &[u8],
    type_of: Option<&TypeOf>,
) -> Result<Vec<u8>, TranscodeError> {
    let end = u32::try_from(raw.len()).ok().filter(|end| *end < u32::MAX);
    let whole = Span { start: 0, end: end.ok_or(TranscodeError::TooLarge(raw.len()))? };
    // JSON of Kubernetes objects is about 1.5 times as long.
    let out = Vec::with_capacity(raw.len() * 2 + 64);
    let mut writer = Writer { raw, out, positions: Vec::with_capacity(128), depth: 0 };
    writer.out.push(b'{');
    let is_empty = type_of.is_none();
    if let Some(TypeOf { kind, group, version }) = type_of {
        let slash = if group.is_empty() { "" } else { "/" };
        for part in ["\"kind\":\"", kind, "\",\"apiVersion\":\"", group, slash, version, "\""] {
            writer.out.extend_from_slice(part.as_bytes());
        }
    }
    writer.members(message, whole, is_empty)?;
    writer.out.push(b'}');
    Ok(writer.out)
}

/// The message, and its JSON as far as it is written.
pub(super) struct Writer<'a> {
    pub(super) raw: &'a [u8],
    pub(super) out: Vec<u8>,
    /// Where the fields of the messages that are being written stand, innermost last.
    positions: Vec<Span>,
    depth: usize,
}

impl Writer<'_> {
    /// Writes the members of an object; returns whether the object still has none.
    pub(super) fn members(
        &mut self,
        id: MessageId,
        span: Span,
        mut is_empty: bool,
    ) -> Result<bool, TranscodeError> {
        if self.depth == DEPTH_MAX {
            return Err(TranscodeError::TooDeep);
        }
        self.depth += 1;
        let message = table::message(id);
        let first = self.positions.len();
        self.positions.resize(first + message.len(), Span::ABSENT);
        self.locate(message, span, first)?;
        for index in 0..message.len() {
            is_empty = self.member(message.field(index), self.positions[first + index], is_empty)?;
        }
        self.positions.truncate(first);
        self.depth -= 1;
        Ok(is_empty)
    }

    /// Finds the fields: of lists and maps from the first record to the last, of all others the value.
    fn locate(&mut self, message: Message, span: Span, first: usize) -> Result<(), TranscodeError> {
        let mut records = Records::new(self.raw, span);
        while let Some(Record { tag_at, number, wire_type, value }) = records.next()? {
            let index = message.position(number).ok_or(TranscodeError::UnknownField { number })?;
            let field = message.field(index);
            let position = &mut self.positions[first + index];
            match field.shape() {
                Shape::Repeated | Shape::Map => {
                    position.start = position.start.min(tag_at);
                    position.end = value.end;
                }
                Shape::Plain | Shape::Pointer => {
                    expect_type(field.value(), wire_type)?;
                    // Go would merge them; the API server writes a field once.
                    if position.is_present() {
                        return Err(TranscodeError::Malformed("a field stands twice"));
                    }
                    *position = value;
                }
            }
        }
        Ok(())
    }

    fn member(&mut self, field: Field, span: Span, is_empty: bool) -> Result<bool, TranscodeError> {
        let name = match field.place() {
            Place::Named(name) => name,
            Place::Hidden => return Ok(is_empty),
            Place::Inline => {
                let Value::Message(message) = field.value() else { return Ok(is_empty) };
                return self.members(message, span, is_empty);
            }
        };
        let omitted = match field.shape() {
            Shape::Plain => {
                field.omit_empty() && self.is_go_empty(field.value(), span)?
                    || field.omit_zero() && self.is_zero_time(span)?
            }
            Shape::Pointer | Shape::Repeated | Shape::Map => field.omit_empty() && !span.is_present(),
        };
        if omitted {
            return Ok(is_empty);
        }
        self.out.extend_from_slice(if is_empty { b"\"" } else { b",\"" });
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(b"\":");
        match field.shape() {
            Shape::Pointer | Shape::Repeated | Shape::Map if !span.is_present() => self.null(),
            Shape::Plain | Shape::Pointer => self.value(field.value(), span)?,
            Shape::Repeated => self.list(field, span)?,
            Shape::Map => self.map(field, span)?,
        }
        Ok(false)
    }

    fn list(&mut self, field: Field, span: Span) -> Result<(), TranscodeError> {
        let value = field.value();
        self.out.push(b'[');
        let mut records = Records::new(self.raw, span);
        let mut separator = false;
        while let Some(record) = records.next()? {
            if record.number != field.number() {
                continue;
            }
            // Go reads both forms of a list of numbers, and writes the plain one.
            if is_number(value) && record.wire_type == WireType::Length {
                return Err(TranscodeError::Malformed("a packed list"));
            }
            expect_type(value, record.wire_type)?;
            if std::mem::replace(&mut separator, true) {
                self.out.push(b',');
            }
            self.value(value, record.value)?;
        }
        self.out.push(b']');
        Ok(())
    }

    /// Writes a map with its keys in order, as Go does; on the wire, too, the API server sorts them.
    fn map(&mut self, field: Field, span: Span) -> Result<(), TranscodeError> {
        let begin = self.out.len();
        let mut records = Records::new(self.raw, span);
        let mut before: Option<Span> = None;
        self.out.push(b'{');
        while let Some(record) = records.next()? {
            if record.number != field.number() {
                continue;
            }
            let (key, value) = self.entry(field, record)?;
            if before.is_some_and(|before| before.of(self.raw) >= key.of(self.raw)) {
                self.out.truncate(begin);
                return self.unsorted_map(field, span);
            }
            self.map_member(before.is_none(), field.value(), key, value)?;
            before = Some(key);
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Writes a map whose entries are in any order; of equal keys the last counts.
    fn unsorted_map(&mut self, field: Field, span: Span) -> Result<(), TranscodeError> {
        let mut entries = std::collections::BTreeMap::new();
        let mut records = Records::new(self.raw, span);
        while let Some(record) = records.next()? {
            if record.number == field.number() {
                let (key, value) = self.entry(field, record)?;
                entries.insert(key.of(self.raw), (key, value));
            }
        }
        self.out.push(b'{');
        for (index, (key, value)) in entries.into_values().enumerate() {
            self.map_member(index == 0, field.value(), key, value)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn map_member(
        &mut self,
        is_first: bool,
        of: Value,
        key: Span,
        value: Span,
    ) -> Result<(), TranscodeError> {
        if !is_first {
            self.out.push(b',');
        }
        text::write(&mut self.out, key.of(self.raw));
        self.out.push(b':');
        self.value(of, value)
    }

    /// Key and value of a map's entry.
    fn entry(&self, field: Field, record: Record) -> Result<(Span, Span), TranscodeError> {
        if record.wire_type != WireType::Length {
            return Err(TranscodeError::Malformed("a map's entry"));
        }
        let (mut key, mut value) = (Span::ABSENT, Span::ABSENT);
        let mut records = Records::new(self.raw, record.value);
        while let Some(part) = records.next()? {
            match part.number {
                1 if part.wire_type == WireType::Length => key = part.value,
                2 => {
                    expect_type(field.value(), part.wire_type)?;
                    value = part.value;
                }
                _ => return Err(TranscodeError::Malformed("a map's entry")),
            }
        }
        Ok((key, value))
    }
}

fn is_number(value: Value) -> bool {
    matches!(value, Value::Bool | Value::Int32 | Value::Int64 | Value::Double)
}

/// A value delimited otherwise than its type is would be read as something else.
fn expect_type(value: Value, found: WireType) -> Result<(), TranscodeError> {
    let expected = match value {
        Value::Bool | Value::Int32 | Value::Int64 => WireType::Varint,
        Value::Double => WireType::Fixed64,
        _ => WireType::Length,
    };
    if expected == found { Ok(()) } else { Err(TranscodeError::Malformed("wire type of a field")) }
}

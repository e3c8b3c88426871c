//! Changes single fields of an object in the encoding in which it is held: a field has a name for JSON and a number for
//! protobuf, and whoever edits says both. Of a protobuf message all other bytes stay as they are.
//!
//! In: objects of anybody. Out: what was asked for, or nothing; it never panics, and decodes no more than what it passes through.

mod entries;

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Map, Value as Json};

use crate::{
    object::{Encoding, MalformedObject, Object},
    protobuf::{Fields, Value, put_bytes, put_number},
};

/// A field by both of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// In JSON.
    pub name: &'static str,
    /// In protobuf.
    pub number: u64,
    /// Whether JSON leaves it out when it is empty (`omitempty`); `null` is written otherwise.
    pub omitted: bool,
}

impl Field {
    /// A field that JSON leaves out when it is empty.
    pub const fn new(name: &'static str, number: u64) -> Self {
        Self { name, number, omitted: true }
    }

    /// A list that JSON shows as `null` when it is empty.
    pub const fn shown(name: &'static str, number: u64) -> Self {
        Self { name, number, omitted: false }
    }
}

/// What becomes of a message that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It stays as it was.
    Keep,
    /// It was changed.
    Change,
    /// It is taken out.
    Drop,
}

impl Verdict {
    /// [`Verdict::Change`] if something was changed.
    pub fn changed(changed: bool) -> Self {
        if changed { Self::Change } else { Self::Keep }
    }
}

/// A message that can be read and changed, in either encoding.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The members of a JSON object.
    Json(Map<String, Json>),
    /// The content of a protobuf message.
    Protobuf(Bytes),
}

impl Message {
    /// The whole of an object.
    pub fn of(object: &Object) -> Option<Self> {
        match object.encoding() {
            Encoding::Protobuf => Some(Self::Protobuf(object.body().clone())),
            Encoding::Json => serde_json::from_slice(object.body()).ok().map(Self::Json),
        }
    }

    /// An empty message of the same encoding.
    #[must_use]
    pub fn empty(&self) -> Self {
        match self {
            Self::Json(_) => Self::Json(Map::new()),
            Self::Protobuf(_) => Self::Protobuf(Bytes::new()),
        }
    }

    /// The object that the message is the whole of.
    pub fn into_object(self) -> Result<Object, MalformedObject> {
        match self {
            Self::Json(members) => {
                let text = serde_json::to_vec(&members)
                    .map_err(|error| MalformedObject::Undecodable(error.to_string()))?;
                Object::from_json(text.into())
            }
            Self::Protobuf(body) => Object::from_protobuf(body),
        }
    }

    /// The text of a field; `None` if it is absent or no text.
    pub fn text(&self, field: Field) -> Option<Cow<'_, str>> {
        match self {
            Self::Json(members) => members.get(field.name)?.as_str().map(Cow::Borrowed),
            Self::Protobuf(body) => {
                // Of a field that stands more than once the last one counts.
                let range = contents(body, field.number).last()?;
                std::str::from_utf8(body.get(range)?).ok().map(Cow::Borrowed)
            }
        }
    }

    /// All texts of a repeated field.
    pub fn texts(&self, field: Field) -> Vec<Cow<'_, str>> {
        match self {
            Self::Json(members) => {
                let list = members.get(field.name).and_then(Json::as_array);
                list.into_iter().flatten().filter_map(Json::as_str).map(Cow::Borrowed).collect()
            }
            Self::Protobuf(body) => contents(body, field.number)
                .filter_map(|range| std::str::from_utf8(body.get(range)?).ok().map(Cow::Borrowed))
                .collect(),
        }
    }

    /// The message of a field.
    pub fn message(&self, field: Field) -> Option<Self> {
        match self {
            Self::Json(members) => members.get(field.name)?.as_object().cloned().map(Self::Json),
            Self::Protobuf(body) => {
                contents(body, field.number).last().map(|range| Self::Protobuf(body.slice(range)))
            }
        }
    }

    /// All messages of a repeated field.
    pub fn messages(&self, field: Field) -> Vec<Self> {
        match self {
            Self::Json(members) => {
                let list = members.get(field.name).and_then(Json::as_array);
                list.into_iter().flatten().filter_map(Json::as_object).cloned().map(Self::Json).collect()
            }
            Self::Protobuf(body) => {
                contents(body, field.number).map(|range| Self::Protobuf(body.slice(range))).collect()
            }
        }
    }

    /// Writes a text. Says whether that changed anything, as all of these do.
    pub fn set_text(&mut self, field: Field, text: &str) -> bool {
        if self.text(field).as_deref() == Some(text) {
            return false;
        }
        match self {
            Self::Json(members) => {
                members.insert(field.name.to_owned(), text.into());
            }
            Self::Protobuf(body) => {
                *body = replaced(body, field.number, |out| put_bytes(out, field.number, text.as_bytes()));
            }
        }
        true
    }

    /// Writes a list of texts.
    pub fn set_texts(&mut self, field: Field, texts: &[&str]) -> bool {
        if self.texts(field) == texts {
            return false;
        }
        match self {
            Self::Json(members) => {
                members.insert(field.name.to_owned(), texts.into());
            }
            Self::Protobuf(body) => {
                *body = replaced(body, field.number, |out| {
                    for text in texts {
                        put_bytes(out, field.number, text.as_bytes());
                    }
                });
            }
        }
        true
    }

    /// The truth value of a field; `None` if it is absent or none.
    pub fn bool(&self, field: Field) -> Option<bool> {
        match self {
            Self::Json(members) => members.get(field.name)?.as_bool(),
            Self::Protobuf(body) => {
                let fields = Fields::of(body).map_while(Result::ok);
                match fields.filter(|found| found.number == field.number).last()?.value {
                    Value::Varint(value) => Some(value != 0),
                    _ => None,
                }
            }
        }
    }

    /// Writes a number that is not negative.
    pub fn set_number(&mut self, field: Field, number: u32) -> bool {
        match self {
            Self::Json(members) => {
                let old = members.insert(field.name.to_owned(), number.into());
                old.as_ref().and_then(Json::as_u64) != Some(number.into())
            }
            Self::Protobuf(body) => set_varint(body, field.number, number.into()),
        }
    }

    /// Writes a truth value.
    pub fn set_bool(&mut self, field: Field, value: bool) -> bool {
        match self {
            Self::Json(members) => members.insert(field.name.to_owned(), value.into()) != Some(value.into()),
            Self::Protobuf(body) => set_varint(body, field.number, value.into()),
        }
    }

    /// Writes a message, in the place of all that the field had.
    pub fn set_message(&mut self, field: Field, message: Self) -> bool {
        match (self, message) {
            (Self::Json(members), Self::Json(message)) => {
                let message = Json::Object(message);
                let same = members.get(field.name) == Some(&message);
                members.insert(field.name.to_owned(), message);
                !same
            }
            (Self::Protobuf(body), Self::Protobuf(message)) => put_messages(body, field.number, &[message]),
            _ => false,
        }
    }

    /// Writes a list of one message, in the place of all that the field had.
    pub fn set_only_message(&mut self, field: Field, message: Self) -> bool {
        match (self, message) {
            (Self::Json(members), Self::Json(message)) => {
                let list = Json::Array(vec![Json::Object(message)]);
                let same = members.get(field.name) == Some(&list);
                members.insert(field.name.to_owned(), list);
                !same
            }
            (Self::Protobuf(body), Self::Protobuf(message)) => put_messages(body, field.number, &[message]),
            _ => false,
        }
    }

    /// Changes the message of a field that is there and is not repeated.
    pub fn edit(&mut self, field: Field, edit: impl FnOnce(&mut Self) -> bool) -> bool {
        let Some(mut message) = self.message(field) else { return false };
        edit(&mut message) && self.set_message(field, message)
    }

    /// Looks at each message of a repeated field, and changes it or takes it out.
    pub fn edit_each(&mut self, field: Field, mut edit: impl FnMut(&mut Self) -> Verdict) -> bool {
        match self {
            Self::Json(members) => {
                let Some(Json::Array(list)) = members.get_mut(field.name) else { return false };
                let mut changed = false;
                list.retain_mut(|element| {
                    let Json::Object(inner) = element else { return true };
                    let mut message = Self::Json(std::mem::take(inner));
                    let verdict = edit(&mut message);
                    changed |= verdict != Verdict::Keep;
                    if let Self::Json(members) = message {
                        *element = Json::Object(members);
                    }
                    verdict != Verdict::Drop
                });
                if changed && list.is_empty() {
                    if field.omitted {
                        members.remove(field.name);
                    } else {
                        members.insert(field.name.to_owned(), Json::Null);
                    }
                }
                changed
            }
            Self::Protobuf(body) => {
                let mut changed = false;
                let new = rewritten(body, field.number, |content, out| {
                    let mut message = Self::Protobuf(content);
                    let verdict = edit(&mut message);
                    changed |= verdict != Verdict::Keep;
                    if let (Self::Protobuf(content), Verdict::Change) = (message, verdict) {
                        put_bytes(out, field.number, &content);
                    }
                    verdict == Verdict::Keep
                });
                if changed && let Some(new) = new {
                    *body = new;
                    return true;
                }
                false
            }
        }
    }
}

/// Where the contents of a field stand; none of a message that is malformed.
fn contents(body: &[u8], number: u64) -> impl Iterator<Item = std::ops::Range<usize>> {
    Fields::of(body).map_while(Result::ok).filter_map(move |field| match field.value {
        Value::Bytes(range) if field.number == number => Some(range),
        _ => None,
    })
}

/// The message with each content of a field handed to `write`, which says whether it stays as it was. `None` if it is malformed.
fn rewritten(body: &Bytes, number: u64, mut write: impl FnMut(Bytes, &mut Vec<u8>) -> bool) -> Option<Bytes> {
    let mut out = Vec::with_capacity(body.len());
    let fields = Fields::of(body).collect::<Result<Vec<_>, _>>().ok()?;
    for (index, field) in fields.iter().enumerate() {
        let end = fields.get(index + 1).map_or(body.len(), |next| next.start);
        let keep = match &field.value {
            Value::Bytes(range) if field.number == number => write(body.slice(range.clone()), &mut out),
            _ => true,
        };
        if keep {
            out.extend_from_slice(body.get(field.start..end)?);
        }
    }
    Some(out.into())
}

/// The message with all of a field taken out and `put` in the place of the first, or at the end.
fn replaced(body: &Bytes, number: u64, put: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let Ok(fields) = Fields::of(body).collect::<Result<Vec<_>, _>>() else { return body.clone() };
    let mut put = Some(put);
    let mut out = Vec::with_capacity(body.len() + 32);
    for (index, field) in fields.iter().enumerate() {
        let end = fields.get(index + 1).map_or(body.len(), |next| next.start);
        if field.number != number {
            out.extend_from_slice(body.get(field.start..end).unwrap_or_default());
        } else if let Some(put) = put.take() {
            put(&mut out);
        }
    }
    if let Some(put) = put {
        put(&mut out);
    }
    out.into()
}

fn set_varint(body: &mut Bytes, number: u64, value: u64) -> bool {
    let current = Fields::of(body).map_while(Result::ok).filter(|field| field.number == number).last();
    if current.is_some_and(|field| field.value == Value::Varint(value)) {
        return false;
    }
    *body = replaced(body, number, |out| put_number(out, number, value));
    true
}

fn put_messages(body: &mut Bytes, number: u64, messages: &[Bytes]) -> bool {
    let new = replaced(body, number, |out| {
        for message in messages {
            put_bytes(out, number, message);
        }
    });
    let changed = *body != new;
    *body = new;
    changed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::protobuf::put_varint;

    const A: Field = Field::new("a", 1);
    const B: Field = Field::new("b", 2);
    const C: Field = Field::shown("c", 3);

    fn both(json: Json, protobuf: Vec<u8>) -> [Message; 2] {
        let Json::Object(members) = json else { panic!("no object") };
        [Message::Json(members), Message::Protobuf(protobuf.into())]
    }

    fn sample() -> [Message; 2] {
        let mut protobuf = Vec::new();
        put_bytes(&mut protobuf, 1, b"x");
        put_number(&mut protobuf, 9, 7);
        for text in ["p", "q"] {
            let mut inner = Vec::new();
            put_bytes(&mut inner, 1, text.as_bytes());
            put_bytes(&mut protobuf, 3, &inner);
        }
        put_number(&mut protobuf, 2, 5);
        both(json!({ "a": "x", "c": [{ "a": "p" }, { "a": "q" }], "b": 5, "i": 7 }), protobuf)
    }

    #[test]
    fn fields_are_read_and_written_alike() {
        for mut message in sample() {
            assert_eq!(message.text(A).as_deref(), Some("x"));
            assert!(!message.set_text(A, "x") && message.set_text(A, "y"));
            assert!(!message.set_number(B, 5) && message.set_number(B, 6));
            assert_eq!(message.text(A).as_deref(), Some("y"));
            assert!(message.edit_each(C, |inner| match inner.text(A).as_deref() {
                Some("p") => Verdict::Drop,
                _ => Verdict::changed(inner.set_text(A, "r")),
            }));
            let left: Vec<_> =
                message.messages(C).iter().map(|inner| inner.text(A).unwrap().into_owned()).collect();
            assert_eq!(left, ["r"]);
            assert!(!message.edit_each(C, |_| Verdict::Keep) && message.edit_each(C, |_| Verdict::Drop));
            assert!(message.messages(C).is_empty());
        }
    }

    #[test]
    fn all_other_bytes_stay() {
        let [_, mut message] = sample();
        message.set_text(A, "longer");
        message.set_text(A, "x");
        assert_eq!(message, sample()[1]);
        assert!(!message.edit_each(C, |_| Verdict::Keep));
        assert_eq!(message, sample()[1]);
    }

    #[test]
    fn an_empty_list_is_written_as_go_writes_it() {
        let [mut message, _] = sample();
        message.edit_each(C, |_| Verdict::Drop);
        let Message::Json(members) = message else { panic!("JSON stays JSON") };
        assert_eq!(members.get("c"), Some(&Json::Null));
    }

    #[test]
    fn entries_of_maps_are_changed_alike() {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, b"k");
        put_bytes(&mut entry, 2, b"v");
        let mut protobuf = Vec::new();
        put_bytes(&mut protobuf, 2, &entry);
        for mut message in both(json!({ "b": { "k": "v" } }), protobuf) {
            assert!(!message.edit_entry(B, "other", |_| Some(String::new())));
            assert_eq!(message.keys(B), ["k"]);
            assert!(message.edit_entry(B, "k", |value| Some(format!("{value}{value}"))));
            assert!(!message.edit_entry(B, "k", |value| { (value != "vv").then(String::new) }));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_survived(bytes: Vec<u8>, number in 1..4_u64) {
            let field = Field::new("a", number);
            let mut message = Message::Protobuf(bytes.into());
            let _ = (message.text(field).is_some(), message.texts(field).len(), message.messages(field).len());
            message.edit(field, |inner| inner.set_text(A, "t"));
            message.edit_each(field, |inner| Verdict::changed(inner.set_number(B, 1)));
            message.set_texts(field, &["a", "b"]);
        }
    }

    #[test]
    fn numbers_of_other_wire_types_are_replaced() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, 2 << 3 | 5);
        bytes.extend_from_slice(&[1, 2, 3, 4]);
        let mut message = Message::Protobuf(bytes.into());
        assert!(message.set_number(B, 3) && !message.set_number(B, 3));
    }
}

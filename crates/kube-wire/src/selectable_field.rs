//! The fields that field selectors may name, by resource: where each stands in JSON and in protobuf, and how the API server
//! compares it. In: a resource, or a CRD's `selectableFields`. It must not accept what the API server refuses.

use std::borrow::Cow;

use crate::{
    json::{self, Members},
    object::{Encoding, Object},
    protobuf::{self, Field, Fields, Value},
    resource::GroupVersionResource,
};

use built_in::{BUILT_IN_GROUPS, METADATA, NAME_ALONE, TABLES};
pub(crate) use built_in::{BuiltIn, Form, Refusal, Source};

mod built_in;

/// One field that a selector may name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectableField(Place);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    BuiltIn(&'static BuiltIn),
    /// The members to pass through in JSON.
    Custom(Box<[Box<str>]>),
}

/// Which fields the selectors of one resource may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectableFields {
    built_in: &'static [&'static BuiltIn],
    custom: Vec<(Box<str>, SelectableField)>,
    refusal: Refusal,
}

impl SelectableFields {
    /// The fields of a resource: the table of a built-in one, name and namespace for all others.
    pub fn of(resource: &GroupVersionResource) -> Self {
        let found = TABLES
            .iter()
            .find(|table| *table.group == *resource.group && *table.resource == *resource.resource);
        let (built_in, refusal) = match found {
            Some(table) => (table.fields, table.refusal),
            None if BUILT_IN_GROUPS.contains(&&*resource.group) => (METADATA, Refusal::OnlyMetadata),
            None => (METADATA, Refusal::NotSupported),
        };
        Self { built_in, custom: Vec::new(), refusal }
    }

    /// The fields of a custom resource whose version lists these `selectableFields[].jsonPath`, such as `.spec.color`.
    pub fn custom<'a>(json_paths: impl IntoIterator<Item = &'a str>) -> Self {
        let custom = json_paths.into_iter().map(|path| {
            let label = path.strip_prefix('.').unwrap_or(path);
            (label.into(), SelectableField(Place::Custom(segments(label))))
        });
        Self { built_in: METADATA, custom: custom.collect(), refusal: Refusal::NotSupported }
    }

    /// The fields of a resource with those that a selector names which was accepted before: of a custom resource its definition made them selectable
    /// then.
    pub fn named_by(resource: &GroupVersionResource, selector: &str) -> Self {
        let mut fields = Self::of(resource);
        if matches!(fields.refusal, Refusal::NotSupported) {
            let labels = selector.split(',').filter_map(|term| term.split(['=', '!']).next());
            let custom = labels.map(str::trim).filter(|label| !label.is_empty());
            let custom: Vec<_> = custom.filter(|label| fields.get(label).is_none()).collect();
            fields.custom = Self::custom(custom).custom;
        }
        fields
    }

    /// The same where the objects of a custom resource have no namespaces: no selector may name one then.
    #[must_use]
    pub fn without_namespace(self) -> Self {
        let is_custom = matches!(self.refusal, Refusal::NotSupported) && self.built_in == METADATA;
        Self { built_in: if is_custom { NAME_ALONE } else { self.built_in }, ..self }
    }

    /// The field that a selector calls `label`, and what it is called in a canonical selector.
    pub fn get(&self, label: &str) -> Option<(SelectableField, &str)> {
        // Clients of before 1.0 still say so.
        let label =
            if label == "spec.host" && self.built_in.iter().any(|field| field.label == "spec.nodeName") {
                "spec.nodeName"
            } else {
                label
            };
        if let Some(field) = self.built_in.iter().find(|field| field.label == label) {
            return Some((SelectableField(Place::BuiltIn(field)), field.label));
        }
        let (label, field) = self.custom.iter().find(|(custom, _)| **custom == *label)?;
        Some((field.clone(), label))
    }

    /// The API server's words for a label it does not know.
    pub(crate) fn refuse(&self, label: &str) -> String {
        self.refusal.words(label)
    }
}

impl SelectableField {
    /// The value in `object`, as the API server compares it.
    pub(crate) fn value<'a>(&self, object: &'a Object) -> Cow<'a, str> {
        match &self.0 {
            Place::BuiltIn(field) if field.label == "metadata.name" => Cow::Borrowed(object.key().name()),
            Place::BuiltIn(field) if field.label == "metadata.namespace" => {
                Cow::Borrowed(object.key().namespace())
            }
            Place::BuiltIn(field) => field.value(object),
            Place::Custom(path) => {
                from_json(object.body(), path.iter().map(AsRef::as_ref)).unwrap_or_default()
            }
        }
    }
}

impl BuiltIn {
    fn value<'a>(&self, object: &'a Object) -> Cow<'a, str> {
        let read = |source: &Source| match object.encoding() {
            Encoding::Json => from_json(object.body(), source.json.iter().copied()),
            Encoding::Protobuf => from_protobuf(object.body(), source.protobuf, self.form),
        };
        // The API server falls back where the first source is empty, not only where it is absent.
        let found = self.sources.iter().filter_map(read).find(|value| !value.is_empty());
        found.unwrap_or(Cow::Borrowed(match self.form {
            Form::Text => "",
            Form::Bool => "false",
            Form::Integer => "0",
        }))
    }
}

/// The scalar at a path of members; a number is an index into an array. A string decoded, anything else as it stands.
fn from_json<'a, 'p>(text: &'a [u8], path: impl Iterator<Item = &'p str>) -> Option<Cow<'a, str>> {
    let mut range = 0..text.len();
    for segment in path {
        let inner = match text.get(range.start) {
            Some(b'[') => segment.parse().ok().and_then(|index| json::element(text, range.clone(), index)),
            _ => Members::within(text, range).get(segment),
        };
        range = inner?;
    }
    match text.get(range.start)? {
        b'"' => json::string(text, range),
        b'{' | b'[' | b'n' => None,
        _ => std::str::from_utf8(&text[range]).ok().map(Cow::Borrowed),
    }
}

/// The scalar at a path of tags; of a repeated message, the first.
fn from_protobuf<'a>(bytes: &'a [u8], path: &[u64], form: Form) -> Option<Cow<'a, str>> {
    let mut range = 0..bytes.len();
    let (last, messages) = path.split_last()?;
    let find = |range, tag| {
        let found = Fields::within(bytes, range).flatten().find(|field| field.number == tag);
        found.map(|Field { value, .. }| value)
    };
    for tag in messages {
        range = match find(range, *tag)? {
            Value::Bytes(range) => range,
            Value::Varint(_) | Value::Fixed => return None,
        };
    }
    match (find(range, *last)?, form) {
        (Value::Bytes(range), Form::Text) => protobuf::text(bytes, range).ok().map(Cow::Borrowed),
        (Value::Varint(number), Form::Bool) => {
            Some(Cow::Borrowed(if number == 0 { "false" } else { "true" }))
        }
        // The fields of this form are 32-bit integers, which are written sign-extended to 64 bits.
        (Value::Varint(number), Form::Integer) => Some(Cow::Owned(number.cast_signed().to_string())),
        _ => None,
    }
}

/// The members of a simple JSON path without its first dot; `\.` is a dot in a name.
fn segments(path: &str) -> Box<[Box<str>]> {
    let mut segments = vec![String::new()];
    let mut characters = path.chars();
    while let Some(character) = characters.next() {
        match character {
            '.' => segments.push(String::new()),
            '\\' => segments.last_mut().expect("it begins with one").extend(characters.next()),
            other => segments.last_mut().expect("it begins with one").push(other),
        }
    }
    segments.into_iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests;

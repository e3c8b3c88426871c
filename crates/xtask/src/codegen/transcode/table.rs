//! The table's bytes: messages that are the same are one, names are stored once. `kube_wire::transcode`'s module `table`
//! describes the layout and reads it; codes and layout change together.

use std::collections::BTreeMap;

use anyhow::Context as _;

use super::schema::{Field, Message, Name, Schema, Shape, Value};

/// The first bytes; the digit counts layouts.
const MAGIC: &[u8; 4] = b"K8T2";

/// No name, no resource.
const NONE: u16 = u16::MAX;

/// The bytes of the table.
pub(super) fn encode(schema: &Schema) -> anyhow::Result<Vec<u8>> {
    let (messages, class_of) = distinct(&schema.messages);
    let mut names = Names::default();
    let (mut heads, mut fields, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    let mut field_count = 0_usize;
    for message in &messages {
        heads.push([small(field_count)?, small(numbers.len())?]);
        let highest = message.fields.iter().map(|field| usize::from(field.number)).max().unwrap_or(0);
        let start = numbers.len();
        numbers.resize(start + highest, 0_u8);
        for (index, field) in message.fields.iter().enumerate() {
            let slot = start + usize::from(field.number) - 1;
            anyhow::ensure!(numbers[slot] == 0, "field number {} stands twice", field.number);
            numbers[slot] = u8::try_from(index + 1).context("too many fields")?;
            fields.extend(encode_field(field, &mut names)?);
        }
        field_count += message.fields.len();
    }
    heads.push([small(field_count)?, small(numbers.len())?]);

    let mut kinds: Vec<_> = schema.kinds.iter().collect();
    // Resources first and sorted, so that they can be searched; kinds without one follow.
    kinds.sort_by_key(|kind| {
        let resource = kind.resource.as_ref().map(|(resource, _)| resource);
        (resource.is_none(), &kind.group, &kind.version, resource, &kind.kind)
    });
    let mut kind_bytes = Vec::new();
    for kind in &kinds {
        let (resource, namespaced) = match &kind.resource {
            Some((resource, namespaced)) => (names.intern(resource)?, *namespaced),
            None => (NONE, false),
        };
        let group = names.intern(&kind.group)?;
        let version = names.intern(&kind.version)?;
        let name = names.intern(&kind.kind)?;
        let message = small(class_of[kind.message])?;
        let entry = [group, version, resource, name, message, u16::from(namespaced)];
        kind_bytes.extend(entry.iter().flat_map(|number| number.to_le_bytes()));
    }
    let resources = kinds.iter().filter(|kind| kind.resource.is_some()).count();

    let mut table = MAGIC.to_vec();
    let counts = [messages.len(), field_count, numbers.len(), names.ends.len(), kinds.len(), resources];
    for count in counts.into_iter().chain(schema.alone.iter().map(|message| class_of[*message])) {
        table.extend(small(count)?.to_le_bytes());
    }
    table.extend(heads.iter().flatten().flat_map(|number| number.to_le_bytes()));
    table.extend(fields);
    table.extend(kind_bytes);
    table.extend(names.ends.iter().flat_map(|end| end.to_le_bytes()));
    table.extend(numbers);
    table.extend(names.text.as_bytes());
    Ok(table)
}

/// Eight bytes: name, message, number, value, shape and options.
fn encode_field(field: &Field, names: &mut Names) -> anyhow::Result<[u8; 8]> {
    let Field { number, name, shape, omit_empty, omit_zero, value } = field;
    let (value, message) = match *value {
        Value::Message(message) => (0, message),
        Value::VolumeClaim(message) => (1, message),
        Value::SchemaOrBool(message) => (2, message),
        Value::SchemaOrArray(message) => (3, message),
        Value::SchemaOrStringArray(message) => (4, message),
        Value::Bool => (5, 0),
        Value::Int32 => (6, 0),
        Value::Int64 => (7, 0),
        Value::Double => (8, 0),
        Value::Text => (9, 0),
        Value::Bytes => (10, 0),
        Value::Time => (11, 0),
        Value::MicroTime => (12, 0),
        Value::Duration => (13, 0),
        Value::Quantity => (14, 0),
        Value::IntOrString => (15, 0),
        Value::RawExtension => (16, 0),
        Value::RawJson => (17, 0),
        Value::StringList => (18, 0),
    };
    let mut options = match shape {
        Shape::Plain => 0,
        Shape::Pointer => 1,
        Shape::Repeated => 2,
        Shape::Map => 3,
    };
    options |= u8::from(*omit_empty) << 2 | u8::from(*omit_zero) << 3;
    let name = match name {
        Name::Named(name) => names.intern(name)?,
        Name::Inline => {
            options |= 1 << 4;
            NONE
        }
        Name::Hidden => {
            options |= 1 << 5;
            NONE
        }
    };
    let [name, message, number] = [name, small(message)?, *number].map(u16::to_le_bytes);
    Ok([name[0], name[1], message[0], message[1], number[0], number[1], value, options])
}

/// Names stored once: one text, and where each ends in it.
#[derive(Default)]
struct Names {
    text: String,
    ends: Vec<u16>,
    indexes: BTreeMap<String, u16>,
}

impl Names {
    fn intern(&mut self, name: &str) -> anyhow::Result<u16> {
        if let Some(index) = self.indexes.get(name) {
            return Ok(*index);
        }
        let index = small(self.ends.len())?;
        self.text.push_str(name);
        self.ends.push(small(self.text.len())?);
        self.indexes.insert(name.to_owned(), index);
        Ok(index)
    }
}

fn small(number: usize) -> anyhow::Result<u16> {
    u16::try_from(number).context("the table has outgrown 16 bits")
}

/// The messages without doubles, and for each message given the one that stands for it.
///
/// Versions of an API share most of their types, but a type that refers to itself is equal only to one that refers to that
/// one; so classes are refined until they no longer split.
fn distinct(messages: &[Message]) -> (Vec<Message>, Vec<usize>) {
    let mut class_of = vec![0; messages.len()];
    let mut classes = 1;
    loop {
        let mut known: BTreeMap<Message, usize> = BTreeMap::new();
        let mut refined = Vec::new();
        for message in messages {
            let next = known.len();
            refined.push(*known.entry(renumbered(message, &class_of)).or_insert(next));
        }
        if known.len() == classes {
            let mut distinct: Vec<_> = known.into_iter().collect();
            distinct.sort_by_key(|(_, class)| *class);
            return (distinct.into_iter().map(|(message, _)| message).collect(), refined);
        }
        (classes, class_of) = (known.len(), refined);
    }
}

fn renumbered(message: &Message, class_of: &[usize]) -> Message {
    let mut message = message.clone();
    for field in &mut message.fields {
        if let Value::Message(of)
        | Value::VolumeClaim(of)
        | Value::SchemaOrBool(of)
        | Value::SchemaOrArray(of)
        | Value::SchemaOrStringArray(of) = &mut field.value
        {
            *of = class_of[*of];
        }
    }
    message
}

#[test]
fn equal_messages_are_one_even_if_they_refer_to_themselves() {
    let field = |number, value| Field {
        number,
        name: Name::Hidden,
        shape: Shape::Pointer,
        omit_empty: false,
        omit_zero: false,
        value,
    };
    let lists = |next| Message { fields: vec![field(1, Value::Text), field(2, Value::Message(next))] };
    let other = Message { fields: vec![field(1, Value::Bool), field(2, Value::Message(0))] };
    let (messages, class_of) = distinct(&[lists(0), lists(0), lists(3), lists(2), other]);
    assert_eq!((messages.len(), class_of), (2, vec![0, 0, 0, 0, 1]));
}

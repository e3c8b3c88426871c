//! Reads the generated table, in place: nothing is parsed at start, nothing is copied to the heap.
//!
//! Layout, all numbers little-endian and of 16 bits unless said otherwise; `xtask`'s `codegen/transcode/table.rs` writes it:
//! ```text
//! "K8T2"
//! counts of: messages, fields, number slots, names, kinds, kinds that are resources
//! messages Status, PartialObjectMetadata, ObjectMeta, ListMeta, APIGroupDiscoveryList
//! messages + 1 × (first field, first number slot); a message ends where the next begins
//! fields × (name, message of its value, number on the wire, u8 value, u8 shape and options), in the order of their JSON
//! kinds × (group, version, resource, kind, message, namespaced), the resources first, sorted by group, version, resource
//! names × end in the text; a name begins where the one before ends
//! number slots × u8: by a message's field number, starting with 1: the position of the field + 1, or 0
//! the text of all names
//! ```

use super::MetaMessage;
use crate::resource::GroupVersionResource;

const BYTES: &[u8] = include_bytes!("table.bin");
const _: () = assert!(BYTES[0] == b'K' && BYTES[1] == b'8' && BYTES[2] == b'T' && BYTES[3] == b'2');

const COUNTS: usize = 4;
const ALONE: usize = COUNTS + 6 * 2;
const MESSAGES: usize = ALONE + 5 * 2;
const FIELDS: usize = MESSAGES + (count(0) + 1) * 4;
const KINDS: usize = FIELDS + count(1) * 8;
const NAME_ENDS: usize = KINDS + count(4) * 12;
const NUMBERS: usize = NAME_ENDS + count(3) * 2;
const TEXT: usize = NUMBERS + count(2);
const RESOURCES: usize = count(5);

const fn count(index: usize) -> usize {
    number(COUNTS + index * 2) as usize
}

const fn number(at: usize) -> u16 {
    u16::from_le_bytes([BYTES[at], BYTES[at + 1]])
}

/// The index of a message in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageId(u16);

/// A message: which fields it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    first_field: usize,
    fields: usize,
    first_number: usize,
    numbers: usize,
}

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    at: usize,
}

/// How often a field's value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Once; what is not on the wire is zero.
    Plain,
    /// Once or not at all.
    Pointer,
    /// A list.
    Repeated,
    /// A map with text as keys.
    Map,
}

/// Where a field stands in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Under its name.
    Named(&'static [u8]),
    /// Its fields are those of the message around it.
    Inline,
    /// Only on the wire.
    Hidden,
}

/// What a field, an element of a list or a value of a map is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// An object.
    Message(MessageId),
    /// An object with kind and version of a `PersistentVolumeClaim`, which the API server writes in a `StatefulSet`.
    VolumeClaim(MessageId),
    /// `JSONSchemaPropsOrBool`, with the message of a schema.
    SchemaOrBool(MessageId),
    /// `JSONSchemaPropsOrArray`.
    SchemaOrArray(MessageId),
    /// `JSONSchemaPropsOrStringArray`.
    SchemaOrStringArray(MessageId),
    /// A boolean.
    Bool,
    /// A number of 32 bits with sign.
    Int32,
    /// A number of 64 bits with sign.
    Int64,
    /// A floating-point number.
    Double,
    /// A string.
    Text,
    /// Base64.
    Bytes,
    /// RFC 3339 in seconds.
    Time,
    /// RFC 3339 in microseconds.
    MicroTime,
    /// A length of time as Go prints it.
    Duration,
    /// A quantity in its canonical form.
    Quantity,
    /// A number or a string.
    IntOrString,
    /// Any JSON, as `runtime.RawExtension` holds it.
    RawExtension,
    /// Any JSON, as `FieldsV1` and `apiextensions.JSON` hold it.
    RawJson,
    /// A message with one list of strings, which stands for the list.
    StringList,
}

/// The message with that index.
pub(super) fn message(MessageId(index): MessageId) -> Message {
    let at = MESSAGES + usize::from(index) * 4;
    let [first_field, first_number, end_field, end_number] =
        [0, 2, 4, 6].map(|offset| usize::from(number(at + offset)));
    Message { first_field, fields: end_field - first_field, first_number, numbers: end_number - first_number }
}

/// A message that is no resource.
pub(super) fn alone(message: MetaMessage) -> MessageId {
    let index = match message {
        MetaMessage::Status => 0,
        MetaMessage::PartialObjectMetadata => 1,
        MetaMessage::ObjectMeta => 2,
        MetaMessage::ListMeta => 3,
        MetaMessage::ApiGroupDiscoveryList => 4,
    };
    MessageId(number(ALONE + index * 2))
}

impl Message {
    /// How many fields it has.
    pub(super) fn len(self) -> usize {
        self.fields
    }

    /// The field at that position, in the order of JSON.
    pub(super) fn field(self, index: usize) -> Field {
        Field { at: FIELDS + (self.first_field + index) * 8 }
    }

    /// The position of the field with that number on the wire.
    pub(super) fn position(self, number: u64) -> Option<usize> {
        let slot = usize::try_from(number).ok()?.checked_sub(1).filter(|slot| *slot < self.numbers)?;
        usize::from(BYTES[NUMBERS + self.first_number + slot]).checked_sub(1)
    }
}

impl Field {
    /// Where it stands in JSON.
    pub(super) fn place(self) -> Place {
        match self.options() >> 4 {
            0 => Place::Named(name(number(self.at))),
            1 => Place::Inline,
            _ => Place::Hidden,
        }
    }

    /// The number on the wire.
    pub(super) fn number(self) -> u64 {
        u64::from(number(self.at + 4))
    }

    /// How often it stands.
    pub(super) fn shape(self) -> Shape {
        match self.options() & 3 {
            0 => Shape::Plain,
            1 => Shape::Pointer,
            2 => Shape::Repeated,
            _ => Shape::Map,
        }
    }

    /// Whether it is left out where Go calls a value empty.
    pub(super) fn omit_empty(self) -> bool {
        self.options() & 4 != 0
    }

    /// Whether it is left out where its type calls itself zero.
    pub(super) fn omit_zero(self) -> bool {
        self.options() & 8 != 0
    }

    /// What it is.
    pub(super) fn value(self) -> Value {
        let message = || MessageId(number(self.at + 2));
        match BYTES[self.at + 6] {
            0 => Value::Message(message()),
            1 => Value::VolumeClaim(message()),
            2 => Value::SchemaOrBool(message()),
            3 => Value::SchemaOrArray(message()),
            4 => Value::SchemaOrStringArray(message()),
            5 => Value::Bool,
            6 => Value::Int32,
            7 => Value::Int64,
            8 => Value::Double,
            9 => Value::Text,
            10 => Value::Bytes,
            11 => Value::Time,
            12 => Value::MicroTime,
            13 => Value::Duration,
            14 => Value::Quantity,
            15 => Value::IntOrString,
            16 => Value::RawExtension,
            17 => Value::RawJson,
            _ => Value::StringList,
        }
    }

    fn options(self) -> u8 {
        BYTES[self.at + 7]
    }
}

/// A kind that is served as a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    at: usize,
}

impl Kind {
    /// The group; empty for the core group.
    pub(super) fn group(self) -> &'static str {
        self.text(0)
    }

    /// The version within the group.
    pub(super) fn version(self) -> &'static str {
        self.text(2)
    }

    /// The plural.
    pub(super) fn resource(self) -> &'static str {
        self.text(4)
    }

    /// The kind's own name.
    pub(super) fn name(self) -> &'static str {
        self.text(6)
    }

    /// What its objects consist of.
    pub(super) fn message(self) -> MessageId {
        MessageId(number(self.at + 8))
    }

    /// Whether its objects are in namespaces.
    pub(super) fn namespaced(self) -> bool {
        number(self.at + 10) != 0
    }

    fn text(self, offset: usize) -> &'static str {
        std::str::from_utf8(name(number(self.at + offset))).unwrap_or_default()
    }
}

/// All resources.
pub(super) fn resources() -> impl Iterator<Item = Kind> {
    (0..RESOURCES).map(kind)
}

/// The kind of a resource.
pub(super) fn resource(resource: &GroupVersionResource) -> Option<Kind> {
    let GroupVersionResource { group, version, resource } = resource;
    let (mut low, mut high) = (0, RESOURCES);
    while low < high {
        let middle = usize::midpoint(low, high);
        let found = kind(middle);
        match (found.group(), found.version(), found.resource()).cmp(&(group, version, resource)) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => return Some(found),
        }
    }
    None
}

fn kind(index: usize) -> Kind {
    Kind { at: KINDS + index * 12 }
}

fn name(index: u16) -> &'static [u8] {
    let at = NAME_ENDS + usize::from(index) * 2;
    let start = if index == 0 { 0 } else { usize::from(number(at - 2)) };
    &BYTES[TEXT + start..TEXT + usize::from(number(at))]
}

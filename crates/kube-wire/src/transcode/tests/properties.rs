//! What holds for any bytes: no panic, and what is answered is JSON.

use proptest::prelude::*;

use super::{integer, length};
use crate::resource::GroupVersionResource;
use crate::transcode::table::{self, Message, Shape, Value};
use crate::transcode::to_json;

/// Bytes that follow the table: for each choice a field of the message, well or badly filled.
fn follow(message: Message, choices: &mut impl Iterator<Item = u16>, depth: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..choices.next().unwrap_or(0) % 5 {
        let Some(choice) = choices.next().filter(|_| message.len() > 0) else { break };
        let field = message.field(usize::from(choice) % message.len());
        let number = u32::try_from(field.number()).unwrap();
        let filling = match field.value() {
            Value::Bool | Value::Int32 | Value::Int64 => {
                bytes.extend(integer(number, i64::from(choice) - 1000));
                continue;
            }
            Value::Message(below) | Value::VolumeClaim(below) if depth > 0 => {
                follow(table::message(below), choices, depth - 1)
            }
            Value::Time | Value::MicroTime | Value::IntOrString => integer(1, i64::from(choice % 3)),
            Value::Quantity | Value::RawJson | Value::RawExtension | Value::StringList => {
                length(1, b"{\"a\": 1}")
            }
            _ => choice.to_le_bytes().to_vec(),
        };
        let filling = match field.shape() {
            Shape::Map => [length(1, &choice.to_be_bytes()), length(2, &filling)].concat(),
            _ => filling,
        };
        bytes.extend(length(number, &filling));
    }
    bytes
}

fn any_resource() -> impl Strategy<Value = GroupVersionResource> {
    let resources: Vec<_> = table::resources()
        .map(|kind| GroupVersionResource::new(kind.group(), kind.version(), kind.resource()))
        .collect();
    proptest::sample::select(resources)
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(resource in any_resource(), raw in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(json) = to_json(&resource, &raw, true) {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok());
        }
    }

    #[test]
    fn messages_by_the_table_become_json_and_damaged_ones_never_panic(
        resource in any_resource(),
        choices in prop::collection::vec(any::<u16>(), 0..200),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let kind = table::resource(&resource).unwrap();
        let mut raw = follow(table::message(kind.message()), &mut choices.into_iter(), 8);
        for (at, byte) in damage {
            if !raw.is_empty() {
                let at = at.index(raw.len());
                raw[at] = byte;
            }
        }
        if let Ok(json) = to_json(&resource, &raw, false) {
            let text = std::str::from_utf8(&json);
            prop_assert!(text.is_ok_and(|text| serde_json::from_str::<serde_json::Value>(text).is_ok()));
        }
    }
}

//! Services in protobuf, read to the JSON of which this test kit's server made them, and what comes with them: lists, events, errors. Nobody's
//! code but this reads them, so that what stands between is not judged by itself. A field that the server does not write is an error.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api_server::protobuf::MAGIC;

/// What stands in a field.
#[derive(Debug, Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// What an answer is of, if it is protobuf: a list, a `Status`, or the object of an event.
pub(super) fn body(bytes: &[u8]) -> Option<Value> {
    let (mut kind, mut raw) = (String::new(), &b""[..]);
    for (number, field) in fields(bytes.strip_prefix(&MAGIC[..])?)? {
        match (number, field) {
            (1, Field::Bytes(types)) => kind = text_of(types, 2)?,
            (2, Field::Bytes(message)) => raw = message,
            _ => {}
        }
    }
    match kind.as_str() {
        "Service" => service(raw),
        "ServiceList" => list(raw),
        "Status" => status(raw),
        _ => None,
    }
}

/// Takes the whole events from the beginning of what has come of a watch; nothing stands for one that cannot be read.
pub(super) fn events(buffer: &mut Vec<u8>) -> Vec<Option<Value>> {
    let (mut events, mut taken) = (Vec::new(), 0);
    loop {
        let rest = &buffer[taken..];
        let Some((length, rest)) = rest.split_first_chunk() else { break };
        let length = u32::from_be_bytes(*length) as usize;
        let Some(frame) = rest.get(..length) else { break };
        events.push(event(frame));
        taken += 4 + length;
    }
    buffer.drain(..taken);
    events
}

fn event(frame: &[u8]) -> Option<Value> {
    let mut object = Value::Null;
    for (number, field) in fields(frame)? {
        if let (2, Field::Bytes(extension)) = (number, field) {
            object = body(first(extension, 1)?)?;
        }
    }
    Some(json!({ "type": text_of(frame, 1)?, "object": object }))
}

fn list(message: &[u8]) -> Option<Value> {
    let (mut metadata, mut items) = (json!({}), Vec::new());
    for (number, field) in fields(message)? {
        match (number, field) {
            (1, Field::Bytes(meta)) => {
                metadata["resourceVersion"] = text_of(meta, 2)?.into();
                metadata["continue"] = text_of(meta, 3)?.into();
                if let Some(remaining) = number_of(meta, 4) {
                    metadata["remainingItemCount"] = remaining.into();
                }
            }
            (2, Field::Bytes(item)) => items.push(service(item)?),
            _ => return None,
        }
    }
    Some(json!({ "metadata": metadata, "items": items }))
}

fn service(message: &[u8]) -> Option<Value> {
    let mut service = json!({ "metadata": {}, "spec": {} });
    // The server writes nothing of it, as there is nothing in it.
    service["status"] = json!({ "loadBalancer": {} });
    for (number, field) in fields(message)? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => service["metadata"] = metadata(bytes)?,
            (2, Field::Bytes(bytes)) => service["spec"] = spec(bytes)?,
            _ => return None,
        }
    }
    Some(service)
}

fn metadata(message: &[u8]) -> Option<Value> {
    let mut metadata = Map::new();
    for (number, field) in fields(message)? {
        let Field::Bytes(bytes) = field else { return None };
        let name = match number {
            1 => "name",
            2 => "generateName",
            3 => "namespace",
            5 => "uid",
            6 => "resourceVersion",
            8 => "creationTimestamp",
            11 => "labels",
            12 => "annotations",
            _ => return None,
        };
        match name {
            "creationTimestamp" => {
                let time = Timestamp::from_second(number_of(bytes, 1)?.try_into().ok()?).ok()?;
                metadata.insert(name.to_owned(), time.to_string().into());
            }
            "labels" | "annotations" => pair(metadata.entry(name).or_insert_with(|| json!({})), bytes)?,
            _ => drop(metadata.insert(name.to_owned(), text(bytes)?.into())),
        }
    }
    Some(metadata.into())
}

fn spec(message: &[u8]) -> Option<Value> {
    let mut spec = json!({});
    for (number, field) in fields(message)? {
        match (number, field) {
            (2, Field::Bytes(bytes)) => pair(&mut spec["selector"], bytes)?,
            (3, Field::Bytes(bytes)) => spec["clusterIP"] = text(bytes)?.into(),
            (4, Field::Bytes(bytes)) => spec["type"] = text(bytes)?.into(),
            _ => return None,
        }
    }
    Some(spec)
}

/// What a client has to know of an error.
fn status(message: &[u8]) -> Option<Value> {
    let mut causes = Vec::new();
    for (number, cause) in fields(first(message, 5).unwrap_or_default())? {
        if let (4, Field::Bytes(cause)) = (number, cause) {
            causes.push(json!({ "reason": text_of(cause, 1)? }));
        }
    }
    Some(json!({
        "message": text_of(message, 3)?,
        "reason": text_of(message, 4)?,
        "details": { "causes": causes },
        "code": number_of(message, 6)?,
    }))
}

/// An entry of a map of texts.
fn pair(map: &mut Value, entry: &[u8]) -> Option<()> {
    map[text_of(entry, 1)?] = text_of(entry, 2)?.into();
    Some(())
}

/// The text of a field, which is empty if it is not there.
fn text_of(message: &[u8], wanted: u64) -> Option<String> {
    fields(message)?;
    text(first(message, wanted).unwrap_or_default())
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// The number of a field, if it is there.
fn number_of(message: &[u8], wanted: u64) -> Option<u64> {
    fields(message)?.into_iter().find_map(|(number, field)| match field {
        Field::Number(value) if number == wanted => Some(value),
        _ => None,
    })
}

/// The first bytes of a field.
fn first(message: &[u8], wanted: u64) -> Option<&[u8]> {
    fields(message)?.into_iter().find_map(|(number, field)| match field {
        Field::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    })
}

/// The fields of a message, in their order.
fn fields(mut message: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let value = varint(&mut message)?;
        let field = match tag & 7 {
            0 => Field::Number(value),
            2 => {
                let (bytes, rest) = message.split_at_checked(usize::try_from(value).ok()?)?;
                message = rest;
                Field::Bytes(bytes)
            }
            _ => return None,
        };
        fields.push((tag >> 3, field));
    }
    Some(fields)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server::protobuf;

    fn object() -> Value {
        json!({
            "kind": "Service",
            "metadata": {
                "name": "s", "namespace": "a", "uid": "u", "resourceVersion": "300",
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "n": "odd", "m": "" },
            },
            "spec": { "clusterIP": "10.0.0.1", "type": "ClusterIP", "selector": { "n": "7" } },
            "status": { "loadBalancer": {} },
        })
    }

    fn without_kind(mut object: Value) -> Value {
        object.as_object_mut().unwrap().remove("kind");
        object
    }

    #[test]
    fn what_the_server_writes_is_read_back() {
        let message = protobuf::message(&object());
        let envelope = protobuf::envelope("v1", "Service", &message);
        assert_eq!(body(&envelope), Some(without_kind(object())));
        let list = protobuf::list(301, Some("next"), Some(2), &[&message]);
        let read = body(&protobuf::envelope("v1", "ServiceList", &list)).unwrap();
        let metadata = json!({ "resourceVersion": "301", "continue": "next", "remainingItemCount": 2 });
        assert_eq!(read, json!({ "metadata": metadata, "items": [without_kind(object())] }));
        let error = json!({
            "code": 504, "message": "m", "reason": "Timeout",
            "details": { "causes": [{ "reason": "ResourceVersionTooLarge" }] },
        });
        let status = protobuf::status(&error);
        assert_eq!(body(&protobuf::envelope("v1", "Status", &status)), Some(error));
    }

    #[test]
    fn events_are_read_as_they_are_whole() {
        let envelope = protobuf::envelope("v1", "Service", &protobuf::message(&object()));
        let [one, two] = ["ADDED", "DELETED"].map(|change| protobuf::frame(change, &envelope));
        let all = [one.clone(), two].concat();
        let mut buffer = Vec::new();
        let mut read = Vec::new();
        for byte in &all {
            buffer.push(*byte);
            read.extend(events(&mut buffer));
        }
        assert!(buffer.is_empty());
        let changes: Vec<_> = read.iter().map(|event| event.as_ref().unwrap()["type"].clone()).collect();
        assert_eq!(changes, ["ADDED", "DELETED"]);
        assert_eq!(read[0].as_ref().unwrap()["object"], without_kind(object()));
        assert!(events(&mut one[..one.len() - 1].to_vec()).is_empty());
    }

    #[test]
    fn what_the_server_does_not_write_is_an_error() {
        let mut message = protobuf::message(&object());
        protobuf::bytes(&mut message, 9, b"x");
        assert_eq!(body(&protobuf::envelope("v1", "Service", &message)), None);
        assert_eq!(body(b"k8s\0\x0a"), None, "cut off");
        assert_eq!(body(b"{}"), None);
    }
}

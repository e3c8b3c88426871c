//! The metadata of an object of any kind as the protobuf message of it, from its JSON: to the byte what the API server writes of a custom resource.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};

use super::{
    TranscodeError,
    time::{GO_ZERO, read_seconds},
};
use crate::{
    json::{Members, element},
    protobuf::{put_bytes, put_number},
};

/// `ObjectMeta`. A field that is not known is an error, as everywhere here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ObjectMeta {
    name: Option<String>,
    generate_name: Option<String>,
    namespace: Option<String>,
    self_link: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
    managed_fields: Option<Vec<ManagedFields>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OwnerReference {
    api_version: Option<String>,
    kind: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ManagedFields {
    manager: Option<String>,
    operation: Option<String>,
    api_version: Option<String>,
    time: Option<String>,
    fields_type: Option<String>,
    /// Written as it stands in the text.
    fields_v1: Option<IgnoredAny>,
    subresource: Option<String>,
}

/// The content of the message `ObjectMeta`, from the JSON object.
pub fn metadata_to_protobuf(json: &[u8]) -> Result<Vec<u8>, TranscodeError> {
    let metadata: ObjectMeta =
        serde_json::from_slice(json).map_err(|_| TranscodeError::Malformed("metadata in JSON"))?;
    let mut out = Vec::with_capacity(json.len());
    put_text(&mut out, 1, metadata.name.as_deref());
    put_text(&mut out, 2, metadata.generate_name.as_deref());
    put_text(&mut out, 3, metadata.namespace.as_deref());
    put_text(&mut out, 4, metadata.self_link.as_deref());
    put_text(&mut out, 5, metadata.uid.as_deref());
    put_text(&mut out, 6, metadata.resource_version.as_deref());
    put_number(&mut out, 7, metadata.generation.unwrap_or_default().cast_unsigned());
    match &metadata.creation_timestamp {
        Some(time) => put_time(&mut out, 8, time)?,
        None => put_bytes(&mut out, 8, b""),
    }
    if let Some(time) = &metadata.deletion_timestamp {
        put_time(&mut out, 9, time)?;
    }
    if let Some(seconds) = metadata.deletion_grace_period_seconds {
        put_number(&mut out, 10, seconds.cast_unsigned());
    }
    put_map(&mut out, 11, metadata.labels.as_ref());
    put_map(&mut out, 12, metadata.annotations.as_ref());
    for owner in metadata.owner_references.iter().flatten() {
        put_bytes(&mut out, 13, &owner.message());
    }
    for finalizer in metadata.finalizers.iter().flatten() {
        put_bytes(&mut out, 14, finalizer.as_bytes());
    }
    let entries = Members::within(json, 0..json.len()).get("managedFields");
    for (index, fields) in metadata.managed_fields.iter().flatten().enumerate() {
        let entry = entries.clone().and_then(|entries| element(json, entries, index));
        let raw = entry.and_then(|entry| Members::within(json, entry).get("fieldsV1"));
        put_bytes(&mut out, 17, &fields.message(raw.map(|raw| &json[raw]))?);
    }
    Ok(out)
}

impl OwnerReference {
    fn message(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, 1, self.kind.as_deref());
        put_text(&mut out, 3, self.name.as_deref());
        put_text(&mut out, 4, self.uid.as_deref());
        put_text(&mut out, 5, self.api_version.as_deref());
        for (number, flag) in [(6, self.controller), (7, self.block_owner_deletion)] {
            if let Some(flag) = flag {
                put_number(&mut out, number, flag.into());
            }
        }
        out
    }
}

impl ManagedFields {
    /// `raw`: the text of `fieldsV1`.
    fn message(&self, raw: Option<&[u8]>) -> Result<Vec<u8>, TranscodeError> {
        let mut out = Vec::new();
        put_text(&mut out, 1, self.manager.as_deref());
        put_text(&mut out, 2, self.operation.as_deref());
        put_text(&mut out, 3, self.api_version.as_deref());
        if let Some(time) = &self.time {
            put_time(&mut out, 4, time)?;
        }
        put_text(&mut out, 6, self.fields_type.as_deref());
        if self.fields_v1.is_some() {
            let raw = raw.ok_or(TranscodeError::Malformed("fieldsV1"))?;
            let mut fields = Vec::with_capacity(raw.len() + 4);
            put_bytes(&mut fields, 1, raw);
            put_bytes(&mut out, 7, &fields);
        }
        put_text(&mut out, 8, self.subresource.as_deref());
        Ok(out)
    }
}

/// A text is written where it is empty, too.
fn put_text(out: &mut Vec<u8>, number: u64, text: Option<&str>) {
    put_bytes(out, number, text.unwrap_or_default().as_bytes());
}

/// In the order of the keys, byte by byte.
fn put_map(out: &mut Vec<u8>, number: u64, map: Option<&BTreeMap<String, String>>) {
    for (key, value) in map.into_iter().flatten() {
        let mut entry = Vec::with_capacity(key.len() + value.len() + 8);
        put_bytes(&mut entry, 1, key.as_bytes());
        put_bytes(&mut entry, 2, value.as_bytes());
        put_bytes(out, number, &entry);
    }
}

/// Go's zero time is an empty message.
fn put_time(out: &mut Vec<u8>, number: u64, text: &str) -> Result<(), TranscodeError> {
    let seconds = read_seconds(text)?;
    let mut time = Vec::new();
    if seconds != GO_ZERO {
        put_number(&mut time, 1, seconds.cast_unsigned());
        put_number(&mut time, 2, 0);
    }
    put_bytes(out, number, &time);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::transcode::{MetaMessage, meta_to_json, time::write_seconds};

    fn protobuf(metadata: &Value) -> Result<Vec<u8>, TranscodeError> {
        metadata_to_protobuf(metadata.to_string().as_bytes())
    }

    #[test]
    fn what_is_empty_is_written_as_go_writes_it() {
        let least = protobuf(&json!({ "name": "a", "creationTimestamp": "1970-01-01T00:00:01Z" }));
        let expected: &[u8] =
            b"\x0a\x01a\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x04\x08\x01\x10\x00";
        assert_eq!(least.unwrap(), expected);
        let none = protobuf(&json!({ "name": "a", "labels": null, "creationTimestamp": null }));
        assert_eq!(none.unwrap(), [&expected[..expected.len() - 5], b"\x00"].concat());
    }

    #[test]
    fn nothing_is_lost_on_the_way() {
        let metadata = json!({
            "annotations": { "b": "2", "a": "<1>", "": "\u{e9}" },
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionGracePeriodSeconds": 0,
            "deletionTimestamp": "2024-02-29T23:59:59Z",
            "finalizers": ["x/y", "z"],
            "generateName": "a-",
            "generation": 300,
            "labels": { "l": "" },
            "managedFields": [
                {
                    "apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { ".": {}, "f:n": {} } },
                    "manager": "one", "operation": "Update", "time": "2026-01-02T03:04:05Z",
                },
                { "fieldsType": "FieldsV1", "fieldsV1": {}, "manager": "other", "operation": "Apply", "subresource": "status" },
            ],
            "name": "a-1",
            "namespace": "b",
            "ownerReferences": [
                { "apiVersion": "v1", "blockOwnerDeletion": true, "controller": false, "kind": "K", "name": "n", "uid": "u" },
            ],
            "resourceVersion": "12",
            "uid": "id",
        });
        let back = meta_to_json(MetaMessage::ObjectMeta, &protobuf(&metadata).unwrap(), false).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&back).unwrap(), metadata);
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for metadata in [
            json!({ "name": "a", "newer": 1 }),
            json!({ "name": 1 }),
            json!({ "labels": { "a": 1 } }),
            json!({ "ownerReferences": [{ "newer": 1 }] }),
            json!({ "managedFields": [{ "newer": 1 }] }),
            json!({ "creationTimestamp": "2026-02-30T00:00:00Z" }),
            json!({ "creationTimestamp": "2026-02-03T00:00:00.5Z" }),
            json!({ "creationTimestamp": "2026-02-03T00:00:00+01:00" }),
            json!({ "creationTimestamp": "" }),
            json!("a"),
        ] {
            assert!(protobuf(&metadata).is_err(), "{metadata}");
        }
    }

    proptest! {
        #[test]
        fn times_are_read_as_they_are_written(seconds in -62_167_219_200_i64..253_402_300_800) {
            let mut written = Vec::new();
            write_seconds(&mut written, seconds).unwrap();
            let text = std::str::from_utf8(&written[1..written.len() - 1]).unwrap();
            prop_assert_eq!(read_seconds(text), Ok(seconds));
        }

        #[test]
        fn arbitrary_text_is_no_panic(text: String, time in "[0-9TZ:-]{0,24}") {
            let _ = (metadata_to_protobuf(text.as_bytes()), read_seconds(&text), read_seconds(&time));
        }
    }
}

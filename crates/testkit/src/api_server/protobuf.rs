//! Protobuf of the kinds that are served so: the object's metadata and a few fields of its specification, hand-written
//! after the published `.proto` files.
//!
//! It only writes, and leaves out what it does not know; JSON is this server's truth.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::Value;

/// The bytes that begin every protobuf body of Kubernetes.
pub(crate) const MAGIC: [u8; 4] = *b"k8s\0";

/// Resources that are served as protobuf; the others answer 406, as custom resources do.
pub(crate) const RESOURCES: [&str; 6] =
    ["services", "pods", "secrets", "endpointslices.discovery.k8s.io", "configmaps", "nodes"];

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

/// A field of bytes: a message or a text.
pub(crate) fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn text(out: &mut Vec<u8>, field: u64, value: &Value) {
    if let Some(value) = value.as_str() {
        bytes(out, field, value.as_bytes());
    }
}

fn map(out: &mut Vec<u8>, field: u64, value: &Value) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let mut entry = Vec::new();
        bytes(&mut entry, 1, key.as_bytes());
        text(&mut entry, 2, value);
        bytes(out, field, &entry);
    }
}

fn metadata(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, 1, &value["name"]);
    text(&mut out, 2, &value["generateName"]);
    text(&mut out, 3, &value["namespace"]);
    text(&mut out, 5, &value["uid"]);
    text(&mut out, 6, &value["resourceVersion"]);
    if let Some(seconds) =
        value["creationTimestamp"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok())
    {
        let mut time = Vec::new();
        number(&mut time, 1, seconds.as_second().unsigned_abs());
        bytes(&mut out, 8, &time);
    }
    map(&mut out, 11, &value["labels"]);
    map(&mut out, 12, &value["annotations"]);
    out
}

fn service(spec: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for port in spec["ports"].as_array().into_iter().flatten() {
        let mut message = Vec::new();
        text(&mut message, 1, &port["name"]);
        text(&mut message, 2, &port["protocol"]);
        if let Some(port) = port["port"].as_u64() {
            number(&mut message, 3, port);
        }
        // IntOrString: 0 is a number.
        if let Some(target) = port["targetPort"].as_u64() {
            let mut either = Vec::new();
            number(&mut either, 1, 0);
            number(&mut either, 2, target);
            bytes(&mut message, 4, &either);
        }
        bytes(&mut out, 1, &message);
    }
    map(&mut out, 2, &spec["selector"]);
    text(&mut out, 3, &spec["clusterIP"]);
    text(&mut out, 4, &spec["type"]);
    // Of a release to come.
    text(&mut out, 1000, &spec["newerThanAnyTable"]);
    out
}

fn pod(spec: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for container in spec["containers"].as_array().into_iter().flatten() {
        let mut message = Vec::new();
        text(&mut message, 1, &container["name"]);
        text(&mut message, 2, &container["image"]);
        bytes(&mut out, 2, &message);
    }
    text(&mut out, 3, &spec["restartPolicy"]);
    map(&mut out, 7, &spec["nodeSelector"]);
    text(&mut out, 8, &spec["serviceAccountName"]);
    text(&mut out, 10, &spec["nodeName"]);
    if let Some(host_network) = spec["hostNetwork"].as_bool() {
        number(&mut out, 11, host_network.into());
    }
    out
}

/// The message of an object, without envelope.
pub(crate) fn message(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, 1, &metadata(&value["metadata"]));
    match value["kind"].as_str() {
        Some("Service") => bytes(&mut out, 2, &service(&value["spec"])),
        Some("Pod") => {
            bytes(&mut out, 2, &pod(&value["spec"]));
            let mut status = Vec::new();
            text(&mut status, 1, &value["status"]["phase"]);
            for condition in value["status"]["conditions"].as_array().into_iter().flatten() {
                let mut message = Vec::new();
                text(&mut message, 1, &condition["type"]);
                text(&mut message, 2, &condition["status"]);
                bytes(&mut status, 2, &message);
            }
            text(&mut status, 6, &value["status"]["podIP"]);
            bytes(&mut out, 3, &status);
        }
        Some("Node") => {
            let mut status = Vec::new();
            for address in value["status"]["addresses"].as_array().into_iter().flatten() {
                let mut message = Vec::new();
                text(&mut message, 1, &address["type"]);
                text(&mut message, 2, &address["address"]);
                bytes(&mut status, 5, &message);
            }
            bytes(&mut out, 2, &[]);
            bytes(&mut out, 3, &status);
        }
        Some("ConfigMap") => map(&mut out, 2, &value["data"]),
        Some("Secret") => {
            for (key, value) in value["data"].as_object().into_iter().flatten() {
                let mut entry = Vec::new();
                bytes(&mut entry, 1, key.as_bytes());
                bytes(&mut entry, 2, &BASE64.decode(value.as_str().unwrap_or_default()).unwrap_or_default());
                bytes(&mut out, 2, &entry);
            }
            text(&mut out, 3, &value["type"]);
        }
        Some("EndpointSlice") => {
            for endpoint in value["endpoints"].as_array().into_iter().flatten() {
                let mut message = Vec::new();
                for address in endpoint["addresses"].as_array().into_iter().flatten() {
                    text(&mut message, 1, address);
                }
                let mut conditions = Vec::new();
                for (field, name) in [(1, "ready"), (2, "serving")] {
                    if let Some(value) = endpoint["conditions"][name].as_bool() {
                        number(&mut conditions, field, value.into());
                    }
                }
                bytes(&mut message, 2, &conditions);
                if endpoint["targetRef"].is_object() {
                    let mut target = Vec::new();
                    text(&mut target, 3, &endpoint["targetRef"]["name"]);
                    text(&mut target, 4, &endpoint["targetRef"]["uid"]);
                    bytes(&mut message, 4, &target);
                }
                text(&mut message, 6, &endpoint["nodeName"]);
                bytes(&mut out, 2, &message);
            }
            text(&mut out, 4, &value["addressType"]);
        }
        _ => {}
    }
    out
}

/// A `Status`.
pub(crate) fn status(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list = Vec::new();
    text(&mut list, 3, &value["metadata"]["continue"]);
    bytes(&mut out, 1, &list);
    text(&mut out, 2, &value["status"]);
    text(&mut out, 3, &value["message"]);
    text(&mut out, 4, &value["reason"]);
    if let Some(details) = value.get("details") {
        let mut message = Vec::new();
        text(&mut message, 1, &details["name"]);
        text(&mut message, 2, &details["group"]);
        text(&mut message, 3, &details["kind"]);
        for cause in details["causes"].as_array().into_iter().flatten() {
            let mut one = Vec::new();
            text(&mut one, 1, &cause["reason"]);
            text(&mut one, 2, &cause["message"]);
            text(&mut one, 3, &cause["field"]);
            bytes(&mut message, 4, &one);
        }
        if let Some(seconds) = details["retryAfterSeconds"].as_u64() {
            number(&mut message, 5, seconds);
        }
        bytes(&mut out, 5, &message);
    }
    if let Some(code) = value["code"].as_u64() {
        number(&mut out, 6, code);
    }
    out
}

/// A message in the envelope `runtime.Unknown` and behind the magic bytes.
pub(crate) fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut meta = Vec::new();
    bytes(&mut meta, 1, api_version.as_bytes());
    bytes(&mut meta, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    bytes(&mut out, 1, &meta);
    bytes(&mut out, 2, raw);
    bytes(&mut out, 3, b"");
    bytes(&mut out, 4, b"");
    out
}

/// A list of messages, without envelope.
pub(crate) fn list(rv: u64, token: Option<&str>, remaining: Option<u64>, items: &[&[u8]]) -> Vec<u8> {
    let mut meta = Vec::new();
    bytes(&mut meta, 1, b"");
    bytes(&mut meta, 2, rv.to_string().as_bytes());
    bytes(&mut meta, 3, token.unwrap_or_default().as_bytes());
    if let Some(remaining) = remaining {
        number(&mut meta, 4, remaining);
    }
    let mut out = Vec::new();
    bytes(&mut out, 1, &meta);
    for item in items {
        bytes(&mut out, 2, item);
    }
    out
}

/// An event of a watch with its length before it; `object` is in its envelope.
pub(crate) fn frame(change: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    bytes(&mut raw, 1, object);
    let mut event = Vec::new();
    bytes(&mut event, 1, change.as_bytes());
    bytes(&mut event, 2, &raw);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    let mut out = length.to_be_bytes().to_vec();
    out.extend_from_slice(&event);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_envelope_is_as_captured_from_an_api_server() {
        let written = envelope("v1", "ConfigMap", b"");
        assert_eq!(written, b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x00\x1a\x00\x22\x00");
        assert_eq!(frame("ADDED", b"xy"), b"\x00\x00\x00\x0d\x0a\x05ADDED\x12\x04\x0a\x02xy");
    }

    #[test]
    fn numbers_of_fields_are_those_of_the_published_types() {
        let service = json!({"kind": "Service", "metadata": {"name": "s", "labels": {"a": "b"}}, "spec": {"clusterIP": "None"}});
        let expected = b"\x0a\x0b\x0a\x01s\x5a\x06\x0a\x01a\x12\x01b\x12\x06\x1a\x04None";
        assert_eq!(message(&service), expected);
    }
}

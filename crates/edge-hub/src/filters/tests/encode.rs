//! Protobuf of the few fields that the cases use. Numbers are those of the published `generated.proto` files.

use serde_json::Value;

enum Kind {
    Text,
    Number,
    Message(&'static str),
    Map,
}

// One arm a field of a message, in the order of the messages: a table, not logic.
#[allow(clippy::match_same_arms)]
fn field(message: &str, name: &str) -> (u64, Kind) {
    use Kind::{Map, Message, Number, Text};
    match (message, name) {
        ("Service" | "EndpointSlice" | "Endpoints" | "ConfigMap" | "Pod", "metadata") => (1, Message("Meta")),
        ("Meta", "name") => (1, Text),
        ("Meta", "namespace") => (3, Text),
        ("Meta", "resourceVersion") => (6, Text),
        ("Meta", "labels") => (11, Map),
        ("Meta", "annotations") => (12, Map),
        ("Service", "spec") => (2, Message("ServiceSpec")),
        ("ServiceSpec", "ports") => (1, Message("ServicePort")),
        ("ServiceSpec", "clusterIP") => (3, Text),
        ("ServiceSpec", "type") => (4, Text),
        ("ServiceSpec", "clusterIPs") => (18, Text),
        ("ServicePort" | "EndpointPort" | "EnvVar" | "Container", "name") => (1, Text),
        ("ServicePort" | "EndpointPort", "protocol") => (2, Text),
        ("ServicePort" | "EndpointPort", "port") => (3, Number),
        ("EndpointSlice", "endpoints") => (2, Message("Endpoint")),
        ("EndpointSlice", "ports") => (3, Message("EndpointPort")),
        ("EndpointSlice", "addressType") => (4, Text),
        ("Endpoint", "addresses") => (1, Text),
        ("Endpoint", "conditions") => (2, Message("Conditions")),
        ("Endpoint", "targetRef") => (4, Message("Reference")),
        ("Reference", "uid") => (4, Text),
        ("Endpoint", "nodeName") => (6, Text),
        ("Conditions", "ready") => (1, Number),
        ("Endpoints", "subsets") => (2, Message("Subset")),
        ("Subset", "addresses") => (1, Message("Address")),
        ("Subset", "notReadyAddresses") => (2, Message("Address")),
        ("Address", "ip") => (1, Text),
        ("Address", "targetRef") => (2, Message("Reference")),
        ("Address", "nodeName") => (4, Text),
        ("ConfigMap", "data") => (2, Map),
        ("Pod", "spec") => (2, Message("PodSpec")),
        ("PodSpec", "containers") => (2, Message("Container")),
        ("PodSpec", "initContainers") => (20, Message("Container")),
        ("Container", "env") => (7, Message("EnvVar")),
        ("EnvVar", "value") => (2, Text),
        _ => panic!("no field {name} in {message}"),
    }
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap());
}

/// Writes a field with a length.
pub(super) fn put(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// The message of an object.
pub(super) fn object(object: &Value) -> Vec<u8> {
    message(object["kind"].as_str().unwrap(), object)
}

fn message(kind: &str, object: &Value) -> Vec<u8> {
    let mut fields = Vec::new();
    for (name, value) in object.as_object().unwrap() {
        if name == "kind" || name == "apiVersion" {
            continue;
        }
        let (number, shape) = field(kind, name);
        let mut out = Vec::new();
        match (&shape, value) {
            (Kind::Map, Value::Object(map)) => {
                for (key, value) in map {
                    let mut entry = Vec::new();
                    put(&mut entry, 1, key.as_bytes());
                    put(&mut entry, 2, value.as_str().unwrap().as_bytes());
                    put(&mut out, number, &entry);
                }
            }
            (_, Value::Array(list)) => list.iter().for_each(|value| one(&mut out, number, &shape, value)),
            _ => one(&mut out, number, &shape, value),
        }
        fields.push((number, out));
    }
    // As Go writes them.
    fields.sort();
    fields.into_iter().flat_map(|(_, bytes)| bytes).collect()
}

fn one(out: &mut Vec<u8>, number: u64, shape: &Kind, value: &Value) {
    match shape {
        Kind::Message(kind) => put(out, number, &message(kind, value)),
        Kind::Number => {
            varint(out, number << 3);
            varint(out, value.as_bool().map_or_else(|| value.as_u64().unwrap(), u64::from));
        }
        Kind::Text | Kind::Map => put(out, number, value.as_str().unwrap().as_bytes()),
    }
}

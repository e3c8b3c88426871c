//! An answer without what may differ between servers of the same state: identifiers, times, numbers of versions.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Landmarks;

/// What the server or its admission adds to an object.
const VOLATILE: [&str; 6] =
    ["uid", "creationTimestamp", "managedFields", "generation", "selfLink", "deletionTimestamp"];

/// A body or the object of an event, in the form that is compared.
pub fn normalise(value: &Value, landmarks: &Landmarks) -> Value {
    let mut value = value.clone();
    walk(&mut value, landmarks);
    match value["kind"].as_str() {
        // The words of decoders of base64 and JSON are Go's.
        Some("Status") => {
            if let Some(message) = value["message"].as_str() {
                value["message"] = wording(message).into();
            }
        }
        // Columns and cells are the printers'; rows are the objects'.
        Some("Table") => {
            value["columnDefinitions"] = value["columnDefinitions"].is_array().into();
            for row in value["rows"].as_array_mut().into_iter().flatten() {
                row["cells"] = Value::Null;
            }
        }
        _ => {}
    }
    value
}

fn wording(message: &str) -> String {
    const TOKEN: &str = "continue key is not valid";
    let message = message.find(TOKEN).map_or(message, |at| &message[..at + TOKEN.len()]);
    // Versions within words.
    let mut out = String::new();
    for c in message.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

fn walk(value: &mut Value, landmarks: &Landmarks) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, landmarks)),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match (name.as_str(), field.as_str()) {
                    ("resourceVersion", Some(rv)) => *field = version(rv, landmarks).into(),
                    ("continue", Some(token)) if !token.is_empty() => *field = continuation(token, landmarks),
                    _ => walk(field, landmarks),
                }
            }
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|name, _| !VOLATILE.contains(&name.as_str()));
            }
        }
        _ => {}
    }
}

/// The moment a version stands for.
fn version(rv: &str, landmarks: &Landmarks) -> String {
    if let Some(write) = landmarks.writes.get(rv).filter(|_| rv != landmarks.current.to_string()) {
        return write.clone();
    }
    match rv.parse::<u64>() {
        Ok(number) if number == landmarks.old => "old".to_owned(),
        Ok(number) if number >= landmarks.current => "current or later".to_owned(),
        Ok(number) if number > landmarks.old => "between".to_owned(),
        Ok(_) => "before".to_owned(),
        Err(_) => rv.to_owned(),
    }
}

fn continuation(token: &str, landmarks: &Landmarks) -> Value {
    let decoded =
        URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    match decoded {
        Some(decoded) => {
            let rv = decoded["rv"].as_i64().unwrap_or(0);
            let rv = if rv < 0 { "any".to_owned() } else { version(&rv.to_string(), landmarks) };
            json!({"rv": rv, "start": decoded["start"], "v": decoded["v"]})
        }
        None => token.into(),
    }
}

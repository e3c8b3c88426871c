//! Answers without what may differ between servers that are to say the same.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Landmarks;

/// What two servers have in common, and with that what their answers may differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Common {
    /// The writes: identifiers, times, numbers of versions, and what admission and printers add are each one's own.
    Writes,
    /// The cluster: objects are the same to the last field. Of lists and bookmarks the version is the moment's, and so is an age.
    Cluster,
}

/// What the server or its admission adds to an object.
const VOLATILE: [&str; 6] =
    ["uid", "creationTimestamp", "managedFields", "generation", "selfLink", "deletionTimestamp"];

/// Brings the parts of one answer into the form that is compared.
#[derive(Debug)]
pub(super) struct Normaliser<'a> {
    common: Common,
    landmarks: &'a Landmarks,
    /// The columns of the tables: only the first of a watch needs to say them.
    columns: Vec<Value>,
}

impl<'a> Normaliser<'a> {
    /// For an answer of a server with these landmarks.
    pub(super) fn new(common: Common, landmarks: &'a Landmarks) -> Self {
        Self { common, landmarks, columns: Vec::new() }
    }

    /// An event or a whole body; nothing if servers are free to send it or not.
    pub(super) fn part(&mut self, mut value: Value) -> Option<Value> {
        let Some(kind) = value["type"].as_str().map(str::to_owned).filter(|_| value["object"].is_object())
        else {
            return Some(self.object(value, false));
        };
        value["object"] = match kind.as_str() {
            "BOOKMARK" => self.bookmark(value["object"].take())?,
            _ => self.object(value["object"].take(), true),
        };
        Some(value)
    }

    /// A body, or what an event is about.
    fn object(&mut self, mut value: Value, in_event: bool) -> Value {
        self.learn_columns(&value);
        match self.common {
            Common::Writes => loosen(&mut value, self.landmarks),
            Common::Cluster if is_list(&value) && !in_event => {
                for (name, field) in value["metadata"].as_object_mut().into_iter().flatten() {
                    moment(name, field, self.landmarks);
                }
            }
            // An object is of one version, wherever it is shown.
            Common::Cluster => {}
        }
        match value["kind"].as_str() {
            Some("Status") => {
                if let Some(message) = value["message"].as_str() {
                    value["message"] = wording(message).into();
                }
            }
            Some("Table") => self.table(&mut value, in_event),
            _ => {}
        }
        value
    }

    fn learn_columns(&mut self, table: &Value) {
        if let Some(columns) = table["columnDefinitions"].as_array().filter(|columns| !columns.is_empty()) {
            self.columns.clone_from(columns);
        }
    }

    fn table(&self, table: &mut Value, in_event: bool) {
        if self.common == Common::Writes {
            // Columns and cells are the printers'; rows are the objects'.
            table["columnDefinitions"] = table["columnDefinitions"].is_array().into();
        } else if in_event && table["columnDefinitions"].is_null() && !self.columns.is_empty() {
            // The API server leaves them out of later events, but not of one that another watch had encoded before.
            table["columnDefinitions"] = self.columns.clone().into();
        }
        for row in table["rows"].as_array_mut().into_iter().flatten() {
            if self.common == Common::Writes {
                row["cells"] = Value::Null;
                continue;
            }
            for (cell, column) in row["cells"].as_array_mut().into_iter().flatten().zip(&self.columns) {
                let age = column["name"] == "Age" || column["type"] == "date";
                if age && cell.as_str().is_some_and(is_age) {
                    *cell = "an age".into();
                }
            }
        }
    }

    /// Nothing for a bookmark that comes with time: it is without the mark of the end of the initial events.
    fn bookmark(&mut self, object: Value) -> Option<Value> {
        self.learn_columns(&object);
        // It is the zero object of a Go type, of which printers make what they can, at the version of the moment.
        let mut object = Normaliser::new(Common::Writes, self.landmarks).object(object, true);
        let table = object["kind"] == "Table";
        let told = if table { &object["rows"][0]["object"] } else { &object };
        if told["metadata"]["annotations"].is_null() {
            return None;
        }
        if let Some(fields) = object.as_object_mut().filter(|_| !table) {
            fields.retain(|name, _| ["kind", "apiVersion", "metadata"].contains(&name.as_str()));
        }
        Some(object)
    }
}

/// Whether its kind is that of a list, or of what stands for one.
fn is_list(value: &Value) -> bool {
    value["kind"].as_str().is_some_and(|kind| kind == "Table" || kind.ends_with("List"))
}

/// `5s`, `3m27s`, `2d`.
fn is_age(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(['s', 'm', 'h', 'd', 'y'])
        && text.chars().all(|c| c.is_ascii_digit() || "smhdy".contains(c))
}

/// The words of an error as they are compared: without the numbers of versions, which are the moment's, and without what decoders of base64 and JSON
/// say of a token, which are Go's.
pub fn wording(message: &str) -> String {
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

/// Takes away what is one cluster's own, wherever it stands.
fn loosen(value: &mut Value, landmarks: &Landmarks) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| loosen(item, landmarks)),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if !moment(name, field, landmarks) {
                    loosen(field, landmarks);
                }
            }
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|name, _| !VOLATILE.contains(&name.as_str()));
            }
        }
        _ => {}
    }
}

/// Makes of a version, and of a token with one in it, the moment that it stands for; says whether this field is one.
fn moment(name: &str, field: &mut Value, landmarks: &Landmarks) -> bool {
    *field = match (name, field.as_str()) {
        ("resourceVersion", Some(rv)) => version(rv, landmarks).into(),
        ("continue", Some(token)) if !token.is_empty() => continuation(token, landmarks),
        _ => return false,
    };
    true
}

/// What a list in protobuf says of itself, in the form in which that is compared: its version and its token.
pub fn list_metadata(version: u64, token: &str, landmarks: &Landmarks) -> Value {
    let mut metadata = json!({ "resourceVersion": version.to_string(), "continue": token });
    for (name, field) in metadata.as_object_mut().into_iter().flatten() {
        moment(name, field, landmarks);
    }
    metadata
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

#[cfg(test)]
mod tests {
    use super::*;

    fn landmarks() -> Landmarks {
        Landmarks { old: 10, current: 20, future: 1_000_000, ..Landmarks::default() }
    }

    /// An answer in parts.
    fn of(common: Common, parts: &[Value]) -> Vec<Value> {
        let landmarks = landmarks();
        let mut normaliser = Normaliser::new(common, &landmarks);
        parts.iter().filter_map(|part| normaliser.part(part.clone())).collect()
    }

    /// Whether these are the same by the writes, and whether by the cluster.
    fn same(one: &[Value], other: &[Value]) -> [bool; 2] {
        [Common::Writes, Common::Cluster].map(|common| of(common, one) == of(common, other))
    }

    fn object(rv: &str, metadata: &Value) -> Value {
        let mut object = json!({ "kind": "Pod", "metadata": { "name": "a", "resourceVersion": rv } });
        for (name, value) in metadata.as_object().unwrap() {
            object["metadata"][name] = value.clone();
        }
        object
    }

    #[test]
    fn one_cluster_says_of_an_object_the_same_to_the_last_field() {
        let plain = object("15", &json!({}));
        for (name, value) in [
            ("uid", json!("u")),
            ("creationTimestamp", json!("2026-01-01T00:00:00Z")),
            ("generation", json!(2)),
            ("managedFields", json!([{ "manager": "kubectl" }])),
            ("deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ] {
            let more = object("15", &json!({ name: value }));
            let list = |object: &Value| json!({ "kind": "PodList", "metadata": {}, "items": [object] });
            let event = |object: &Value| json!({ "type": "ADDED", "object": object });
            for form in [&|object: &Value| object.clone(), &list, &event] as [&dyn Fn(&Value) -> Value; 3] {
                assert_eq!(same(&[form(&plain)], &[form(&more)]), [true, false], "{name}");
            }
        }
        assert_eq!(same(&[plain], &[object("16", &json!({}))]), [true, false], "of another version");
    }

    #[test]
    fn versions_of_lists_and_of_bookmarks_are_of_the_moment() {
        let list =
            |rv: &str| json!({ "kind": "PodList", "metadata": { "resourceVersion": rv }, "items": [] });
        assert_eq!(same(&[list("21")], &[list("25")]), [true, true]);
        assert_eq!(same(&[list("10")], &[list("25")]), [false, false]);
        let bookmark = |rv: &str, more: &Value| {
            let mark =
                json!({ "annotations": { "k8s.io/initial-events-end": "true" }, "creationTimestamp": more });
            json!({ "type": "BOOKMARK", "object": object(rv, &mark) })
        };
        assert_eq!(same(&[bookmark("21", &Value::Null)], &[bookmark("22", &"x".into())]), [true, true]);
        let with_time = json!({ "type": "BOOKMARK", "object": object("21", &json!({})) });
        assert_eq!(same(&[with_time], &[]), [true, true]);
    }

    #[test]
    fn of_a_table_only_ages_may_differ() {
        let columns = json!([{ "name": "Name" }, { "name": "Age" }, { "name": "Made", "type": "date" }]);
        let table = |columns: &Value, cells: [&str; 3]| json!({ "kind": "Table", "columnDefinitions": columns, "rows": [{ "cells": cells }] });
        let list = |cells| [table(&columns, cells)];
        assert_eq!(same(&list(["a", "5s", "2d"]), &list(["a", "3m27s", "1d"])), [true, true]);
        assert_eq!(same(&list(["a", "5s", "2d"]), &list(["a", "<unknown>", "2d"])), [true, false]);
        assert_eq!(same(&list(["a", "5s", "2d"]), &list(["5s", "5s", "2d"])), [true, false]);
        let others = json!([{ "name": "Name" }, { "name": "Ready" }, { "name": "Made", "type": "date" }]);
        assert_eq!(same(&list(["a", "5s", "2d"]), &[table(&others, ["a", "5s", "2d"])]), [true, false]);
        // Of a watch, the first says what the columns are, be it a bookmark.
        let event = |kind: &str, table: Value| json!({ "type": kind, "object": table });
        for first in ["ADDED", "BOOKMARK"] {
            let watch = |cells| {
                let first = event(first, table(&columns, ["a", "1s", "1s"]));
                [first, event("MODIFIED", table(&Value::Null, cells))]
            };
            assert_eq!(same(&watch(["a", "5s", "2d"]), &watch(["a", "6s", "2d"])), [true, true]);
            assert_eq!(same(&watch(["a", "5s", "2d"]), &watch(["b", "5s", "2d"])), [true, false]);
            // The API server may say them once more, and what it says then counts.
            let again = |columns| {
                [watch(["a", "5s", "2d"])[0].clone(), event("MODIFIED", table(columns, ["a", "6s", "2d"]))]
            };
            assert_eq!(of(Common::Cluster, &watch(["a", "5s", "2d"])), of(Common::Cluster, &again(&columns)));
            assert_ne!(of(Common::Cluster, &watch(["a", "5s", "2d"])), of(Common::Cluster, &again(&others)));
        }
    }
}

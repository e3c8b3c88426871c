//! Tables for people: columns, and a row for each object.

use bytes::Bytes;
use jiff::Timestamp;
use kube_wire::age;
use serde_json::{Map, Value, json};

use crate::resource::{Cell, Column, ResourceInfo};

mod json_path;

use self::json_path::JsonPath;

/// What of each object a row carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" | "Metadata" => Self::Metadata,
            "None" => Self::Nothing,
            "Object" => Self::Object,
            _ => return None,
        })
    }
}

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to \
     request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. \
     Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in \
     happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated \
     by the system. Read-only. Null for lists. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The columns of a resource's tables.
pub(crate) struct Columns {
    definitions: Value,
    cells: Vec<Source>,
    missing: Value,
}

enum Source {
    Path { path: Option<JsonPath>, type_: String },
    Computed(crate::resource::CellFn),
}

impl Columns {
    pub(crate) fn of(info: &ResourceInfo) -> Self {
        let age = Column {
            name: "Age".to_owned(),
            type_: "date".to_owned(),
            format: String::new(),
            description: AGE.to_owned(),
            priority: 0,
            cell: Cell::Path(".metadata.creationTimestamp".to_owned()),
        };
        let columns = if info.columns.is_empty() { std::slice::from_ref(&age) } else { &info.columns[..] };
        let mut definitions = vec![
            json!({ "name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0 }),
        ];
        let mut cells = Vec::with_capacity(columns.len());
        for Column { name, type_, format, description, priority, cell } in columns {
            let description = match cell {
                Cell::Path(path) if description.is_empty() => {
                    format!("Custom resource definition column (in JSONPath format): {path}")
                }
                _ => description.clone(),
            };
            definitions.push(json!({
                "name": name, "type": type_, "format": format, "description": description, "priority": priority,
            }));
            cells.push(match cell {
                Cell::Path(path) => Source::Path { path: JsonPath::parse(path), type_: type_.clone() },
                Cell::Computed(function) => Source::Computed(function.clone()),
            });
        }
        Self { definitions: Value::Array(definitions), cells, missing: info.missing_cell.clone() }
    }

    /// A row for an object.
    pub(crate) fn row(&self, object: &Value, include: Include, meta_version: &str, now: Timestamp) -> Value {
        let mut cells = vec![object["metadata"]["name"].as_str().unwrap_or_default().into()];
        cells.extend(self.cells.iter().map(|source| match source {
            Source::Path { path, type_ } => {
                let found = path.as_ref().and_then(|path| path.find(object));
                found.map_or_else(|| self.missing.clone(), |value| cell(value, type_, now))
            }
            Source::Computed(function) => function(object, now),
        }));
        let carried = match include {
            Include::Nothing => Value::Null,
            Include::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": meta_version, "metadata": object["metadata"],
            }),
            Include::Object => object.clone(),
        };
        json!({ "cells": cells, "object": carried })
    }

    /// What stands before and after the rows of a table in JSON, between which there are commas.
    pub(crate) fn ends(&self, meta_version: &str, metadata: Map<String, Value>) -> (Bytes, Bytes) {
        let mut header = self.table(meta_version, metadata, Vec::new(), true).to_string();
        // `rows` comes last, by the order of their names as by that in which they are put in.
        header.truncate(header.len() - "]}".len());
        (header.into(), Bytes::from_static(b"]}\n"))
    }

    /// A table of these rows. On a watch only the first has definitions of the columns.
    pub(crate) fn table(
        &self,
        meta_version: &str,
        metadata: Map<String, Value>,
        rows: Vec<Value>,
        head: bool,
    ) -> Value {
        let definitions = if head { self.definitions.clone() } else { Value::Null };
        let members = [
            ("kind", "Table".into()),
            ("apiVersion", meta_version.into()),
            ("metadata", Value::Object(metadata)),
            ("columnDefinitions", definitions),
            ("rows", Value::Array(rows)),
        ];
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
    }
}

/// A value as a cell of a type.
fn cell(value: &Value, type_: &str, now: Timestamp) -> Value {
    match (type_, value) {
        ("string", Value::String(_)) | ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => {
            value.clone()
        }
        ("string", Value::Null) => "<nil>".into(),
        ("string", other) => other.to_string().into(),
        ("integer", Value::Number(number)) => {
            // A fraction is cut off, as Go does.
            #[allow(clippy::cast_possible_truncation)]
            let whole = || number.as_f64().map(|number| number.trunc() as i64);
            number.as_i64().or_else(whole).map_or(Value::Null, Value::from)
        }
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(moment) => age::human(now.duration_since(moment).as_secs()).into(),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_as_the_api_server_makes_them() {
        let now: Timestamp = "2026-11-21T03:51:03Z".parse().unwrap();
        for (value, type_, expected) in [
            (json!("a"), "string", json!("a")),
            (json!(3), "string", json!("3")),
            (json!({"a": 1}), "string", json!("{\"a\":1}")),
            (json!(3.7), "integer", json!(3)),
            (json!("3"), "integer", Value::Null),
            (json!(1.5), "number", json!(1.5)),
            (json!(true), "boolean", json!(true)),
            (json!("2026-11-21T03:50:03Z"), "date", json!("60s")),
            (json!("x"), "date", json!("<invalid>")),
        ] {
            assert_eq!(cell(&value, type_, now), expected, "{value} {type_}");
        }
    }
}

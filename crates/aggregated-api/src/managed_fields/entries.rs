//! The entries of `metadata.managedFields`.

use serde_json::{Map, Value, json};

use super::field_set::FieldSet;
use kube_wire::quoting::quoted;

use crate::metadata;

/// How a manager came to its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The fields of one manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    /// When it last changed something; who only ever applied what was so has none.
    pub(super) time: Option<String>,
    pub(super) subresource: String,
    pub(super) set: FieldSet,
}

impl Entry {
    /// As it stands in messages about conflicts. The time is not told.
    pub(super) fn describe(&self) -> String {
        let mut words = quoted(&self.manager);
        if !self.subresource.is_empty() {
            words = format!("{words} with subresource {}", quoted(&self.subresource));
        }
        match self.operation {
            Operation::Apply => words,
            Operation::Update => format!("{words} using {}", self.api_version),
        }
    }

    /// By which the API server sorts those of conflicts.
    pub(super) fn identifier(&self) -> String {
        let mut words =
            format!("{{\"manager\":{},\"operation\":\"{}\"", quoted(&self.manager), self.operation.name());
        if self.operation == Operation::Update {
            words = format!("{words},\"apiVersion\":{}", quoted(&self.api_version));
        }
        if !self.subresource.is_empty() {
            words = format!("{words},\"subresource\":{}", quoted(&self.subresource));
        }
        words + "}"
    }
}

/// The entries of an object; `None` if it has none that can be read.
pub(super) fn read(object: &Map<String, Value>) -> Option<Vec<Entry>> {
    let list = object.get("metadata")?.get("managedFields")?.as_array()?;
    let entry = |value: &Value| {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let operation = match value["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if text("apiVersion").is_empty() || value["fieldsType"] != "FieldsV1" {
            return None;
        }
        Some(Entry {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            time: value["time"].as_str().map(str::to_owned),
            subresource: text("subresource"),
            set: FieldSet::from_json(&value["fieldsV1"]),
        })
    };
    list.iter().map(entry).collect()
}

/// Whether the writer wants all to be forgotten: a list of one empty entry. An empty list would say the same, but of a custom resource
/// it is gone before anybody looks: its metadata is written anew, and what is empty left out (`SetObjectMeta` of
/// k8s.io/apiextensions-apiserver 0.36).
pub(super) fn are_reset(object: &Map<String, Value>) -> bool {
    let list =
        object.get("metadata").and_then(|metadata| metadata.get("managedFields")).and_then(Value::as_array);
    list.is_some_and(|list| *list == [json!({})])
}

/// Writes the entries, in the API server's order.
pub(super) fn write(object: &mut Map<String, Value>, mut entries: Vec<Entry>) {
    entries.sort_by(|a, b| {
        let key = |entry: &Entry| {
            (entry.operation, entry.time.clone(), entry.manager.clone(), entry.api_version.clone())
        };
        key(a).cmp(&key(b)).then_with(|| a.subresource.cmp(&b.subresource))
    });
    let metadata = metadata::of(object);
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    let list = entries.into_iter().map(|entry| {
        let Entry { manager, operation, api_version, time, subresource, set } = entry;
        let mut value = Map::new();
        value.insert("apiVersion".to_owned(), api_version.into());
        value.insert("fieldsType".to_owned(), "FieldsV1".into());
        value.insert("fieldsV1".to_owned(), set.to_json());
        value.insert("manager".to_owned(), manager.into());
        value.insert("operation".to_owned(), operation.name().into());
        if !subresource.is_empty() {
            value.insert("subresource".to_owned(), subresource.into());
        }
        if let Some(time) = time {
            value.insert("time".to_owned(), time.into());
        }
        Value::Object(value)
    });
    metadata.insert("managedFields".to_owned(), Value::Array(list.collect()));
}

//! `metadata` of objects: read as the API server reads its typed form, checked by its rules.

use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Map, Value};

use kube_wire::quoting::quoted;

use crate::decode::go_kind;

mod validate;

pub(crate) use self::validate::{validate, validate_update};

const STRINGS: [&str; 6] = ["name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"];

/// A moment as the API server writes it.
pub(crate) fn rfc3339(moment: Timestamp) -> String {
    moment.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The metadata of an object, made if there is none.
pub(crate) fn of(object: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().expect("it was made an object above")
}

/// A text of the metadata; empty if there is none.
pub(crate) fn text<'a>(object: &'a Map<String, Value>, name: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// The finalizers.
pub(crate) fn finalizers(object: &Map<String, Value>) -> Vec<&str> {
    let array =
        object.get("metadata").and_then(|metadata| metadata.get("finalizers")).and_then(Value::as_array);
    array.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Reads the metadata as typed: drops what is unknown (and says what), and what is empty. An error is in Go's words.
pub(crate) fn coerce(object: &mut Map<String, Value>) -> Result<Vec<String>, String> {
    match object.get("metadata") {
        None | Some(Value::Null) => {
            object.remove("metadata");
            return Ok(Vec::new());
        }
        Some(Value::Object(_)) => {}
        Some(other) => {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type v1.ObjectMeta",
                go_kind(other)
            ));
        }
    }
    let metadata = of(object);
    let mut unknown = Vec::new();
    let mut failure = None;
    metadata.retain(|name, value| match field(name, value) {
        Ok(Field::Keep) => {
            unknown.extend(drop_unknown(name, value));
            true
        }
        Ok(Field::Empty) => false,
        Ok(Field::Unknown) => {
            unknown.push(format!("metadata.{name}"));
            false
        }
        Err(error) => {
            failure.get_or_insert(error);
            false
        }
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(unknown),
    }
}

/// Drops members of owners and of owners of fields that nobody knows; returns their paths.
fn drop_unknown(name: &str, value: &mut Value) -> Vec<String> {
    let known: &[&str] = match name {
        "ownerReferences" => &["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"],
        "managedFields" => {
            &["apiVersion", "fieldsType", "fieldsV1", "manager", "operation", "subresource", "time"]
        }
        _ => return Vec::new(),
    };
    let mut unknown = Vec::new();
    for (index, item) in value.as_array_mut().into_iter().flatten().enumerate() {
        if let Some(members) = item.as_object_mut() {
            members.retain(|member, _| {
                let is_known = known.contains(&member.as_str());
                if !is_known {
                    unknown.push(format!("metadata.{name}[{index}].{member}"));
                }
                is_known
            });
        }
    }
    unknown
}

enum Field {
    Keep,
    Empty,
    Unknown,
}

fn mismatch(value: &Value, field: &str, go_type: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go struct field ObjectMeta.{field} of type {go_type}",
        go_kind(value)
    )
}

fn field(name: &str, value: &mut Value) -> Result<Field, String> {
    let known = STRINGS.contains(&name)
        || matches!(
            name,
            "generation"
                | "deletionGracePeriodSeconds"
                | "creationTimestamp"
                | "deletionTimestamp"
                | "labels"
                | "annotations"
                | "finalizers"
                | "ownerReferences"
                | "managedFields"
        );
    if !known {
        return Ok(Field::Unknown);
    }
    if value.is_null() {
        return Ok(Field::Empty);
    }
    let empty = match name {
        "generation" | "deletionGracePeriodSeconds" => {
            let number = value.as_i64().ok_or_else(|| mismatch(value, name, "int64"))?;
            name == "generation" && number == 0
        }
        "creationTimestamp" | "deletionTimestamp" => {
            let text = value.as_str().ok_or_else(|| mismatch(value, name, "string"))?;
            let moment: Timestamp = text.parse().map_err(|_| {
                format!(
                    "parsing time {0} as \"2006-01-02T15:04:05Z07:00\": cannot parse {0} as \"2006\"",
                    quoted(text)
                )
            })?;
            *value = rfc3339(moment).into();
            false
        }
        "labels" | "annotations" => {
            if !value.is_object() {
                return Err(mismatch(value, name, "map[string]string"));
            }
            for member in value.as_object_mut().into_iter().flat_map(Map::values_mut) {
                match member {
                    Value::String(_) => {}
                    // A text that is not said is empty.
                    Value::Null => *member = "".into(),
                    wrong => return Err(mismatch(wrong, name, "string")),
                }
            }
            value.as_object().is_none_or(Map::is_empty)
        }
        "finalizers" => {
            let items = value.as_array().ok_or_else(|| mismatch(value, name, "[]string"))?;
            if let Some(wrong) = items.iter().find(|item| !item.is_string()) {
                return Err(mismatch(wrong, name, "string"));
            }
            items.is_empty()
        }
        "ownerReferences" | "managedFields" => {
            let go_type =
                if name == "ownerReferences" { "[]v1.OwnerReference" } else { "[]v1.ManagedFieldsEntry" };
            let items = value.as_array().ok_or_else(|| mismatch(value, name, go_type))?;
            if let Some(wrong) = items.iter().find(|item| !item.is_object()) {
                return Err(mismatch(wrong, name, &go_type[2..]));
            }
            if name == "ownerReferences" {
                items.iter().try_for_each(owner)?;
            }
            items.is_empty()
        }
        "uid" => value.as_str().ok_or_else(|| mismatch(value, name, "types.UID"))?.is_empty(),
        _ => value.as_str().ok_or_else(|| mismatch(value, name, "string"))?.is_empty(),
    };
    Ok(if empty { Field::Empty } else { Field::Keep })
}

/// An error in Go's words if a member of an owner is of another type than it must be.
fn owner(owner: &Value) -> Result<(), String> {
    for (name, value) in owner.as_object().into_iter().flatten() {
        let (fits, go_type) = match name.as_str() {
            "apiVersion" | "kind" | "name" => (value.is_string(), "string"),
            "uid" => (value.is_string(), "types.UID"),
            "controller" | "blockOwnerDeletion" => (value.is_boolean(), "bool"),
            _ => continue,
        };
        if !fits && !value.is_null() {
            return Err(format!(
                "json: cannot unmarshal {} into Go struct field OwnerReference.ownerReferences.{name} of type {go_type}",
                go_kind(value)
            ));
        }
    }
    Ok(())
}

/// Takes away owners that stand twice; returns their identities.
pub(crate) fn owners_once(object: &mut Map<String, Value>) -> Vec<String> {
    let metadata = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("ownerReferences"));
    let Some(owners) = metadata.and_then(Value::as_array_mut) else { return Vec::new() };
    let (mut kept, mut twice): (Vec<Value>, Vec<String>) = (Vec::with_capacity(owners.len()), Vec::new());
    for owner in owners.drain(..) {
        if kept.contains(&owner) {
            twice.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        } else {
            kept.push(owner);
        }
    }
    *owners = kept;
    twice
}

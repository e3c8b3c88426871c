//! `metadata` of objects: read as the API server reads its typed form, checked by its rules.

use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Map, Value};

use kube_wire::{names, quoting::quoted};

use crate::{
    decode::go_kind,
    field_error::{FieldError, FieldErrors},
    resource::ResourceInfo,
};

/// The most bytes of all annotations.
const ANNOTATIONS_MAX: usize = 256 << 10;

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
        Ok(Field::Keep) => true,
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
            // An empty list of managed fields says something: forget them.
            items.is_empty() && name == "ownerReferences"
        }
        "uid" => value.as_str().ok_or_else(|| mismatch(value, name, "types.UID"))?.is_empty(),
        _ => value.as_str().ok_or_else(|| mismatch(value, name, "string"))?.is_empty(),
    };
    Ok(if empty { Field::Empty } else { Field::Keep })
}

/// `ValidateObjectMeta`: what is wrong with the metadata by itself.
pub(crate) fn validate(object: &Map<String, Value>, info: &ResourceInfo, errors: &mut FieldErrors) {
    let generate = text(object, "generateName");
    if !generate.is_empty() {
        for words in names::subdomain_errors(generate.trim_end_matches('-')) {
            errors.push(FieldError::invalid("metadata.generateName", &quoted(generate), &words));
        }
    }
    let name = text(object, "name");
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        for words in names::subdomain_errors(name) {
            errors.push(FieldError::invalid("metadata.name", &quoted(name), &words));
        }
    }
    let namespace = text(object, "namespace");
    if info.namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        } else {
            for words in names::label_errors(namespace) {
                errors.push(FieldError::invalid("metadata.namespace", &quoted(namespace), &words));
            }
        }
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
    }
    let metadata = object.get("metadata").and_then(Value::as_object);
    let members = |name: &str| metadata.and_then(|metadata| metadata.get(name)).and_then(Value::as_object);
    for (key, value) in members("labels").into_iter().flatten() {
        for words in names::qualified_name_errors(key) {
            errors.push(FieldError::invalid("metadata.labels", &quoted(key), &words));
        }
        let value = value.as_str().unwrap_or_default();
        for words in names::label_value_errors(value) {
            errors.push(FieldError::invalid("metadata.labels", &quoted(value), &words));
        }
    }
    let mut size = 0;
    for (key, value) in members("annotations").into_iter().flatten() {
        size += key.len() + value.as_str().unwrap_or_default().len();
        for words in names::qualified_name_errors(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &quoted(key), &words));
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_MAX as u64));
    }
    owners(metadata, errors);
    for finalizer in finalizers(object) {
        for words in names::qualified_name_errors(finalizer) {
            errors.push(FieldError::invalid("metadata.finalizers", &quoted(finalizer), &words));
        }
    }
}

fn owners(metadata: Option<&Map<String, Value>>, errors: &mut FieldErrors) {
    let owners = metadata.and_then(|metadata| metadata.get("ownerReferences")).and_then(Value::as_array);
    let mut controller = None;
    for owner in owners.into_iter().flatten() {
        let text = |name: &str| owner[name].as_str().unwrap_or_default();
        if text("apiVersion").rsplit('/').next().unwrap_or_default().is_empty() {
            let shown = quoted(text("apiVersion"));
            let path = "metadata.ownerReferences.apiVersion";
            errors.push(FieldError::invalid(path, &shown, "version must not be empty"));
        }
        for name in ["kind", "name", "uid"] {
            if text(name).is_empty() {
                let path = format!("metadata.ownerReferences.{name}");
                errors.push(FieldError::invalid(&path, "\"\"", "must not be empty"));
            }
        }
        if owner["controller"] == Value::Bool(true) {
            if let Some(first) = controller {
                let words = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {}",
                    text("name")
                );
                errors.push(FieldError::invalid("metadata.ownerReferences", "\"\"", &words));
            }
            controller = Some(text("name").to_owned());
        }
    }
}

/// `ValidateObjectMetaUpdate`: what may not change.
pub(crate) fn validate_update(new: &Map<String, Value>, old: &Map<String, Value>, errors: &mut FieldErrors) {
    let deleted = !text(old, "deletionTimestamp").is_empty();
    if deleted {
        let before = finalizers(old);
        let added: Vec<_> =
            finalizers(new).into_iter().filter(|name| !before.contains(name)).map(quoted).collect();
        if !added.is_empty() {
            let words = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &words));
        }
    }
    for name in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"] {
        let (now, before) = (text(new, name), text(old, name));
        if now != before {
            let shown = if now.is_empty() { "null".to_owned() } else { quoted(now) };
            errors.push(FieldError::invalid(&format!("metadata.{name}"), &shown, "field is immutable"));
        }
    }
}

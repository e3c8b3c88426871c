//! What is wrong with `metadata`, by the API server's rules and as often as it says so.

use kube_wire::{names, quoting::quoted};
use serde_json::{Map, Value};

use super::{finalizers, text};
use crate::{
    field_error::{FieldError, FieldErrors},
    resource::ResourceInfo,
};

/// The most bytes of all annotations.
const ANNOTATIONS_MAX: usize = 256 << 10;

/// `ValidateObjectMeta`: what is wrong with the metadata by itself.
pub(crate) fn validate(object: &Map<String, Value>, info: &ResourceInfo, errors: &mut FieldErrors) {
    let generate = text(object, "generateName");
    if !generate.is_empty() {
        // Something comes behind it: a dash at its end is looked at as something else.
        let masked = match generate.strip_suffix('-').map(|rest| rest.char_indices().next_back()) {
            Some(Some((last, _))) => format!("{}a", &generate[..last]),
            _ => generate.to_owned(),
        };
        for words in names::subdomain_errors(&masked) {
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
    common(object, info, errors);
}

/// What is looked at in the same way at a creation and an update: once of each, where [`marks`] are looked at again by whoever asks.
fn common(object: &Map<String, Value>, info: &ResourceInfo, errors: &mut FieldErrors) {
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
    marks(object, errors);
    let finalizers = finalizers(object);
    for finalizer in &finalizers {
        for words in names::qualified_name_errors(finalizer) {
            errors.push(FieldError::invalid("metadata.finalizers", &quoted(finalizer), &words));
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let shown = Value::from(finalizers).to_string();
        let words = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid("metadata.finalizers", &shown, words));
    }
}

/// Labels, annotations and owners.
fn marks(object: &Map<String, Value>, errors: &mut FieldErrors) {
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
}

fn owners(metadata: Option<&Map<String, Value>>, errors: &mut FieldErrors) {
    let owners = metadata.and_then(|metadata| metadata.get("ownerReferences")).and_then(Value::as_array);
    let mut controller = None;
    for owner in owners.into_iter().flatten() {
        let text = |name: &str| owner[name].as_str().unwrap_or_default();
        let api_version = text("apiVersion");
        let version = api_version.split_once('/').map_or(api_version, |(_, version)| version);
        if version.is_empty() || version.contains('/') {
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
        if (api_version, text("kind")) == ("v1", "Event") {
            let words = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid("metadata.ownerReferences", &shown_owner(owner), words));
        }
        if owner["controller"] == Value::Bool(true) {
            let this = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let all: Vec<_> = owners.into_iter().flatten().map(shown_owner).collect();
                    let words = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    let shown = format!("[{}]", all.join(","));
                    errors.push(FieldError::invalid("metadata.ownerReferences", &shown, &words));
                }
            }
        }
    }
}

/// An owner as Go writes it: the members of its type, in their order.
fn shown_owner(owner: &Value) -> String {
    let always = ["apiVersion", "kind", "name", "uid"]
        .map(|name| (name, owner[name].as_str().unwrap_or_default().into()));
    let flags = ["controller", "blockOwnerDeletion"].map(|name| (name, owner[name].clone()));
    let members = always.into_iter().chain(flags.into_iter().filter(|(_, value)| value.is_boolean()));
    let members: Vec<_> = members.map(|(name, value): (_, Value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

/// What is wrong with an object in place of another. Each fault is told as often as the API server looks: once by `BeforeUpdate` as at a
/// creation, but of names only what a path cannot hold, and twice, there and for custom resources, as an update.
pub(crate) fn validate_update(
    new: &Map<String, Value>,
    old: &Map<String, Value>,
    info: &ResourceInfo,
    errors: &mut FieldErrors,
) {
    let generate = text(new, "generateName");
    for illegal in ["/", "%"].into_iter().filter(|illegal| generate.contains(illegal)) {
        let words = format!("may not contain '{illegal}'");
        errors.push(FieldError::invalid("metadata.generateName", &quoted(generate), &words));
    }
    common(new, info, errors);
    for _ in 0..2 {
        changes(new, old, errors);
    }
}

/// `ValidateObjectMetaUpdate`: what may not change, and again what may not be at all.
fn changes(new: &Map<String, Value>, old: &Map<String, Value>, errors: &mut FieldErrors) {
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
    let grace = |object: &Map<String, Value>| {
        object.get("metadata").map_or(Value::Null, |metadata| metadata["deletionGracePeriodSeconds"].clone())
    };
    if grace(new) != grace(old) {
        let shown = grace(new).to_string();
        let field = "metadata.deletionGracePeriodSeconds";
        errors.push(FieldError::invalid(field, &shown, "field is immutable"));
    }
    marks(new, errors);
}

//! The schemas of kinds, of their lists, and of the metadata that they share.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ListMeta, ObjectMeta, Status};
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::resource::ResourceInfo;

const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// `dev.isthmus.test.v1.Gadget`: how documents call a kind.
pub(super) fn name(info: &ResourceInfo, kind: &str) -> String {
    let mut parts: Vec<_> = info.group.split('.').collect();
    parts.reverse();
    parts.extend([info.version.as_str(), kind]);
    parts.join(".")
}

pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The schemas of a document of version 3.
pub(super) fn v3(resources: &[&ResourceInfo]) -> Map<String, Value> {
    let mut generator = SchemaGenerator::new(SchemaSettings::openapi3());
    generator.subschema_for::<ObjectMeta>();
    generator.subschema_for::<ListMeta>();
    generator.subschema_for::<DeleteOptions>();
    generator.subschema_for::<Status>();
    let mut schemas = generator.take_definitions(true);
    schemas.insert(
        PATCH.to_owned(),
        json!({
            "type": "object",
            "description": "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.",
        }),
    );
    for info in resources {
        let reference = |name: &str| json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }], "default": {} });
        schemas.insert(name(info, &info.kind), kind(info, reference(OBJECT_META)));
        let items = json!({ "$ref": format!("#/components/schemas/{}", name(info, &info.kind)) });
        schemas.insert(name(info, &info.list_kind()), list(info, &items, reference(LIST_META)));
    }
    schemas
}

/// The definitions of a document of version 2, which knows less.
pub(super) fn v2(resources: &[&ResourceInfo]) -> Map<String, Value> {
    let mut definitions = Map::new();
    for (name, schema) in v3(resources) {
        definitions.insert(name, lessened(schema));
    }
    for info in resources {
        for (kind, meta) in [(info.kind.clone(), OBJECT_META), (info.list_kind(), LIST_META)] {
            if let Some(metadata) =
                definitions.get_mut(&name(info, &kind)).map(|all| &mut all["properties"]["metadata"])
            {
                let description = metadata["description"].clone();
                *metadata = json!({ "description": description, "$ref": format!("#/definitions/{meta}") });
            }
        }
    }
    definitions
}

/// Without what version 2 has no words for: those members may be anything then.
fn lessened(schema: Value) -> Value {
    match schema {
        Value::Object(mut members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref") {
                *reference = reference.replace("#/components/schemas/", "#/definitions/");
            }
            let open = members.get("nullable") == Some(&Value::Bool(true))
                || members.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
            if open && !members.contains_key("x-kubernetes-group-version-kind") {
                for name in ["type", "properties", "items", "additionalProperties"] {
                    members.remove(name);
                }
            }
            if members.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
                members.remove("type");
            }
            for name in ["anyOf", "oneOf", "not", "nullable", "default"] {
                // A member of `properties` may be called so; it is a schema then.
                if !members.get(name).is_some_and(|value| name == "not" && value.get("type").is_some()) {
                    members.remove(name);
                }
            }
            // What is left of one whose words were all of these.
            if members.get("allOf").is_some_and(of_nothing_else) {
                members.remove("allOf");
            }
            let members = members.into_iter().map(|(name, value)| {
                let value = match (name.as_str(), value) {
                    ("properties", Value::Object(properties)) => Value::Object(
                        properties.into_iter().map(|(name, schema)| (name, lessened(schema))).collect(),
                    ),
                    ("enum" | "required" | "description", value) => value,
                    (_, value) => lessened(value),
                };
                (name, value)
            });
            Value::Object(members.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(lessened).collect()),
        other => other,
    }
}

/// Whether this `allOf` is what [`unfolded`] adds.
fn of_nothing_else(all: &Value) -> bool {
    all.as_array().is_some_and(|all| {
        all.iter().all(|one| one.as_object().is_some_and(|one| one.keys().all(|name| name == "anyOf")))
    })
}

/// What `x-kubernetes-int-or-string` says, in words of JSON schema besides, as the API server publishes it: in `anyOf`, or in `allOf` where
/// there is another `anyOf` (`Structural.Unfold` of k8s.io/apiextensions-apiserver).
fn unfolded(schema: Value) -> Value {
    match schema {
        Value::Object(members) => {
            let is_either = members.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
            let mut members: Map<String, Value> = members
                .into_iter()
                .map(|(name, value)| {
                    let value = match name.as_str() {
                        "default" | "enum" | "example" => value,
                        _ => unfolded(value),
                    };
                    (name, value)
                })
                .collect();
            let either = json!([{ "type": "integer" }, { "type": "string" }]);
            let first = members.get("allOf").and_then(|all| all.get(0)).and_then(|first| first.get("anyOf"));
            let is_told = members.get("anyOf") == Some(&either) || first == Some(&either);
            if is_either && !is_told {
                if !members.contains_key("anyOf") {
                    members.insert("anyOf".to_owned(), either);
                } else if let Some(all) =
                    members.entry("allOf").or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
                {
                    all.insert(0, json!({ "anyOf": either }));
                }
            }
            Value::Object(members)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(unfolded).collect()),
        other => other,
    }
}

fn type_properties() -> Map<String, Value> {
    let api_version = format!(
        "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest \
         internal value, and may reject unrecognized values. More info: {CONVENTIONS}#resources"
    );
    let kind = format!(
        "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client \
         submits requests to. Cannot be updated. In CamelCase. More info: {CONVENTIONS}#types-kinds"
    );
    let mut properties = Map::new();
    properties.insert("apiVersion".to_owned(), json!({ "type": "string", "description": api_version }));
    properties.insert("kind".to_owned(), json!({ "type": "string", "description": kind }));
    properties
}

fn group_version_kind(info: &ResourceInfo, kind: &str) -> Value {
    json!([{ "group": info.group, "kind": kind, "version": info.version }])
}

/// The schema of the kind, its metadata typed.
fn kind(info: &ResourceInfo, mut metadata: Value) -> Value {
    let mut schema = unfolded(info.schema.clone());
    let description = format!("Standard object's metadata. More info: {CONVENTIONS}#metadata");
    metadata["description"] = description.into();
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("type".to_owned(), "object".into());
        schema.remove("title");
        let properties = schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        if let Some(properties) = properties.as_object_mut() {
            properties.extend(type_properties());
            properties.insert("metadata".to_owned(), metadata);
        }
        schema.insert("x-kubernetes-group-version-kind".to_owned(), group_version_kind(info, &info.kind));
    }
    schema
}

fn list(info: &ResourceInfo, items: &Value, mut metadata: Value) -> Value {
    metadata["description"] = format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds").into();
    let mut properties = type_properties();
    let description = format!("List of {}. More info: {CONVENTIONS}", info.plural);
    properties
        .insert("items".to_owned(), json!({ "type": "array", "description": description, "items": items }));
    properties.insert("metadata".to_owned(), metadata);
    json!({
        "type": "object",
        "description": format!("{} is a list of {}", info.list_kind(), info.kind),
        "required": ["items"],
        "properties": properties,
        "x-kubernetes-group-version-kind": group_version_kind(info, &info.list_kind()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_or_strings_are_told_in_words_of_json_schema_too() {
        let either = json!([{ "type": "integer" }, { "type": "string" }]);
        let plain = json!({ "x-kubernetes-int-or-string": true });
        let told = json!({ "anyOf": either, "pattern": "^1$", "x-kubernetes-int-or-string": true });
        let first = json!({ "allOf": [{ "anyOf": either }, { "pattern": "^1" }], "x-kubernetes-int-or-string": true });
        let other =
            json!({ "anyOf": [{ "minimum": 1 }, { "pattern": "^1" }], "x-kubernetes-int-or-string": true });
        let schema = json!({ "properties": {
            "plain": plain, "first": first, "other": other, "map": { "additionalProperties": told },
        } });
        let published = unfolded(schema.clone());
        let of = |name: &str| published["properties"][name].clone();
        assert_eq!(of("plain"), json!({ "anyOf": either, "x-kubernetes-int-or-string": true }));
        assert_eq!(of("map")["additionalProperties"], told);
        assert_eq!(of("first"), first);
        assert_eq!(of("other")["anyOf"], other["anyOf"]);
        assert_eq!(of("other")["allOf"], json!([{ "anyOf": either }]));
        assert_eq!(lessened(published), lessened(schema));
    }
}

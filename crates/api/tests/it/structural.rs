//! The part of an API server's schema validation that our CRDs use. A keyword that stands in a CRD but not here fails the
//! test, so that no rule is thought to be tested when it is not.

use serde_json::{Map, Value};

/// Keywords that cannot refuse a value, or that are evaluated elsewhere (CEL, defaults, formats of times).
const SILENT: [&str; 6] = [
    "description",
    "default",
    "format",
    "x-kubernetes-validations",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];

/// The refusals of `value` by `schema`, each beginning with the path of the field.
pub(crate) fn refusals(schema: &Value, value: &Value) -> Vec<String> {
    let mut refusals = Vec::new();
    check(schema, value, "", &mut refusals);
    refusals
}

/// `value` as the API server stores it: without nulls and without what the schema does not know.
pub(crate) fn pruned(schema: &Value, value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let keep = |(key, field): (&String, &Value)| {
                let schema = child(schema, key)?;
                (!field.is_null()).then(|| (key.clone(), pruned(schema, field)))
            };
            Value::Object(fields.iter().filter_map(keep).collect())
        }
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| pruned(&schema["items"], item)).collect())
        }
        scalar => scalar.clone(),
    }
}

/// The schema of a field; the envelope of an object is known to every schema.
fn child<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    const ANY: &Value = &Value::Null;
    let envelope = matches!(key, "apiVersion" | "kind" | "name").then_some(ANY);
    schema["properties"].get(key).or_else(|| schema.get("additionalProperties")).or(envelope)
}

fn check(schema: &Value, value: &Value, path: &str, refusals: &mut Vec<String>) {
    let keywords = schema.as_object().cloned().unwrap_or_default();
    for (keyword, bound) in keywords.iter().filter(|(keyword, _)| !SILENT.contains(&keyword.as_str())) {
        let refused = match keyword.as_str() {
            "type" => type_of(value) != bound,
            "enum" => !bound.as_array().unwrap().contains(value),
            "minimum" => value.as_f64() < bound.as_f64(),
            "maximum" => value.as_f64() > bound.as_f64(),
            "minLength" => characters(value) < bound.as_u64(),
            "maxLength" => characters(value) > bound.as_u64(),
            "maxItems" => value.as_array().map(|items| items.len() as u64) > bound.as_u64(),
            "maxProperties" => value.as_object().map(|fields| fields.len() as u64) > bound.as_u64(),
            "required" => {
                let missing = bound
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(Value::as_str)
                    .filter(|f| value.get(f).is_none());
                refusals.extend(
                    missing
                        .map(|field| format!("{path}.{field}: required").trim_start_matches('.').to_owned()),
                );
                false
            }
            "x-kubernetes-list-map-keys" => {
                let keys = |item: &Value| {
                    bound.as_array().unwrap().iter().map(|k| item[k.as_str().unwrap()].clone()).collect()
                };
                let items: Vec<Vec<Value>> = value.as_array().unwrap().iter().map(keys).collect();
                let twice = (0..items.len()).filter(|&i| items[..i].contains(&items[i]));
                refusals.extend(twice.map(|i| format!("{path}[{i}]: duplicate")));
                false
            }
            "properties" | "additionalProperties" | "items" => false,
            unknown => {
                panic!("{path}: keyword {unknown} is not known here; teach this validator what it refuses")
            }
        };
        if refused {
            refusals.push(format!("{path}: {keyword} {bound} refuses {value}"));
        }
    }
    match value {
        Value::Object(fields) => check_fields(schema, fields, path, refusals),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{i}]"), refusals);
            }
        }
        _ => {}
    }
}

fn check_fields(schema: &Value, fields: &Map<String, Value>, path: &str, refusals: &mut Vec<String>) {
    for (key, field) in fields {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if let Some(schema) = child(schema, key) {
            check(schema, field, &path, refusals);
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn characters(value: &Value) -> Option<u64> {
    value.as_str().map(|text| text.chars().count() as u64)
}

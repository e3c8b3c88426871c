//! What Kubernetes objects look like as plain JSON: shared by the plans that change objects without typing them, so that
//! fields newer than our types survive.

use serde_json::Value;

/// Whether a member counts as not being there: the API server reads null and an empty list alike.
pub(crate) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// What a value is, in the words of an error message.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "missing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

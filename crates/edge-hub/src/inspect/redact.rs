//! Leaves out what is secret in a Secret.

use serde_json::Value;

/// The annotation in which `kubectl apply` keeps the whole object, values and all.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Puts the length of each value in its place; names stay.
pub(super) fn secret(secret: &mut Value) {
    for field in ["data", "stringData"] {
        if let Some(Value::Object(values)) = secret.get_mut(field) {
            values.values_mut().for_each(hide);
        }
    }
    if let Some(applied) =
        secret.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(LAST_APPLIED))
    {
        hide(applied);
    }
}

fn hide(value: &mut Value) {
    let length = value.as_str().map_or(0, str::len);
    *value = Value::String(format!("({length} characters left out; --show-secrets prints them)"));
}

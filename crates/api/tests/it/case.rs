//! A case of `tests/cases/*.yaml`, and how its outcome is compared. Crate `e2e`, which puts the same cases to a real API
//! server, includes this file.

use serde::Deserialize;
use serde_json::Value;

/// As the head of the files describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) old: Option<Value>,
    pub(crate) object: Value,
    pub(crate) refused: Option<String>,
    pub(crate) becomes: Option<Value>,
}

/// Whether `part` stands in `whole`: fields may be left out, lists are complete.
pub(crate) fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        (whole, part) => whole == part,
    }
}

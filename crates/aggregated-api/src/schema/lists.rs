//! Sets and maps written as lists: no item may stand twice.

use serde_json::{Map, Value};

use super::{ListType, Schema, member_path};
use crate::field_error::{FieldError, FieldErrors};

/// Finds items that stand twice.
pub(crate) fn unique(value: &Value, schema: &Schema, path: &str, errors: &mut FieldErrors) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(schema) = schema.member(name) {
                    unique(member, schema, &member_path(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            let mut seen: Vec<Value> = Vec::new();
            let stray = items.iter().position(|item| !item.is_object() && !item.is_null());
            if let (ListType::Map(_), Some(index)) = (&schema.list_type, stray) {
                let words = "must be an object for an array of list-type map";
                errors.push(FieldError::invalid(
                    &format!("{path}[{index}]"),
                    &items[index].to_string(),
                    words,
                ));
            }
            for (index, item) in items.iter().enumerate() {
                let place = format!("{path}[{index}]");
                let key = match &schema.list_type {
                    ListType::Atomic => None,
                    ListType::Set => Some(item.clone()),
                    ListType::Map(keys) => item.as_object().map(|item| {
                        let members =
                            keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
                        Value::Object(members.collect::<Map<_, _>>())
                    }),
                };
                if let Some(key) = key {
                    if seen.contains(&key) {
                        errors.push(FieldError::duplicate(&place, &key.to_string()));
                    } else {
                        seen.push(key);
                    }
                }
                if let Some(schema) = &schema.items {
                    unique(item, schema, &place, errors);
                }
            }
        }
        _ => {}
    }
}

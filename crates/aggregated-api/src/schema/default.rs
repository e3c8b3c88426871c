//! Fills in defaults, and drops nulls where nothing may be null.

use serde_json::Value;

use super::Schema;

/// Puts defaults where nothing is, and where null is that may not be.
pub(crate) fn default(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(members) => {
            for (name, property) in &schema.properties {
                let Some(fallback) = &property.default else { continue };
                let missing = match members.get(name) {
                    None => true,
                    Some(member) => member.is_null() && !property.nullable,
                };
                if missing {
                    members.insert(name.clone(), fallback.clone());
                }
            }
            for (name, member) in members.iter_mut() {
                if let Some(schema) = schema.member(name) {
                    if member.is_null() && !schema.nullable {
                        *member = schema.default.clone().unwrap_or_default();
                    }
                    default(member, schema);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    if item.is_null() && !schema.nullable {
                        *item = schema.default.clone().unwrap_or_default();
                    }
                    default(item, schema);
                }
            }
        }
        _ => {}
    }
}

/// Drops nulls of members that may not be null and have no default: the API server takes them for absent.
pub(crate) fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| {
                let left_out = |schema: &Schema| !schema.nullable && schema.default.is_none();
                !(member.is_null() && schema.member(name).is_some_and(left_out))
            });
            for (name, member) in members.iter_mut() {
                if let Some(schema) = schema.member(name) {
                    drop_nulls(member, schema);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    drop_nulls(item, schema);
                }
            }
        }
        _ => {}
    }
}

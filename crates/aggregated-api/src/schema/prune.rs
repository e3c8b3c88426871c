//! Drops members that the schema does not know, and says which.

use serde_json::Value;

use super::{Schema, member_path};

/// Drops what is unknown below the root of an object; `apiVersion`, `kind` and `metadata` stay. Returns the paths dropped, in order.
pub(crate) fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut dropped = Vec::new();
    walk(value, schema, true, "", &mut dropped);
    dropped.sort();
    dropped
}

fn walk(value: &mut Value, schema: &Schema, root: bool, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let own =
                |name: &str| (root || schema.embedded) && matches!(name, "apiVersion" | "kind" | "metadata");
            members.retain(|name, _| {
                let known = own(name) || schema.preserve || schema.member(name).is_some();
                if !known {
                    dropped.push(member_path(path, name));
                }
                known
            });
            for (name, member) in members.iter_mut() {
                if let Some(schema) = schema.member(name).filter(|_| !own(name)) {
                    walk(member, schema, false, &member_path(path, name), dropped);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                walk(item, schema, false, &format!("{path}[{index}]"), dropped);
            }
        }
        _ => {}
    }
}

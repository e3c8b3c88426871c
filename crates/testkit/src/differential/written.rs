//! What the test itself wrote, told from what others write in the same cluster meanwhile.

use serde_json::Value;

use super::populate::NAMESPACES;

/// Whether an object of this namespace is the test's; one without a namespace is nobody's in particular.
pub fn is_written(namespace: &str) -> bool {
    namespace.is_empty() || NAMESPACES.contains(&namespace)
}

/// A body or an event without the objects of others; nothing if there is no other in it.
pub fn written(value: &Value) -> Option<Value> {
    let mut value = value.clone();
    let is_event = value["type"].is_string();
    let Some(body) = (if is_event { value.get_mut("object") } else { Some(&mut value) }) else {
        return Some(value);
    };
    let (list, object) = if body["kind"] == "Table" {
        ("rows", "/object/metadata/namespace")
    } else {
        ("items", "/metadata/namespace")
    };
    let is_own =
        |one: &Value, pointer| is_written(one.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
    if let Some(objects) = body.get_mut(list).and_then(Value::as_array_mut) {
        let all = objects.len();
        objects.retain(|one| is_own(one, object));
        return (!is_event || all == 0 || !objects.is_empty()).then_some(value);
    }
    is_own(body, "/metadata/namespace").then_some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_of_others_are_left_out_of_lists_and_tables_and_streams() {
        let [own, other] = ["dt-a", "kube-system"].map(|name| json!({ "metadata": { "namespace": name } }));
        let table = |objects: &[&Value]| {
            let rows: Vec<_> = objects.iter().map(|object| json!({ "object": object })).collect();
            json!({ "kind": "Table", "rows": rows })
        };
        let event = |object: &Value| json!({ "type": "ADDED", "object": object });
        let list = |objects: &[&Value]| json!({ "kind": "PodList", "items": objects });
        assert_eq!(written(&list(&[&own, &other])), Some(list(&[&own])));
        assert_eq!(written(&list(&[&other])), Some(list(&[])));
        assert_eq!(written(&table(&[&other, &own])), Some(table(&[&own])));
        assert_eq!(written(&event(&own)), Some(event(&own)));
        assert_eq!(written(&event(&other)), None);
        assert_eq!(written(&event(&table(&[&other]))), None);
        assert_eq!(written(&event(&table(&[&own]))), Some(event(&table(&[&own]))));
        let error = json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410 } });
        assert_eq!(written(&error), Some(error.clone()));
        let bookmark = event(&json!({ "metadata": { "annotations": {} } }));
        assert_eq!(written(&bookmark), Some(bookmark.clone()));
    }
}

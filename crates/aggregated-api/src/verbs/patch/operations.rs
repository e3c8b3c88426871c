//! What the operations of a JSON patch make of an object, as with the API server's library. Pure.

use std::io;

use json_patch::{AddOperation, PatchOperation, jsonptr::PointerBuf};
use serde_json::Value;

/// The most that the copies of a patch may add, as JSON: the API server's own bound. Without one each copy of an object into itself doubles it; what else adds
/// to it stands in the body, which is bounded.
const MOST_COPIED: usize = 3 << 20;

/// The object after all of them; `None` if one cannot be done, or if they copy too much.
pub(super) fn applied(mut value: Value, operations: &[PatchOperation]) -> Option<Value> {
    let mut copied = 0_usize;
    for operation in operations {
        let Some(operation) = lenient(operation, &value) else { continue };
        if let PatchOperation::Copy(copy) = &operation {
            copied = copied.saturating_add(encoded_length(value.pointer(copy.from.as_str())?));
            if copied > MOST_COPIED {
                return None;
            }
        }
        json_patch::patch(&mut value, std::slice::from_ref(&operation)).ok()?;
    }
    Some(value)
}

/// How long it is as JSON, which is not made for that.
fn encoded_length(value: &Value) -> usize {
    struct Length(usize);

    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut length = Length(0);
    // Neither the value nor the counting fails.
    let _ = serde_json::to_writer(&mut length, value);
    length.0
}

/// An operation as the API server's library takes it, for which a member that is not there is as good as null: to replace it is to
/// add it, a copy of it is null, and it is equal to null. `None`: nothing is to be done.
fn lenient(operation: &PatchOperation, value: &Value) -> Option<PatchOperation> {
    let is_absent_member = |path: &PointerBuf| {
        let holder = path.parent().and_then(|holder| value.pointer(holder.as_str()));
        value.pointer(path.as_str()).is_none() && holder.is_some_and(Value::is_object)
    };
    let added = |path: &PointerBuf, value: &Value| {
        Some(PatchOperation::Add(AddOperation { path: path.clone(), value: value.clone() }))
    };
    match operation {
        PatchOperation::Replace(replace) if is_absent_member(&replace.path) => {
            added(&replace.path, &replace.value)
        }
        PatchOperation::Copy(copy) if is_absent_member(&copy.from) => added(&copy.path, &Value::Null),
        PatchOperation::Test(test) if test.value.is_null() && is_absent_member(&test.path) => None,
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_that_is_not_there_is_as_good_as_null() {
        let object = json!({ "status": { "there": 1 } });
        let after = |operation: Value| {
            let operation = serde_json::from_value(operation).unwrap();
            let mut value = object.clone();
            match lenient(&operation, &value) {
                Some(operation) => json_patch::patch(&mut value, &[operation]).ok().map(|()| value),
                None => Some(value),
            }
        };
        for (operation, expected) in [
            (
                json!({ "op": "replace", "path": "/status/new", "value": 2 }),
                Some(json!({ "there": 1, "new": 2 })),
            ),
            (
                json!({ "op": "copy", "from": "/status/new", "path": "/status/to" }),
                Some(json!({ "there": 1, "to": null })),
            ),
            (
                json!({ "op": "copy", "from": "/status/there", "path": "/status/to" }),
                Some(json!({ "there": 1, "to": 1 })),
            ),
            (json!({ "op": "test", "path": "/status/new", "value": null }), Some(json!({ "there": 1 }))),
            (json!({ "op": "test", "path": "/status/new", "value": 1 }), None),
            (json!({ "op": "test", "path": "/status/there", "value": null }), None),
            (json!({ "op": "copy", "from": "/none/new", "path": "/status/to" }), None),
            (json!({ "op": "move", "from": "/status/new", "path": "/status/to" }), None),
            (json!({ "op": "remove", "path": "/status/new" }), None),
        ] {
            let expected = expected.map(|status| json!({ "status": status }));
            assert_eq!(after(operation.clone()), expected, "{operation}");
        }
    }

    #[test]
    fn copies_add_up_to_a_bound() {
        let copies = |count: usize| -> Vec<PatchOperation> {
            let one =
                |number| json!({ "op": "copy", "from": "/status", "path": format!("/status/c{number}") });
            serde_json::from_value((0..count).map(one).collect()).unwrap()
        };
        let object = json!({ "status": { "text": "x".repeat(1_000) } });
        let after = |count| applied(object.clone(), &copies(count)).map(|value| encoded_length(&value));
        // Each doubles it: eleven copy 2 MB.
        assert!(after(11).is_some_and(|length| length > 2_000_000));
        assert_eq!((after(12), after(16)), (None, None));
        let one = json!({ "status": { "text": "x".repeat(MOST_COPIED - 11) } });
        assert!(applied(one.clone(), &copies(1)).is_some(), "as much as may be");
        let text = json!({ "status": { "text": "x".repeat(MOST_COPIED - 10) } });
        assert!(applied(text, &copies(1)).is_none(), "one byte more");
    }
}

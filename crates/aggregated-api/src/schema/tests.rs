use serde_json::{Value, json};

use super::*;
use crate::field_error::FieldErrors;

fn gadget() -> Schema {
    Schema::compile(&json!({
        "type": "object", "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object", "required": ["color"],
                "properties": {
                    "color": { "type": "string", "enum": ["red", "green", "blue"] },
                    "size": { "type": "integer", "format": "int32", "minimum": 1, "maximum": 10 },
                    "ratio": { "type": "number", "minimum": 0, "exclusiveMinimum": true },
                    "on": { "type": "boolean", "default": true },
                    "code": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2 },
                    "when": { "type": "string", "format": "date-time" },
                    "step": { "type": "integer", "multipleOf": 5 },
                    "amount": {
                        "anyOf": [{ "type": "integer" }, { "type": "string" }], "pattern": "^[0-9]+[mkMGi]*$",
                        "x-kubernetes-int-or-string": true,
                    },
                    "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    "maybe": { "type": "string", "nullable": true },
                    "labels": { "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 2 },
                    "tags": {
                        "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set", "maxItems": 3,
                    },
                    "list": { "type": "array", "items": { "type": "integer" }, "minItems": 1 },
                    "ports": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object", "required": ["name"],
                            "properties": { "name": { "type": "string" }, "port": { "type": "integer", "default": 80 } },
                        },
                    },
                },
            },
        },
    }))
}

/// The causes of the status, sorted: Go walks its maps in any order.
fn causes(spec: &Value) -> Vec<String> {
    let mut errors = FieldErrors::default();
    let object = json!({ "spec": spec });
    validate(&object, &gadget(), "", &mut errors);
    unique(&object, &gadget(), "", &mut errors);
    let Err(status) = errors.check("g", "Gadget", "b") else { return Vec::new() };
    let causes = status.details.unwrap().causes;
    let mut causes: Vec<_> = causes
        .into_iter()
        .map(|cause| format!("{} {}: {}", cause.reason, cause.field, cause.message))
        .collect();
    causes.sort();
    causes
}

/// As an API server 1.36 said it of applied configurations, where nulls are not dropped.
#[test]
fn of_null_only_the_type_and_the_values_are_told() {
    let amount =
        "spec.amount: Invalid value: \"null\": spec.amount in body must be of type integer,string: \"null\"";
    assert_eq!(
        causes(&json!({ "color": "red", "amount": null })),
        [format!("FieldValueTypeInvalid {amount}")]
    );
    assert_eq!(causes(&json!({ "color": "red", "maybe": null })), [""; 0]);
}

/// As an API server 1.36 said it of a custom resource with this schema.
#[test]
fn errors_are_the_api_servers() {
    let spec = json!({
        "color": "pink", "size": 11, "ratio": 0, "code": "ABCDEFG", "when": "x", "step": 7, "amount": "zz",
        "maybe": null, "labels": { "a": "b", "c": "d", "e": "f" }, "tags": ["a", "a", "b", "c"], "list": [],
        "ports": [{ "name": "a" }, { "name": "a" }, { "port": 3 }],
    });
    let expected = [
        "FieldValueDuplicate spec.ports[1]: Duplicate value: {\"name\":\"a\"}",
        "FieldValueDuplicate spec.tags[1]: Duplicate value: \"a\"",
        "FieldValueInvalid spec.amount: Invalid value: \"zz\": spec.amount in body should match '^[0-9]+[mkMGi]*$'",
        "FieldValueInvalid spec.list: Invalid value: 0: spec.list in body should have at least 1 items",
        "FieldValueInvalid spec.ratio: Invalid value: 0: spec.ratio in body should be greater than 0",
        "FieldValueInvalid spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
        "FieldValueInvalid spec.step: Invalid value: 7: spec.step in body should be a multiple of 5",
        "FieldValueNotSupported spec.color: Unsupported value: \"pink\": supported values: \"red\", \"green\", \"blue\"",
        "FieldValueRequired spec.ports[2].name: Required value",
        "FieldValueTooLong spec.code: Too long: may not be more than 5 bytes",
        "FieldValueTooMany spec.labels: Too many: 3: must have at most 2 items",
        "FieldValueTooMany spec.tags: Too many: 4: must have at most 3 items",
        "FieldValueTypeInvalid spec.when: Invalid value: \"x\": spec.when in body must be of type date-time: \"x\"",
    ];
    assert_eq!(causes(&spec), expected);
    let of_types = causes(&json!({ "color": 3, "size": 1.5, "on": "z", "labels": [], "list": ["x"] }));
    for expected in [
        "FieldValueTypeInvalid spec.color: Invalid value: \"integer\": spec.color in body must be of type string: \"integer\"",
        "FieldValueNotSupported spec.color: Unsupported value: 3: supported values: \"red\", \"green\", \"blue\"",
        "FieldValueTypeInvalid spec.size: Invalid value: \"float64\": spec.size in body must be of type int32: \"float64\"",
        "FieldValueTypeInvalid spec.on: Invalid value: \"string\": spec.on in body must be of type boolean: \"string\"",
        "FieldValueTypeInvalid spec.labels: Invalid value: \"array\": spec.labels in body must be of type object: \"array\"",
        "FieldValueTypeInvalid spec.list[0]: Invalid value: \"string\": spec.list[0] in body must be of type integer: \"string\"",
    ] {
        assert!(of_types.iter().any(|cause| cause == expected), "{expected} is not in {of_types:#?}");
    }
    assert_eq!(
        causes(&json!({ "color": "red", "code": "abc", "size": 3, "amount": 5, "maybe": null })),
        Vec::<String>::new()
    );
}

#[test]
fn what_is_unknown_goes_and_what_is_missing_comes() {
    let mut value = json!({
        "apiVersion": "g/v1", "kind": "Gadget", "metadata": { "name": "a" }, "extra": {},
        "spec": { "color": "red", "unknown": 1, "free": { "any": 1 }, "labels": { "a": "b" }, "size": null, "maybe": null,
            "ports": [{ "name": "x", "zz": 1 }] },
    });
    let schema = gadget();
    assert_eq!(prune(&mut value, &schema), ["extra", "spec.ports[0].zz", "spec.unknown"]);
    drop_nulls(&mut value, &schema);
    default(&mut value, &schema);
    let expected = json!({
        "apiVersion": "g/v1", "kind": "Gadget", "metadata": { "name": "a" },
        "spec": { "color": "red", "free": { "any": 1 }, "labels": { "a": "b" }, "maybe": null, "on": true,
            "ports": [{ "name": "x", "port": 80 }] },
    });
    assert_eq!(value, expected);
}

#[test]
fn a_whole_number_may_be_too_long_for_its_format() {
    let schema = Schema::compile(&json!({
        "type": "object",
        "properties": { "seconds": { "type": "integer", "format": "int64" } },
    }));
    let causes = |seconds: &str| {
        let mut errors = FieldErrors::default();
        let value = serde_json::from_str(&format!("{{\"seconds\":{seconds}}}")).unwrap();
        validate(&value, &schema, "", &mut errors);
        errors.check("g", "K", "n").err().map(|status| status.message).unwrap_or_default()
    };
    // As API server 1.36 answers.
    let words = "Checked value must be of type integer with format int64 in seconds";
    for beyond in ["99999999999999999999", "-99999999999999999999"] {
        let message = causes(beyond);
        assert!(
            message.contains(words) && message.contains("must be of type int64: \"float64\""),
            "{message}"
        );
    }
    for fits in ["9223372036854775807", "-9223372036854775808", "10", "1e3"] {
        assert_eq!(causes(fits), "", "{fits}");
    }
}

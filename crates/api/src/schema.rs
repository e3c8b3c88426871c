//! Pieces of schema and rules that several fields share, with bounds that keep the rules within the API server's cost
//! limits: it refuses a CRD whose CEL rules could be too expensive on the largest object that the schema admits.
//!
//! Rules say in their message which key is wrong and what to do about it. The syntax checks are the API server's own
//! (`format.qualifiedName()`, `format.labelValue()`), so a key is accepted here exactly when a Node may carry it.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::{annotations, labels};

/// The most labels, annotations or taints a pool may set: far more than anyone sets, few enough for the cost limit.
const KEYS_MAX: u32 = 64;

/// The longest annotation, in bytes. A node's annotations may have 256 KiB together; the pool's stand there twice, as themselves
/// and as JSON in the record of what the pool set, where a quote takes two bytes and most control characters six, and [`KEYS_MAX`] of them
/// must fit.
const ANNOTATION_MAX: u32 = 1024;

const NOT_A_KEY: &str = "format.qualifiedName().validate(k).hasValue()";
const KEY_REMEDY: &str = "is not a valid key: use an optional DNS subdomain of at most 253 characters and '/', then a name of at most 63 \
     letters, digits, '-', '_' or '.' that begins and ends with a letter or digit";

/// Labels that a pool puts on nodes: valid, and none of those that have another owner.
pub(crate) fn node_labels(_: &mut SchemaGenerator) -> Schema {
    label_map(&[valid_keys(NOT_A_KEY), reserved_keys(&node_label_reserved())])
}

/// Labels by which nodes are selected.
pub(crate) fn selecting_labels(_: &mut SchemaGenerator) -> Schema {
    label_map(&[valid_keys(NOT_A_KEY)])
}

/// Annotations that a pool puts on nodes.
pub(crate) fn node_annotations(_: &mut SchemaGenerator) -> Schema {
    // The API server compares the keys of annotations in lower case.
    let not_a_key = NOT_A_KEY.replace("(k)", "(k.lowerAscii())");
    json_schema!({
        "type": "object",
        "maxProperties": KEYS_MAX,
        "additionalProperties": {
            "type": "string",
            "maxLength": ANNOTATION_MAX,
            "x-kubernetes-validations": [
                {
                    "rule": format!("size(bytes(self)) <= {ANNOTATION_MAX}"),
                    "message": format!("is too long: use at most {ANNOTATION_MAX} bytes; a letter that is not ASCII takes two to four"),
                },
                {
                    "rule": "!self.matches('[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f]')",
                    "message": "holds a control character: use only tabs and line breaks of these",
                },
            ],
        },
        "x-kubernetes-validations": [valid_keys(&not_a_key), reserved_keys(&starts_with("k", &annotations::RESERVED_NODE_PREFIXES))],
    })
}

/// Taints that a pool puts on nodes: unique by key and effect, valid, and none that another controller owns.
pub(crate) fn node_taints(_: &mut SchemaGenerator) -> Schema {
    let reserved = starts_with("self", &labels::RESERVED_TAINT_PREFIXES);
    json_schema!({
        "type": "array",
        "maxItems": KEYS_MAX,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["key", "effect"],
        "items": {
            "type": "object",
            "description": "A taint: only pods that tolerate it run on the node.",
            "required": ["key", "effect"],
            "properties": {
                "key": {
                    "type": "string",
                    "description": "The taint's key, such as example.com/dedicated.",
                    "maxLength": 317,
                    "x-kubernetes-validations": [
                        { "rule": "!format.qualifiedName().validate(self).hasValue()", "message": format!("key {KEY_REMEDY}") },
                        {
                            "rule": format!("!({reserved})"),
                            "message": "key is reserved: the node lifecycle controller and the cloud provider set and remove taints \
                                        under node.kubernetes.io/ and node.cloudprovider.kubernetes.io/; use another prefix",
                        },
                    ],
                },
                "value": label_value("The taint's value; may be empty."),
                "effect": {
                    "type": "string",
                    "description": "What happens to pods that do not tolerate the taint: NoSchedule keeps new pods away, \
                                    PreferNoSchedule does so where possible, NoExecute also evicts running pods.",
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
                "timeAdded": {
                    "type": "string",
                    "format": "date-time",
                    "description": "Ignored: the time at which a taint is added is a matter of each node.",
                },
            },
        },
    })
}

fn label_map(rules: &[Value]) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": KEYS_MAX,
        "additionalProperties": label_value("The label's value; may be empty."),
        "x-kubernetes-validations": rules,
    })
}

fn label_value(description: &str) -> Value {
    json!({
        "type": "string",
        "description": description,
        "maxLength": 63,
        "x-kubernetes-validations": [{
            "rule": "!format.labelValue().validate(self).hasValue()",
            "message": "is not a valid value: use at most 63 letters, digits, '-', '_' or '.', beginning and ending with a \
                        letter or digit",
        }],
    })
}

fn node_label_reserved() -> String {
    let keys = labels::RESERVED.map(|key| format!("'{key}'")).join(", ");
    format!("{} || k in [{keys}]", starts_with("k", &[labels::NODE_POOL_PREFIX]))
}

fn starts_with(variable: &str, prefixes: &[&str]) -> String {
    prefixes
        .iter()
        .map(|prefix| format!("{variable}.startsWith('{prefix}')"))
        .collect::<Vec<_>>()
        .join(" || ")
}

fn valid_keys(bad: &str) -> Value {
    keys(bad, KEY_REMEDY)
}

fn reserved_keys(bad: &str) -> Value {
    keys(bad, "is reserved: it is not the pool's to set, something else owns it on every node; remove it")
}

/// A rule on a map: no key `k` is `bad`. The message names the first that is; should it fail, the plain one is given.
fn keys(bad: &str, complaint: &str) -> Value {
    let escaped = complaint.replace('\'', "\\'");
    json!({
        "rule": format!("self.all(k, !({bad}))"),
        "message": format!("a key {complaint}"),
        "messageExpression": format!("'key \"' + self.filter(k, {bad})[0] + '\" {escaped}'"),
    })
}

/// A rule whose refusal is reported at `field`, a path below the rule's own place such as `.networkMode`.
pub(crate) fn rule_at(field: &str, rule: &str, message: &str) -> Rule {
    Rule::new(rule).message(message).field_path(field)
}

/// A rule whose refusal is reported at the rule's own place.
pub(crate) fn rule(rule: &str, message: &str) -> Rule {
    Rule::new(rule).message(message)
}

//! Pure: what is wrong with the selector of a Gateway. The API server takes any text for a label, and for an operator.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube_wire::names::{label_value_errors, qualified_name_errors};

/// The operators that there are.
const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

/// How much of what somebody wrote is shown.
const SHOWN: usize = 80;

/// What is wrong with it: that it wants a label which no node can have, or is not of the API's language. That a node has not what it cannot have is
/// true, and no fault.
pub(super) fn fault(selector: &LabelSelector) -> Option<String> {
    let labels = selector.match_labels.iter().flatten();
    let mut labels =
        labels.filter_map(|(key, value)| no_key("matchLabels", key).or_else(|| no_value(key, value)));
    let mut expressions = selector.match_expressions.iter().flatten().filter_map(of_expression);
    labels.next().or_else(|| expressions.next())
}

fn of_expression(expression: &LabelSelectorRequirement) -> Option<String> {
    let LabelSelectorRequirement { key, operator, values } = expression;
    let operator = operator.as_str();
    if !OPERATORS.contains(&operator) {
        let there_are = OPERATORS.join(", ");
        return Some(format!("matchExpressions: {} is no operator: there are {there_are}", shown(operator)));
    }
    let values = values.as_deref();
    let lacks_values = match operator {
        "In" => values.is_none_or(<[String]>::is_empty),
        "NotIn" => values.is_none(),
        _ => false,
    };
    if lacks_values {
        return Some(format!("matchExpressions: operator {operator} of {} has no values", shown(key)));
    }
    if matches!(operator, "In" | "Exists") { no_key("matchExpressions", key) } else { None }
}

/// What is so if that is no key of a label.
fn no_key(field: &str, key: &str) -> Option<String> {
    let why = qualified_name_errors(key).into_iter().next()?;
    Some(format!("{field}: {} is no label's key: {why}", shown(key)))
}

/// What is so if that is no value of a label.
fn no_value(key: &str, value: &str) -> Option<String> {
    let why = label_value_errors(value).into_iter().next()?;
    Some(format!("matchLabels: {} of {} is no label's value: {why}", shown(value), shown(key)))
}

/// In quotes, and not without end.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(SHOWN).collect();
    if start.len() < text.len() { format!("{start:?}…") } else { format!("{start:?}") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fault_of(selector: Value) -> Option<String> {
        fault(&serde_json::from_value(selector).unwrap())
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
    }

    #[test]
    fn what_no_node_can_have_is_named() {
        let faults = [
            (
                json!({ "matchLabels": { "a b": "x" } }),
                "matchLabels: \"a b\" is no label's key: name part must",
            ),
            (json!({ "matchLabels": { "a/b/c": "x" } }), "matchLabels: \"a/b/c\" is no label's key: "),
            (
                json!({ "matchLabels": { "site": "a b" } }),
                "matchLabels: \"a b\" of \"site\" is no label's value: ",
            ),
            (expression("a b", "In", &["x"]), "matchExpressions: \"a b\" is no label's key: "),
            (expression("a b", "Exists", &[]), "matchExpressions: \"a b\" is no label's key: "),
            (
                expression("site", "in", &["x"]),
                "matchExpressions: \"in\" is no operator: there are In, NotIn, Exists, DoesNotExist",
            ),
            (expression("site", "In", &[]), "matchExpressions: operator In of \"site\" has no values"),
            (
                json!({ "matchExpressions": [{ "key": "site", "operator": "NotIn" }] }),
                "matchExpressions: operator NotIn of \"site\" has no values",
            ),
        ];
        for (selector, said) in faults {
            let fault = fault_of(selector.clone()).unwrap_or_default();
            assert!(fault.starts_with(said), "{selector}: {fault}");
        }
        let long = fault_of(json!({ "matchLabels": { "x y".repeat(1000): "x" } })).unwrap();
        assert!(long.len() < 500 && long.contains("\"…"), "{long}");
    }

    #[test]
    fn what_selects_or_might_is_no_fault() {
        for selector in [
            json!({}),
            json!({ "matchLabels": { "node-restriction.kubernetes.io/site": "", "site": "a" } }),
            expression("site", "In", &["a"]),
            expression("site", "Exists", &[]),
            expression("a b", "DoesNotExist", &[]),
            expression("a b", "NotIn", &["x y"]),
        ] {
            assert_eq!(fault_of(selector.clone()), None, "{selector}");
        }
    }
}

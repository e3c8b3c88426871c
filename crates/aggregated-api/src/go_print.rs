//! Values as Go prints them: the API server's words about what a client sent.

use kube_wire::quoting::quoted;
use serde_json::{Number, Value};

/// `%v`
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(members) => {
            let members: Vec<_> =
                members.iter().map(|(name, value)| format!("{name}:{}", plain(value))).collect();
            format!("map[{}]", members.join(" "))
        }
    }
}

/// `%#v`
pub(crate) fn source(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(source).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<_> =
                members.iter().map(|(name, value)| format!("{}:{}", quoted(name), source(value))).collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        scalar => plain(scalar),
    }
}

/// `%T`
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// As a value stands in the path of a field.
pub(crate) fn path_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(path_value).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let members: Vec<_> =
                members.iter().map(|(name, value)| format!("{name}={}", path_value(value))).collect();
            members.concat()
        }
        scalar => plain(scalar),
    }
}

/// A number that was read as a `float64`, as those of configurations are.
fn number(number: &Number) -> String {
    let Some(value) = number.as_f64() else { return number.to_string() };
    let shortest = format!("{value:e}");
    let Some((digits, exponent)) = shortest.split_once('e') else { return shortest };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_as_by_go() {
        let value = json!({ "b": [1, "x", null], "a": { "c": true } });
        assert_eq!(plain(&value), "map[a:map[c:true] b:[1 x <nil>]]");
        assert_eq!(
            source(&value),
            "map[string]interface {}{\"a\":map[string]interface {}{\"c\":true}, \"b\":[]interface {}{1, \"x\", interface {}(nil)}}"
        );
        assert_eq!(path_value(&json!("x")), "\"x\"");
        for (value, expected) in
            [(json!(0.5), "0.5"), (json!(7), "7"), (json!(-1), "-1"), (json!(1e22), "1e+22")]
        {
            assert_eq!(plain(&value), expected);
        }
    }
}

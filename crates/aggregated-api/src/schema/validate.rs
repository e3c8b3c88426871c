//! What is wrong with an object by its schema, in the API server's words and kinds of causes.

use serde_json::{Map, Value};

use super::{Schema, Type, format, member_path};
use crate::field_error::{FieldError, FieldErrors};

/// Finds what is wrong with `value`. `apiVersion`, `kind` and `metadata` of the root are not looked at.
pub(crate) fn validate(value: &Value, schema: &Schema, path: &str, errors: &mut FieldErrors) {
    if value.is_null() && schema.nullable {
        return;
    }
    type_and_format(value, schema, path, errors);
    if let Some(values) = schema.enum_.as_ref().filter(|values| !values.contains(value)) {
        let supported: Vec<_> = values.iter().map(Value::to_string).collect();
        errors.push(FieldError::not_supported(path, &value.to_string(), &supported.join(", ")));
    }
    match value {
        Value::Object(members) => object(members, schema, path, errors),
        Value::Array(items) => array(items, schema, path, errors),
        Value::String(text) => string(text, schema, path, errors),
        Value::Number(number) => numbers(number, schema, path, errors),
        Value::Bool(_) => {}
        // Of null the API server asks the type and the values only.
        Value::Null => return,
    }
    combined(value, schema, path, errors);
}

/// The type of a value in the words of errors.
fn name_of(value: &Value, schema: &Schema) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(number) if is_integer(number) && !is_beyond(number, schema) => "integer",
        // Go names its own type where a format of integers is asked for.
        Value::Number(_) if schema.type_ == Some(Type::Integer) && schema.format.is_some() => "float64",
        Value::Number(_) => "number",
    }
}

fn is_integer(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// Whether it is to be an `int64` and is none, which Go reads as a fraction.
fn is_beyond(number: &serde_json::Number, schema: &Schema) -> bool {
    const END: f64 = 9_223_372_036_854_775_808.0;
    let fits = number.is_i64() || number.as_f64().is_some_and(|number| (-END..END).contains(&number));
    schema.format.as_deref() == Some("int64") && !fits
}

fn type_and_format(value: &Value, schema: &Schema, path: &str, errors: &mut FieldErrors) {
    if schema.int_or_string {
        if !matches!(value, Value::String(_)) && !matches!(value, Value::Number(number) if is_integer(number))
        {
            errors.push(FieldError::type_invalid(path, "integer,string", name_of(value, schema)));
        }
        return;
    }
    let Some(type_) = schema.type_ else { return };
    let fits = match (type_, value) {
        (Type::Object, Value::Object(_))
        | (Type::Array, Value::Array(_))
        | (Type::String, Value::String(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::Number, Value::Number(_)) => true,
        (Type::Integer, Value::Number(number)) => is_integer(number) && !is_beyond(number, schema),
        _ => false,
    };
    let found = name_of(value, schema);
    if !fits {
        let format = schema.format.as_deref().filter(|_| type_ == Type::Integer && found == "float64");
        errors.push(FieldError::type_invalid(path, format.unwrap_or(type_.name()), found));
        if let (Some(format), Value::Number(_)) = (format, value) {
            let words = format!("Checked value must be of type integer with format {format} in {path}");
            errors.push(FieldError::invalid("<nil>", "\"\"", &words));
        } else if let (Type::Integer, Value::Number(_)) = (type_, value) {
            let words = format!("Checked value must be of type integer (default format) in {path}");
            errors.push(FieldError::invalid("<nil>", "\"\"", &words));
        }
        return;
    }
    if let (Value::String(text), Some(format)) = (value, &schema.format)
        && !format::is(format, text)
    {
        errors.push(FieldError::type_invalid(path, format, text));
    }
    if let (Value::Number(number), Some("int32")) = (value, schema.format.as_deref())
        && number.as_i64().is_none_or(|number| i32::try_from(number).is_err())
    {
        let words = format!("Checked value must be of type integer with format int32 in {path}");
        errors.push(FieldError::invalid("<nil>", "\"\"", &words));
    }
}

fn object(members: &Map<String, Value>, schema: &Schema, path: &str, errors: &mut FieldErrors) {
    let count = members.len() as u64;
    if let Some(least) = schema.min_properties.filter(|least| count < *least) {
        let words = format!("{path} in body should have at least {least} properties");
        errors.push(FieldError::invalid(path, &count.to_string(), &words));
    }
    if let Some(most) = schema.max_properties.filter(|most| count > *most) {
        errors.push(FieldError::too_many(path, count, most));
    }
    for name in schema.required.iter().filter(|name| !members.contains_key(*name)) {
        errors.push(FieldError::required(&member_path(path, name), ""));
    }
    for (name, member) in members {
        // Metadata has rules of its own.
        if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(schema) = schema.member(name) {
            validate(member, schema, &member_path(path, name), errors);
        }
    }
}

fn array(items: &[Value], schema: &Schema, path: &str, errors: &mut FieldErrors) {
    let count = items.len() as u64;
    if let Some(least) = schema.min_items.filter(|least| count < *least) {
        let words = format!("{path} in body should have at least {least} items");
        errors.push(FieldError::invalid(path, &count.to_string(), &words));
    }
    if let Some(most) = schema.max_items.filter(|most| count > *most) {
        errors.push(FieldError::too_many(path, count, most));
    }
    if let Some(schema) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            validate(item, schema, &format!("{path}[{index}]"), errors);
        }
    }
}

/// Only the first of these is told.
fn string(text: &str, schema: &Schema, path: &str, errors: &mut FieldErrors) {
    let shown = kube_wire::quoting::quoted(text);
    let length = text.chars().count() as u64;
    if let Some(most) = schema.max_length.filter(|most| length > *most) {
        errors.push(FieldError::too_long(path, most));
    } else if let Some(least) = schema.min_length.filter(|least| length < *least) {
        let words = format!("{path} in body should be at least {least} chars long");
        errors.push(FieldError::invalid(path, &shown, &words));
    } else if let Some(pattern) = schema.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        let words = format!("{path} in body should match '{pattern}'");
        errors.push(FieldError::invalid(path, &shown, &words));
    }
}

fn numbers(number: &serde_json::Number, schema: &Schema, path: &str, errors: &mut FieldErrors) {
    if !matches!(schema.type_, Some(Type::Integer | Type::Number) | None) {
        return;
    }
    let Some(value) = number.as_f64() else { return };
    let shown = number.to_string();
    let mut wrong = |words: String| {
        errors.push(FieldError::invalid(path, &shown, &format!("{path} in body should be {words}")));
    };
    if let Some(factor) =
        schema.multiple_of.filter(|factor| *factor != 0.0 && (value / factor).fract() != 0.0)
    {
        wrong(format!("a multiple of {factor}"));
    }
    match schema.maximum {
        Some(most) if schema.exclusive_maximum && value >= most => wrong(format!("less than {most}")),
        Some(most) if !schema.exclusive_maximum && value > most => {
            wrong(format!("less than or equal to {most}"));
        }
        _ => {}
    }
    match schema.minimum {
        Some(least) if schema.exclusive_minimum && value <= least => wrong(format!("greater than {least}")),
        Some(least) if !schema.exclusive_minimum && value < least => {
            wrong(format!("greater than or equal to {least}"));
        }
        _ => {}
    }
}

/// `allOf`, `anyOf`, `oneOf` and `not`. Of the branches that fail, the API server tells the errors of the best.
fn combined(value: &Value, schema: &Schema, path: &str, errors: &mut FieldErrors) {
    let failures = |branch: &Schema| {
        let mut found = FieldErrors::default();
        validate(value, branch, path, &mut found);
        found
    };
    for branch in &schema.all_of {
        errors.extend(failures(branch));
    }
    // Structural schemas have types in their branches for `x-kubernetes-int-or-string` only; there the one message is enough.
    if !schema.any_of.is_empty() && !schema.any_of.iter().any(|branch| failures(branch).is_empty()) {
        let words = format!("\"{path}\" must validate at least one schema (anyOf)");
        errors.push(FieldError::invalid("<nil>", "\"\"", &words));
        if let Some(best) = schema.any_of.first() {
            errors.extend(failures(best));
        }
    }
    let valid = schema.one_of.iter().filter(|branch| failures(branch).is_empty()).count();
    if !schema.one_of.is_empty() && valid != 1 {
        let found = if valid == 0 {
            "Found none valid".to_owned()
        } else {
            format!("Found {valid} valid alternatives")
        };
        let words = format!("\"{path}\" must validate one and only one schema (oneOf). {found}");
        errors.push(FieldError::invalid("<nil>", "\"\"", &words));
    }
    if schema.not.as_ref().is_some_and(|branch| failures(branch).is_empty()) {
        let words = format!("\"{path}\" must not validate the schema (not)");
        errors.push(FieldError::invalid("<nil>", "\"\"", &words));
    }
}

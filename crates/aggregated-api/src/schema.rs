//! The structural schema of a resource, compiled once. [`mod@prune`] drops what it does not know, [`mod@default`] fills in, [`mod@validate`] finds what
//! is wrong. In: the schema as JSON. Expressions (CEL) are not looked at.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

mod default;
mod format;
mod lists;
mod prune;
mod validate;

pub(crate) use default::{default, drop_nulls};
pub(crate) use lists::unique;
pub(crate) use prune::prune;
pub(crate) use validate::validate;

/// What a value is to be, as `type` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How the items of a list are told apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// Not at all: the list is one value.
    #[default]
    Atomic,
    /// By their value.
    Set,
    /// By these members.
    Map(Vec<String>),
}

/// A schema.
#[derive(Debug, Clone, Default)]
// Each is a word of the schema language.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Schema {
    pub(crate) type_: Option<Type>,
    pub(crate) format: Option<String>,
    pub(crate) nullable: bool,
    pub(crate) enum_: Option<Vec<Value>>,
    pub(crate) properties: BTreeMap<String, Schema>,
    /// Of all members that are no properties.
    pub(crate) additional: Option<Box<Schema>>,
    /// Whether members that nothing is said of are kept.
    pub(crate) preserve: bool,
    pub(crate) int_or_string: bool,
    /// Whether it is a whole object with `apiVersion`, `kind` and `metadata`.
    pub(crate) embedded: bool,
    pub(crate) required: Vec<String>,
    pub(crate) items: Option<Box<Schema>>,
    pub(crate) list_type: ListType,
    pub(crate) default: Option<Value>,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) pattern: Option<Regex>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

impl Schema {
    /// Compiles a schema. What cannot be understood is left out: the API server refuses such schemas, here they are the program's own.
    pub(crate) fn compile(schema: &Value) -> Self {
        let Some(object) = schema.as_object() else { return Self::default() };
        let flag = |name: &str| object.get(name).and_then(Value::as_bool).unwrap_or_default();
        let number = |name: &str| object.get(name).and_then(Value::as_f64);
        let count = |name: &str| object.get(name).and_then(Value::as_u64);
        let text = |name: &str| object.get(name).and_then(Value::as_str);
        let one =
            |name: &str| object.get(name).filter(|value| value.is_object()).map(Self::compile).map(Box::new);
        let (type_, null) = type_of(object);
        Self {
            type_,
            format: text("format").map(str::to_owned),
            nullable: flag("nullable") || null,
            enum_: object.get("enum").and_then(Value::as_array).cloned(),
            properties: object
                .get("properties")
                .and_then(Value::as_object)
                .map(|all| all.iter().map(|(name, schema)| (name.clone(), Self::compile(schema))).collect())
                .unwrap_or_default(),
            additional: one("additionalProperties"),
            preserve: flag("x-kubernetes-preserve-unknown-fields")
                || object.get("additionalProperties") == Some(&Value::Bool(true)),
            int_or_string: flag("x-kubernetes-int-or-string"),
            embedded: flag("x-kubernetes-embedded-resource"),
            required: texts(object, "required"),
            items: one("items"),
            list_type: match text("x-kubernetes-list-type") {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(texts(object, "x-kubernetes-list-map-keys")),
                _ => ListType::Atomic,
            },
            default: object.get("default").cloned(),
            minimum: number("minimum").or(number("exclusiveMinimum")),
            exclusive_minimum: flag("exclusiveMinimum") || number("exclusiveMinimum").is_some(),
            maximum: number("maximum").or(number("exclusiveMaximum")),
            exclusive_maximum: flag("exclusiveMaximum") || number("exclusiveMaximum").is_some(),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: text("pattern").and_then(|pattern| Regex::new(pattern).ok()),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            all_of: many(object, "allOf"),
            any_of: many(object, "anyOf"),
            one_of: many(object, "oneOf"),
            not: one("not"),
        }
    }

    /// The schema of a member.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }
}

/// `type`, which schemars may write as a list with `null` for what may be absent.
fn type_of(object: &Map<String, Value>) -> (Option<Type>, bool) {
    match object.get("type") {
        Some(Value::String(name)) => (Type::parse(name), false),
        Some(Value::Array(names)) => {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            (names.iter().find_map(|name| Type::parse(name)), names.contains(&"null"))
        }
        _ => (None, false),
    }
}

fn texts(object: &Map<String, Value>, name: &str) -> Vec<String> {
    let array = object.get(name).and_then(Value::as_array);
    array.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn many(object: &Map<String, Value>, name: &str) -> Vec<Schema> {
    let array = object.get(name).and_then(Value::as_array);
    array.into_iter().flatten().map(Schema::compile).collect()
}

/// The path of a member: `spec.size`; of an item it is `list[0]`.
pub(crate) fn member_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests;

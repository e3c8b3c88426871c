//! A request's body as an object: JSON or YAML, whose members stand once. It knows nothing of schemas.

use std::{cell::RefCell, fmt};

use http::HeaderMap;
use kube_wire::{accept::MediaType, status::Status};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use kube_wire::quoting::quoted;

use crate::{
    field_error::{FieldError, FieldErrors},
    resource::ResourceInfo,
};

/// A body that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// Paths of members that stand more than once; the last one counts.
    pub(crate) duplicates: Vec<String>,
}

/// In which media type a body is; JSON if nothing is said. Status 415 for others.
pub(crate) fn media_type(headers: &HeaderMap) -> Result<MediaType, Status> {
    let said =
        headers.get(http::header::CONTENT_TYPE).and_then(|said| said.to_str().ok()).unwrap_or_default();
    match said.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" => Ok(MediaType::Json),
        "application/yaml" => Ok(MediaType::Yaml),
        _ => Err(Status::unsupported_media_type(&["application/json", "application/yaml"])),
    }
}

/// Reads a value, whatever it is. The error is for people.
pub(crate) fn value(body: &[u8], media_type: MediaType) -> Result<Decoded, String> {
    let found = RefCell::new(Vec::new());
    let seed = Seed { found: &found, path: String::new() };
    let value = match media_type {
        MediaType::Yaml => {
            let text = std::str::from_utf8(body).map_err(|error| format!("yaml: {error}"))?;
            let options = serde_saphyr::options! {
                duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
            };
            serde_saphyr::from_str_with_options::<Value>(text, options)
                .map_err(|error| format!("yaml: {error}"))?
        }
        MediaType::Json | MediaType::Protobuf => {
            let mut deserializer = serde_json::Deserializer::from_slice(body);
            let value = seed.deserialize(&mut deserializer).map_err(|error| json_error(body, &error))?;
            deserializer.end().map_err(|error| json_error(body, &error))?;
            value
        }
    };
    let mut value = value;
    whole_numbers(&mut value);
    Ok(Decoded { value, duplicates: found.into_inner() })
}

/// Whether the members of a configuration stand once; an error in the words of the API server's parser of YAML if one stands twice.
pub(crate) fn strictly(body: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(body);
    // JSON is YAML, and its parser here tells what stands twice.
    let twice = value(body, MediaType::Json).ok().map(|decoded| decoded.duplicates);
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
    };
    let Err(error) = serde_saphyr::from_str_with_options::<Value>(&text, options) else { return Ok(()) };
    let line = error.location().map_or(1, |location| location.line());
    let name = twice.iter().flatten().next().and_then(|path| path.rsplit('.').next());
    let name = name.map_or_else(|| error.to_string(), quoted);
    Err(format!("line {line}: key {name} already set in map"))
}

/// Below this every whole number has a value of its own in 64 bits of floating point.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Writes `1.0` as `1`, as Go does when it writes a number again.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) if number.is_f64() => {
            if let Some(float) =
                number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < WHOLE_MAX)
            {
                // It is whole, and small enough.
                #[allow(clippy::cast_possible_truncation)]
                let whole = float as i64;
                *number = whole.into();
            }
        }
        _ => {}
    }
}

/// Go's words where they are known.
fn json_error(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    crate::go_json::syntax_error(body).unwrap_or_else(|| error.to_string())
}

/// Reads an object of the resource's kind: `apiVersion` and `kind` must be there. Status 400 if not.
pub(crate) fn object(
    body: &[u8],
    media_type: MediaType,
    info: &ResourceInfo,
) -> Result<(Map<String, Value>, Vec<String>), Status> {
    let unrecognized = |why: &str| {
        let kind = &info.kind;
        let words =
            format!("the object provided is unrecognized (must be of type {kind}): {why} ({})", shown(body));
        Status::bad_request(words)
    };
    let decoded = value(body, media_type).map_err(|error| match media_type {
        MediaType::Yaml => unrecognized(&error),
        _ => unrecognized(&no_kind(&error)),
    })?;
    let Value::Object(object) = decoded.value else {
        return Err(unrecognized(&match not_a_struct(&decoded.value) {
            Some(why) => no_kind(&why),
            // Go leaves a struct as it was.
            None => missing_kind(body),
        }));
    };
    if object.get("kind").and_then(Value::as_str).unwrap_or_default().is_empty() {
        return Err(unrecognized(&missing_kind(body)));
    }
    Ok((object, decoded.duplicates))
}

fn no_kind(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

/// Why a value has no members, in Go's words; `None` for null.
fn not_a_struct(value: &Value) -> Option<String> {
    let name = match value {
        Value::Object(_) | Value::Null => return None,
        other => go_kind(other),
    };
    Some(format!(
        "json: cannot unmarshal {name} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
         \"json:\\\"kind,omitempty\\\"\" }}"
    ))
}

/// What Go calls a value.
pub(crate) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Reads the options of a deletion. Status 400 if they are none.
pub(crate) fn options(body: &[u8], media_type: MediaType) -> Result<Value, Status> {
    let decoded = value(body, media_type).map_err(|why| Status::bad_request(no_kind(&why)))?;
    match not_a_struct(&decoded.value) {
        Some(why) => Err(Status::bad_request(no_kind(&why))),
        None => Ok(decoded.value),
    }
}

fn missing_kind(body: &[u8]) -> String {
    format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body))
}

/// The beginning of a body as the API server shows it.
fn shown(body: &[u8]) -> String {
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let text = String::from_utf8_lossy(body);
    if body.first() == Some(&b'{') {
        let head: String = text.chars().take(30).collect();
        return if body.len() > 30 { format!("{head} ...") } else { text.into_owned() };
    }
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'));
    let hex: String = body.iter().take(30).flat_map(digits).collect();
    if body.len() > 30 { format!("{hex} ...") } else { hex }
}

/// Reads JSON into a value and notes members that stand twice.
struct Seed<'a> {
    found: &'a RefCell<Vec<String>>,
    path: String,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number out of range"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self { found, path } = self;
        let mut items = Vec::new();
        while let Some(item) =
            access.next_element_seed(Seed { found, path: format!("{path}[{}]", items.len()) })?
        {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self { found, path } = self;
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let path = crate::schema::member_path(&path, &name);
            if members.contains_key(&name) && !found.borrow().contains(&path) {
                found.borrow_mut().push(path.clone());
            }
            let value = access.next_value_seed(Seed { found, path })?;
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

/// Status 422 if the object is not of this kind and version.
pub(crate) fn check_kind(object: &Map<String, Value>, info: &ResourceInfo) -> Result<(), Status> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let expected = info.api_version();
    let mut errors = FieldErrors::default();
    if kind != info.kind {
        errors.push(FieldError::invalid("kind", &quoted(kind), &format!("must be {}", info.kind)));
    }
    if api_version != expected {
        errors.push(FieldError::invalid("apiVersion", &quoted(api_version), &format!("must be {expected}")));
    }
    let name = object.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    errors.check(group, kind, name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn members_that_stand_twice_are_found() {
        let body = br#"{"a":1,"b":{"c":[{"d":1,"d":2}],"c":3},"a":4,"a":5}"#;
        let decoded = value(body, MediaType::Json).unwrap();
        assert_eq!(decoded.value, json!({"a": 5, "b": {"c": 3}}));
        assert_eq!(decoded.duplicates, ["b.c[0].d", "b.c", "a"]);
    }

    #[test]
    fn what_is_no_object_is_refused_in_the_api_servers_words() {
        let info = ResourceInfo::new("test.isthmus.dev", "v1", "Gadget", "gadgets");
        let message = |body: &[u8]| object(body, MediaType::Json, &info).unwrap_err().message;
        let begins = "the object provided is unrecognized (must be of type Gadget): ";
        assert_eq!(
            message(b""),
            format!(
                "{begins}couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"
            )
        );
        assert_eq!(
            message(b"{x"),
            format!(
                "{begins}couldn't get version/kind; json parse error: invalid character 'x' looking for beginning of object \
                 key string ({{x)"
            )
        );
        assert_eq!(
            message(br#"{"metadata":{"name":"c"},"spec":{"color":"red"}}"#),
            format!(
                "{begins}Object 'Kind' is missing in '{{\"metadata\":{{\"name\":\"c\"}},\"spec\":{{\"color\":\"red\"}}}}' \
                 ({{\"metadata\":{{\"name\":\"c\"}},\"spec ...)"
            )
        );
        assert!(message(b"[]").ends_with("(5b5d)"));
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_are_read_or_refused(body: Vec<u8>, text in "[\\[\\]{}:,\"a1 -]{0,30}") {
            for media_type in [MediaType::Json, MediaType::Yaml] {
                let _ = (value(&body, media_type), value(text.as_bytes(), media_type));
            }
            prop_assert_eq!(
                value(text.as_bytes(), MediaType::Json).ok().map(|decoded| decoded.value),
                serde_json::from_str(&text).ok()
            );
        }
    }
}

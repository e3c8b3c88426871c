//! One request and its answer, in the form in which answers are compared.

use std::fmt;

use anyhow::Result;
use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};
use testkit::client::connection::Endpoint;

/// A request: method, path, type of the body, `Accept`, body, as they stand in `requests.yaml`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Question(
    pub(super) String,
    pub(super) String,
    pub(super) String,
    pub(super) String,
    pub(super) String,
);

impl Question {
    /// Whether it asks for the state of a moment long ago: the first of all versions.
    pub(super) fn is_of_the_past(&self) -> bool {
        let query = self.1.split_once('?').map_or("", |(_, query)| query);
        query.split('&').any(|pair| pair == "resourceVersion=1")
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(method, path, media_type, accept, body) = self;
        let body: String = body.chars().take(300).collect();
        write!(f, "{method} {path} [{media_type}] [{accept}] {body}")
    }
}

/// What is asked about.
pub(super) struct Kind {
    /// The path of all objects.
    pub(super) collection: String,
    /// `apiVersion` and `kind` of an object, as they stand in JSON.
    pub(super) type_meta: &'static str,
    /// Takes away what this kind's storage has of its own.
    pub(super) strip: fn(&mut Value),
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) media_type: String,
    pub(super) warnings: Vec<String>,
    pub(super) body: Value,
}

impl Question {
    /// The path of the object that it is about, if it is about one.
    pub(super) fn name(&self) -> Option<String> {
        let name = self.1.strip_prefix("$C/")?.split(['/', '?']).next()?;
        Some(format!("$C/{name}"))
    }

    pub(super) async fn ask(&self, endpoint: &Endpoint, kind: &Kind) -> Result<Reply> {
        let Self(method, path, media_type, accept, body) = self;
        let Kind { collection, type_meta, strip } = kind;
        let media_type = match media_type.as_str() {
            "json" => "application/json",
            "merge" => "application/merge-patch+json",
            "patch" => "application/json-patch+json",
            "apply" => "application/apply-patch+yaml",
            "yaml" => "application/yaml",
            other => other,
        };
        let accept = match accept.as_str() {
            "" => "application/json",
            "table" => "application/json;as=Table;v=v1;g=meta.k8s.io",
            other => other,
        };
        let mut body = body.replace("$K", type_meta);
        if body.contains("$RV") || body.contains("$UID") {
            let stored = endpoint.get(&format!("{collection}/a"), "application/json").await?;
            let stored = page_of(stored).await?;
            let version = stored["metadata"]["resourceVersion"].as_str().unwrap_or("1");
            let uid = stored["metadata"]["uid"].as_str().unwrap_or("none");
            body = body.replace("$RV", version).replace("$UID", uid);
        }
        let mut path = path.replace("$C", collection);
        if path.contains("$NEXT") {
            let page = endpoint.get(&format!("{collection}?limit=1"), "application/json").await?;
            let page: Value = page_of(page).await?;
            path = path.replace("$NEXT", page["metadata"]["continue"].as_str().unwrap_or_default());
        }
        let mut request = Request::builder().method(method.as_str()).uri(&path);
        request = request.header("accept", accept).header("user-agent", "test");
        if !media_type.is_empty() {
            request = request.header("content-type", media_type);
        }
        let mut answer = endpoint.ask(request, body).await?;
        let texts = |name: &str| -> Vec<String> {
            let values = answer.headers.get_all(name).iter();
            values.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect()
        };
        let (status, media_type, warnings) =
            (answer.status.as_u16(), texts("content-type").join(","), texts("warning"));
        let bytes = answer.bytes().await?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut body = match media_type.as_str() {
            "application/json" if path.contains("watch=") || path.contains("/watch/") => events(&bytes),
            "application/json" => serde_json::from_slice(&bytes).unwrap_or_else(|_| text.clone().into()),
            "application/yaml" => serde_saphyr::from_str(&text).unwrap_or_else(|_| text.clone().into()),
            _ => text.into(),
        };
        strip(&mut body);
        alike(&mut body);
        Ok(Reply { status, media_type, warnings, body })
    }
}

async fn page_of(mut answer: testkit::client::connection::Answer) -> Result<Value> {
    Ok(serde_json::from_slice(&answer.bytes().await?).unwrap_or_default())
}

/// What a watch told, but for bookmarks that a server is free to send; of the others what clients look at.
fn events(bytes: &[u8]) -> Value {
    let mut events: Vec<Value> =
        serde_json::Deserializer::from_slice(bytes).into_iter().filter_map(Result::ok).collect();
    events.retain(|event| {
        let object = &event["object"];
        event["type"] != "BOOKMARK"
            || object["kind"] == "Table"
            || !object["metadata"]["annotations"].is_null()
    });
    for event in &mut events {
        if event["type"] == "BOOKMARK"
            && let Some(metadata) = event["object"]["metadata"].as_object_mut()
        {
            metadata.remove("creationTimestamp");
        }
    }
    events.into()
}

/// Takes away what is another on each server, and the order of what has none.
fn alike(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(alike),
        Value::Object(members) => {
            // Of storage that we have not.
            members.remove("storageVersionHash");
            // Go writes a slice that nothing was put into as null.
            if members.get("items").is_some_and(Value::is_null) {
                members.insert("items".to_owned(), json!([]));
            }
            for (name, member) in members.iter_mut() {
                match (name.as_str(), member.as_str()) {
                    ("resourceVersion", Some(text)) if !text.is_empty() => *member = "version".into(),
                    ("continue", Some(text)) if !text.is_empty() => *member = "token".into(),
                    _ => alike(member),
                }
            }
            for name in ["causes", "managedFields"] {
                if let Some(items) = members.get_mut(name).and_then(Value::as_array_mut) {
                    items.sort_by_key(Value::to_string);
                }
            }
            if let Some(message) = members.get_mut("message")
                && let Some((before, list)) =
                    message.as_str().and_then(|text| text.split_once("is invalid: ["))
            {
                let mut words: Vec<_> = list.trim_end_matches(']').split(", ").collect();
                words.sort_unstable();
                *message = json!(format!("{before}is invalid: [{}", words.join(", ")));
            }
        }
        Value::String(text) => {
            // The whole object, whose managers are in the order of times, and with what only our server says.
            if let (Some(from), Some(to)) = (text.find("Invalid value: \"{"), text.rfind("}\": ")) {
                *text = format!("{}object{}", &text[..from], &text[to..]);
            }
            // Of errors of types.
            if let Some((before, list)) = text.split_once(": errors:\n") {
                let mut lines: Vec<_> = list.split('\n').collect();
                lines.sort_unstable();
                *text = format!("{before}: errors:\n{}", lines.join("\n"));
            }
            let words: Vec<_> = text.split_inclusive([' ', '"', '\\', '(', ')', ',']).map(word).collect();
            *text = words.concat();
        }
        _ => {}
    }
}

/// A word without what identifies, or tells the time.
fn word(text: &str) -> String {
    let (body, end) = match text.char_indices().next_back() {
        Some((at, last)) if " \"\\(),".contains(last) => text.split_at(at),
        _ => (text, ""),
    };
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_uid =
        body.len() == 36 && body.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && body.split('-').all(hex);
    let is_time = body.len() == 20 && body.ends_with('Z') && body.as_bytes().get(10) == Some(&b'T');
    let is_age = body.ends_with(['s', 'm', 'h', 'd'])
        && body.starts_with(|c: char| c.is_ascii_digit())
        && body.len() < 8;
    let is_number = body.len() > 2 && body.bytes().all(|byte| byte.is_ascii_digit());
    let generated = body.to_lowercase().starts_with("gen-") && body.len() == 9;
    let shown = match () {
        () if is_uid => "uid",
        () if is_time => "time",
        () if is_age => "age",
        () if is_number => "number",
        () if generated => "generated",
        () => body,
    };
    format!("{shown}{end}")
}

/// Where two answers differ, for people.
pub(super) fn differences(theirs: &Reply, ours: &Reply) -> Vec<String> {
    let mut found = Vec::new();
    if theirs.status != ours.status {
        found.push(format!("status: {} | {}", theirs.status, ours.status));
    }
    if theirs.media_type != ours.media_type {
        found.push(format!("type: {} | {}", theirs.media_type, ours.media_type));
    }
    if theirs.warnings != ours.warnings {
        found.push(format!("warnings: {:?} | {:?}", theirs.warnings, ours.warnings));
    }
    walk(&theirs.body, &ours.body, "", &mut found);
    found
}

/// Collects where two values differ.
pub(super) fn walk(theirs: &Value, ours: &Value, path: &str, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                let none = Value::String("(nothing)".to_owned());
                let (left, right) = (a.get(name).unwrap_or(&none), b.get(name).unwrap_or(&none));
                walk(left, right, &format!("{path}.{name}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (left, right)) in a.iter().zip(b).enumerate() {
                walk(left, right, &format!("{path}[{index}]"), found);
            }
        }
        (left, right) if left != right => {
            let [left, right] = [left, right].map(|value| value.to_string().chars().collect::<Vec<_>>());
            let same = left.iter().zip(&right).take_while(|(a, b)| a == b).count();
            let from = if left.len().max(right.len()) > 600 { same.saturating_sub(100) } else { 0 };
            let around = |text: &[char]| text.iter().skip(from).take(600).collect::<String>();
            found.push(format!("{path}: {} | {}", around(&left), around(&right)));
        }
        _ => {}
    }
}

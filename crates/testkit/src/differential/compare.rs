//! Asks two servers and compares: status, headers that matter, body or events until the watch ends.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;
use tokio::time::Instant;

use super::{Case, Landmarks, Subject, normalise};
use crate::client::connection::{ConnectionError, Endpoint};

/// What came back, normalised.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// `Content-Type` and `Retry-After`.
    pub headers: Vec<Option<String>>,
    /// The body, or the events in order. Protobuf is only counted: its bytes are compared by whoever can decode them.
    pub values: Vec<Value>,
    /// Whether a watch that names a time ended then; nothing of what else there is.
    pub in_time: Option<bool>,
}

impl Reply {
    /// Whether objects came, and no error, not within a watch neither.
    pub fn is_good(&self) -> bool {
        self.status == 200 && !self.values.iter().any(|value| value["type"] == "ERROR")
    }
}

/// An answer: in the form in which it is compared, and as it came.
#[derive(Debug, Clone)]
pub struct Said {
    /// What is compared.
    pub reply: Reply,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Vec<u8>,
}

/// By how much a watch may end later than it says, on a busy machine, and by how much earlier.
const LATE: Duration = Duration::from_secs(5);
const EARLY: Duration = Duration::from_millis(200);

/// An answer of one server, in the form in which it is compared.
pub async fn fetch(
    endpoint: &Endpoint,
    case: &Case,
    subject: &Subject,
    landmarks: &Landmarks,
) -> Result<Reply, ConnectionError> {
    Ok(ask(endpoint, case, subject, landmarks).await?.reply)
}

/// An answer of one server.
pub async fn ask(
    endpoint: &Endpoint,
    case: &Case,
    subject: &Subject,
    landmarks: &Landmarks,
) -> Result<Said, ConnectionError> {
    let began = Instant::now();
    let (path, accept) = case.request(subject, landmarks);
    let mut answer = endpoint.get(&path, accept).await?;
    let header =
        |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let headers = vec![header("content-type"), header("retry-after")];
    let status = answer.status.as_u16();
    let mut body = Vec::new();
    // A watch without an end of its own is over once it is silent.
    while let Ok(chunk) = tokio::time::timeout(Duration::from_secs(10), answer.chunk()).await {
        match chunk? {
            Some(chunk) => body.extend_from_slice(&chunk),
            None => break,
        }
    }
    let json = headers.first().is_some_and(|kind| kind.as_deref() == Some("application/json"));
    let values = if json {
        let read = serde_json::Deserializer::from_slice(&body).into_iter::<Value>();
        read.filter_map(Result::ok).filter_map(|value| event(value, landmarks)).collect()
    } else {
        vec![body.starts_with(b"k8s\0").into()]
    };
    let lasted = began.elapsed();
    let mut reply = Reply { status, headers, values, in_time: None };
    // Of protobuf errors are not known here, which end a watch before its time.
    reply.in_time = case
        .timeout()
        .filter(|_| json && reply.is_good())
        .map(|asked| lasted + EARLY >= asked && lasted <= asked + LATE);
    Ok(Said { reply, headers: answer.headers, body })
}

/// An event or a whole body as it is compared; nothing if servers are free to send it or not.
fn event(mut value: Value, landmarks: &Landmarks) -> Option<Value> {
    if value.get("type").is_none() {
        return Some(normalise(&value, landmarks));
    }
    let object = normalise(&value["object"], landmarks);
    value["object"] = object;
    if value["type"] == "BOOKMARK" {
        let object = &mut value["object"];
        let table = object["kind"] == "Table";
        // Without the mark of the end of the initial events it is one that comes with time.
        let told = if table { &object["rows"][0]["object"] } else { &*object };
        if told["metadata"]["annotations"].is_null() {
            return None;
        }
        // A bookmark of a built-in kind is the zero object of its Go type.
        if let Some(fields) = object.as_object_mut().filter(|_| !table) {
            fields.retain(|name, _| ["kind", "apiVersion", "metadata"].contains(&name.as_str()));
        }
    }
    Some(value)
}

/// Two answers that are not the same.
#[derive(Debug, Clone)]
pub struct Difference {
    /// What was asked, as the first server was.
    pub request: String,
    /// What the first said.
    pub left: Reply,
    /// What the second said.
    pub right: Reply,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, left, right } = self;
        writeln!(
            f,
            "{request}\n  {} {:?} | {} {:?}",
            left.status, left.headers, right.status, right.headers
        )?;
        for index in 0..left.values.len().max(right.values.len()) {
            let (a, b) = (left.values.get(index), right.values.get(index));
            if a != b {
                let shown = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
                writeln!(f, "  [{index}]\n    {}\n    {}", shown(a), shown(b))?;
            }
        }
        Ok(())
    }
}

/// Asks both; nothing if they agree.
pub async fn compare(
    case: &Case,
    subject: &Subject,
    left: (&Endpoint, &Landmarks),
    right: (&Endpoint, &Landmarks),
) -> Result<Option<Difference>, ConnectionError> {
    let (a, b) = tokio::join!(fetch(left.0, case, subject, left.1), fetch(right.0, case, subject, right.1));
    let (a, b) = (a?, b?);
    if a == b {
        return Ok(None);
    }
    let (path, accept) = case.request(subject, left.1);
    Ok(Some(Difference { request: format!("{path} ({accept})"), left: a, right: b }))
}

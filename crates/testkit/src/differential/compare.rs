//! Asks two servers and compares: status, headers that matter, body or events until the watch ends.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::time::Instant;

use super::normalise::Normaliser;
use super::{Case, Common, Landmarks, Subject, Verb};
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

/// The headers that are compared.
const COMPARED: [&str; 2] = ["content-type", "retry-after"];

/// By how much a watch may end later than it says, on a busy machine, and by how much earlier.
const LATE: Duration = Duration::from_secs(12);
const EARLY: Duration = Duration::from_millis(200);

/// An answer of one server, in the form in which it is compared.
pub async fn fetch(
    endpoint: &Endpoint,
    case: &Case,
    subject: &Subject,
    landmarks: &Landmarks,
    common: Common,
) -> Result<Reply, ConnectionError> {
    Ok(ask(endpoint, case, subject, landmarks, common).await?.reply)
}

/// An answer of one server.
pub async fn ask(
    endpoint: &Endpoint,
    case: &Case,
    subject: &Subject,
    landmarks: &Landmarks,
    common: Common,
) -> Result<Said, ConnectionError> {
    Ok(Raw::fetch(endpoint, case, subject, landmarks).await?.read(case, landmarks, common))
}

/// An answer as it came, to its end, and not yet read.
#[derive(Debug, Clone)]
pub struct Raw {
    /// The status.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Vec<u8>,
    lasted: Duration,
}

impl Raw {
    /// Asks a server.
    pub async fn fetch(
        endpoint: &Endpoint,
        case: &Case,
        subject: &Subject,
        landmarks: &Landmarks,
    ) -> Result<Self, ConnectionError> {
        let (path, accept) = case.request(subject, landmarks);
        Self::fetch_path(endpoint, &path, &accept).await
    }

    /// The same of a path with its query.
    pub(super) async fn fetch_path(
        endpoint: &Endpoint,
        path: &str,
        accept: &str,
    ) -> Result<Self, ConnectionError> {
        let began = Instant::now();
        let mut answer = endpoint.get(path, accept).await?;
        let mut body = Vec::new();
        // A watch without an end of its own is over once it is silent.
        while let Ok(chunk) = tokio::time::timeout(Duration::from_secs(20), answer.chunk()).await {
            match chunk? {
                Some(chunk) => body.extend_from_slice(&chunk),
                None => break,
            }
        }
        Ok(Self { status: answer.status, headers: answer.headers, body, lasted: began.elapsed() })
    }

    /// Whether both are whole bodies, no streams, and the same to the byte: then nothing that could be read in them differs.
    pub fn is_same_body(&self, other: &Self, case: &Case) -> bool {
        let is_body = case.verb != Verb::Watch || self.status != StatusCode::OK;
        is_body
            && self.status == other.status
            && COMPARED.iter().all(|name| self.headers.get(*name) == other.headers.get(*name))
            && self.body == other.body
    }

    /// In the form in which it is compared.
    pub fn read(self, case: &Case, landmarks: &Landmarks, common: Common) -> Said {
        let mut said = Said::new(self.status, self.headers, self.body, landmarks, common);
        // Of protobuf errors are not known here, which end a watch before its time.
        said.reply.in_time = case
            .timeout()
            .filter(|_| is_json(&said.headers) && said.reply.is_good())
            .map(|asked| self.lasted + EARLY >= asked && self.lasted <= asked + LATE);
        said
    }
}

impl Said {
    /// An answer with what of its body has come.
    pub(super) fn new(
        status: StatusCode,
        headers: HeaderMap,
        body: Vec<u8>,
        landmarks: &Landmarks,
        common: Common,
    ) -> Self {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let values = if is_json(&headers) {
            let mut normaliser = Normaliser::new(common, landmarks);
            let read = serde_json::Deserializer::from_slice(&body).into_iter::<Value>();
            read.filter_map(Result::ok).filter_map(|value| normaliser.part(value)).collect()
        } else {
            vec![body.starts_with(b"k8s\0").into()]
        };
        let compared = COMPARED.iter().map(|name| header(name)).collect();
        let reply = Reply { status: status.as_u16(), headers: compared, values, in_time: None };
        Self { reply, headers, body }
    }
}

pub(super) fn is_json(headers: &HeaderMap) -> bool {
    headers.get("content-type").is_some_and(|kind| kind == "application/json")
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

impl Difference {
    /// Of the answers to a request.
    pub fn of(case: &Case, subject: &Subject, landmarks: &Landmarks, left: Reply, right: Reply) -> Self {
        let (path, accept) = case.request(subject, landmarks);
        Self { request: format!("{path} ({accept})"), left, right }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, left, right } = self;
        writeln!(
            f,
            "{request}\n  {} {:?} | {} {:?}",
            left.status, left.headers, right.status, right.headers
        )?;
        if left.in_time != right.in_time {
            writeln!(f, "  ended in time: {:?} | {:?}", left.in_time, right.in_time)?;
        }
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
    common: Common,
) -> Result<Option<Difference>, ConnectionError> {
    let said = async |(endpoint, landmarks)| fetch(endpoint, case, subject, landmarks, common).await;
    let (a, b) = tokio::join!(said(left), said(right));
    let (a, b) = (a?, b?);
    if a == b {
        return Ok(None);
    }
    Ok(Some(Difference::of(case, subject, left.1, a, b)))
}

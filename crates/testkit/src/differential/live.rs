//! Watches that are open while objects are written: what two ways to one cluster say of what happens then.
//!
//! No watch ends by the time, or one of two would be told of a write that the other just misses. Each selects one of two objects that
//! are deleted last, and its end is that it is told so.

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use serde_json::{Value, json};

use super::compare::is_json;
use super::populate::{NAMESPACES, PopulateError, change, send};
use super::{Case, Common, Difference, Landmarks, Said, Subject, Verb};
use crate::client::connection::{Answer, ConnectionError, Endpoint};

/// Where a watch begins, as parameters say it.
const BEGINNINGS: [&[(&str, &str)]; 3] = [
    &[("resourceVersion", "$current")],
    &[("resourceVersion", "$old"), ("allowWatchBookmarks", "true")],
    &[
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("allowWatchBookmarks", "true"),
    ],
];

/// The objects that are deleted last: of all, and before that one of no parity.
const LAST: &str = "last-even";
const LAST_PLAIN: &str = "last-plain";

/// What is selected, and which object is the last of it.
const SELECTORS: [(&str, &str, &str); 6] = [
    ("labelSelector", "", LAST),
    ("labelSelector", "parity=even", LAST),
    ("labelSelector", "parity in (even,none)", LAST),
    ("labelSelector", "parity notin (even)", LAST_PLAIN),
    ("labelSelector", "!parity", LAST_PLAIN),
    ("fieldSelector", "metadata.name=last-even", LAST),
];

const SCOPES: [&str; 2] = ["namespaced", "cluster"];

const TYPED: [&str; 5] = ["json", "protobuf", "metadata", "protobuf metadata", "table"];
const CUSTOM: [&str; 4] = ["json", "protobuf metadata", "metadata", "table"];

/// What may take so long without anything being said, on a busy machine.
const SILENCE: Duration = Duration::from_secs(30);

/// What two servers said to the same watch while it was written.
#[derive(Debug)]
pub struct Live {
    /// The watch.
    pub case: Case,
    /// What both said.
    pub said: [Said; 2],
}

/// Why watches could not be followed to their end.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A server could not be asked.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// What is to be seen could not be written.
    #[error(transparent)]
    Write(#[from] PopulateError),
    /// A watch did not say what it was waited for.
    #[error("{request} of server {server} did not say `{missing}`, but {said}")]
    Unfinished {
        /// What was asked.
        request: String,
        /// Of the first or of the second.
        server: usize,
        /// What was waited for.
        missing: String,
        /// All that came.
        said: String,
    },
}

/// Opens watches at both servers, writes objects by `writer`, and gives what each watch was told, to the last write.
///
/// `typed`: whether there is protobuf of whole objects.
pub async fn live(
    subject: &Subject,
    landmarks: &Landmarks,
    servers: [&Endpoint; 2],
    writer: &Endpoint,
    typed: bool,
) -> Result<Vec<Live>, LiveError> {
    let opened = cases(typed).into_iter().map(async |(case, last)| {
        let (path, accept) = case.request(subject, landmarks);
        let begun = |server| Stream::begin(servers[server], server, &path, &accept);
        let (left, right) = tokio::try_join!(begun(0), begun(1))?;
        let mut streams = [left, right];
        if case.value("sendInitialEvents") == "true" {
            // Or what is written is part of the state with one of them.
            for stream in &mut streams {
                stream.until(&["k8s.io/initial-events-end"]).await?;
            }
        }
        Ok::<_, LiveError>((case, last, streams))
    });
    let open = try_join_all(opened).await?;
    write(subject, writer).await?;
    let told = open.into_iter().map(async |(case, last, streams)| {
        let [left, right] = streams.map(|stream| stream.finish(last, landmarks));
        let (left, right) = tokio::try_join!(left, right)?;
        Ok(Live { case, said: [left, right] })
    });
    join_all(told).await.into_iter().collect()
}

impl Live {
    /// What differs.
    pub fn difference(&self, subject: &Subject, landmarks: &Landmarks) -> Option<Difference> {
        let [left, right] = &self.said;
        (left.reply != right.reply)
            .then(|| Difference::of(&self.case, subject, landmarks, left.reply.clone(), right.reply.clone()))
    }
}

/// Each selector with each beginning, in each scope, the forms in turn; and the object that is the last of it.
fn cases(typed: bool) -> Vec<(Case, &'static str)> {
    let forms: &[&str] = if typed { &TYPED } else { &CUSTOM };
    let mut cases = Vec::new();
    for scope in SCOPES {
        for (at, (name, selector, last)) in SELECTORS.into_iter().enumerate() {
            for beginning in BEGINNINGS {
                let form = forms[(cases.len() + at) % forms.len()];
                let mut values = vec![(name, selector), ("$scope", scope), ("$accept", form)];
                // As clients do it: long, and never waited for.
                values.push(("timeoutSeconds", "300"));
                values.extend(beginning);
                cases.push((Case { verb: Verb::Watch, values }, last));
            }
        }
    }
    cases
}

/// Objects come, go in and out of what is selected, change in it and go; those of [`SELECTORS`] last.
async fn write(subject: &Subject, writer: &Endpoint) -> Result<(), PopulateError> {
    let collection = subject.in_namespace(NAMESPACES[0]);
    let path = |name: &str| format!("{collection}/{name}");
    let create = async |name: &str, labels: Value| {
        send(writer, "POST", &collection, &subject.manifest(NAMESPACES[0], name, &labels)).await
    };
    let label = async |name: &str, labels: Value| {
        change(writer, &path(name), |object| object["metadata"]["labels"] = labels).await
    };
    let delete = async |name: &str| send(writer, "DELETE", &path(name), &Value::Null).await;
    create(LAST, json!({"parity": "even"})).await?;
    create(LAST_PLAIN, json!({"other": "x"})).await?;
    create("live-0", json!({"parity": "even"})).await?;
    create("live-1", json!({"parity": "odd"})).await?;
    label("live-0", json!({"parity": "odd"})).await?;
    label("live-1", json!({"parity": "even", "other": "x"})).await?;
    label("live-1", json!({"parity": "even"})).await?;
    label("live-0", json!({"other": "x"})).await?;
    label("o-1", json!({"parity": "none"})).await?;
    change(writer, &path(LAST), |object| object["metadata"]["annotations"] = json!({"round": "2"})).await?;
    delete("live-1").await?;
    create("live-1", json!({"parity": "none"})).await?;
    delete("live-0").await?;
    delete(LAST_PLAIN).await?;
    delete(LAST).await?;
    Ok(())
}

/// A watch, as far as it has been read.
struct Stream {
    request: String,
    server: usize,
    answer: Answer,
    body: Vec<u8>,
    /// So much of it are whole events that have been looked at.
    read: usize,
}

impl Stream {
    async fn begin(
        endpoint: &Endpoint,
        server: usize,
        path: &str,
        accept: &str,
    ) -> Result<Self, ConnectionError> {
        let answer = endpoint.get(path, accept).await?;
        Ok(Self { request: format!("{path} ({accept})"), server, answer, body: Vec::new(), read: 0 })
    }

    /// Reads up to the event in which all of these texts are.
    async fn until(&mut self, texts: &[&str]) -> Result<(), LiveError> {
        loop {
            while let Some(length) = self.event() {
                let event = &self.body[self.read..self.read + length];
                self.read += length;
                if texts.iter().all(|text| event.windows(text.len()).any(|part| part == text.as_bytes())) {
                    return Ok(());
                }
            }
            let next = tokio::time::timeout(SILENCE, self.answer.chunk()).await;
            let Some(chunk) = next.map_or(Ok(None), |chunk| chunk)? else {
                return Err(LiveError::Unfinished {
                    request: self.request.clone(),
                    server: self.server,
                    missing: texts.join(" "),
                    said: format!("{} {}", self.answer.status, String::from_utf8_lossy(&self.body)),
                });
            };
            self.body.extend_from_slice(&chunk);
        }
    }

    /// The length of the next event, if it is there whole: a line, or what begins with its length.
    fn event(&self) -> Option<usize> {
        let rest = &self.body[self.read..];
        if is_json(&self.answer.headers) {
            return rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        }
        let length = 4 + usize::try_from(u32::from_be_bytes(*rest.first_chunk()?)).ok()?;
        (length <= rest.len()).then_some(length)
    }

    /// All that it says until this object is deleted.
    async fn finish(mut self, last: &str, landmarks: &Landmarks) -> Result<Said, LiveError> {
        self.until(&["DELETED", last]).await?;
        self.body.truncate(self.read);
        let Answer { status, headers, .. } = self.answer;
        Ok(Said::new(status, headers, self.body, landmarks, Common::Cluster))
    }
}

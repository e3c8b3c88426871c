//! The same writes on any server, and the versions they got there.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Request;
use serde_json::{Value, json};

use crate::client::connection::{ConnectionError, Endpoint};

/// The collection that is asked about.
#[derive(Debug, Clone)]
pub struct Subject {
    /// `/api/v1` or `/apis/group/version`.
    pub root: String,
    /// Its plural name.
    pub resource: String,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
    /// What a manifest has besides its metadata.
    pub template: Value,
}

/// Two namespaces whose order by key is not that of their names.
pub(super) const NAMESPACES: [&str; 2] = ["dt-a", "dt-a-b"];

/// The first version of all: before the history of whoever began later, and gone after the first compaction.
pub(super) const FIRST: u64 = 1;

const NAMESPACE_PATH: &str = "/api/v1/namespaces";

impl Subject {
    /// The path of the collection, in the first namespace or over all; which is the same if there are none.
    pub fn path(&self, in_one: bool) -> String {
        if in_one { self.in_namespace(NAMESPACES[0]) } else { format!("{}/{}", self.root, self.resource) }
    }

    /// The path of an object, in the first namespace or the second.
    pub fn object_path(&self, first: bool, name: &str) -> String {
        format!("{}/{name}", self.in_namespace(NAMESPACES[usize::from(!first)]))
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> String {
        let Self { root, resource, namespaced, .. } = self;
        if *namespaced {
            format!("{root}/namespaces/{namespace}/{resource}")
        } else {
            format!("{root}/{resource}")
        }
    }

    /// Whether it is a custom resource, whose definition says by which fields it is selected: by this one.
    pub(super) fn is_custom(&self) -> bool {
        self.template["spec"]["n"].is_number()
    }

    /// Where objects are made.
    fn namespaces(&self) -> &'static [&'static str] {
        if self.namespaced { &NAMESPACES } else { &NAMESPACES[..1] }
    }

    fn object(&self, namespace: &str, number: usize, round: usize) -> Value {
        let parity = if (number + round).is_multiple_of(2) { "even" } else { "odd" };
        let mut object = self.manifest(namespace, &format!("o-{number}"), &json!({"parity": parity}));
        object["metadata"]["annotations"] = json!({"round": round.to_string()});
        if self.is_custom() {
            object["spec"]["n"] = number.into();
        }
        object
    }

    pub(super) fn manifest(&self, namespace: &str, name: &str, labels: &Value) -> Value {
        let mut object = self.template.clone();
        object["metadata"] = json!({"name": name, "labels": labels});
        if self.namespaced {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    }
}

/// Versions that stand for the same moments on different servers.
#[derive(Debug, Clone, Default)]
pub struct Landmarks {
    /// When half of the writes were done.
    pub old: u64,
    /// When all were.
    pub current: u64,
    /// One that will not be for long.
    pub future: u64,
    /// What each version of an object was the result of.
    pub writes: HashMap<String, String>,
}

impl Landmarks {
    /// A token that goes on in the middle, of that version; without one in the most recent state, as 410 says it. `in_one`: within a namespace, or where
    /// there are none.
    pub(super) fn token(in_one: bool, at: Option<u64>) -> String {
        let start = if in_one { "o-1\0".to_owned() } else { format!("{}/o-1\0", NAMESPACES[0]) };
        let (rv, start) = at.map_or((json!(-1), start.clone()), |at| (at.into(), format!("/{start}")));
        URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": rv, "start": start}).to_string())
    }
}

/// Why the objects could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PopulateError {
    /// The server could not be asked.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The server does not do it. What was asked about would not be there, and everybody would say the same.
    #[error("{method} {path}: {status} {answer}")]
    Refused {
        /// What was asked.
        method: String,
        /// Of which object.
        path: String,
        /// The server's status.
        status: u16,
        /// And its words.
        answer: Box<Value>,
    },
}

pub(super) async fn send(
    endpoint: &Endpoint,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, PopulateError> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let mut answer = endpoint.ask(request, body.to_string()).await?;
    let status = answer.status.as_u16();
    let body = answer.bytes().await?;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    // A namespace that is there already, or a server that knows of none.
    let is_done = path == NAMESPACE_PATH && (status == 409 || status == 404);
    if !(200..300).contains(&status) && !is_done {
        let (method, path) = (method.to_owned(), path.to_owned());
        return Err(PopulateError::Refused { method, path, status, answer: Box::new(answer) });
    }
    Ok(answer)
}

/// Changes an object that is there.
pub(super) async fn change(
    endpoint: &Endpoint,
    path: &str,
    change: impl FnOnce(&mut Value),
) -> Result<Value, PopulateError> {
    let mut object = send(endpoint, "GET", path, &Value::Null).await?;
    change(&mut object);
    send(endpoint, "PUT", path, &object).await
}

/// Writes, changes and deletes objects. The namespaces are made; what is of this collection in them is deleted first.
pub async fn populate(endpoint: &Endpoint, subject: &Subject) -> Result<Landmarks, PopulateError> {
    let mut landmarks = Landmarks::default();
    for namespace in subject.namespaces() {
        if subject.namespaced {
            let manifest = json!({"metadata": {"name": namespace}});
            send(endpoint, "POST", NAMESPACE_PATH, &manifest).await?;
        }
        send(endpoint, "DELETE", &subject.in_namespace(namespace), &Value::Null).await?;
    }
    let mut note = |what: String, object: &Value| -> u64 {
        let rv = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let number = rv.parse().unwrap_or(0);
        landmarks.writes.insert(rv, what);
        number
    };
    let mut old = 0;
    for namespace in subject.namespaces() {
        for number in 0..4 {
            let object = subject.object(namespace, number, 0);
            let written = send(endpoint, "POST", &subject.in_namespace(namespace), &object).await?;
            old = note(format!("{namespace}/o-{number} made"), &written);
        }
    }
    for namespace in subject.namespaces() {
        for number in [1, 2] {
            let path = format!("{}/o-{number}", subject.in_namespace(namespace));
            let changed = subject.object(namespace, number, 1);
            let written = change(endpoint, &path, |object| {
                object["metadata"]["labels"] = changed["metadata"]["labels"].clone();
                object["metadata"]["annotations"] = changed["metadata"]["annotations"].clone();
            });
            note(format!("{namespace}/o-{number} changed"), &written.await?);
        }
        send(endpoint, "DELETE", &format!("{}/o-3", subject.in_namespace(namespace)), &Value::Null).await?;
    }
    // The last write of all is one of this resource: a version of another would be known to whoever watches this one only a
    // minute later, and what stands before the server would hand on what is to be compared.
    let last = subject.namespaces().last().copied().unwrap_or_default();
    let path = format!("{}/o-0", subject.in_namespace(last));
    let written = change(endpoint, &path, |object| object["metadata"]["annotations"] = json!({"round": "1"}));
    let current = note(format!("{last}/o-0 changed"), &written.await?);
    landmarks.old = old;
    landmarks.current = current;
    landmarks.future = landmarks.current + 1_000_000;
    Ok(landmarks)
}

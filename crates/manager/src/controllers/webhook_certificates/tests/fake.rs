//! An API server of four objects: reads, merge and JSON patches with true conflicts, and failures on demand. Lists and
//! watches never answer, so whoever relies on them alone finds out.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use axum::body::{Body, to_bytes};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub(super) const MUTATING: &str = "pods";
pub(super) const VALIDATING: &str = "pools";

/// How a write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is refused and not done.
    Refused,
    /// It is done, and the answer says it failed.
    AnswerLost,
    /// Another writer comes first.
    Raced,
}

#[derive(Clone)]
pub(super) struct Fake(Arc<Mutex<State>>);

struct State {
    /// By the last segment of the path; the names are distinct.
    objects: BTreeMap<String, Value>,
    version: u64,
    requests: Vec<(String, String)>,
    fault: Option<Fault>,
}

impl Fake {
    /// As the chart leaves it: empty Secrets, configurations that trust nobody.
    pub(super) fn new() -> Self {
        let metadata = |name: &str| json!({"name": name, "resourceVersion": "1", "uid": name});
        let secret = |name: &str| {
            let mut metadata = metadata(name);
            metadata["namespace"] = json!("isthmus-system");
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"})
        };
        let webhook = |name: &str| {
            json!({
                "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"name": "webhook", "namespace": "isthmus-system"}},
            })
        };
        let objects = [
            ("ca", secret("ca")),
            ("serving", secret("serving")),
            (
                MUTATING,
                json!({"metadata": metadata(MUTATING), "webhooks": [webhook("a.example"), webhook("b.example")]}),
            ),
            (VALIDATING, json!({"metadata": metadata(VALIDATING), "webhooks": [webhook("c.example")]})),
        ];
        let objects = objects.into_iter().map(|(name, object)| (name.to_owned(), object)).collect();
        Self(Arc::new(Mutex::new(State { objects, version: 1, requests: Vec::new(), fault: None })))
    }

    pub(super) fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let fake = fake.clone();
            async move {
                let (parts, body) = request.into_parts();
                if parts.uri.query().is_some_and(|query| query.contains("fieldSelector")) {
                    std::future::pending::<()>().await;
                }
                let body = to_bytes(Body::new(body), 1_000_000).await.unwrap();
                let content_type = parts.headers.get("content-type").and_then(|value| value.to_str().ok());
                let (status, answer) =
                    fake.0.lock().answer(&parts.method, parts.uri.path(), content_type, &body);
                let answer = Response::builder().status(status).body(Body::from(answer.to_string())).unwrap();
                Ok::<_, Infallible>(answer)
            }
        });
        Client::new(service, "default")
    }

    pub(super) fn fail_next_write(&self, fault: Option<Fault>) {
        self.0.lock().fault = fault;
    }

    pub(super) fn requests(&self) -> Vec<(String, String)> {
        self.0.lock().requests.clone()
    }

    pub(super) fn writes(&self) -> usize {
        self.0.lock().requests.iter().filter(|(method, _)| method == "PATCH").count()
    }

    /// What someone else does to an object.
    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.0.lock();
        let mut object = state.objects[name].clone();
        change(&mut object);
        state.store(name, object);
    }

    pub(super) fn secret(&self, name: &str) -> Value {
        self.0.lock().objects[name].clone()
    }

    pub(super) fn configuration(&self, name: &str) -> Value {
        self.secret(name)
    }

    pub(super) fn secret_text(&self, name: &str, key: &str) -> String {
        decode(&self.secret(name)["data"][key])
    }

    pub(super) fn secret_keys(&self, name: &str) -> Vec<String> {
        self.secret(name)["data"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    }

    /// The bundle of every webhook.
    pub(super) fn bundles(&self) -> Vec<String> {
        let state = self.0.lock();
        let webhooks =
            [MUTATING, VALIDATING].map(|name| state.objects[name]["webhooks"].as_array().unwrap().clone());
        webhooks.iter().flatten().map(|webhook| decode(&webhook["clientConfig"]["caBundle"])).collect()
    }
}

impl State {
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        content_type: Option<&str>,
        body: &[u8],
    ) -> (StatusCode, Value) {
        self.requests.push((method.to_string(), path.to_owned()));
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let Some(object) = self.objects.get(&name).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        };
        if method == Method::GET {
            return (StatusCode::OK, object);
        }
        let fault = self.fault.take();
        if fault == Some(Fault::Refused) {
            return failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
        }
        if fault == Some(Fault::Raced) {
            self.store(&name, object.clone());
        }
        let answer = match content_type {
            Some("application/merge-patch+json") => self.merge(&name, body),
            Some("application/json-patch+json") => self.json_patch(&name, body),
            other => panic!("patches of type {other:?}"),
        };
        if fault == Some(Fault::AnswerLost) {
            return failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
        }
        answer
    }

    fn merge(&mut self, name: &str, body: &[u8]) -> (StatusCode, Value) {
        let patch: Value = serde_json::from_slice(body).unwrap();
        let mut object = self.objects[name].clone();
        assert!(patch["metadata"]["resourceVersion"].is_string(), "an unconditional write of {name}");
        if patch["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return failure(StatusCode::CONFLICT, "Conflict");
        }
        json_patch::merge(&mut object, &patch);
        (StatusCode::OK, self.store(name, object))
    }

    fn json_patch(&mut self, name: &str, body: &[u8]) -> (StatusCode, Value) {
        let mut object = self.objects[name].clone();
        let patch: json_patch::Patch = serde_json::from_slice(body).unwrap();
        if json_patch::patch(&mut object, &patch).is_err() {
            return failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid");
        }
        (StatusCode::OK, self.store(name, object))
    }

    fn store(&mut self, name: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(name.to_owned(), object.clone());
        object
    }
}

fn failure(status: StatusCode, reason: &str) -> (StatusCode, Value) {
    let code = status.as_u16();
    (
        status,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code}),
    )
}

fn decode(value: &Value) -> String {
    let bytes = BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).unwrap();
    String::from_utf8(bytes).unwrap()
}

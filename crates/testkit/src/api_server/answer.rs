//! A request to its answer: who asks, whether they may, and what they get.

use std::io::Write as _;
use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::access::{Attributes, User};
use super::body::{Content, CountedBody};
use super::cluster::{key, merged};
use super::discovery;
use super::kind::Kind;
use super::list::{Scope, list};
use super::log::Entry;
use super::options::{Options, deadline, export, flag, parameter};
use super::path::ObjectPath;
use super::represent::{Form, Shape};
use super::status::{Answer, Status};
use super::store::Stored;
use super::{Server, review::review, watch};

/// Answers above this are compressed.
const COMPRESSED: usize = 128 << 10;

/// A request with its body read.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) certificate: Option<User>,
}

struct Reply {
    status: u16,
    content_type: &'static str,
    content: Content,
    retry_after: Option<u64>,
    etag: Option<String>,
}

impl Reply {
    fn whole(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, content_type, content: Content::Whole(body.into()), retry_after: None, etag: None }
    }

    fn error(status: &Status, form: Form) -> Self {
        let retry_after = status.retry_after().or((status.code == 429).then_some(1));
        Self { retry_after, ..Self::whole(status.code, form.content_type(false), form.status(status)) }
    }
}

impl Question {
    pub(super) fn header(&self, name: http::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(super) fn is_watch(&self) -> bool {
        self.method == Method::GET && flag(&self.query, "watch") == Some(true)
    }

    pub(super) fn json(&self) -> Answer<Value> {
        serde_json::from_slice(&self.body).map_err(|error| Status::bad_request(&error.to_string()))
    }
}

/// Answers, and logs what is sent.
pub(crate) async fn answer(server: Arc<Server>, question: Question) -> Response {
    let entry = server.log.begin(&question);
    let mut reply = reply(&server, &question, &entry).await;
    entry.answered(reply.status);
    if question.method != Method::GET && server.faults.loses_answer(&question.path) {
        // The connection is dead by now, and nothing of this goes out.
        std::future::pending::<()>().await;
    }
    let is_compressed = compress(&mut reply, question.header(ACCEPT_ENCODING));
    let cut = server.faults.take_cut_after(&question.path, &question.query);
    let body = CountedBody::new(reply.content, cut, entry);
    let mut response = Response::new(axum::body::Body::new(body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    headers.insert("cache-control", HeaderValue::from_static("no-cache, private"));
    if let Some(seconds) = reply.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(etag) = reply.etag.and_then(|etag| etag.parse().ok()) {
        headers.insert(ETAG, etag);
    }
    if is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert("vary", HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// Compresses what is large, for whoever takes it (apiserver, `responsewriters`): whether it did.
fn compress(reply: &mut Reply, accepted: &str) -> bool {
    let Content::Whole(body) = &reply.content else { return false };
    if body.len() <= COMPRESSED || !accepted.split(',').any(|coding| coding.trim() == "gzip") {
        return false;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let Ok(packed) = encoder.write_all(body).and_then(|()| encoder.finish()) else { return false };
    reply.content = Content::Whole(packed.into());
    true
}

async fn reply(server: &Arc<Server>, question: &Question, entry: &Entry) -> Reply {
    let authorization = question.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let user = server.cluster.access().authenticate(authorization, question.certificate.clone());
    let user = match user {
        Ok(user) => user,
        Err(status) => return Reply::error(&status, Form::JSON),
    };
    entry.of_user(&user.name);
    if let Some(code) = server.faults.take_failure(&question.path) {
        let reason = match code {
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            _ => "",
        };
        return Reply::error(&Status::new(code, reason, "a failure that a test asked for"), Form::JSON);
    }
    let Some(path) = ObjectPath::parse(&question.path) else {
        return plain(server, question, &user);
    };
    let review = review(server, question, &path, &user);
    if let Some(answer) = review {
        return match answer {
            Ok(body) => Reply::whole(201, "application/json", body.to_string()),
            Err(status) => Reply::error(&status, Form::JSON),
        };
    }
    let kind = {
        let store = server.cluster.store();
        let of_group = |group: &Kind| group.group == path.group && group.version == path.version;
        let known = store.tables.values().any(|table| of_group(&table.kind));
        let table = store.tables.get(&path.id()).filter(|table| of_group(&table.kind));
        match table {
            Some(table) => table.kind.clone(),
            None if known && path.group.is_empty() => {
                return Reply::error(&Status::no_such_resource(), Form::JSON);
            }
            None => return Reply::whole(404, "text/plain; charset=utf-8", "404 page not found\n"),
        }
    };
    if !kind.namespaced && path.namespace.is_some() {
        return Reply::error(&Status::no_such_resource(), Form::JSON);
    }
    let form = match Form::negotiate(question.header(ACCEPT), &kind, path.name.is_some()) {
        Ok(form) => form,
        Err(status) => return Reply::error(&status, Form::of_error(question.header(ACCEPT))),
    };
    object(server, question, &path, &kind, &user, form)
        .await
        .unwrap_or_else(|status| Reply::error(&status, Form::of_error(question.header(ACCEPT))))
}

fn plain(server: &Server, question: &Question, user: &User) -> Reply {
    let verb = question.method.as_str().to_lowercase();
    let attributes = Attributes { path: question.path.clone(), ..attributes(user, &verb, None, question) };
    if !server.cluster.access().allows(&attributes) {
        let message = format!("forbidden: User {:?} cannot {verb} path {:?}", user.name, question.path);
        return Reply::error(&Status::new(403, "Forbidden", &message), Form::JSON);
    }
    if question.path == "/version"
        && let Some(release) = server.release.lock().as_ref()
    {
        return Reply::whole(200, "application/json", json!({ "gitVersion": release }).to_string());
    }
    let etag = server.cluster.document_tag(&question.path);
    match discovery::answer(&server.cluster, &question.path, question.header(ACCEPT)) {
        Some((content_type, _)) if etag.as_deref() == Some(question.header(IF_NONE_MATCH)) => {
            Reply { etag, ..Reply::whole(304, content_type, "") }
        }
        Some((content_type, body)) => Reply { etag, ..Reply::whole(200, content_type, body) },
        None => Reply::whole(404, "text/plain; charset=utf-8", "404 page not found\n"),
    }
}

pub(super) fn attributes(
    user: &User,
    verb: &str,
    path: Option<&ObjectPath>,
    question: &Question,
) -> Attributes {
    let text = |name| parameter(&question.query, name).unwrap_or_default();
    let of = |part: fn(&ObjectPath) -> &str| path.map(part).unwrap_or_default().to_owned();
    Attributes {
        user: user.clone(),
        verb: verb.to_owned(),
        group: of(|path| &path.group),
        resource: of(|path| &path.resource),
        subresource: of(|path| &path.subresource),
        namespace: of(|path| path.namespace.as_deref().unwrap_or_default()),
        name: of(|path| path.name.as_deref().unwrap_or_default()),
        path: String::new(),
        field_selector: text("fieldSelector"),
        label_selector: text("labelSelector"),
    }
}

fn verb(question: &Question, path: &ObjectPath) -> Answer<&'static str> {
    Ok(match (question.method.as_str(), path.name.is_some()) {
        ("GET", _) if question.is_watch() => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return Err(Status::method_not_allowed()),
    })
}

async fn object(
    server: &Arc<Server>,
    question: &Question,
    path: &ObjectPath,
    kind: &Arc<Kind>,
    user: &User,
    form: Form,
) -> Answer<Reply> {
    let verb = verb(question, path)?;
    deadline(&question.query, verb)?;
    let namespace = path.namespace.as_deref();
    let mut attributes = attributes(user, verb, Some(path), question);
    // A selector of one name is a request for that name (apiserver, RequestInfoFactory).
    if path.name.is_none() && (verb == "list" || verb == "watch") {
        let fields = parameter(&question.query, "fieldSelector").unwrap_or_default();
        let fields = crate::selector::FieldSelector::parse(&fields).unwrap_or_default();
        fields.exactly("metadata.name").unwrap_or_default().clone_into(&mut attributes.name);
    }
    if !server.cluster.access().allows(&attributes) {
        let name = attributes.name.as_str();
        return Err(Status::forbidden(&user.name, verb, &kind.group, &kind.resource, name, namespace));
    }
    let id = kind.id();
    let one = |status: u16, stored: &Stored| {
        Reply::whole(status, form.content_type(false), form.object(kind, stored))
    };
    let named = || key(kind, namespace, path.name.as_deref().unwrap_or_default());
    Ok(match verb {
        "watch" => {
            let options = Options::parse(&question.query, true, kind)?;
            let stream = watch::open(server, kind, namespace, options, form)?;
            let content = Content::Stream(stream);
            Reply {
                status: 200,
                content_type: form.content_type(true),
                content,
                retry_after: None,
                etag: None,
            }
        }
        "list" => {
            if form.shape == Shape::Metadata {
                let message = format!(
                    "you requested PartialObjectMetadata, but the requested object is a list (*core.{}List)",
                    kind.kind
                );
                return Err(Status::not_acceptable(&message));
            }
            let options = Options::parse(&question.query, false, kind)?;
            let page = list(server, kind, namespace, &options).await?;
            let items: Vec<_> = page.items.iter().map(AsRef::as_ref).collect();
            let body = form.list(kind, page.rv, page.token.as_deref(), page.remaining, &items);
            Reply::whole(200, form.content_type(false), body)
        }
        "get" => one(200, get(server, question, kind, &named()).await?.as_ref()),
        "create" => one(201, server.cluster.create_in(&id, namespace, question.json()?)?.as_ref()),
        "update" => {
            let new = question.json()?;
            let status = path.subresource == "status";
            let change = |old: &Value| Ok(if status { with_status(old, &new) } else { new });
            one(200, server.cluster.modify(&id, &named(), change)?.as_ref())
        }
        "patch" => one(200, patch(server, question, kind, &named())?.as_ref()),
        "delete" => {
            let deleted = server.cluster.delete(&id, &named())?;
            let mut details = json!({
                "name": deleted["metadata"]["name"], "kind": kind.resource, "uid": deleted["metadata"]["uid"],
            });
            if !kind.group.is_empty() {
                details["group"] = kind.group.as_str().into();
            }
            let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
            Reply::whole(200, "application/json", body.to_string())
        }
        _ => {
            let options = Options::parse(&question.query, false, kind)?;
            let scope = Scope::new(kind, namespace, &options);
            let all = server.cluster.list(&id);
            let selected = all.iter().filter(|(key, object)| {
                scope.has(key) && options.labels.matches(object) && options.fields.matches(object)
            });
            for (key, _) in selected {
                server.cluster.delete(&id, key)?;
            }
            let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200});
            Reply::whole(200, "application/json", body.to_string())
        }
    })
}

async fn get(server: &Server, question: &Question, kind: &Kind, key: &str) -> Answer<Arc<Stored>> {
    export(&question.query)?;
    let options = Options {
        rv: parameter(&question.query, "resourceVersion").unwrap_or_default(),
        ..Options::parse("", false, kind)?
    };
    let version = options.version().map_err(|problem| Status::new(500, "", &problem))?;
    let rv = match version {
        None => server.cluster.revision(),
        Some(at_least) => {
            server.wait_for(at_least).await?;
            server.view()
        }
    };
    let found = server.cluster.store().at(&kind.id(), rv).get(key).cloned();
    let name = key.rsplit('/').next().unwrap_or(key);
    found.ok_or_else(|| Status::not_found(&kind.group, &kind.resource, name))
}

fn patch(server: &Server, question: &Question, kind: &Kind, key: &str) -> Answer<Arc<Stored>> {
    let media = question.header(CONTENT_TYPE).split(';').next().unwrap_or_default();
    let id = kind.id();
    if media == "application/json-patch+json" {
        let operations: json_patch::Patch = serde_json::from_slice(&question.body)
            .map_err(|error| Status::bad_request(&error.to_string()))?;
        return server.cluster.modify(&id, key, |old| {
            let mut new = old.clone();
            json_patch::patch(&mut new, &operations)
                .map_err(|error| Status::invalid_object(&error.to_string()))?;
            Ok(new)
        });
    }
    let known = [
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ];
    if !known.contains(&media) {
        return Err(Status::unsupported_media_type(&format!(
            "the body of the request was in an unknown format - {media}"
        )));
    }
    let patch = question.json()?;
    let changed = server.cluster.modify(&id, key, |old| Ok(merged(old, &patch)));
    match changed {
        // An apply creates what is not there.
        Err(status) if status.code == 404 && media == "application/apply-patch+yaml" => {
            let (namespace, _) = key.split_once('/').unzip();
            server.cluster.create_in(&id, namespace, patch)
        }
        changed => changed,
    }
}

fn with_status(old: &Value, new: &Value) -> Value {
    let mut merged = old.clone();
    merged["status"] = new["status"].clone();
    merged["metadata"]["resourceVersion"] = new["metadata"]["resourceVersion"].clone();
    merged
}

//! What clients are sent: objects, lists and statuses in the representation that they like best.

use std::{iter, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use kube_wire::{
    accept::{Answer, As, MediaType, Representation, negotiate, negotiate_error},
    frame::{self, Form as Frame, ListHead, Projection, TypeMeta},
    object::{Encoding, Object},
    status::Status,
};
use serde_json::{Map, Value, json};

use crate::{
    options,
    served::Served,
    storage::{Page, StorageError},
    table::Include,
};

mod gzip;

/// What objects can be sent as.
const OFFERED: [MediaType; 2] = [MediaType::Json, MediaType::Yaml];

/// Lists and objects below this are not worth compressing.
const GZIP_MIN: usize = 128 << 10;

/// How to answer one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) representation: Representation,
    pub(crate) include: Include,
    gzip: bool,
    /// Whether JSON is indented, for people.
    pretty: bool,
}

impl Form {
    /// What the client wants; status 406 or 400 if it cannot be had.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &str, answer: Answer) -> Result<Self, Status> {
        Self::acceptable(headers, query)?.fit(query, answer)
    }

    /// The same, without a look at what is answered, which a list has last: its own faults are told first.
    pub(crate) fn acceptable(headers: &HeaderMap, query: &str) -> Result<Self, Status> {
        let representation = negotiate(accepted(headers), &OFFERED)?;
        let gzip = joined(headers, &header::ACCEPT_ENCODING).split(',').any(|coding| {
            let mut parts = coding.split(';');
            parts.next().is_some_and(|name| name.trim() == "gzip")
                && !coding.replace(' ', "").ends_with(";q=0")
        });
        Ok(Self {
            representation,
            include: Include::Metadata,
            gzip,
            pretty: is_for_people(&representation, headers, query),
        })
    }

    /// Status 406 or 400 if such an answer cannot be had in this form.
    pub(crate) fn fit(self, query: &str, answer: Answer) -> Result<Self, Status> {
        let representation = self.representation;
        match (representation.as_, answer) {
            (As::PartialObjectMetadata, Answer::List) => {
                let words = "you requested PartialObjectMetadata, but the requested object is a list (*unstructured.UnstructuredList)";
                return Err(Status::not_representable(words));
            }
            (As::PartialObjectMetadataList, Answer::Object) => {
                return Err(Status::untranslated("content is not a list"));
            }
            _ => {}
        }
        let text = options::first(query, "includeObject").unwrap_or_default();
        let include = match (Include::parse(&text), representation.as_) {
            (Some(include), _) => include,
            (None, As::Table) => {
                let shown = kube_wire::quoting::quoted(&text);
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {shown}: must be 'Metadata', 'Object', 'None', or \
                     empty"
                )));
            }
            (None, _) => Include::Metadata,
        };
        // What is left to look at is whether it can be streamed.
        Representation { as_: As::Object, ..representation }.check(answer)?;
        Ok(Self { include, ..self })
    }

    /// Whether events are to be lists, which nothing that happens to one object is. The API server begins such a watch, and breaks it
    /// off where it cannot write the first event.
    pub(crate) fn fits_no_event(&self) -> bool {
        self.representation.as_ == As::PartialObjectMetadataList
    }

    /// How frames of objects are written.
    pub(crate) fn frame(&self) -> Frame {
        let projection = match self.representation.as_ {
            As::PartialObjectMetadata | As::PartialObjectMetadataList => {
                Projection::Metadata(self.representation.meta_version)
            }
            As::Object | As::Table => Projection::Whole,
        };
        Frame { encoding: Encoding::Json, projection }
    }

    /// An object that is stored.
    pub(crate) fn object(&self, served: &Served, object: &Arc<Object>) -> Response {
        if self.representation.encoding == MediaType::Yaml || self.representation.as_ == As::Table {
            return match serde_json::from_slice(object.body()) {
                Ok(value) => self.value(served, StatusCode::OK, &value),
                Err(error) => failure(&Status::internal_error(&error.to_string())),
            };
        }
        let pieces =
            frame::object(self.frame(), type_meta(&served.info.api_version(), &served.info.kind), object);
        self.pieces(StatusCode::OK, pieces)
    }

    /// An object as a value, which a write has made.
    pub(crate) fn value(&self, served: &Served, code: StatusCode, value: &Value) -> Response {
        let representation = self.representation;
        let version = representation.meta_version;
        let body = match representation.as_ {
            As::Object => value.clone(),
            As::PartialObjectMetadata | As::PartialObjectMetadataList => {
                json!({ "kind": "PartialObjectMetadata", "apiVersion": version, "metadata": value["metadata"] })
            }
            As::Table => {
                let row = served.columns.row(value, self.include, version, Timestamp::now());
                let mut metadata = Map::new();
                if let Some(version) = value["metadata"].get("resourceVersion") {
                    metadata.insert("resourceVersion".to_owned(), version.clone());
                }
                served.columns.table(version, metadata, vec![row], true)
            }
        };
        self.encoded(code, &body)
    }

    /// Any value, in the client's media type.
    pub(crate) fn encoded(&self, code: StatusCode, value: &Value) -> Response {
        let body = match self.representation.encoding {
            MediaType::Yaml => serde_saphyr::to_string(value).unwrap_or_default().into_bytes(),
            MediaType::Json | MediaType::Protobuf if self.pretty => {
                serde_json::to_vec_pretty(value).unwrap_or_default()
            }
            MediaType::Json | MediaType::Protobuf => line(value),
        };
        self.whole(code, vec![body.into()])
    }

    /// A page of a list, whose objects are made while it is sent.
    pub(crate) fn list(&self, served: &Arc<Served>, page: Page) -> Result<Response, StorageError> {
        if self.representation.as_ == As::Table {
            return self.table(served, page);
        }
        let api_version = served.info.api_version();
        let token = page.continue_token.clone();
        let head = ListHead {
            items: type_meta(&api_version, &served.info.kind),
            resource_version: page.resource_version,
            continue_token: token.as_deref().unwrap_or_default(),
            remaining: page.remaining,
            custom: true,
        };
        let list = frame::json_list(self.frame(), &head, page.into_objects());
        if self.representation.encoding == MediaType::Yaml {
            return self.as_yaml(list);
        }
        self.stream(list)
    }

    /// A table of the objects of a page: a row is made when its turn comes.
    fn table(&self, served: &Arc<Served>, page: Page) -> Result<Response, StorageError> {
        let (now, include) = (Timestamp::now(), self.include);
        let version = self.representation.meta_version;
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), page.resource_version.to_string().into());
        if let Some(token) = &page.continue_token {
            metadata.insert("continue".to_owned(), token.as_str().into());
        }
        if let Some(remaining) = page.remaining {
            metadata.insert("remainingItemCount".to_owned(), remaining.into());
        }
        let (header, trailer) = served.columns.ends(version, metadata);
        let served = Arc::clone(served);
        let mut comma = "";
        let rows = page.into_objects().filter_map(move |object| {
            let object = match object {
                Ok(object) => serde_json::from_slice::<Value>(object.body()).ok()?,
                Err(error) => return Some(Err(error)),
            };
            let row = served.columns.row(&object, include, version, now);
            let before = std::mem::replace(&mut comma, ",");
            Some(Ok(Bytes::from(format!("{before}{row}"))))
        });
        let pieces = iter::once(Ok(header)).chain(rows).chain(iter::once(Ok(trailer)));
        if self.representation.encoding == MediaType::Yaml {
            self.as_yaml(pieces)
        } else {
            self.stream(pieces)
        }
    }

    /// What JSON says, in YAML: for people, who ask for little.
    fn as_yaml(
        &self,
        pieces: impl Iterator<Item = Result<Bytes, StorageError>>,
    ) -> Result<Response, StorageError> {
        let pieces: Vec<_> = pieces.collect::<Result<_, _>>()?;
        Ok(match serde_json::from_slice(&pieces.concat()) {
            Ok(value) => self.encoded(StatusCode::OK, &value),
            Err(error) => failure(&Status::internal_error(&error.to_string())),
        })
    }

    /// JSON that is there as a whole, and is indented if the client likes that.
    fn pieces(&self, code: StatusCode, pieces: Vec<Bytes>) -> Response {
        match self.pretty.then(|| serde_json::from_slice::<Value>(&pieces.concat())) {
            Some(Ok(value)) => self.encoded(code, &value),
            _ => self.whole(code, pieces),
        }
    }

    /// Something whole.
    fn whole(&self, code: StatusCode, pieces: Vec<Bytes>) -> Response {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let compress = self.gzip && length > GZIP_MIN;
        let pieces = pieces.into_iter().map(Ok::<_, StorageError>);
        self.sent(code, pieces, compress, Some(length))
    }

    /// Something that is made while it is sent. As with the API server, its length is told if it is short; else it is compressed, if the
    /// client likes that. Nothing long is indented: it would have to be held whole.
    fn stream(
        &self,
        mut pieces: impl Iterator<Item = Result<Bytes, StorageError>> + Send + 'static,
    ) -> Result<Response, StorageError> {
        let mut begin = Vec::new();
        let mut length = 0;
        while length <= GZIP_MIN {
            match pieces.next() {
                Some(piece) => begin.push(piece?),
                None => return Ok(self.pieces(StatusCode::OK, begin)),
            }
            length += begin.last().map_or(0, Bytes::len);
        }
        let pieces = begin.into_iter().map(Ok).chain(pieces);
        Ok(self.sent(StatusCode::OK, pieces, self.gzip, None))
    }

    fn sent(
        &self,
        code: StatusCode,
        pieces: impl Iterator<Item = Result<Bytes, StorageError>> + Send + 'static,
        compress: bool,
        length: Option<usize>,
    ) -> Response {
        let body = if compress { body(gzip::Compressed::new(pieces)) } else { body(pieces) };
        let mut response = Response::new(body);
        *response.status_mut() = code;
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static(self.representation.encoding.as_str());
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if compress {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        } else if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, length.into());
        }
        response
    }
}

/// What the client accepts. The API server reads the first of several headers.
fn accepted(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Whether the answer is read by people: they say so, or their programs are known for it.
fn is_for_people(representation: &Representation, headers: &HeaderMap, query: &str) -> bool {
    if representation.pretty {
        return true;
    }
    if let Some(text) = options::first(query, "pretty").filter(|text| !text.is_empty()) {
        return matches!(text.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = headers.get(header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name.as_bytes()))
}

/// A body of pieces, each made when there is room for it; between them others get their turn.
fn body(pieces: impl Iterator<Item = Result<Bytes, StorageError>> + Send + 'static) -> Body {
    Body::from_stream(futures::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.next()?;
        tokio::task::yield_now().await;
        Some((piece, pieces))
    }))
}

/// All values of a header, as one.
fn joined(headers: &HeaderMap, name: &header::HeaderName) -> String {
    let values: Vec<_> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

/// JSON and the end of a line.
fn line(value: &Value) -> Vec<u8> {
    let mut body = serde_json::to_vec(value).unwrap_or_default();
    body.push(b'\n');
    body
}

pub(crate) fn type_meta<'a>(api_version: &'a str, kind: &'a str) -> TypeMeta<'a> {
    TypeMeta { api_version, kind }
}

/// Warnings as headers.
pub(crate) fn warn(headers: &mut HeaderMap, warnings: &[String]) {
    for warning in warnings {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", kube_wire::quoting::quoted(warning))) {
            headers.append(header::WARNING, value);
        }
    }
}

/// A status that is no success, as the client likes it: it is not turned into anything else, and comes in JSON if no other way is left.
pub(crate) fn refusal(headers: &HeaderMap, query: &str, status: &Status) -> Response {
    let wanted = negotiate_error(accepted(headers), &OFFERED);
    let mut response = failure(status);
    let is_yaml = wanted.is_some_and(|wanted| wanted.encoding == MediaType::Yaml);
    if !is_yaml && wanted.is_some_and(|wanted| !is_for_people(&wanted, headers, query)) {
        return response;
    }
    let value: Value = serde_json::from_slice(&status.to_json()).unwrap_or_default();
    let (content_type, body) = if is_yaml {
        (MediaType::Yaml, serde_saphyr::to_string(&value).unwrap_or_default().into_bytes())
    } else {
        (MediaType::Json, serde_json::to_vec_pretty(&value).unwrap_or_default())
    };
    let content_type = HeaderValue::from_static(content_type.as_str());
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    *response.body_mut() = Body::from(body);
    response
}

/// A status that is no success, in JSON.
pub fn failure(status: &Status) -> Response {
    let mut body = status.to_json();
    body.push(b'\n');
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if let Some(seconds) = status.retry_after_seconds() {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Plain text, as the API server answers what is no API.
pub(crate) fn plain(code: StatusCode, text: impl Into<String>) -> Response {
    let mut response = Response::new(Body::from(text.into()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

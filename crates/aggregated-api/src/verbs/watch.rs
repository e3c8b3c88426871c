//! WATCH: a stream of events until the client goes, its time is up, or history fails it.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{HeaderValue, header};
use jiff::Timestamp;
use kube_wire::{
    accept::{Answer, As},
    field_selector::{FieldSelector, escaped},
    frame::{self, EventType, INITIAL_EVENTS_END},
    list_options::{WatchRequest, WatchStart},
    object::{Encoding, Object},
    resource_version::ResourceVersion,
    status::Status,
};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until, timeout};
use watch_cache::Delivery;

use super::{Call, read::PATIENCE};
use crate::{
    answer::{Form, type_meta},
    storage::{StorageError, Watcher},
    table::{Columns, Include},
};

/// A watch that says nothing of its end lasts so long, or up to twice.
const LEAST: Duration = Duration::from_mins(30);
/// How often a bookmark is sent.
const BOOKMARKS: Duration = Duration::from_mins(1);
/// How long before the end of a watch the last one is sent.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// What is longer is sent as it stands, and not copied for each watch.
const COPIED: usize = 4 << 10;

pub(super) async fn watch(call: &Call<'_>) -> Result<Response, Status> {
    let form = Form::acceptable(call.headers, call.query)?;
    let mut request = WatchRequest::parse(call.query, &call.served.fields)?;
    request.fields = of_path(call, request.fields)?;
    let length = request.timeout.unwrap_or_else(|| LEAST + LEAST.mul_f64(fastrand::f64()));
    let now = Instant::now();
    let begun = match begin(call, &request).await {
        Err(StorageError::Unavailable { message, retry_after }) => {
            return Err(super::unavailable(message, retry_after));
        }
        begun => begun,
    };
    // The API server looks last at what a stream can be written in.
    let form = form.fit(call.query, Answer::Watch)?;
    let state = State {
        encoder: Encoder {
            form,
            api_version: call.served.info.api_version(),
            kind: call.served.info.kind.clone(),
            columns: Columns::of(&call.served.info),
            head: true,
        },
        bookmarks: request.bookmarks,
        end: now + length,
        // A watch that is over at once has none.
        next_bookmark: now
            + if length > 2 * LAST_BOOKMARK {
                BOOKMARKS.min(length.saturating_sub(LAST_BOOKMARK))
            } else {
                length + BOOKMARKS
            },
        watcher: None,
        ready: VecDeque::new(),
    };
    let body = match begun {
        Ok(watcher) => {
            let state = State { watcher: Some(watcher), ..state };
            Body::from_stream(stream::unfold(state, next))
        }
        // The version was understood, so the stream begins and says why it ends.
        Err(error) => Body::from(frame::watch_error(Encoding::Json, &ended(call, &request, error))),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_static(form.representation.encoding.of_watch());
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

/// The fields that it selects: a watch whose path names an object, `watch/RESOURCE/NAME`, was authorized for that one alone, and is of no
/// other. The API server takes that name for a field selector (`ListResource` of k8s.io/apiserver).
fn of_path(call: &Call<'_>, fields: FieldSelector) -> Result<FieldSelector, Status> {
    const NAME: &str = "metadata.name";
    // The name of any other watch is the one that its selector requires.
    let Some(name) = call.path.name.as_deref().filter(|_| call.path.verb_in_path) else { return Ok(fields) };
    if fields.is_everything() {
        return FieldSelector::parse(&format!("{NAME}={}", escaped(name)), &call.served.fields)
            .map_err(|error| Status::bad_request(error.to_string()));
    }
    if fields.requires_exactly(NAME) == Some(name) {
        return Ok(fields);
    }
    Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"))
}

/// Begins it; a version that is not there yet is waited for.
async fn begin(call: &Call<'_>, request: &WatchRequest) -> Result<Box<dyn Watcher>, StorageError> {
    let storage = &call.served.storage;
    let scope = call.scope();
    match (storage.watch(call.user, &scope, request).await, &request.start) {
        (Err(StorageError::Behind { .. }), WatchStart::Initial { at_least: Some(version), .. }) => {
            // Whether it came in time is told by the second attempt.
            let _ = timeout(PATIENCE, storage.reached(*version)).await;
            storage.watch(call.user, &scope, request).await
        }
        (begun, _) => begun,
    }
}

fn ended(call: &Call<'_>, request: &WatchRequest, error: StorageError) -> Status {
    match (error, &request.start) {
        (StorageError::Expired { asked, oldest }, _) => Status::too_old(asked, oldest),
        (StorageError::Behind { current }, WatchStart::Initial { at_least: Some(asked), .. }) => {
            Status::too_large(*asked, Some(current))
        }
        (error, _) => call.status(error),
    }
}

/// A watch under way.
struct State {
    encoder: Encoder,
    bookmarks: bool,
    end: Instant,
    next_bookmark: Instant,
    /// `None` when it is over.
    watcher: Option<Box<dyn Watcher>>,
    /// What is to be sent before anything else is looked for.
    ready: VecDeque<Bytes>,
}

/// The next bytes; `None` at the end.
async fn next(mut state: State) -> Option<(Result<Bytes, std::convert::Infallible>, State)> {
    loop {
        if let Some(bytes) = state.ready.pop_front() {
            return Some((Ok(bytes), state));
        }
        let watcher = state.watcher.as_mut()?;
        let mut out = Out::default();
        tokio::select! {
            biased;
            () = sleep_until(state.end) => return None,
            happened = watcher.next() => match happened {
                Ok(_) if state.encoder.form.fits_no_event() => return None,
                Ok(deliveries) => {
                    for delivery in deliveries {
                        state.encoder.delivery(&delivery, &mut out);
                    }
                }
                Err(error) => {
                    let status = match error {
                        StorageError::Expired { asked, oldest } => Status::too_old(asked, oldest),
                        StorageError::Unavailable { message, retry_after } => super::unavailable(message, retry_after),
                        StorageError::Refused(status) => *status,
                        StorageError::Behind { .. } | StorageError::Conflict => {
                            Status::internal_error("the watch lost its place")
                        }
                    };
                    out.text.extend_from_slice(&frame::watch_error(Encoding::Json, &status));
                    state.watcher = None;
                }
            },
            () = sleep_until(state.next_bookmark), if state.bookmarks => {
                if state.encoder.form.fits_no_event() {
                    return None;
                }
                if let Some(told) = watcher.told() {
                    state.encoder.bookmark(told, false, &mut out.text);
                }
                let last = state.end - LAST_BOOKMARK;
                let now = Instant::now();
                // After the last there is none before the end.
                state.next_bookmark = if now >= last { state.end + BOOKMARKS } else { last.min(now + BOOKMARKS) };
            }
        }
        state.ready = out.pieces();
    }
}

/// What is written of some events: short pieces together, long ones as they stand.
#[derive(Default)]
struct Out {
    pieces: VecDeque<Bytes>,
    text: BytesMut,
}

impl Out {
    fn push(&mut self, piece: Bytes) {
        if piece.len() <= COPIED {
            self.text.extend_from_slice(&piece);
            return;
        }
        self.end_text();
        self.pieces.push_back(piece);
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.pieces.push_back(self.text.split().freeze());
        }
    }

    fn pieces(mut self) -> VecDeque<Bytes> {
        self.end_text();
        self.pieces
    }
}

/// Writes events as the client wants them.
struct Encoder {
    form: Form,
    api_version: String,
    kind: String,
    columns: Columns,
    /// Whether the next table tells the columns.
    head: bool,
}

impl Encoder {
    fn delivery(&mut self, delivery: &Delivery, out: &mut Out) {
        match delivery {
            Delivery::Added(object) => self.event("ADDED", EventType::Added, object, out),
            Delivery::Modified(object) => self.event("MODIFIED", EventType::Modified, object, out),
            Delivery::Deleted(object) => self.event("DELETED", EventType::Deleted, object, out),
            Delivery::InitialEnd(version) => self.bookmark(*version, true, &mut out.text),
            Delivery::Bookmark(version) => self.bookmark(*version, false, &mut out.text),
        }
    }

    fn event(&mut self, name: &str, event: EventType, object: &Arc<Object>, out: &mut Out) {
        if self.form.representation.as_ == As::Table {
            if let Ok(value) = serde_json::from_slice::<Value>(object.body()) {
                self.row(name, &value, self.form.include, &mut out.text);
            }
            return;
        }
        let meta = type_meta(&self.api_version, &self.kind);
        for piece in frame::watch_event(self.form.frame(), meta, event, object) {
            out.push(piece);
        }
    }

    fn bookmark(&mut self, version: ResourceVersion, end: bool, out: &mut BytesMut) {
        if self.form.representation.as_ == As::Table {
            let mut metadata = json!({ "resourceVersion": version.to_string() });
            if end {
                metadata["annotations"] = json!({ (INITIAL_EVENTS_END): "true" });
            }
            let object = json!({ "kind": self.kind, "apiVersion": self.api_version, "metadata": metadata });
            // Its annotation is what the end is known by, so it comes along also where rows carry nothing.
            let include = match self.form.include {
                Include::Nothing if end => Include::Metadata,
                include => include,
            };
            return self.row("BOOKMARK", &object, include, out);
        }
        let meta = type_meta(&self.api_version, &self.kind);
        out.extend_from_slice(&frame::bookmark(self.form.frame(), meta, version, end));
    }

    fn row(&mut self, name: &str, object: &Value, include: Include, out: &mut BytesMut) {
        let version = self.form.representation.meta_version;
        let row = self.columns.row(object, include, version, Timestamp::now());
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), object["metadata"]["resourceVersion"].clone());
        let table = self.columns.table(version, metadata, vec![row], std::mem::take(&mut self.head));
        let event = json!({ "type": name, "object": table });
        out.extend_from_slice(&serde_json::to_vec(&event).unwrap_or_default());
        out.extend_from_slice(b"\n");
    }
}

//! The loop of a client: list, watch, resume; what to do about each error is client-go's (`tools/cache/reflector.go`).

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::connection::{Answer, ConnectionError, Endpoint};
use super::pause::Pauses;
use super::{ClientOptions, Progress, Recorder, Recording, protobuf};
use crate::history::{Change, End, ListAt, Observation, Request, Scope, State, key, version};

/// How the last attempt ended, and so what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Go on from the version held.
    Resume,
    /// The same after a pause.
    BackOff,
    /// List again.
    Relist,
    /// List again, at the most recent version.
    RelistMostRecent,
}

pub(super) struct Reflector {
    endpoint: Endpoint,
    options: ClientOptions,
    scope: Scope,
    recorder: Recorder,
    state: Arc<Mutex<State>>,
    progress: watch::Sender<Progress>,
    resource: String,
    /// The last version shown; none before the first.
    rv: Option<u64>,
    /// A version that is gone must not be asked for again.
    most_recent: bool,
    /// Whether the last answer was that it must not, or that there is nothing of the kind.
    is_refused: bool,
}

impl Reflector {
    pub(super) fn new(
        endpoint: Endpoint,
        options: ClientOptions,
        scope: Scope,
        recorder: Recorder,
        state: Arc<Mutex<State>>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        let resource = options.path.rsplit('/').next().unwrap_or_default().to_owned();
        Self {
            endpoint,
            options,
            scope,
            recorder,
            state,
            progress,
            resource,
            rv: None,
            most_recent: false,
            is_refused: false,
        }
    }

    pub(super) async fn run(mut self) {
        let mut whole = false;
        let mut pauses = Pauses::new(self.options.backoff, self.options.happens.clone());
        loop {
            self.is_refused = false;
            let watched = whole;
            let next = if whole {
                self.watch().await
            } else if self.options.watch_list {
                self.watch_list(&mut whole).await
            } else {
                self.list(&mut whole).await
            };
            match next {
                Next::Resume => {
                    pauses.reset();
                    if watched && !self.options.away.is_zero() {
                        tokio::time::sleep(self.options.away).await;
                    }
                    continue;
                }
                Next::BackOff => {}
                Next::Relist => whole = false,
                Next::RelistMostRecent => (whole, self.most_recent) = (false, true),
            }
            pauses.wait(self.is_refused).await;
        }
    }

    fn begin(&self, request: Request) -> Recording {
        self.recorder.begin(&self.options.name, &self.resource, &self.scope, request)
    }

    fn failed(&self, code: u16) {
        self.progress.send_modify(|progress| *progress.errors.entry(code).or_default() += 1);
    }

    fn at(&mut self, rv: u64) {
        self.rv = Some(rv);
        self.progress.send_modify(|progress| progress.resource_version = rv.to_string());
    }

    /// An answer that is an error.
    async fn refused(&mut self, recording: &Recording, answer: &mut Answer) -> Next {
        let code = answer.status.as_u16();
        self.is_refused = matches!(code, 403 | 404);
        self.failed(code);
        let body = answer.bytes().await.unwrap_or_default();
        let status = read(is_protobuf(answer), &body).unwrap_or_default();
        recording.observe(Observation::Error { code, message: text(&status["message"]) });
        recording.end(End::Clean);
        Self::after_error(&status, code)
    }

    fn after_error(status: &Value, code: u16) -> Next {
        let too_large = status["details"]["causes"].as_array().into_iter().flatten();
        let too_large = too_large.into_iter().any(|cause| cause["reason"] == "ResourceVersionTooLarge");
        match code {
            410 => Next::RelistMostRecent,
            504 if too_large => Next::RelistMostRecent,
            429 => Next::BackOff,
            _ => Next::Relist,
        }
    }

    fn broken(&self, _: &ConnectionError) -> Next {
        self.failed(0);
        Next::BackOff
    }

    async fn list(&mut self, whole: &mut bool) -> Next {
        self.progress.send_modify(|progress| progress.lists += 1);
        let (at, rv) = match self.rv {
            _ if self.most_recent => (ListAt::MostRecent, String::new()),
            None => (ListAt::Any, "0".to_owned()),
            Some(rv) => (ListAt::NotOlderThan(rv), rv.to_string()),
        };
        let recording = self.begin(Request::List(at));
        // A limit with a version that is not 0 asks for just that version: client-go leaves it out.
        let limit = self.options.page_size.filter(|_| !matches!(at, ListAt::NotOlderThan(_)));
        let limit = limit.map_or_else(String::new, |limit| limit.to_string());
        let mut parameters = vec![("resourceVersion", rv), ("limit", limit)];
        let mut state = State::new();
        loop {
            let body = match self.endpoint.get(&self.options.path_with(&parameters), self.accept()).await {
                Ok(mut answer) if answer.status == 200 => {
                    recording.answered(&answer.headers);
                    let is_protobuf = is_protobuf(&answer);
                    answer.bytes().await.map(|body| read(is_protobuf, &body))
                }
                Ok(mut answer) => return self.refused(&recording, &mut answer).await,
                Err(error) => Err(error),
            };
            let body = match body {
                Ok(body) => body,
                Err(error) => return self.broken(&error),
            };
            let Some(page) = body else {
                recording.observe(Observation::Error {
                    code: 0,
                    message: "a page that cannot be read".to_owned(),
                });
                return Next::BackOff;
            };
            let token = text(&page["metadata"]["continue"]);
            let items = page["items"].as_array().cloned().unwrap_or_default();
            state.extend(items.iter().map(|item| (key(item), item.clone())));
            let rv = version(&page);
            let remaining = page["metadata"]["remainingItemCount"].as_u64();
            recording.observe(Observation::Page { rv, items, more: !token.is_empty(), remaining });
            if token.is_empty() {
                recording.end(End::Clean);
                self.become_whole(state, rv);
                *whole = true;
                return Next::Resume;
            }
            let limit = self.options.page_size.map_or_else(String::new, |limit| limit.to_string());
            parameters = vec![("continue", token), ("limit", limit)];
        }
    }

    fn become_whole(&mut self, state: State, rv: u64) {
        *self.state.lock() = state;
        self.most_recent = false;
        self.at(rv);
        self.progress.send_modify(|progress| progress.synced = true);
    }

    fn accept(&self) -> &'static str {
        if self.options.protobuf {
            "application/vnd.kubernetes.protobuf,application/json"
        } else {
            "application/json"
        }
    }

    fn timeout(&self) -> (&'static str, String) {
        ("timeoutSeconds", self.options.watch_timeout.as_secs().max(1).to_string())
    }

    async fn watch(&mut self) -> Next {
        let rv = self.rv.unwrap_or(0);
        let parameters = [
            ("watch", "1".to_owned()),
            ("resourceVersion", rv.to_string()),
            ("allowWatchBookmarks", "true".to_owned()),
            self.timeout(),
        ];
        let recording = self.begin(Request::WatchAfter(rv));
        self.follow(&recording, &parameters, None, &mut true).await
    }

    async fn watch_list(&mut self, whole: &mut bool) -> Next {
        let at_least = self.rv.filter(|_| !self.most_recent);
        let recording = self.begin(Request::WatchInitial { at_least, bookmarks: true });
        let parameters = [
            ("watch", "1".to_owned()),
            ("sendInitialEvents", "true".to_owned()),
            ("resourceVersionMatch", "NotOlderThan".to_owned()),
            ("allowWatchBookmarks", "true".to_owned()),
            ("resourceVersion", at_least.map_or_else(String::new, |rv| rv.to_string())),
            self.timeout(),
        ];
        self.follow(&recording, &parameters, Some(State::new()), whole).await
    }

    /// Reads a watch to its end. `initial` gathers the state until its mark.
    async fn follow(
        &mut self,
        recording: &Recording,
        parameters: &[(&str, String)],
        mut initial: Option<State>,
        whole: &mut bool,
    ) -> Next {
        self.progress.send_modify(|progress| progress.watches += 1);
        let mut answer = match self.endpoint.get(&self.options.path_with(parameters), self.accept()).await {
            Ok(answer) if answer.status == 200 => answer,
            Ok(mut answer) => return self.refused(recording, &mut answer).await,
            Err(error) => return self.broken(&error),
        };
        recording.opened();
        recording.answered(&answer.headers);
        let is_protobuf = is_protobuf(&answer);
        let started = tokio::time::Instant::now();
        let mut buffer = Vec::new();
        let mut events = 0_usize;
        loop {
            match answer.chunk().await {
                Ok(Some(chunk)) => buffer.extend_from_slice(&chunk),
                Ok(None) => {
                    recording.end(End::Clean);
                    // A watch that ends at once and says nothing is an error to client-go.
                    let short = events == 0 && started.elapsed() < Duration::from_secs(1);
                    return if short { Next::BackOff } else { Next::Resume };
                }
                Err(error) => return self.broken(&error),
            }
            let read = if is_protobuf { protobuf::events(&mut buffer) } else { lines(&mut buffer) };
            for event in read {
                let Some(event) = event else {
                    recording.observe(Observation::Error {
                        code: 0,
                        message: "an event that cannot be read".to_owned(),
                    });
                    return Next::Relist;
                };
                events += 1;
                if let Some(next) = self.event(recording, &event, &mut initial, whole) {
                    return next;
                }
            }
        }
    }

    fn event(
        &mut self,
        recording: &Recording,
        event: &Value,
        initial: &mut Option<State>,
        whole: &mut bool,
    ) -> Option<Next> {
        let object = &event["object"];
        let change = match event["type"].as_str() {
            Some("ADDED") => Change::Added,
            Some("MODIFIED") => Change::Modified,
            Some("DELETED") => Change::Deleted,
            Some("BOOKMARK") => {
                let initial_end = object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
                let rv = version(object);
                recording.observe(Observation::Bookmark { rv, initial_end });
                match initial.take() {
                    Some(state) if initial_end => {
                        self.become_whole(state, rv);
                        *whole = true;
                    }
                    // A version counts once the state of it is whole.
                    Some(state) => *initial = Some(state),
                    None => self.at(rv),
                }
                return None;
            }
            _ => {
                let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
                self.failed(code);
                recording.observe(Observation::Error { code, message: text(&object["message"]) });
                recording.end(End::Clean);
                // A list that is not older than the version held makes up for what the watch has lost; only a WatchList
                // has to let go of that version.
                return Some(match Self::after_error(object, code) {
                    Next::RelistMostRecent if initial.is_some() => Next::RelistMostRecent,
                    Next::BackOff => Next::BackOff,
                    _ => Next::Relist,
                });
            }
        };
        recording.observe(Observation::Event(change, object.clone()));
        let apply = |state: &mut State| match change {
            Change::Deleted => state.remove(&key(object)),
            _ => state.insert(key(object), object.clone()),
        };
        if let Some(state) = initial {
            apply(state);
        } else {
            apply(&mut self.state.lock());
            self.at(version(object));
        }
        None
    }
}

fn is_protobuf(answer: &Answer) -> bool {
    let content_type = answer.headers.get("content-type").map(HeaderValue::as_bytes).unwrap_or_default();
    content_type.starts_with(b"application/vnd.kubernetes.protobuf")
}

/// A body, if it can be read.
fn read(is_protobuf: bool, body: &[u8]) -> Option<Value> {
    if is_protobuf { protobuf::body(body) } else { serde_json::from_slice(body).ok() }
}

/// Takes the whole lines from the beginning of what has come; nothing stands for one that is no JSON.
fn lines(buffer: &mut Vec<u8>) -> Vec<Option<Value>> {
    let whole = buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let lines: Vec<u8> = buffer.drain(..whole).collect();
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).ok()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

//! A client of the watch API that follows client-go's rules, and records all it sees for the checker.
//!
//! A reflector: list, watch from the list's version, resume after breaks, list again after 410. Or `WatchList`: a watch that
//! begins with the state. It keeps the state it has come to, as an informer's store does.

pub mod connection;
mod kept;
mod pause;
mod protobuf;
mod reflector;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::connection::Endpoint;
use crate::history::{End, Observation, Request, Scope, Session, State};
use crate::selector::{FieldSelector, LabelSelector, SelectorError};

/// What a client is to do.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Its name in sessions.
    pub name: String,
    /// The path of the collection, as `/api/v1/services` or `/api/v1/namespaces/a/pods`.
    pub path: String,
    /// As in `labelSelector=`, or empty.
    pub labels: String,
    /// As in `fieldSelector=`, or empty.
    pub fields: String,
    /// Whether it begins with a watch, as client-go does since 0.35.
    pub watch_list: bool,
    /// Whether it asks for protobuf rather than JSON; of Services alone.
    pub protobuf: bool,
    /// The size of pages; none for whole lists.
    pub page_size: Option<u64>,
    /// `timeoutSeconds` of its watches.
    pub watch_timeout: Duration,
    /// The first pause after an error; it doubles up to 16 times this.
    pub backoff: Duration,
    /// How long it is away after each watch that ended well, before it comes back with the version that it has.
    pub away: Duration,
    /// Tells that something happens. With this, a client that is refused (403, 404) asks more seldom while nothing does: a history has minutes
    /// in which nothing happens, and most of its requests would be these.
    pub happens: Option<watch::Receiver<()>>,
}

impl ClientOptions {
    /// A reflector of everything at `path`.
    pub fn new(name: &str, path: &str) -> Self {
        Self {
            name: name.to_owned(),
            path: path.to_owned(),
            labels: String::new(),
            fields: String::new(),
            watch_list: false,
            protobuf: false,
            page_size: None,
            watch_timeout: Duration::from_mins(5),
            backoff: Duration::from_millis(20),
            away: Duration::ZERO,
            happens: None,
        }
    }

    /// What the checker has to know of its scope.
    pub fn scope(&self) -> Result<Scope, SelectorError> {
        let namespace = self.path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
        Ok(Scope {
            namespace: namespace.map(|(namespace, _)| namespace.to_owned()),
            labels: LabelSelector::parse(&self.labels)?,
            fields: FieldSelector::parse(&self.fields)?,
        })
    }

    /// Its path with these parameters and its selectors; empty ones are left out.
    pub fn path_with(&self, parameters: &[(&str, String)]) -> String {
        let selectors = [("labelSelector", self.labels.clone()), ("fieldSelector", self.fields.clone())];
        let all = parameters.iter().chain(&selectors).filter(|(_, value)| !value.is_empty());
        let pairs: Vec<_> = all
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
            .collect();
        format!("{}?{}", self.path, pairs.join("&"))
    }
}

/// What a client has come to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Whether it has had the whole state once.
    pub synced: bool,
    /// The last version it was shown; empty before.
    pub resource_version: String,
    /// Relists so far, the first list among them.
    pub lists: usize,
    /// Watches it has opened.
    pub watches: usize,
    /// Errors it was answered, by code; 0 stands for connections that were refused or broke.
    pub errors: BTreeMap<u16, usize>,
}

/// Where clients record their sessions, in the order they begin.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    sessions: Arc<Mutex<Vec<Session>>>,
    user: String,
    epoch: Arc<AtomicUsize>,
}

/// A session that is being recorded. Once it is dropped nothing more is read.
#[derive(Debug)]
pub struct Recording {
    sessions: Arc<Mutex<Vec<Session>>>,
    index: usize,
}

impl Recorder {
    /// The same, for clients that ask as this user, who may be shown what is held for nobody else.
    #[must_use]
    pub fn of_user(&self, user: &str) -> Self {
        Self { user: user.to_owned(), sessions: self.sessions.clone(), epoch: Arc::default() }
    }

    /// A restore of the cluster has been noticed: who of these clients asks from now on must not be shown what it undid.
    pub fn restored(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Begins a session. Until [`Recording::end`] it counts as broken.
    pub fn begin(&self, client: &str, resource: &str, scope: &Scope, request: Request) -> Recording {
        let mut sessions = self.sessions.lock();
        sessions.push(Session {
            client: client.to_owned(),
            resource: resource.to_owned(),
            scope: scope.clone(),
            request,
            began: Instant::now(),
            observations: Vec::new(),
            end: End::Broken,
            user: self.user.clone(),
            times: Vec::new(),
            open: None,
            epoch: self.epoch.load(Ordering::SeqCst),
            handed_on: false,
            is_old: false,
        });
        Recording { sessions: self.sessions.clone(), index: sessions.len() - 1 }
    }

    /// The sessions so far. Those that are open count as broken; with `quiescent`, as quiescent.
    pub fn sessions(&self) -> Vec<Session> {
        self.sessions.lock().clone()
    }

    /// Says that nothing more is to come: the last session of each client, if it is a watch that is open, is quiescent. One that was broken off, also
    /// by a client that was stopped, was told of nothing after that and stays what it is.
    pub fn mark_quiescent(&self, open: impl Fn(&str) -> bool) {
        let mut sessions = self.sessions.lock();
        let mut done = std::collections::HashSet::new();
        for session in sessions.iter_mut().rev() {
            let last = done.insert((session.client.clone(), session.resource.clone()));
            let failed = matches!(session.observations.last(), Some(Observation::Error { .. }));
            if last
                && open(&session.client)
                && !matches!(session.request, Request::List(_))
                && !failed
                && matches!(session.open, Some((_, None)))
                && session.end == End::Broken
            {
                session.end = End::Quiescent;
            }
        }
    }
}

impl Recording {
    /// Adds what was seen.
    pub fn observe(&self, observation: Observation) {
        if let Some(session) = self.sessions.lock().get_mut(self.index) {
            session.observations.push(observation);
            session.times.push(Instant::now());
        }
    }

    /// Says that there is an answer, and that it is no error.
    pub fn opened(&self) {
        if let Some(session) = self.sessions.lock().get_mut(self.index) {
            session.open = Some((Instant::now(), None));
        }
    }

    /// Notes whether an answer is the API server's own, which has a header that nobody else gives, and whether it says that it may be old.
    pub fn answered(&self, headers: &HeaderMap) {
        if let Some(session) = self.sessions.lock().get_mut(self.index) {
            session.handed_on |= headers.contains_key("audit-id");
            session.is_old |= headers.contains_key("warning");
        }
    }

    /// Says how it ended.
    pub fn end(&self, end: End) {
        if let Some(session) = self.sessions.lock().get_mut(self.index) {
            session.end = end;
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.lock().get_mut(self.index)
            && let Some((_, ended)) = &mut session.open
        {
            ended.get_or_insert_with(Instant::now);
        }
    }
}

/// A running client. It stops when this is dropped.
#[derive(Debug)]
pub struct TestClient {
    state: Arc<Mutex<State>>,
    progress: watch::Receiver<Progress>,
    scope: Scope,
    tasks: JoinSet<()>,
}

impl TestClient {
    /// Starts a client that talks to `endpoint`.
    pub fn start(
        endpoint: Endpoint,
        options: ClientOptions,
        recorder: &Recorder,
    ) -> Result<Self, SelectorError> {
        let scope = options.scope()?;
        let (sender, progress) = watch::channel(Progress::default());
        let state = Arc::<Mutex<State>>::default();
        let reflector = reflector::Reflector::new(
            endpoint,
            options,
            scope.clone(),
            recorder.clone(),
            state.clone(),
            sender,
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(reflector.run());
        Ok(Self { state, progress, scope, tasks })
    }

    /// What it has come to.
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// The objects it holds.
    pub fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// Which objects it is about.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Waits until it has synced and `wanted` holds of its state; false if not in time.
    pub async fn wait_for(&mut self, timeout: Duration, wanted: impl Fn(&State) -> bool) -> bool {
        let state = self.state.clone();
        let reached = self.progress.wait_for(|progress| progress.synced && wanted(&state.lock()));
        matches!(tokio::time::timeout(timeout, reached).await, Ok(Ok(_)))
    }

    /// Stops it, as a process that ends.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// A watch event in one line: `ADDED x@3`, `BOOKMARK @5 end`, `ERROR 410`.
///
/// # Panics
/// If it is no watch event.
pub fn brief(event: &Value) -> String {
    let (change, object) = (event["type"].as_str().expect("an event has a type"), &event["object"]);
    if change == "ERROR" {
        return format!("ERROR {}", object["code"]);
    }
    let metadata = &object["metadata"];
    let end = metadata["annotations"]["k8s.io/initial-events-end"].as_str().map_or("", |_| " end");
    let name = metadata["name"].as_str().unwrap_or_default();
    let version = metadata["resourceVersion"].as_str().expect("an object has a version");
    format!("{change} {name}@{version}{end}")
}

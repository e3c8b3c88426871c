//! Watches: the events of a scope from a version on, as selectors let them appear, and bookmarks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Server;
use super::kind::Kind;
use super::list::Scope;
use super::options::Options;
use super::represent::{Form, Shape};
use super::status::{Answer, Status};
use super::store::{Event, Stored};

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    After(u64),
    /// With the state not older than this; at any version if 0, at the most recent if none.
    Initial(Option<u64>),
    Live,
}

/// Frames are given to the connection in bunches of about this size.
const BUNCH: usize = 64 * 1024;

/// A watch without a deadline of its own ends after this.
const LONGEST: Duration = Duration::from_mins(30);

struct Watch {
    server: Arc<Server>,
    kind: Arc<Kind>,
    id: String,
    scope: Scope,
    options: Options,
    form: Form,
    start: Option<Start>,
    incarnation: u64,
    epoch: usize,
    cursor: u64,
    first: bool,
    ended: bool,
    deadline: Instant,
    next_bookmark: Instant,
    changes: watch::Receiver<u64>,
    bookmarks: watch::Receiver<u64>,
}

/// Opens a watch. Errors are answers of their own; what goes wrong later is within the stream.
pub(crate) fn open(
    server: &Arc<Server>,
    kind: &Arc<Kind>,
    namespace: Option<&str>,
    options: Options,
    form: Form,
) -> Answer<BoxStream<'static, Bytes>> {
    let version = options.version().map_err(|problem| Status::new(500, "", &problem))?;
    let start = match (options.send_initial_events, version) {
        (Some(true), None) => Start::Initial(None),
        (Some(true), Some(rv)) => Start::Initial(Some(rv)),
        (Some(false), None | Some(0)) => Start::Live,
        (None, None | Some(0)) => Start::Initial(Some(0)),
        (_, Some(rv)) => Start::After(rv),
    };
    let timeout = match options.timeout_seconds {
        None | Some(0) => LONGEST,
        Some(seconds) => Duration::from_secs(seconds.try_into().unwrap_or(0)),
    };
    let id = kind.id();
    let changes = server.cluster.changes();
    let (incarnation, epoch) = {
        let store = server.cluster.store();
        let table = store.tables.get(&id).ok_or_else(Status::no_such_resource)?;
        (table.incarnation, store.epoch())
    };
    let now = Instant::now();
    let watch = Watch {
        server: server.clone(),
        kind: kind.clone(),
        id,
        scope: Scope::new(kind, namespace, &options),
        options,
        form,
        start: Some(start),
        incarnation,
        epoch,
        cursor: 0,
        first: true,
        ended: form.shape == Shape::MetadataList,
        deadline: now + timeout,
        next_bookmark: now + server.options.bookmark_interval,
        changes,
        bookmarks: server.bookmarks.subscribe(),
    };
    let next = |mut watch: Watch| async move { watch.next().await.map(|bytes| (bytes, watch)) };
    Ok(stream::unfold(watch, next).boxed())
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended || self.deadline <= Instant::now() {
            return None;
        }
        if let Some(start) = self.start.take()
            && let Some(bytes) = self.begin(start).await
        {
            return Some(bytes);
        }
        loop {
            if self.ended {
                return None;
            }
            self.changes.mark_unchanged();
            let bytes = self.events();
            if !bytes.is_empty() {
                return Some(bytes.into());
            }
            if self.ended {
                return None;
            }
            let asked = self.options.bookmarks;
            tokio::select! {
                _ = self.changes.changed() => {}
                Ok(()) = self.bookmarks.changed(), if asked => if let Some(bytes) = self.bookmark() {
                    return Some(bytes);
                },
                () = sleep_until(self.next_bookmark), if asked => {
                    self.next_bookmark = Instant::now() + self.server.options.bookmark_interval;
                    if let Some(bytes) = self.bookmark() {
                        return Some(bytes);
                    }
                }
                () = sleep_until(self.deadline) => return None,
            }
        }
    }

    fn fail(&mut self, status: &Status) -> Bytes {
        self.ended = true;
        self.form.error(status)
    }

    fn bookmark(&mut self) -> Option<Bytes> {
        let view = self.server.view();
        // What has no event yet must not be overtaken.
        if view < self.cursor || !self.server.cluster.store().events(&self.id, self.cursor, view).is_empty() {
            return None;
        }
        self.cursor = view;
        Some(self.form.bookmark(&self.kind, view, false, std::mem::take(&mut self.first)))
    }

    async fn begin(&mut self, start: Start) -> Option<Bytes> {
        let at_least = match start {
            Start::After(rv) => {
                self.cursor = rv;
                let store = self.server.cluster.store();
                let oldest = store.tables.get(&self.id).map_or(0, |table| table.since).max(store.compacted);
                drop(store);
                return (rv < oldest).then(|| self.fail(&Status::expired_watch(rv, oldest)));
            }
            Start::Live => {
                self.cursor = self.server.view();
                return None;
            }
            Start::Initial(Some(at_least)) => at_least,
            Start::Initial(None) => self.server.cluster.revision(),
        };
        if let Err(status) = self.server.wait_for(at_least).await {
            return Some(self.fail(&status));
        }
        let rv = self.server.view();
        let objects = self.server.cluster.store().at(&self.id, rv);
        self.cursor = rv;
        let mut out = Vec::new();
        for (key, stored) in &objects {
            if self.scope.has(key) && self.selects(stored) {
                let first = std::mem::take(&mut self.first);
                out.extend_from_slice(&self.form.event(&self.kind, "ADDED", stored, first));
            }
        }
        // As it always did, zero that is not the text "0" brings the state alone.
        if self.options.bookmarks && self.options.send_initial_events == Some(true) {
            let first = std::mem::take(&mut self.first);
            out.extend_from_slice(&self.form.bookmark(&self.kind, rv, true, first));
        }
        (!out.is_empty()).then(|| out.into())
    }

    fn selects(&self, stored: &Stored) -> bool {
        self.options.labels.matches(&stored.value) && self.options.fields.matches(&stored.value)
    }

    /// What has happened since, up to a bunch; notes when the stream is over.
    fn events(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let view = self.server.view();
        let cluster = self.server.cluster.clone();
        let store = cluster.store();
        let same = store.tables.get(&self.id).is_some_and(|table| table.incarnation == self.incarnation);
        let events = store.events(&self.id, self.cursor, view);
        if store.epoch() != self.epoch {
            self.ended = true;
            return out;
        }
        if events.first().is_some_and(|event| event.rv <= store.compacted) && self.cursor < store.compacted {
            let status = Status::expired_watch(self.cursor, store.compacted);
            return self.fail(&status).to_vec();
        }
        for event in events {
            self.cursor = event.rv;
            self.write(event, &mut out);
            if out.len() >= BUNCH {
                return out;
            }
        }
        self.cursor = self.cursor.max(view);
        // A definition that went has deleted its objects before: those events come first.
        self.ended = !same;
        out
    }

    fn write(&mut self, event: &Event, out: &mut Vec<u8>) {
        if !self.scope.has(&event.key) {
            return;
        }
        let before = event.previous.as_deref().is_some_and(|previous| self.selects(previous));
        let after = event.object.as_deref().filter(|object| self.selects(object));
        let (change, stored) = match (before, after) {
            (false, None) => return,
            (false, Some(object)) => ("ADDED", object),
            (true, Some(object)) => ("MODIFIED", object),
            (true, None) => match event.leaving(&self.kind) {
                Some(leaving) => ("DELETED", leaving.as_ref()),
                None => return,
            },
        };
        let first = std::mem::take(&mut self.first);
        out.extend_from_slice(&self.form.event(&self.kind, change, stored, first));
    }
}

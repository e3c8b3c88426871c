//! Watches of all objects, and how long each report took to come to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use kube_wire::frame::INITIAL_EVENTS_END;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::link::{Kind, Link};

/// What stands in each event, near its end: when the node took the sample.
const MARK: &[u8] = b"\"sampledTime\":\"";

/// So much of the end of an event is kept to find the mark in.
const TAIL: usize = 2_048;

/// How events begin that no watcher should be told while nothing is deleted.
const DELETED: &[u8] = b"{\"type\":\"DELETED\"";
const ERROR: &[u8] = b"{\"type\":\"ERROR\"";

/// How the event begins that may say that the state of the beginning is told, and what says it.
const BOOKMARK: &[u8] = b"{\"type\":\"BOOKMARK\"";
const INITIAL_END: &[u8] = INITIAL_EVENTS_END.as_bytes();

/// What a watch asks for that begins with the state of now.
pub(super) const FROM_STATE: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

/// How long the state of the beginning may take.
const STATE: Duration = Duration::from_mins(3);

/// How often it is looked whether all have it.
const LOOK: Duration = Duration::from_millis(100);

/// Where watches go.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) server: String,
    pub(super) name: String,
    pub(super) tls: Arc<ClientConfig>,
    /// `/apis/group/version/nodemetrics`
    pub(super) path: String,
}

impl Way {
    /// Watches `path` to the end, over a connection of its own, and reads each event.
    pub(super) async fn each_event(
        &self,
        path: &str,
        accept: &'static str,
        mut read: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut link = Link::open(&self.server, &self.name, &self.tls, Kind::Reader).await?;
        let request = http::Request::get("/").header(http::header::ACCEPT, accept);
        let response = link.send(request, path, Bytes::new()).await?;
        ensure!(response.status() == 200, "{}: {}", self.server, response.status());
        let mut body = response.into_body();
        let mut event = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame?;
            for part in
                frame.data_ref().map(|data| data.split_inclusive(|byte| *byte == b'\n')).into_iter().flatten()
            {
                event.extend_from_slice(part);
                if event.ends_with(b"\n") {
                    read(&event)?;
                    event.clear();
                }
            }
        }
        Ok(())
    }
}

/// Watches that run until they are dropped.
pub(super) struct Watchers {
    told: Arc<Told>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Told {
    listens: AtomicBool,
    events: AtomicU64,
    bytes: AtomicU64,
    deleted: AtomicU64,
    errors: AtomicU64,
    ended: AtomicU64,
    /// How many have the state that their watch began with.
    synced: AtomicU64,
    delays: Mutex<Vec<f64>>,
}

/// What they were told while they listened.
pub(super) struct Heard {
    pub(super) events: u64,
    pub(super) bytes: u64,
    /// Events that say that an object is gone.
    pub(super) deleted: u64,
    /// Events that say that a watch cannot go on.
    pub(super) errors: u64,
    /// Milliseconds from the sample to its arrival.
    pub(super) delays: Vec<f64>,
}

impl Watchers {
    /// Opens `count` watches, each over a connection of its own, and waits until they have the state of now: who is still reading that is told
    /// late of all that happens meanwhile.
    pub(super) async fn open(way: &Way, count: usize) -> Result<Self> {
        let told = Arc::new(Told::default());
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let mut link = Link::open(&way.server, &way.name, &way.tls, Kind::Reader).await?;
            let path =
                format!("{}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3000&{FROM_STATE}", way.path);
            let request = http::Request::get("/").header(http::header::ACCEPT, "application/json");
            let response = link.send(request, &path, Bytes::new()).await?;
            ensure!(response.status() == 200, "{}: {}", way.server, response.status());
            let told = told.clone();
            tasks.spawn(async move {
                let mut body = response.into_body();
                let mut event = Line::default();
                while let Some(Ok(frame)) = body.frame().await {
                    if let Some(data) = frame.data_ref() {
                        read(&told, &mut event, data);
                    }
                }
                told.ended.fetch_add(1, Relaxed);
                drop(link);
            });
        }
        let read = async {
            while told.synced.load(Relaxed) < count as u64 {
                ensure!(told.ended.load(Relaxed) == 0, "a watch ended before it had told of the state");
                sleep(LOOK).await;
            }
            anyhow::Ok(())
        };
        timeout(STATE, read).await.context("not all watchers have read the state")??;
        Ok(Self { told, _tasks: tasks })
    }

    /// From now on what comes is counted.
    pub(super) fn listen(&self) {
        self.told.delays.lock().clear();
        self.told.events.store(0, Relaxed);
        self.told.bytes.store(0, Relaxed);
        self.told.deleted.store(0, Relaxed);
        self.told.errors.store(0, Relaxed);
        self.told.listens.store(true, Relaxed);
    }

    /// What came since [`Watchers::listen`].
    pub(super) fn heard(&self) -> Result<Heard> {
        self.told.listens.store(false, Relaxed);
        let ended = self.told.ended.load(Relaxed);
        ensure!(ended == 0, "{ended} watches ended");
        Ok(Heard {
            events: self.told.events.load(Relaxed),
            bytes: self.told.bytes.load(Relaxed),
            deleted: self.told.deleted.load(Relaxed),
            errors: self.told.errors.load(Relaxed),
            delays: std::mem::take(&mut self.told.delays.lock()),
        })
    }
}

/// What is kept of a line that is not whole yet.
#[derive(Default)]
struct Line {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Line {
    fn keep(&mut self, data: &[u8]) {
        let room = DELETED.len().saturating_sub(self.head.len()).min(data.len());
        self.head.extend_from_slice(data.get(..room).unwrap_or_default());
        let data = data.get(data.len().saturating_sub(TAIL)..).unwrap_or_default();
        let over = (self.tail.len() + data.len()).saturating_sub(TAIL).min(self.tail.len());
        self.tail.drain(..over);
        self.tail.extend_from_slice(data);
    }

    fn clear(&mut self) {
        self.head.clear();
        self.tail.clear();
    }
}

fn read(told: &Told, line: &mut Line, mut data: &[u8]) {
    let listens = told.listens.load(Relaxed);
    if listens {
        told.bytes.fetch_add(data.len() as u64, Relaxed);
    }
    while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
        let (rest_of_line, rest) = data.split_at(end + 1);
        line.keep(rest_of_line);
        if listens {
            count(told, line);
        }
        if line.head.starts_with(BOOKMARK)
            && line.tail.windows(INITIAL_END.len()).any(|window| window == INITIAL_END)
        {
            told.synced.fetch_add(1, Relaxed);
        }
        line.clear();
        data = rest;
    }
    line.keep(data);
}

fn count(told: &Told, line: &Line) {
    for (event, count) in [(DELETED, &told.deleted), (ERROR, &told.errors)] {
        if line.head.starts_with(event) {
            count.fetch_add(1, Relaxed);
        }
    }
    if let Some(sent) = marked(&line.tail) {
        told.events.fetch_add(1, Relaxed);
        let now = jiff::Timestamp::now().as_microsecond();
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a benchmark")]
        let delay = now.saturating_sub(sent) as f64 / 1e3;
        told.delays.lock().push(delay);
    }
}

/// When the sample that an event tells was taken, in microseconds.
pub(super) fn marked(tail: &[u8]) -> Option<i64> {
    let at = tail.windows(MARK.len()).rposition(|window| window == MARK)? + MARK.len();
    let rest = tail.get(at..)?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let time: jiff::Timestamp = std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()?;
    Some(time.as_microsecond())
}

//! Watches of all objects, and how long each report took to come to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use kube_wire::frame::INITIAL_EVENTS_END;
use memchr::{memchr, memmem};
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::link::{Kind, Link};

/// What stands in each event: when the node took the sample. Ours has it near the end, a custom resource near the beginning.
const MARK: &[u8] = b"\"sampledTime\":\"";

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

/// For how long it is looked how late watchers are told; and how late is not late any more.
const SAMPLE: Duration = Duration::from_secs(3);
const CAUGHT_UP_MS: f64 = 1_500.0;

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
            if let Some(data) = frame?.data_ref() {
                split(&mut event, data, &mut read)?;
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
    /// Why the first one ended that did.
    why: Mutex<Option<String>>,
}

impl Told {
    /// The first reason is kept: what comes after it says less.
    fn ends_as(&self, why: &str) {
        self.why.lock().get_or_insert_with(|| why.chars().take(300).collect());
    }

    /// That watches ended is an error, and why.
    fn check_none_ended(&self) -> Result<()> {
        let ended = self.ended.load(Relaxed);
        let why = self.why.lock().clone().unwrap_or_default();
        ensure!(ended == 0, "{ended} watches ended: {why}");
        Ok(())
    }
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
                let (mut body, mut event) = (response.into_body(), Vec::new());
                let why = loop {
                    match body.frame().await {
                        Some(Ok(frame)) => {
                            if let Some(data) = frame.data_ref() {
                                read(&told, &mut event, data);
                            }
                        }
                        Some(Err(error)) => break format!("{:#}", anyhow::Error::new(error)),
                        None => break "the server ended it".to_owned(),
                    }
                };
                told.ends_as(&why);
                told.ended.fetch_add(1, Relaxed);
                drop(link);
            });
        }
        let read = async {
            while told.synced.load(Relaxed) < count as u64 {
                told.check_none_ended().context("before all had told of the state")?;
                sleep(LOOK).await;
            }
            anyhow::Ok(())
        };
        timeout(STATE, read).await.context("not all watchers have read the state")??;
        Ok(Self { told, _tasks: tasks })
    }

    /// Waits until what they are told is of now: while they read the state, it changed.
    pub(super) async fn caught_up(&self) -> Result<()> {
        let late = async {
            loop {
                self.listen();
                sleep(SAMPLE).await;
                if self.heard()?.delays.into_iter().fold(0.0, f64::max) < CAUGHT_UP_MS {
                    return anyhow::Ok(());
                }
            }
        };
        timeout(STATE, late).await.context("watchers do not catch up with what is reported")?
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
        self.told.check_none_ended()?;
        Ok(Heard {
            events: self.told.events.load(Relaxed),
            bytes: self.told.bytes.load(Relaxed),
            deleted: self.told.deleted.load(Relaxed),
            errors: self.told.errors.load(Relaxed),
            delays: std::mem::take(&mut self.told.delays.lock()),
        })
    }
}

/// Reads what came of a watch; `line` is what has come of an event that is not whole yet.
fn read(told: &Told, line: &mut Vec<u8>, data: &[u8]) {
    if told.listens.load(Relaxed) {
        told.bytes.fetch_add(data.len() as u64, Relaxed);
    }
    // Counting fails on nothing.
    let _ = split(line, data, |event| {
        count(told, event);
        Ok(())
    });
}

/// Gives each event that is whole with `data`; `line` is what has come of the one that is not.
fn split(line: &mut Vec<u8>, mut data: &[u8], mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    while let Some(end) = memchr(b'\n', data) {
        let (rest_of_line, rest) = data.split_at(end + 1);
        line.extend_from_slice(rest_of_line);
        each(line)?;
        line.clear();
        data = rest;
    }
    line.extend_from_slice(data);
    Ok(())
}

fn count(told: &Told, event: &[u8]) {
    if event.starts_with(BOOKMARK) && memmem::find(event, INITIAL_END).is_some() {
        told.synced.fetch_add(1, Relaxed);
    }
    if event.starts_with(ERROR) {
        told.ends_as(String::from_utf8_lossy(event).trim_end());
    }
    if !told.listens.load(Relaxed) {
        return;
    }
    for (kind, count) in [(DELETED, &told.deleted), (ERROR, &told.errors)] {
        if event.starts_with(kind) {
            count.fetch_add(1, Relaxed);
        }
    }
    if let Some(sent) = marked(event) {
        told.events.fetch_add(1, Relaxed);
        let now = jiff::Timestamp::now().as_microsecond();
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a benchmark")]
        let delay = now.saturating_sub(sent) as f64 / 1e3;
        told.delays.lock().push(delay);
    }
}

/// When the sample that an event tells was taken, in microseconds.
pub(super) fn marked(event: &[u8]) -> Option<i64> {
    let rest = event.get(memmem::find(event, MARK)? + MARK.len()..)?;
    let time = rest.get(..memchr(b'"', rest)?)?;
    let time: jiff::Timestamp = std::str::from_utf8(time).ok()?.parse().ok()?;
    Some(time.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever pieces the events come in, and wherever in them the time stands.
    #[test]
    fn events_are_counted_by_what_they_are() {
        let pods = "x".repeat(60_000);
        let sampled = "\"sampledTime\":\"2026-11-27T10:00:00.000001Z\"";
        let stream = [
            format!("{{\"type\":\"ADDED\",\"object\":{{\"pods\":\"{pods}\",{sampled}}}}}\n"),
            format!("{{\"type\":\"BOOKMARK\",\"object\":{{\"{INITIAL_EVENTS_END}\":\"true\"}}}}\n"),
            format!("{{\"type\":\"MODIFIED\",\"object\":{{{sampled},\"pods\":\"{pods}\"}}}}\n"),
            "{\"type\":\"BOOKMARK\",\"object\":{}}\n".to_owned(),
            "{\"type\":\"DELETED\",\"object\":{}}\n".to_owned(),
            "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n".to_owned(),
        ]
        .concat();
        for piece in [1, 7, 4_096, stream.len()] {
            let (told, mut line) = (Told::default(), Vec::new());
            told.listens.store(true, Relaxed);
            stream.as_bytes().chunks(piece).for_each(|data| read(&told, &mut line, data));
            let counts = [&told.synced, &told.events, &told.deleted, &told.errors];
            assert_eq!(counts.map(|count| count.load(Relaxed)), [1, 2, 1, 1], "pieces of {piece}");
            assert_eq!(told.bytes.load(Relaxed), stream.len() as u64);
            assert!(told.why.lock().as_ref().is_some_and(|why| why.contains("410")));
        }
        assert_eq!(marked(sampled.as_bytes()), Some(1_795_773_600_000_001));
    }
}

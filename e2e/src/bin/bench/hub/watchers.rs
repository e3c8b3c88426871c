//! Many watches of one resource, and what each was told when.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{Client, find};
use super::instrument;
use super::load::{SENT, nanoseconds};

/// Watches that run until they are dropped.
pub(super) struct Watchers {
    shared: Arc<Shared>,
    count: usize,
    _tasks: JoinSet<()>,
}

/// What watchers say.
#[derive(Default)]
pub(super) struct Shared {
    told: AtomicUsize,
    ended: AtomicUsize,
    events: Mutex<Chunks>,
}

/// What watchers write down. Never copied as it grows: a copy of some MB would hold up all of them for 10 ms and more.
#[derive(Default)]
struct Chunks(Vec<Vec<Event>>);

impl Chunks {
    /// Events of a chunk: 32 kB.
    const LENGTH: usize = 1024;

    fn push(&mut self, event: Event) {
        match self.0.last_mut() {
            Some(last) if last.len() < Self::LENGTH => last.push(event),
            _ => {
                let mut chunk = Vec::with_capacity(Self::LENGTH);
                chunk.push(event);
                self.0.push(chunk);
            }
        }
    }
}

/// One change, as one watcher read it; both in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Event {
    sent: u128,
    read: u128,
}

/// What watchers were told, and when.
pub(super) struct Told(Vec<Event>);

impl Told {
    /// Milliseconds from sending each change to reading it.
    pub(super) fn delays(&self) -> Vec<f64> {
        self.0.iter().map(|event| milliseconds(event.sent, event.read)).collect()
    }

    /// How many changes were read by anybody.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|event| event.sent).collect::<HashSet<_>>().len()
    }

    /// Milliseconds from when the first of `first` had read a change to reading it here; 0 for what came sooner.
    pub(super) fn after(&self, first: &Self) -> Vec<f64> {
        let mut known: HashMap<u128, u128> = HashMap::new();
        for Event { sent, read } in &first.0 {
            known.entry(*sent).and_modify(|known| *known = (*known).min(*read)).or_insert(*read);
        }
        let events = self.0.iter();
        events
            .filter_map(|event| known.get(&event.sent).map(|known| milliseconds(*known, event.read)))
            .collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a benchmark")]
fn milliseconds(from: u128, to: u128) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}

/// How long no event comes when none is left.
const SILENCE: Duration = Duration::from_secs(3);

impl Watchers {
    /// Opens `count` watches of `path`, which has its parameters already.
    pub(super) async fn open(client: Client, path: &str, count: usize) -> Result<Self> {
        instrument::run(Self::open_here(client, path.to_owned(), count)).await
    }

    async fn open_here(client: Client, path: String, count: usize) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(follow(client.watch(&path).await?, shared.clone()));
        }
        Ok(Self::run(all, shared))
    }

    /// Runs these, which were opened elsewhere and say what they are told, beside the caller. One that returns was cut.
    pub(super) fn run<F>(each: Vec<F>, shared: Arc<Shared>) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (count, mut tasks) = (each.len(), JoinSet::new());
        for one in each {
            let shared = shared.clone();
            tasks.spawn(async move {
                one.await;
                shared.ended.fetch_add(1, Relaxed);
            });
        }
        Self { shared, count, _tasks: tasks }
    }

    /// Waits until each was told of `changes` changes since the last call of [`Watchers::events`].
    pub(super) async fn told(&self, changes: usize, within: Duration) -> Result<()> {
        self.wait(changes, within, || false).await
    }

    /// The same of watchers that may be cut, as those of the API server are by many events: waits for the rest of what those that go on
    /// are told.
    pub(super) async fn told_or_cut(&self, changes: usize, within: Duration) -> Result<()> {
        let (mut told, mut since) = (0, Instant::now());
        let silent = || {
            let now = self.shared.told.load(Relaxed);
            if now > told {
                (told, since) = (now, Instant::now());
            }
            self.ended() > 0 && since.elapsed() >= SILENCE
        };
        self.wait(changes, within, silent).await
    }

    /// Waits until each was told of `changes` changes, or it is over without.
    async fn wait(&self, changes: usize, within: Duration, mut is_over: impl FnMut() -> bool) -> Result<()> {
        let until = Instant::now() + within;
        loop {
            let told = self.shared.told.load(Relaxed);
            if told >= changes * self.count || is_over() {
                return Ok(());
            }
            ensure!(Instant::now() < until, "{told} of {} events came", changes * self.count);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What they were told; the count of events begins anew.
    pub(super) fn events(&self) -> Told {
        self.shared.told.store(0, Relaxed);
        Told(std::mem::take(&mut *self.shared.events.lock()).0.concat())
    }

    /// How many have ended.
    pub(super) fn ended(&self) -> usize {
        self.shared.ended.load(Relaxed)
    }
}

/// Reads a stream to its end and writes down what it tells.
pub(super) async fn follow(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut marks = Marks::new(shared);
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        marks.read(&buffer[..length]);
    }
}

/// Finds in a stream when what it tells was sent.
pub(super) struct Marks {
    shared: Arc<Shared>,
    /// After which the digits follow.
    before: Vec<Vec<u8>>,
    text: Vec<u8>,
}

/// Digits of nanoseconds since 1970, until 2286.
pub(super) const DIGITS: usize = 19;

impl Marks {
    /// In JSON.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, before: vec![json_mark()], text: Vec::new() }
    }

    /// In JSON or in protobuf, whichever the hub has asked for.
    pub(super) fn of_link(shared: Arc<Shared>) -> Self {
        // The value of an entry of a map: field 2, bytes, 19 of them.
        let protobuf = [SENT.as_bytes(), b"\x12\x13".as_slice()].concat();
        Self { shared, before: vec![json_mark(), protobuf], text: Vec::new() }
    }

    /// Takes what was read just now.
    pub(super) fn read(&mut self, read: &[u8]) {
        let Self { shared, before, text } = self;
        text.extend_from_slice(read);
        let (now, mut done) = (nanoseconds(), 0);
        let first = |text: &[u8]| before.iter().filter_map(|mark| Some(find(text, mark)? + mark.len())).min();
        while let Some(start) = first(&text[done..]).map(|at| done + at) {
            let Some(digits) = text.get(start..start + DIGITS) else { break };
            if let Some(sent) = std::str::from_utf8(digits).ok().and_then(|sent| sent.parse().ok()) {
                shared.events.lock().push(Event { sent, read: now });
                shared.told.fetch_add(1, Relaxed);
            }
            done = start + DIGITS;
        }
        // What may be the beginning of a mark and its digits stays.
        let keep = SENT.len() + 4 + DIGITS;
        text.drain(..done.max(text.len().saturating_sub(keep)));
    }
}

/// What stands in JSON before the digits.
pub(super) fn json_mark() -> Vec<u8> {
    format!("\"{SENT}\":\"").into_bytes()
}

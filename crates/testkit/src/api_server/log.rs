//! The log of requests: who asked what, what was sent, for how long. So tests can count streams and bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::header::{ACCEPT, ACCEPT_ENCODING};
use parking_lot::Mutex;

use super::answer::Question;

/// One request.
#[derive(Debug, Clone)]
pub struct RequestRecord {
    /// The method.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The query, or empty.
    pub query: String,
    /// The `Accept` header, or empty.
    pub accept: String,
    /// The `Accept-Encoding` header, or empty.
    pub accept_encoding: String,
    /// Who asked; empty if that could not be told.
    pub user: String,
    /// Whether it asked for a watch.
    pub watch: bool,
    /// The status of the answer; 0 before there is one.
    pub status: u16,
    /// Bytes of the body handed to the connection so far.
    pub body_bytes: u64,
    /// When it came.
    pub started: Instant,
    /// When its body ended or its client left.
    pub ended: Option<Instant>,
}

/// Sums over requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests.
    pub requests: usize,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Watches that were opened.
    pub watches: usize,
    /// Watches that are open.
    pub open_watches: usize,
}

#[derive(Debug)]
pub(crate) struct Entry {
    record: Mutex<RequestRecord>,
    bytes: AtomicU64,
}

impl Entry {
    pub(crate) fn answered(&self, status: u16) {
        self.record.lock().status = status;
    }

    pub(crate) fn of_user(&self, user: &str) {
        user.clone_into(&mut self.record.lock().user);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self) {
        self.record.lock().ended.get_or_insert_with(Instant::now);
    }

    fn record(&self) -> RequestRecord {
        let mut record = self.record.lock().clone();
        record.body_bytes = self.bytes.load(Ordering::Relaxed);
        record
    }
}

/// All requests of a server since it started, or since the log was cleared.
#[derive(Debug, Default)]
pub struct RequestLog(Mutex<Vec<Arc<Entry>>>);

impl RequestLog {
    pub(crate) fn begin(&self, question: &Question) -> Arc<Entry> {
        let record = RequestRecord {
            method: question.method.to_string(),
            path: question.path.clone(),
            query: question.query.clone(),
            accept: question.header(ACCEPT).to_owned(),
            accept_encoding: question.header(ACCEPT_ENCODING).to_owned(),
            user: String::new(),
            watch: question.is_watch(),
            status: 0,
            body_bytes: 0,
            started: Instant::now(),
            ended: None,
        };
        let entry = Arc::new(Entry { record: Mutex::new(record), bytes: AtomicU64::new(0) });
        self.0.lock().push(entry.clone());
        entry
    }

    /// The requests, in the order they came.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.0.lock().iter().map(|entry| entry.record()).collect()
    }

    /// Sums over those requests that `select` selects.
    pub fn totals(&self, select: impl Fn(&RequestRecord) -> bool) -> Totals {
        let mut totals = Totals::default();
        for record in self.requests().iter().filter(|record| select(record)) {
            totals.requests += 1;
            totals.body_bytes += record.body_bytes;
            totals.watches += usize::from(record.watch);
            totals.open_watches += usize::from(record.watch && record.ended.is_none());
        }
        totals
    }

    /// Forgets the requests so far.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

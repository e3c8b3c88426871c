//! A connection whose bytes are counted as they pass, and that knows when it last heard something.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
    time::Instant,
};
use tokio_util::io::{InspectReader, InspectWriter};

use super::path::Path;
use crate::metrics::LinkBytes;

/// A connection that shows what passes to two tallies.
pub(super) type Counted<S> = InspectReader<InspectWriter<S, Tally>, Tally>;

/// Is shown what was read, or what was written.
pub(super) type Tally = Box<dyn FnMut(&[u8]) + Send + Sync>;

/// When the other end last said something.
#[derive(Debug)]
pub(super) struct Heard {
    at: Mutex<Instant>,
    news: Notify,
    /// Whether it was given up for saying nothing when it was asked for a sign of life.
    in_vain: AtomicBool,
    /// The way there.
    pub(super) path: Path,
}

impl Heard {
    /// Just now.
    pub(super) fn now() -> Arc<Self> {
        let at = Mutex::new(Instant::now());
        Arc::new(Self { at, news: Notify::new(), in_vain: AtomicBool::new(false), path: Path::new() })
    }

    /// Nothing came though the other end was asked, and had its time.
    pub(super) fn give_up(&self) {
        self.in_vain.store(true, Relaxed);
    }

    /// Whether it was given up for that.
    pub(super) fn is_given_up(&self) -> bool {
        self.in_vain.load(Relaxed)
    }

    /// When that was.
    pub(super) fn at(&self) -> Instant {
        *self.at.lock()
    }

    /// How long ago that was.
    pub(super) fn ago(&self) -> Duration {
        self.at().elapsed()
    }

    /// Returns when something was heard after `moment`.
    pub(super) async fn after(&self, moment: Instant) {
        loop {
            let news = self.news.notified();
            if self.at() > moment {
                return;
            }
            news.await;
        }
    }

    pub(super) fn note(&self) {
        self.path.answered();
        *self.at.lock() = Instant::now();
        self.news.notify_waiters();
    }
}

/// Counts in `bytes` what is read from `inner` and written to it, and tells `heard` of what is read.
pub(super) fn counted<S: AsyncRead + AsyncWrite>(
    inner: S,
    bytes: Arc<LinkBytes>,
    heard: Arc<Heard>,
) -> Counted<S> {
    let sent = bytes.clone();
    let sent: Tally = Box::new(move |data| sent.sent(data.len()));
    let received: Tally = Box::new(move |data| {
        bytes.received(data.len());
        // The end of a stream is read as nothing, and is no sign of life.
        if !data.is_empty() {
            heard.note();
        }
    });
    InspectReader::new(InspectWriter::new(inner, sent), received)
}

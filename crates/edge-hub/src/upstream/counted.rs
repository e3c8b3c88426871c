//! A connection whose bytes are counted as they pass, and that knows when it last heard something.

use std::{sync::Arc, time::Duration};

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
    /// The way there.
    pub(super) path: Path,
}

impl Heard {
    /// Just now.
    pub(super) fn now() -> Arc<Self> {
        Arc::new(Self { at: Mutex::new(Instant::now()), news: Notify::new(), path: Path::new() })
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

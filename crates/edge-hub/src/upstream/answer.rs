//! The body of an answer from upstream, and the connection that it comes over.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use hyper::body::Incoming;

use super::lane::Lane;
use crate::keeping::Keeping;

/// A body as it comes from the API server. As long as it lives, its connection counts its stream as open.
pub type Answer = Keeping<Incoming, Open>;

/// The stream that an answer comes over.
pub struct Open {
    source: Source,
    _stream: Arc<()>,
}

impl Answer {
    pub(super) fn of(body: Incoming, source: Source, stream: Arc<()>) -> Self {
        Self::new(body, Open { source, _stream: stream })
    }

    /// The connection that it comes over.
    pub fn source(&self) -> Source {
        self.kept.source.clone()
    }
}

/// The connection that an answer comes over: not always the one that is the link, and a stream knows nothing newer than its own.
#[derive(Clone)]
pub struct Source {
    lane: Arc<Lane>,
}

impl Source {
    pub(super) fn new(lane: Arc<Lane>) -> Self {
        Self { lane }
    }

    /// The connection, without keeping it.
    pub fn connection(&self) -> Connection {
        Connection(Arc::downgrade(&self.lane))
    }

    /// How long ago the API server last gave a sign of life over it.
    pub fn heard_ago(&self) -> Duration {
        self.lane.heard_ago()
    }

    /// Asks the API server for a sign of life, unless there was one within that time. Without one the connection is given up.
    pub async fn prove(&self, within: Duration) {
        if self.lane.heard_ago() > within {
            self.lane.is_alive().await;
        }
    }
}

/// A connection that was there, and may have ended.
#[derive(Debug)]
pub struct Connection(Weak<Lane>);

impl Connection {
    /// Whether that comes over it.
    pub fn is_that_of(&self, source: &Source) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&source.lane))
    }
}

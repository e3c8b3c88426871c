//! The body of an answer from upstream, and the connection that it comes over.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::lane::Lane;

/// A body as it comes from the API server. As long as it lives, its connection counts its stream as open.
pub struct Answer {
    body: Incoming,
    source: Source,
    _stream: Arc<()>,
}

impl Answer {
    pub(super) fn new(body: Incoming, source: Source, stream: Arc<()>) -> Self {
        Self { body, source, _stream: stream }
    }

    /// The connection that it comes over.
    pub fn source(&self) -> Source {
        self.source.clone()
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

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

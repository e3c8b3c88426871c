//! A body, and what is kept as long as it is not sent, or let go.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Body, Frame, SizeHint};

/// The body, as it is.
pub struct Keeping<B, K> {
    body: B,
    /// What goes with it.
    pub kept: K,
}

impl<B, K> Keeping<B, K> {
    /// Keeps `kept` as long as `body`.
    pub fn new(body: B, kept: K) -> Self {
        Self { body, kept }
    }
}

impl<B: Body + Unpin, K: Unpin> Body for Keeping<B, K> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! A body that is handed on and kept.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes};
use http_body::Frame;

use super::collected::{Collected, Passing};

/// Hands a body on and collects it; calls `done` when the whole of it has passed.
pub(super) struct Tee<F> {
    inner: Body,
    seen: Passing,
    done: Option<F>,
}

impl<F: FnOnce(Collected) + Unpin> Tee<F> {
    /// Calls `done` with all of `inner`, if that is no longer than `most` and there is room for it.
    pub(super) fn new(inner: Body, most: usize, done: F) -> Self {
        Self { inner, seen: Passing::new(most), done: Some(done) }
    }
}

impl<F: FnOnce(Collected) + Unpin> http_body::Body for Tee<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.seen.push(data);
                }
            }
            Poll::Ready(Some(Err(_))) => self.seen.forget(),
            Poll::Ready(None) | Poll::Pending => {}
        }
        // Whoever writes an answer of known length does not ask again after its last byte.
        let over = matches!(polled, Poll::Ready(None)) || self.inner.is_end_stream();
        if over && let (Some(seen), Some(done)) = (self.seen.take(), self.done.take()) {
            done(seen);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.done.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

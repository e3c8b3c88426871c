//! A body that is handed on and kept.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes};
use http_body::Frame;

use super::coding::LARGEST;

/// Hands a body on and collects it; calls `done` when the whole of it has passed.
pub(super) struct Tee<F> {
    inner: Body,
    seen: Option<Vec<u8>>,
    done: Option<F>,
}

impl<F: FnOnce(Vec<u8>) + Unpin> Tee<F> {
    /// Calls `done` with all of `inner`, if it is not too large.
    pub(super) fn new(inner: Body, done: F) -> Self {
        Self { inner, seen: Some(Vec::new()), done: Some(done) }
    }
}

impl<F: FnOnce(Vec<u8>) + Unpin> http_body::Body for Tee<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(seen), Some(data)) = (&mut self.seen, frame.data_ref()) {
                    if seen.len() + data.len() > LARGEST {
                        self.seen = None;
                    } else {
                        seen.extend_from_slice(data);
                    }
                }
            }
            Poll::Ready(Some(Err(_))) => self.seen = None,
            Poll::Ready(None) | Poll::Pending => {}
        }
        // Whoever writes an answer of known length does not ask again after its last byte.
        let over = matches!(polled, Poll::Ready(None)) || self.inner.is_end_stream();
        let me = &mut *self;
        if over && let (Some(seen), Some(done)) = (me.seen.take(), me.done.take()) {
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

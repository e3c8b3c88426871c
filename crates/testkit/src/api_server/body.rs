//! Bodies of answers: counted, and broken off where a fault says so.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::log::Entry;

/// What an answer's body is made of.
pub(crate) enum Content {
    Whole(Bytes),
    Stream(BoxStream<'static, Bytes>),
}

/// A body that counts what is taken from it.
pub(crate) struct CountedBody {
    content: Option<Content>,
    /// What is left before the body breaks off.
    budget: Option<u64>,
    pause: Option<Pin<Box<Sleep>>>,
    entry: Arc<Entry>,
}

impl CountedBody {
    pub(crate) fn new(content: Content, budget: Option<u64>, entry: Arc<Entry>) -> Self {
        Self { content: Some(content), budget, pause: None, entry }
    }

    fn broken(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        // Time for what was taken before to be sent: an error drops what waits.
        let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_millis(10))));
        ready!(pause.as_mut().poll(cx));
        self.content = None;
        Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.entry.ended();
    }
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let body = &mut *self;
        if body.budget == Some(0) && body.content.is_some() {
            return body.broken(cx);
        }
        let next = match &mut body.content {
            None => None,
            Some(Content::Whole(bytes)) if bytes.is_empty() => None,
            Some(Content::Whole(bytes)) => Some(std::mem::take(bytes)),
            Some(Content::Stream(stream)) => ready!(stream.poll_next_unpin(cx)),
        };
        let Some(mut bytes) = next else {
            body.content = None;
            body.entry.ended();
            return Poll::Ready(None);
        };
        if let Some(budget) = &mut body.budget {
            let some = bytes.len().min(usize::try_from(*budget).unwrap_or(usize::MAX));
            bytes.truncate(some);
            *budget -= some as u64;
        }
        body.entry.sent(bytes.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Some(Content::Whole(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Some(Content::Stream(stream)) => {
                let (lower, _) = stream.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(lower as u64);
                hint
            }
            None => SizeHint::with_exact(0),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Some(Content::Whole(bytes)) => bytes.is_empty() && self.budget != Some(0),
            Some(Content::Stream(_)) => false,
            None => true,
        }
    }
}

//! A body that is handed on and kept.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes};
use http::{HeaderMap, Response, header};
use http_body::Frame;

use super::collected::{Collected, Passing};

/// Hands the body of an answer on and collects it; calls `done` when the whole of it has passed, if that is no longer than `most` and there is room
/// for it.
pub(super) fn collect(
    response: Response<Body>,
    most: usize,
    done: impl FnOnce(Collected) + Send + Unpin + 'static,
) -> Response<Body> {
    let left = length(response.headers());
    response.map(|inner| Body::new(Tee { inner, left, seen: Passing::new(most), done: Some(done) }))
}

/// How long the body is, if the head says that.
fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

struct Tee<F> {
    inner: Body,
    /// How many bytes are still to come, where the head of the answer says how many there are.
    left: Option<u64>,
    seen: Passing,
    done: Option<F>,
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
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                }
            }
            Poll::Ready(Some(Err(_))) => self.seen.forget(),
            Poll::Ready(None) if self.left.is_some_and(|left| left > 0) => self.seen.forget(),
            Poll::Ready(None) | Poll::Pending => {}
        }
        // Whoever writes an answer of known length does not ask again after its last byte, and the API server says that it was the last in a frame of
        // its own.
        let over = matches!(polled, Poll::Ready(None)) || self.inner.is_end_stream() || self.left == Some(0);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::{StreamExt as _, stream};
    use http_body_util::BodyExt as _;
    use parking_lot::Mutex;

    use super::*;

    /// What is collected of an answer whose head says that length, when it comes in these pieces, and whoever sends it on asks for so many.
    async fn collected(
        length: Option<&str>,
        pieces: &'static [&'static str],
        asked: usize,
    ) -> Option<String> {
        let whole = Arc::new(Mutex::new(None));
        let pieces = stream::iter(pieces)
            .map(|piece| Ok::<_, std::convert::Infallible>(Bytes::from_static(piece.as_bytes())));
        let mut response = Response::new(Body::from_stream(pieces));
        if let Some(length) = length {
            response.headers_mut().insert(header::CONTENT_LENGTH, length.parse().unwrap());
        }
        let found = whole.clone();
        let done = move |collected: Collected| {
            *found.lock() = Some(String::from_utf8_lossy(&collected).into_owned());
        };
        let mut body = collect(response, 100, done).into_body();
        for _ in 0..asked {
            let _ = body.frame().await;
        }
        whole.lock().take()
    }

    #[tokio::test]
    async fn all_of_an_answer_is_kept_whoever_says_that_it_was_all() {
        let all = Some("onetwo".to_owned());
        for (length, asked, expected) in [
            (Some("6"), 2, &all),
            (Some("6"), 1, &None),
            (None, 2, &None),
            (None, 3, &all),
            (Some("7"), 3, &None),
            (Some("x"), 3, &all),
        ] {
            assert_eq!(&collected(length, &["one", "two"], asked).await, expected, "{length:?} {asked}");
        }
    }
}

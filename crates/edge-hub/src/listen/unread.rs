//! Answers whose readers have stopped to read: they are let go, whatever they are. A watch that cannot be told anything is not asked whether its reader
//! still may, nor when its time is over; and what an answer holds on to, here and at the API server, would be held for as long as the reader likes.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, Bytes};
use http::Response;
use http_body::{Frame, SizeHint};
use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How long an answer waits for its reader to take more of it.
pub(super) const UNREAD: Duration = Duration::from_mins(1);

/// How often it is looked whether one has waited so long.
const LOOK: Duration = Duration::from_secs(15);

/// How much the library is given at a time. Of how much of that it has sent it says nothing, so this is what a reader has to take in [`UNREAD`] that
/// is only slow; and when all is given, so much at most is no longer followed. The buffers of a list are no larger.
pub(super) const PIECE: usize = 72 << 10;

/// The reader did not read.
#[derive(Debug, thiserror::Error)]
#[error("what was answered was not read within {UNREAD:?}")]
struct Unread;

tokio::task_local! {
    /// Ends the stream of HTTP/2 that this task is.
    static STREAM: CancellationToken;
}

/// Runs the streams of a connection of HTTP/2 so that each can be ended by itself: of an answer that it cannot send the library asks nothing more, so
/// that it cannot be told.
#[derive(Clone)]
pub(super) struct Streams;

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, future: F) {
        let stream = CancellationToken::new();
        let ends = stream.clone().run_until_cancelled_owned(future);
        TokioExecutor::new().execute(STREAM.scope(stream, ends));
    }
}

/// The answers that the HTTP library sends over one connection.
#[derive(Clone, Default)]
pub(super) struct Answers(Arc<Mutex<Vec<Weak<Mutex<Sending>>>>>);

struct Sending {
    /// What is left to send; none once it was let go.
    body: Option<Body>,
    /// What is left of a frame of it.
    rest: Bytes,
    /// Since when the library has something that it has not sent, at least not all of it: it asks for more when it has.
    waits: Option<Instant>,
    /// Ends the stream that it goes over; without one the connection carries nothing else.
    stream: Option<CancellationToken>,
}

impl Answers {
    /// Lets this one go, too, when its reader does not read.
    pub(super) fn follow(&self, response: Response<Body>) -> Response<Body> {
        let stream = STREAM.try_with(Clone::clone).ok();
        let mut all = self.0.lock();
        all.retain(|answer| answer.strong_count() > 0);
        response.map(|body| {
            let sending = Sending { body: Some(body), rest: Bytes::new(), waits: None, stream };
            let sending = Arc::new(Mutex::new(sending));
            all.push(Arc::downgrade(&sending));
            Body::new(Followed(sending))
        })
    }

    /// Lets go what is not read, until that was all that the connection is for.
    pub(super) async fn unread(&self) {
        loop {
            sleep(LOOK).await;
            if self.let_go(Instant::now()) {
                return;
            }
        }
    }

    fn let_go(&self, now: Instant) -> bool {
        let all: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let mut is_over = false;
        for answer in all {
            let mut sending = answer.lock();
            if sending.waits.is_some_and(|since| now.saturating_duration_since(since) >= UNREAD) {
                sending.waits = None;
                let gone = (sending.body.take(), std::mem::take(&mut sending.rest));
                match &sending.stream {
                    Some(stream) => stream.cancel(),
                    None => is_over = true,
                }
                drop(sending);
                drop(gone);
            }
        }
        is_over
    }
}

/// The body of such an answer.
struct Followed(Arc<Mutex<Sending>>);

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let sending = &mut *self.0.lock();
        sending.waits = None;
        let Some(body) = &mut sending.body else {
            return Poll::Ready(Some(Err(axum::Error::new(Unread))));
        };
        if sending.rest.is_empty() {
            match ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => sending.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let length = sending.rest.len().min(PIECE);
        sending.waits = Some(Instant::now());
        Poll::Ready(Some(Ok(Frame::data(sending.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        let sending = self.0.lock();
        sending.rest.is_empty() && sending.body.as_ref().is_some_and(http_body::Body::is_end_stream)
    }

    /// It is asked for before there is a rest.
    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.as_ref().map(http_body::Body::size_hint).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, stream};
    use http_body::Body as _;
    use http_body_util::BodyExt as _;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_is_not_read_for_a_minute_is_let_go() {
        let answers = Answers::default();
        let follow = || {
            let body = Body::from_stream(stream::repeat("x").map(Ok::<_, std::convert::Infallible>));
            answers.follow(Response::new(body)).into_body()
        };
        let streams = [(); 2].map(|()| CancellationToken::new());
        let [mut read, mut unread] = streams.each_ref().map(|ends| STREAM.sync_scope(ends.clone(), follow));
        for body in [&mut read, &mut unread] {
            body.frame().await.unwrap().unwrap();
        }
        advance(UNREAD / 2).await;
        read.frame().await.unwrap().unwrap();
        advance(UNREAD / 2).await;
        assert!(!answers.let_go(Instant::now()), "others may go over that connection");
        assert_eq!(streams.each_ref().map(CancellationToken::is_cancelled), [false, true]);
        assert!(read.frame().await.unwrap().is_ok());
        assert!(unread.frame().await.unwrap().is_err());
        let mut alone = follow();
        alone.frame().await.unwrap().unwrap();
        tokio::time::timeout(UNREAD + LOOK, answers.unread()).await.expect("the connection was for it alone");
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_slowly_is_left_alone_however_much_comes_at_once() {
        let answers = Answers::default();
        let whole = vec![b'x'; 5 * PIECE / 2];
        let follow = || answers.follow(Response::new(Body::from(whole.clone()))).into_body();
        let mut body = follow();
        assert_eq!(body.size_hint().exact(), Some(whole.len() as u64));
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            read.extend(frame.unwrap().into_data().unwrap());
            advance(UNREAD * 3 / 4).await;
            assert!(!answers.let_go(Instant::now()), "after {} bytes", read.len());
        }
        assert_eq!(read, whole);
        let mut stops = follow();
        stops.frame().await.unwrap().unwrap();
        advance(UNREAD).await;
        assert!(answers.let_go(Instant::now()));
        assert!(!stops.is_end_stream() && stops.frame().await.unwrap().is_err());
        let empty = answers.follow(Response::new(Body::empty())).into_body();
        assert!(empty.is_end_stream(), "of nothing there is nothing to send");
    }
}

//! Watches whose readers have stopped to read: they are let go. A watch that cannot be told anything is not asked whether its reader still
//! may, nor when its time is over; and what it holds on to would be held for as long as the reader likes.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes};
use http::{Method, Response, Uri, Version};
use http_body::Frame;
use kube_wire::request::{RequestInfo, Verb};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// How long a watch waits for its reader to take what it is told.
pub(super) const UNREAD: Duration = Duration::from_mins(1);

/// How often it is looked whether one has waited so long.
const LOOK: Duration = Duration::from_secs(15);

/// The reader did not read.
#[derive(Debug, thiserror::Error)]
#[error("what the watch told was not read within {UNREAD:?}")]
struct Unread;

/// Whether a request is for a watch.
pub(super) fn is_watch(method: &Method, uri: &Uri) -> bool {
    RequestInfo::parse(method, uri).verb == Verb::Watch
}

/// The watches that the HTTP library sends over one connection.
#[derive(Clone, Default)]
pub(super) struct Watches(Arc<Mutex<Vec<Weak<Mutex<Sending>>>>>);

struct Sending {
    /// What is left to send; none once it was let go.
    body: Option<Body>,
    /// Since when the library has something that it has not sent, at least not all of it: it asks for more when it has.
    waits: Option<Instant>,
    /// Whether the connection carries nothing else.
    is_alone: bool,
}

impl Watches {
    /// Lets this one go, too, when its reader does not read.
    pub(super) fn follow(&self, version: Version, response: Response<Body>) -> Response<Body> {
        let mut all = self.0.lock();
        all.retain(|watch| watch.strong_count() > 0);
        let is_alone = version < Version::HTTP_2;
        response.map(|body| {
            let watch = Arc::new(Mutex::new(Sending { body: Some(body), waits: None, is_alone }));
            all.push(Arc::downgrade(&watch));
            Body::new(Followed(watch))
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
        for watch in all {
            let mut watch = watch.lock();
            if watch.waits.is_some_and(|since| now.saturating_duration_since(since) >= UNREAD) {
                watch.waits = None;
                is_over |= watch.is_alone;
                let gone = watch.body.take();
                drop(watch);
                drop(gone);
            }
        }
        is_over
    }
}

/// The body of such a watch.
struct Followed(Arc<Mutex<Sending>>);

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut sending = self.0.lock();
        sending.waits = None;
        let Some(body) = &mut sending.body else {
            return Poll::Ready(Some(Err(axum::Error::new(Unread))));
        };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(&polled, Poll::Ready(Some(Ok(_)))) {
            sending.waits = Some(Instant::now());
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, stream};
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_is_not_read_for_a_minute_is_let_go() {
        let watches = Watches::default();
        let follow = |version| {
            let body = Body::from_stream(stream::repeat("x").map(Ok::<_, std::convert::Infallible>));
            watches.follow(version, Response::new(body)).into_body()
        };
        let (mut read, mut unread) = (follow(Version::HTTP_2), follow(Version::HTTP_2));
        for body in [&mut read, &mut unread] {
            body.frame().await.unwrap().unwrap();
        }
        tokio::time::advance(UNREAD / 2).await;
        read.frame().await.unwrap().unwrap();
        tokio::time::advance(UNREAD / 2).await;
        assert!(!watches.let_go(Instant::now()), "others may go over that connection");
        assert!(read.frame().await.unwrap().is_ok());
        assert!(unread.frame().await.unwrap().is_err());
        let mut alone = follow(Version::HTTP_11);
        alone.frame().await.unwrap().unwrap();
        tokio::time::timeout(UNREAD + LOOK, watches.unread()).await.expect("the connection was for it alone");
    }
}

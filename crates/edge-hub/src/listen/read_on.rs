//! What is still to come of a request that was answered before it was there whole. HTTP/2 resets the stream of a request that nobody reads on, with
//! `NO_ERROR` (RFC 9113, section 8.1); some clients take that for a failure of the answer, such as curl 7.88. So the little that is on its way is taken.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::{runtime::Handle, time::timeout};

/// How much more of it is taken, in bytes: as much as an API server takes of an object. Who sends more is told by the reset that nobody wants it.
const SIZE: usize = 3 << 20;

/// And for how long.
const WITHIN: Duration = Duration::from_secs(5);

/// The body of a request over HTTP/2, which is read to its end by whoever has it or, when that one lets go of it, by nobody.
pub(super) struct ReadOn(Option<Incoming>);

impl ReadOn {
    pub(super) fn new(body: Incoming) -> Self {
        Self(Some(body))
    }
}

impl Body for ReadOn {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for ReadOn {
    fn drop(&mut self) {
        let rest = self.0.take().filter(|body| !body.is_end_stream());
        // Without a runtime the connection is gone as well.
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(timeout(WITHIN, async {
                let mut rest = Limited::new(rest, SIZE);
                while let Some(Ok(_)) = rest.frame().await {}
            }));
        }
    }
}

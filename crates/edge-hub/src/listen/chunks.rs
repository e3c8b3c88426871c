//! What a watch sends, as long as nobody has begun to send it: a connection that can sends it by itself, any other as the body of the answer.

use std::{convert::Infallible, sync::Arc};

use axum::body::{Body, Bytes};
use futures::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use parking_lot::Mutex;

/// One piece after the other, until the watch ends.
pub(crate) type ChunkStream = BoxStream<'static, Result<Bytes, Infallible>>;

/// The pieces of one answer, among its extensions and in its body: whoever takes them first has them.
#[derive(Clone)]
pub(crate) struct Chunks(Arc<Mutex<Option<ChunkStream>>>);

impl Chunks {
    /// Those of an answer that is about to go out.
    pub(crate) fn new(chunks: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(chunks.boxed()))))
    }

    /// They are the caller's now: the body of the answer has none.
    pub(crate) fn take(&self) -> Option<ChunkStream> {
        self.0.lock().take()
    }

    /// The body that sends them, unless they were taken before it was asked for the first.
    pub(crate) fn body(&self) -> Body {
        let chunks = self.clone();
        let taken = stream::once(async move { chunks.take().unwrap_or_else(|| stream::empty().boxed()) });
        Body::from_stream(taken.flatten())
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    #[tokio::test]
    async fn whoever_comes_first_has_them() {
        let chunks = || Chunks::new(stream::iter(["one", "two"]).map(|text| Ok(Bytes::from(text))));
        let first = chunks();
        assert_eq!(to_bytes(first.body(), 10).await.unwrap(), "onetwo");
        assert!(first.take().is_none());
        let second = chunks();
        let body = second.body();
        let taken: Vec<_> = second.take().unwrap().map(Result::unwrap).collect().await;
        assert_eq!(taken, ["one", "two"]);
        assert_eq!(to_bytes(body, 10).await.unwrap(), "");
    }
}

//! The body of a list, written into two buffers that are used again and again.
//!
//! What a connection has not sent yet it keeps, up to 400 kB; a list is longer, and many clients ask at once when a node starts. So a
//! list lends a buffer only when the connection has given one back, and how much memory it takes does not depend on its length or on
//! how fast its reader is. The same two buffers stay in the processor's caches, and none is asked of the system.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use axum::body::{Body, Bytes};
use futures::stream;
use parking_lot::Mutex;
use tracing::warn;

use super::encode::WriteNext;

/// How full a buffer is lent. Small ones would cost a system call for little, great ones fall out of the processor's caches.
const LENGTH: usize = 64 << 10;

/// How many buffers an answer has: one is filled while the other is sent.
const COUNT: usize = 2;

/// A buffer that grew beyond this, for one great object, is not kept.
const KEPT: usize = 2 * LENGTH;

/// The bytes that `write_next` appends, as a body. `key` says in the log whose list could not be shown.
pub(super) fn body(write_next: WriteNext, key: String) -> Body {
    let buffers = Buffers { free: Mutex::new(Free { buffers: vec![Vec::new(); COUNT], waiting: None }) };
    let mut answer = Answer { write_next, key, buffers: Arc::new(buffers), ended: false };
    Body::from_stream(stream::poll_fn(move |context| answer.poll(context)))
}

struct Answer {
    write_next: WriteNext,
    key: String,
    buffers: Arc<Buffers>,
    ended: bool,
}

impl Answer {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let Some(mut buffer) = self.buffers.take(context) else { return Poll::Pending };
        // Room for what goes beyond, which most objects do not by much.
        buffer.reserve(LENGTH + LENGTH / 8);
        while buffer.len() < LENGTH && !self.ended {
            match (self.write_next)(&mut buffer) {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    // The connection breaks off: half a list is never taken for a whole one.
                    warn!(key = self.key, %error, "an object cannot be shown as JSON");
                    self.ended = true;
                    return Poll::Ready(Some(Err(io::Error::other(error))));
                }
            }
        }
        if buffer.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Bytes::from_owner(Lent { buffer, buffers: self.buffers.clone() }))))
    }
}

/// The buffers of one answer.
struct Buffers {
    free: Mutex<Free>,
}

struct Free {
    buffers: Vec<Vec<u8>>,
    /// Who waits for one.
    waiting: Option<Waker>,
}

impl Buffers {
    /// An empty buffer, or none until one is given back.
    fn take(&self, context: &Context<'_>) -> Option<Vec<u8>> {
        let mut free = self.free.lock();
        let buffer = free.buffers.pop();
        if buffer.is_none() {
            free.waiting = Some(context.waker().clone());
        }
        buffer
    }
}

/// A buffer that the connection has.
struct Lent {
    buffer: Vec<u8>,
    buffers: Arc<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.shrink_to(KEPT);
        let mut free = self.buffers.free.lock();
        free.buffers.push(buffer);
        let waiting = free.waiting.take();
        drop(free);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use http_body_util::BodyExt;
    use tokio::time::timeout;

    use super::*;

    /// As many items of this length, numbered from 0.
    fn items(count: u32, length: usize) -> WriteNext {
        let mut left = 0..count;
        Box::new(move |out| {
            let Some(next) = left.next() else { return Ok(false) };
            out.extend(next.to_be_bytes().into_iter().cycle().take(length));
            Ok(true)
        })
    }

    fn written(mut items: WriteNext) -> Vec<u8> {
        let mut all = Vec::new();
        while items(&mut all).unwrap() {}
        all
    }

    #[tokio::test]
    async fn all_of_it_comes_in_few_pieces() {
        for (count, length) in [(0, 0), (1, 8), (100_000, 12), (300, 3000), (3, 5 * LENGTH)] {
            let mut whole = body(items(count, length), String::new());
            let (mut read, mut pieces) = (Vec::new(), 0);
            while let Some(frame) = whole.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                assert!(!data.is_empty(), "an empty piece would end a body");
                (pieces, read) = (pieces + 1, [read, data.to_vec()].concat());
            }
            assert_eq!(read, written(items(count, length)), "{count} of {length}");
            assert!(pieces <= read.len() / LENGTH + 1, "{pieces} pieces of {} bytes", read.len());
        }
    }

    #[tokio::test]
    async fn who_does_not_send_is_lent_no_more() {
        let mut whole = body(items(100_000, 12), String::new());
        let mut lent = Vec::new();
        for _ in 0..COUNT {
            lent.push(whole.frame().await.unwrap().unwrap());
        }
        assert!(whole.frame().now_or_never().is_none(), "all are out");
        let mut waits = tokio::spawn(async move { whole.frame().await.map(|frame| frame.is_ok()) });
        assert!(timeout(Duration::from_millis(20), &mut waits).await.is_err(), "all are out");
        lent.pop();
        assert_eq!(waits.await.unwrap(), Some(true), "one is back, and who waited is told");
    }
}

//! Room for lists: one has its own for as long as it is sent, which may be as long as its reader likes, since it holds what it shows. Who takes nothing
//! for a while loses the rest, and the room: a connection that stands still is not asked for anything, so nobody else would end it.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    BoxError,
    body::{Body, BodyDataStream, HttpBody as _},
    response::Response,
};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::places::Place;

/// For how long who is sent something long may take nothing of it.
pub const STILL: Duration = Duration::from_mins(1);

/// The response, whose body keeps `room` until it has been sent or given up. One that is there as a whole, as refusals are, needs none.
pub(crate) fn kept(room: Place, response: Response) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| Body::from_stream(Sent::new(body.into_data_stream(), room)))
}

/// What is left of a body.
struct Rest {
    body: BodyDataStream,
    _room: Place,
    /// When its reader last took something; `None` while that waits for more.
    taken: Option<Instant>,
}

struct Sent {
    rest: Arc<Mutex<Option<Rest>>>,
    is_over: bool,
    /// Looks whether the reader goes on; ends with this.
    _watch: JoinSet<()>,
}

impl Sent {
    fn new(body: BodyDataStream, room: Place) -> Self {
        let now = Instant::now();
        let rest = Arc::new(Mutex::new(Some(Rest { body, _room: room, taken: Some(now) })));
        let mut tasks = JoinSet::new();
        tasks.spawn(watch(Arc::downgrade(&rest), now + STILL));
        Self { rest, is_over: false, _watch: tasks }
    }
}

impl Stream for Sent {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let polled = self.rest.lock().as_mut().map(|rest| {
            let polled = rest.body.poll_next_unpin(context);
            rest.taken = polled.is_ready().then(Instant::now);
            polled
        });
        let piece = match polled {
            Some(polled) => ready!(polled).map(|piece| piece.map_err(Into::into)),
            None => Some(Err("nothing was read of it for a minute".into())),
        };
        if !matches!(piece, Some(Ok(_))) {
            self.is_over = true;
            let rest = self.rest.lock().take();
            drop(rest);
        }
        Poll::Ready(piece)
    }
}

/// Takes away what is left once its reader stands still; first looks at `next`.
async fn watch(rest: Weak<Mutex<Option<Rest>>>, mut next: Instant) {
    loop {
        sleep_until(next).await;
        let Some(later) = rest.upgrade().and_then(|rest| look(&rest, Instant::now())) else { return };
        next = later;
    }
}

/// When to look again; `None` if nothing is left.
fn look(rest: &Mutex<Option<Rest>>, now: Instant) -> Option<Instant> {
    let mut slot = rest.lock();
    let until = slot.as_ref()?.taken.unwrap_or(now) + STILL;
    if until > now {
        return Some(until);
    }
    let gone = slot.take();
    // What it holds may be much: dropped behind the lock.
    drop(slot);
    drop(gone);
    None
}

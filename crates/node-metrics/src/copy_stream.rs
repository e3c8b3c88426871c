//! How a leader tells a standby what it holds: `GET /copy/v1` on the listener of the API, for replicas alone. What a watch tells, in the
//! order in which it tells it, in the form in which nodes reported it: a quarter as long as the JSON, which is made for nobody then, and
//! held by nobody.
//!
//! ```text
//!  ?after=VERSION   what changed after it                   410 if not all of that is known
//!  (nothing)        the whole state, and what changes then  503 while this replica does not serve
//! ```
//! What changed is told some objects at a time; where that is all there was, a frame says so. A follower whose stream ends asks for what changed after the
//! last such place: of what changed twice since then, it has not been told the first change.
//!
//! How that changes by which selectors choose is told in its place, too, since watches with selectors that go on under the next leader depend on it; a
//! stream that tells it says so in a header.
//!
//! A replica of a version that has no such path answers 404, and is followed by an ordinary watch ([`follow`](crate::follow)); one that knows
//! only of that finds it here as ever. What changes incompatibly gets another path.

use std::sync::Arc;
use std::time::Duration;

use aggregated_api::{Peer, StorageError};
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{HeaderValue, StatusCode, header};
use tokio::time::timeout;

use crate::ledger::{Change, Stored};
use crate::record::{MalformedRecord, Record};
use crate::replica::Replicas;
use crate::storage::NodeMetrics;
use crate::turns::Turns;

pub(crate) mod wire;

use self::wire::{Frame, Gone};

/// Where it is.
pub(crate) const PATH: &str = "/copy/v1";

/// By what a follower knows that it is answered as it asked.
pub(crate) const CONTENT_TYPE: &str = "application/x-isthmus-copy";

/// A header of streams that tell how that changes by which selectors choose.
pub(crate) const RESELECTIONS_HEADER: &str = "isthmus-copy-reselections";

/// How many objects are told at a time: some hundred kilobytes.
const BATCH: usize = 16;

/// How often a follower hears that nothing happens.
const PROGRESS: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct Served {
    source: Arc<NodeMetrics>,
    replicas: Arc<Replicas>,
}

/// What answers replicas; all else is for the router of the API. Serve it with connection info [`Peer`].
pub fn router(source: Arc<NodeMetrics>, replicas: Arc<Replicas>) -> Router {
    Router::new().route(PATH, get(copy)).with_state(Served { source, replicas })
}

async fn copy(
    State(Served { source, replicas }): State<Served>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    RawQuery(query): RawQuery,
) -> Response {
    let leaf = peer.certificates.first();
    if !leaf.is_some_and(|leaf| replicas.is_replica(leaf, jiff::Timestamp::now())) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let after = match query.as_deref().map(|query| query.strip_prefix("after=").map(str::parse::<u64>)) {
        None => None,
        Some(Some(Ok(version))) => Some(version),
        Some(_) => return StatusCode::BAD_REQUEST.into_response(),
    };
    match Telling::begin(source, after) {
        Ok(telling) => {
            let mut response = Response::new(Body::from_stream(stream::unfold(telling, next)));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
            headers.insert(RESELECTIONS_HEADER, HeaderValue::from_static("true"));
            response
        }
        Err(StorageError::Expired { .. }) => StatusCode::GONE.into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Where one follower stands. As with a watch there is no queue.
struct Telling {
    source: Arc<NodeMetrics>,
    term: u64,
    told: u64,
    /// The last version at which it knew all: what came to be after this was not told before it went.
    knew_all: u64,
    initial: Option<std::vec::IntoIter<Arc<Stored<Record>>>>,
    turns: Turns,
}

impl Telling {
    fn begin(source: Arc<NodeMetrics>, after: Option<u64>) -> Result<Self, StorageError> {
        // Subscribed before the state is looked at: no change can fall between them.
        let changed = source.changes();
        let (term, told, initial) = source.state_to_copy(after)?;
        let turns = Turns::new(changed);
        Ok(Self { source, term, told, knew_all: told, initial: initial.map(Vec::into_iter), turns })
    }

    /// What can be told at once; an error is the end.
    fn step(&mut self) -> Result<BytesMut, TellError> {
        let mut out = BytesMut::new();
        if let Some(rest) = &mut self.initial {
            for stored in rest.by_ref().take(BATCH) {
                Frame::record(&stored, self.source.api_version())?.put(&mut out);
            }
            if rest.len() == 0 {
                self.initial = None;
                Frame { whole: Some(self.told), ..Frame::default() }.put(&mut out);
            }
            return Ok(out);
        }
        let (changes, told, last) = self.source.changes_to_copy(self.term, self.told, BATCH)?;
        for change in &changes {
            match change {
                Change::Live(stored) => Frame::record(stored, self.source.api_version())?.put(&mut out),
                Change::Reselected { how, .. } => Frame::reselected(how)?.put(&mut out),
                Change::Gone { version, last } => {
                    // It changed, or came, and went since: both are told, so that the copy knows as much as any reader, and how selectors chose it last.
                    if last.version > self.knew_all {
                        Frame::record(last, self.source.api_version())?.put(&mut out);
                    }
                    let gone = Gone { name: last.name.to_string(), version: *version };
                    Frame { gone: Some(gone), ..Frame::default() }.put(&mut out);
                }
            }
        }
        self.told = told;
        if told >= last {
            self.knew_all = told;
            // If this replica ends before it is whole again, it is from here that the follower goes on.
            if !out.is_empty() {
                Frame { progress: Some(told), ..Frame::default() }.put(&mut out);
            }
        }
        Ok(out)
    }
}

#[derive(Debug, thiserror::Error)]
enum TellError {
    #[error("nothing may be told any more: {0:?}")]
    Storage(StorageError),
    #[error(transparent)]
    Record(#[from] MalformedRecord),
}

impl From<StorageError> for TellError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

/// The next bytes; `None` at the end, after which the follower asks again from where it stands.
async fn next(mut telling: Telling) -> Option<(Result<Bytes, std::convert::Infallible>, Telling)> {
    loop {
        if timeout(PROGRESS, telling.turns.begin()).await.is_err() {
            let mut out = BytesMut::new();
            Frame { progress: Some(telling.told), ..Frame::default() }.put(&mut out);
            return Some((Ok(out.freeze()), telling));
        }
        // The initial state is of the moment at which the follower began.
        let looks = telling.initial.is_none();
        let out = match telling.step() {
            Ok(out) => out,
            Err(error) => {
                tracing::debug!(%error, "a follower is told no more");
                return None;
            }
        };
        telling.turns.end(looks && telling.told == telling.knew_all);
        if !out.is_empty() {
            return Some((Ok(out.freeze()), telling));
        }
    }
}

#[cfg(test)]
mod tests;

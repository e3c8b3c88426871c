//! How many streams a link may have now. HTTP/2 tells the most there may ever be. What the other end may hold is its own to know: it refuses what is too
//! much, and does not say how much that is.

use parking_lot::Mutex;
use tokio::time::Instant;

use super::table::Link;
use crate::{allowance::LOOKED_AT, socket::StreamGuard};

/// What both ends have said.
#[derive(Debug)]
pub(super) struct StreamLimit {
    at_first: usize,
    /// How many there were beside the last one that was refused, and when. It counts until the other end has looked whether there is more.
    refused: Mutex<Option<(usize, Instant)>>,
}

impl StreamLimit {
    /// That of HTTP/2.
    pub(super) fn new(at_first: usize) -> Self {
        Self { at_first, refused: Mutex::default() }
    }

    fn refuse(&self, streams: usize, now: Instant) {
        // One must be tried, or it is never known that there is room again.
        *self.refused.lock() = Some((streams.max(1), now));
    }

    fn at(&self, now: Instant) -> usize {
        let refused = self.refused.lock().filter(|(_, since)| now.duration_since(*since) < LOOKED_AT);
        refused.map_or(self.at_first, |(streams, _)| streams.min(self.at_first))
    }
}

impl Link {
    /// How many streams it may have now, as far as this end knows.
    pub(super) fn streams_max(&self) -> usize {
        self.limit.at(Instant::now()).min(self.traffic.streams_max())
    }

    /// The other end has refused that stream. Where it is of a known caller, clients that nobody vouches for go from the places that are kept for such.
    pub(crate) fn set_full(&self, refused: &StreamGuard) {
        // Some may have ended since it was asked for: to ask once too often is better than to send too many away.
        let others = self.traffic.streams().saturating_sub(1).max(refused.before());
        self.limit.refuse(others, Instant::now());
        if !refused.is_unvouched() {
            self.unvouched().send_away_beyond();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_refusal_counts_for_a_while() {
        let (limit, start) = (StreamLimit::new(1024), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(limit.at(start), 1024);
        for (streams, at, most) in [(69, 0, 69), (90, 10, 90), (2000, 15, 1024), (0, 20, 1)] {
            limit.refuse(streams, after(at));
            assert_eq!(limit.at(after(at)), most);
        }
        assert_eq!(limit.at(after(49)), 1);
        assert_eq!(limit.at(after(50)), 1024);
    }
}

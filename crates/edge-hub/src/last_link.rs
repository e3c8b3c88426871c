//! When the last link ended: what a hub that starts without one can say of the age of what it has.
//!
//! ```text
//!  a link ends, or the hub does in order ─► stored: when        a link begins ─► removed
//! ```
//! So of a hub that was killed while it had a link nothing is said that may not be so, and nothing is written while nothing happens.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{hub::Hub, storage::Storage, upstream::LinkState};

/// The blob of when that was, in Unix seconds.
const ENDED: &str = "link-ended";

/// What is known of it.
pub struct LastLink {
    storage: Storage,
    /// Counts until there is a link.
    before_this_start: Mutex<Option<Timestamp>>,
}

impl LastLink {
    /// As an earlier run left it.
    pub fn restored(storage: Storage) -> Self {
        let seconds = storage.blob(ENDED).and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
        let ended = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        Self { storage, before_this_start: Mutex::new(ended) }
    }

    /// When it ended, by the node's clock, if this start has had none and that is known.
    pub fn ended_before_this_start(&self) -> Option<Timestamp> {
        *self.before_this_start.lock()
    }

    fn began(&self) {
        if let Err(error) = self.storage.remove_blob(ENDED) {
            warn!(%error, "cannot forget when the last link ended");
        }
        *self.before_this_start.lock() = None;
    }

    fn ended(&self, at: Timestamp) {
        self.storage.keep_blob(ENDED, at.as_second().to_string().as_bytes());
    }
}

/// Notes when links begin and end, until the shutdown, which ends the one that there is.
pub(crate) async fn follow(hub: Arc<Hub>, shutdown: CancellationToken) {
    let mut state = hub.upstream.state();
    let mut was_up = false;
    loop {
        let is_up = matches!(*state.borrow_and_update(), LinkState::Up(_));
        match (was_up, is_up) {
            (false, true) => hub.last_link.began(),
            (true, false) => hub.last_link.ended(Timestamp::now()),
            _ => {}
        }
        was_up = is_up;
        let goes_on = tokio::select! {
            () = shutdown.cancelled() => false,
            changed = state.changed() => changed.is_ok(),
        };
        if !goes_on {
            break;
        }
    }
    if was_up {
        hub.last_link.ended(Timestamp::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_until_there_is_another_and_after_a_kill_it_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let restored = || LastLink::restored(Storage::open(folder.path(), [7; 32]).unwrap().0);
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let said = |link: &LastLink| link.ended_before_this_start();

        let first = restored();
        assert_eq!(said(&first), None, "there was none");
        first.began();
        first.ended(at);
        assert_eq!(said(&first), None, "that was not before this start");
        drop(first);
        for _ in 0..2 {
            assert_eq!(said(&restored()), Some(at));
        }
        let next = restored();
        next.began();
        assert_eq!(said(&next), None);
        drop(next);
        assert_eq!(said(&restored()), None, "killed while there was one");
    }

    #[test]
    fn what_no_hub_has_written_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "soon", "9223372036854775807", "-9223372036854775808", "\u{fe}"] {
            let storage = Storage::open(folder.path(), [7; 32]).unwrap().0;
            storage.keep_blob(ENDED, text.as_bytes());
            assert_eq!(LastLink::restored(storage).ended_before_this_start(), None, "{text:?}");
        }
    }
}

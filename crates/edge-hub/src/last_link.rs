//! When the last link ended: what a hub that starts without one can say of the age of what it has.
//!
//! ```text
//!  a link ends, or the hub does in order ─► stored: when        a link begins ─► removed
//! ```
//! So of a hub that was killed while it had a link nothing is said that may not be so, and nothing is written while nothing happens.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{hub::Hub, storage::Storage, upstream::LinkState};

/// The blob of when that was, in Unix seconds.
const ENDED: &str = "link-ended";

/// What is known of it.
pub struct LastLink {
    storage: Storage,
    before_this_start: Option<Timestamp>,
    /// Whether this start has had one.
    had_one: AtomicBool,
}

impl LastLink {
    /// As an earlier run left it.
    pub fn restored(storage: Storage) -> Self {
        let seconds = storage.blob(ENDED).and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
        let ended = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        Self { storage, before_this_start: ended, had_one: AtomicBool::new(false) }
    }

    /// When the last one before this start ended, by the node's clock, if that is known: what was not asked for since is of that time.
    pub fn ended_before_this_start(&self) -> Option<Timestamp> {
        self.before_this_start
    }

    /// The same, if this start has had none.
    pub fn ended(&self) -> Option<Timestamp> {
        self.before_this_start.filter(|_| !self.had_one.load(Ordering::Relaxed))
    }

    fn began(&self) {
        if let Err(error) = self.storage.remove_blob(ENDED) {
            warn!(%error, "cannot forget when the last link ended");
        }
        self.had_one.store(true, Ordering::Relaxed);
    }

    fn note_end(&self, at: Timestamp) {
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
            (true, false) => hub.last_link.note_end(Timestamp::now()),
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
        hub.last_link.note_end(Timestamp::now());
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
        let said = |link: &LastLink| (link.ended(), link.ended_before_this_start());

        let first = restored();
        assert_eq!(said(&first), (None, None), "there was none");
        first.began();
        first.note_end(at);
        assert_eq!(said(&first), (None, None), "that was not before this start");
        drop(first);
        for _ in 0..2 {
            assert_eq!(said(&restored()), (Some(at), Some(at)));
        }
        let next = restored();
        next.began();
        assert_eq!(said(&next), (None, Some(at)), "what was not asked for since is of that time still");
        drop(next);
        assert_eq!(said(&restored()), (None, None), "killed while there was one");
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

//! A link's streams get the window that their number allows, while it changes.

use std::time::Duration;

use crate::{socket::Traffic, window::stream_window};

/// How long a change waits for the acknowledgement of the one before.
const AGAIN: Duration = Duration::from_millis(100);

/// Keeps the window of a link's streams to what their number allows.
pub(crate) struct Follower(u32);

impl Follower {
    /// As a link begins.
    pub(crate) fn new() -> Self {
        Self(stream_window(0))
    }

    /// Ends when the window should be looked at.
    pub(crate) async fn due(&self, traffic: &Traffic) {
        if self.0 == stream_window(traffic.streams()) {
            traffic.window_changed().await;
        } else {
            tokio::select! {
                () = traffic.window_changed() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// Has `set` change the window, if it is not as it should be.
    pub(crate) fn follow<E>(&mut self, traffic: &Traffic, set: impl FnOnce(u32) -> Result<(), E>) {
        let wanted = stream_window(traffic.streams());
        if wanted != self.0 && set(wanted).is_ok() {
            self.0 = wanted;
        }
    }
}

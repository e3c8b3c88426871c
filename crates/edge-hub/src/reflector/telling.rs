//! When those who wait are told that the cache has changed.
//!
//! Most of what an event costs with many watchers is a write to each of their sockets, whatever its length. So a change that comes
//! by itself is told at once, and one that comes soon after another a moment later, with all that came meanwhile.

use std::time::Duration;

use tokio::time::Instant;

use crate::subscriptions::Subscription;

/// How soon after one change the next may be told. At 420 changes a second, the most that a real API server was seen to give, two go out at
/// once, and an event is later by 2 ms in the mean and by 5 at most, the timer's millisecond included.
const PAUSE: Duration = Duration::from_millis(4);

/// So many are told at once whatever comes: it costs little.
const FEW: usize = 8;

/// Tells the readers of a subscription of its changes; the last is told when this is dropped.
pub(super) struct Telling<'a> {
    subscription: &'a Subscription,
    pause: Pause,
}

impl<'a> Telling<'a> {
    pub(super) fn new(subscription: &'a Subscription) -> Self {
        Self { subscription, pause: Pause::default() }
    }

    /// The cache was changed: tells at once, or says when [`Telling::tell`] is to be called.
    pub(super) fn changed(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let pause = if self.subscription.watchers() > FEW { PAUSE } else { Duration::ZERO };
        let until = self.pause.begin(now, pause);
        if until == Some(now) {
            self.tell();
            return None;
        }
        until
    }

    /// Whether there is something to tell.
    pub(super) fn is_due(&self) -> bool {
        self.pause.until.is_some()
    }

    /// Tells of what has changed so far.
    pub(super) fn tell(&mut self) {
        self.subscription.wake();
        self.pause = Pause { told: Some(Instant::now()), until: None };
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if self.is_due() {
            self.tell();
        }
    }
}

/// When was told last, and until when a change waits.
#[derive(Default)]
struct Pause {
    told: Option<Instant>,
    until: Option<Instant>,
}

impl Pause {
    /// When to tell of a change; nothing if that is decided already.
    fn begin(&mut self, now: Instant, pause: Duration) -> Option<Instant> {
        if self.until.is_some() {
            return None;
        }
        let at = self.told.map_or(now, |told| now.max(told + pause));
        self.until = Some(at);
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_change_is_told_at_once_and_a_stream_of_them_in_bunches() {
        let (began, mut pause) = (Instant::now(), Pause::default());
        let at = |millis| began + Duration::from_millis(millis);
        let four = Duration::from_millis(4);
        assert_eq!(pause.begin(at(0), four), Some(at(0)));
        pause = Pause { told: Some(at(0)), until: None };
        assert_eq!(pause.begin(at(1), four), Some(at(4)));
        assert_eq!(pause.begin(at(3), four), None, "told with the one before");
        pause = Pause { told: Some(at(4)), until: None };
        assert_eq!(pause.begin(at(6), four), Some(at(8)));
        pause = Pause { told: Some(at(8)), until: None };
        assert_eq!(pause.begin(at(9), Duration::ZERO), Some(at(9)), "there are few to tell");
        pause = Pause { told: Some(at(9)), until: None };
        assert_eq!(pause.begin(at(50), four), Some(at(50)), "nothing came for long");
    }
}

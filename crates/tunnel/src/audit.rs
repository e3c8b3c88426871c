//! Who asked for what and did not get it: one event each, target `tunnel::audit`, with fields of bounded length. Of clients that nobody knows
//! there is one a minute for each listener and reason, and then one that says how many more there were.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::protocol::OpenError;

/// The longest field.
const FIELD_MAX: usize = 256;

const MINUTE: Duration = Duration::from_mins(1);

/// A stream was refused because nothing allows it, or because there are too many.
pub(crate) fn refused(caller: &str, wanted: &str, request_id: &str, error: OpenError) {
    warn!(
        target: "tunnel::audit",
        caller = %clipped(caller),
        wanted = %clipped(wanted),
        request_id = %clipped(request_id),
        reason = error.reason(),
        "refused"
    );
}

/// What was told in this minute of clients that nobody knows: whoever can open a port must not fill the log.
#[derive(Debug, Default)]
pub struct Unknown(Mutex<Minute>);

#[derive(Debug, Default)]
struct Minute {
    since: Option<Instant>,
    // How many were left out after the first.
    told: BTreeMap<(&'static str, &'static str), u64>,
}

impl Unknown {
    /// Whether there is a line for one more that came to this listener and failed for this reason, both of a fixed set.
    pub fn may_tell(&self, listener: &'static str, reason: &'static str) -> bool {
        let mut minute = self.0.lock();
        if minute.since.is_some_and(|since| since.elapsed() >= MINUTE) {
            tell_of(&std::mem::take(&mut *minute));
        }
        minute.since.get_or_insert_with(Instant::now);
        let left_out = minute.told.get_mut(&(listener, reason)).map(|left_out| *left_out += 1);
        if left_out.is_none() {
            minute.told.insert((listener, reason), 0);
        }
        left_out.is_none()
    }

    /// As [`refused`], of such a client.
    pub(crate) fn refused(
        &self,
        listener: &'static str,
        caller: &str,
        wanted: &str,
        request_id: &str,
        error: OpenError,
    ) {
        if self.may_tell(listener, error.reason()) {
            refused(caller, wanted, request_id, error);
        } else {
            debug!(caller = %clipped(caller), wanted = %clipped(wanted), request_id = %clipped(request_id), %error, "refused");
        }
    }

    /// Tells each minute what was left out in it, even if nobody else comes. Does not end.
    pub(crate) async fn tell(&self) {
        loop {
            sleep(MINUTE).await;
            tell_of(&std::mem::take(&mut *self.0.lock()));
        }
    }
}

fn tell_of(minute: &Minute) {
    for ((listener, reason), left_out) in minute.told.iter().filter(|(_, left_out)| **left_out > 0) {
        warn!(target: "tunnel::audit", listener, reason, left_out, "more were refused");
    }
}

/// At most so many bytes, and nothing that breaks a line.
fn clipped(text: &str) -> String {
    text.chars().take(FIELD_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_bounded_and_of_one_line() {
        assert_eq!(clipped("a\r\nb\u{1b}"), "a??b?");
        assert_eq!(clipped(&"x".repeat(1000)).len(), FIELD_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn one_a_minute_is_told_for_each_listener_and_reason() {
        let unknown = Unknown::default();
        for _ in 0..2 {
            for (listener, reason) in [("tls", "unknown"), ("tls", "malformed"), ("http", "unknown")] {
                assert!(unknown.may_tell(listener, reason));
                assert!(!unknown.may_tell(listener, reason) && !unknown.may_tell(listener, reason));
            }
            assert!(unknown.0.lock().told.values().all(|left_out| *left_out == 2));
            sleep(MINUTE).await;
        }
    }
}

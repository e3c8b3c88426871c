//! Who asked for what and did not get it: one event each, target `tunnel::audit`, with fields of bounded length. Of clients that nobody knows
//! there is one a minute for each listener, reason and source, of 64 of these at a listener, and then one that says how many more there were.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::{doorway::Source, protocol::OpenError};

/// The longest field.
const FIELD_MAX: usize = 256;

const MINUTE: Duration = Duration::from_mins(1);

/// Of how many reasons and sources there is a line each in a minute at one listener: who has a few addresses hides nobody else, and who has many
/// does not fill the log.
const LINES: usize = 64;

/// A stream was refused because nothing allows it, or because there are too many.
/// `source` is where the client is, if that is not who asks.
pub(crate) fn refused(
    caller: &str,
    source: Option<Source>,
    wanted: &str,
    request_id: &str,
    error: OpenError,
) {
    warn!(
        target: "tunnel::audit",
        caller = %clipped(caller),
        source = source.map(tracing::field::display),
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
    // How many were left out after the first, at a listener.
    told: BTreeMap<&'static str, BTreeMap<(&'static str, Source), u64>>,
    // And of sources of which there was none.
    untold: BTreeMap<(&'static str, &'static str), u64>,
}

impl Minute {
    /// Counts one more, and says whether it is told.
    fn count(&mut self, listener: &'static str, reason: &'static str, source: Source) -> bool {
        let told = self.told.entry(listener).or_default();
        if let Some(left_out) = told.get_mut(&(reason, source)) {
            *left_out += 1;
            false
        } else if told.len() < LINES {
            told.insert((reason, source), 0);
            true
        } else {
            *self.untold.entry((listener, reason)).or_default() += 1;
            false
        }
    }
}

impl Unknown {
    /// Whether there is a line for one more that came to this listener and failed for this reason, both of a fixed set.
    pub fn may_tell(&self, listener: &'static str, reason: &'static str, source: Source) -> bool {
        let mut minute = self.0.lock();
        if minute.since.is_some_and(|since| since.elapsed() >= MINUTE) {
            tell_of(&std::mem::take(&mut *minute));
        }
        minute.since.get_or_insert_with(Instant::now);
        minute.count(listener, reason, source)
    }

    /// As [`refused`], of such a client.
    pub(crate) fn refused(
        &self,
        listener: &'static str,
        caller: &str,
        source: Source,
        wanted: &str,
        request_id: &str,
        error: OpenError,
    ) {
        if self.may_tell(listener, error.reason(), source) {
            refused(caller, Some(source), wanted, request_id, error);
        } else {
            debug!(caller = %clipped(caller), %source, wanted = %clipped(wanted), request_id = %clipped(request_id), %error, "refused");
        }
    }

    /// Tells each minute what was left out in it, even if nobody else comes. Does not end.
    pub async fn tell(&self) {
        loop {
            sleep(MINUTE).await;
            tell_of(&std::mem::take(&mut *self.0.lock()));
        }
    }
}

fn tell_of(minute: &Minute) {
    for (listener, told) in &minute.told {
        for ((reason, source), left_out) in told.iter().filter(|(_, left_out)| **left_out > 0) {
            warn!(target: "tunnel::audit", listener, reason, %source, left_out, "more were refused");
        }
    }
    for ((listener, reason), left_out) in &minute.untold {
        warn!(target: "tunnel::audit", listener, reason, left_out, "more were refused, of other sources");
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
    async fn one_a_minute_is_told_for_each_listener_reason_and_source() {
        let unknown = Unknown::default();
        for _ in 0..2 {
            for (listener, reason, uid) in [
                ("tls", "unknown", 1),
                ("tls", "malformed", 1),
                ("http", "unknown", 1),
                ("tls", "unknown", 2),
            ] {
                let tells = || unknown.may_tell(listener, reason, Source::User(uid));
                assert_eq!([tells(), tells(), tells()], [true, false, false]);
            }
            assert!(unknown.0.lock().told.values().flat_map(BTreeMap::values).all(|left_out| *left_out == 2));
            sleep(MINUTE).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_many_addresses_does_not_fill_the_log_nor_hide_who_comes_elsewhere() {
        let unknown = Unknown::default();
        let told = (0..1000).filter(|uid| unknown.may_tell("tls", "unknown", Source::User(*uid))).count();
        assert_eq!(told, LINES);
        assert_eq!(unknown.0.lock().untold, [(("tls", "unknown"), 1000 - LINES as u64)].into());
        assert!(unknown.may_tell("http", "unknown", Source::User(7)));
    }
}

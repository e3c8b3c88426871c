//! What connections of strangers failed at: a few lines a minute, and then one that says how many were left out. Whoever can open a port
//! must not fill the log.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::warn;

/// How many lines there are a minute.
const LINES: usize = 5;

const MINUTE: Duration = Duration::from_mins(1);

/// Counts the lines of this minute.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<Minute>);

#[derive(Debug, Default)]
struct Minute {
    told: usize,
    left_out: BTreeMap<&'static str, u64>,
}

impl Strangers {
    /// Whether there is a line for one more that failed at this, one of a fixed set.
    pub(crate) fn may_tell(&self, kind: &'static str) -> bool {
        let mut minute = self.0.lock();
        let room = minute.told < LINES;
        if room {
            minute.told += 1;
        } else {
            *minute.left_out.entry(kind).or_default() += 1;
        }
        room
    }

    /// Tells each minute what was left out in it. Does not end.
    pub(crate) async fn tell(&self) {
        loop {
            sleep(MINUTE).await;
            if let Some(left_out) = self.next_minute() {
                warn!(left_out, "more connections became no links");
            }
        }
    }

    fn next_minute(&self) -> Option<String> {
        let Minute { left_out, .. } = std::mem::take(&mut *self.0.lock());
        let mut text = String::new();
        for (kind, count) in left_out {
            let comma = if text.is_empty() { "" } else { ", " };
            write!(text, "{comma}{count} {kind}").ok()?;
        }
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let strangers = Strangers::default();
        for _ in 0..2 {
            let told: Vec<_> = (0..LINES + 3).map(|_| strangers.may_tell("handshake")).collect();
            assert!(told.iter().take(LINES).all(|told| *told) && told.iter().skip(LINES).all(|told| !told));
            assert!(!strangers.may_tell("silent"));
            assert_eq!(strangers.next_minute().as_deref(), Some("3 handshake, 1 silent"));
        }
        assert!(strangers.may_tell("silent"));
        assert_eq!(strangers.next_minute(), None);
    }
}

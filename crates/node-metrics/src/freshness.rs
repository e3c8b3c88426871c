//! When a silent node's metrics are stale, when expired, when out of view: pure, on the server's steady clock alone, so that a
//! node's clock counts for nothing.

use std::time::Duration;

use api::slo::freshness::FreshnessState;

/// A moment on the server's two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Since some fixed point; never goes back. Ages are measured on it.
    pub steady: Duration,
    /// The time of day, for people and as a lower bound of versions. May go back.
    pub wall: jiff::Timestamp,
}

impl Now {
    /// Microseconds since 1970.
    pub fn micros(self) -> u64 {
        u64::try_from(self.wall.as_microsecond()).unwrap_or(0)
    }
}

/// How long a node may be silent, in tenths of its interval of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Beyond this it is stale. Half an interval more than a whole number, for jitter.
    pub stale: u32,
    /// Beyond this it is expired.
    pub expired: u32,
    /// So long after that it is out of view.
    pub grace: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { stale: 25, expired: 60, grace: Duration::from_mins(5) }
    }
}

/// Where a node's silence has led.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Silence {
    /// It reports.
    Fresh,
    /// Reports are missing.
    Stale,
    /// Its metrics mean nothing any more.
    Expired,
    /// And it is out of view.
    Hidden,
}

impl Rules {
    /// Where a silence of `age` has led a node that is to report each `interval`.
    pub fn judge(&self, age: Duration, interval: Duration) -> Silence {
        let expired = tenths(interval, self.expired);
        if age > expired.saturating_add(self.grace) {
            Silence::Hidden
        } else if age > expired {
            Silence::Expired
        } else if age > tenths(interval, self.stale) {
            Silence::Stale
        } else {
            Silence::Fresh
        }
    }
}

impl From<Silence> for FreshnessState {
    fn from(silence: Silence) -> Self {
        match silence {
            Silence::Fresh => Self::Fresh,
            Silence::Stale => Self::Stale,
            Silence::Expired | Silence::Hidden => Self::Expired,
        }
    }
}

fn tenths(interval: Duration, tenths: u32) -> Duration {
    interval.saturating_mul(tenths) / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_leads_from_fresh_to_hidden() {
        let rules = Rules { grace: Duration::from_secs(100), ..Rules::default() };
        let interval = Duration::from_secs(10);
        let cases = [
            (0, Silence::Fresh),
            (25, Silence::Fresh),
            (26, Silence::Stale),
            (60, Silence::Stale),
            (61, Silence::Expired),
            (160, Silence::Expired),
            (161, Silence::Hidden),
            (u64::MAX, Silence::Hidden),
        ];
        for (age, expected) in cases {
            assert_eq!(rules.judge(Duration::from_secs(age), interval), expected, "{age} s");
        }
    }
}

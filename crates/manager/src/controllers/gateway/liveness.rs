//! Pure: whether the hub of an exposed gateway is alive, by when its report was seen to change, on our own clock. What a report says of
//! its own length or time counts for nothing: another machine's clock, and another node's word.

use std::time::{Duration, Instant};

/// For how long a report shows that its hub is alive: two of its beats, and what a write may take. What is silent must be out of the
/// slices within five seconds, in which it is asked for once more and the slices are written.
pub(crate) const LIFE: Duration = Duration::from_millis(3500);

/// The same once another hub, whose own report changes, has lost its link to it: one of its beats, and what a write may take. Of one that is
/// killed the others know at once, and new requests must not go to it for longer than three seconds.
pub(crate) const MISSED_LIFE: Duration = Duration::from_secs(2);

/// What is known of a hub.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Liveness {
    /// Its report changed within [`LIFE`], or [`MISSED_LIFE`].
    Alive,
    /// Its report has been known for less than that, and did not change yet.
    Unknown,
    /// Its report should have changed. Watches lag: it must be asked for before the hub is taken for dead.
    Suspect,
    /// It let its report lapse: it is dead, or does not come to the API server.
    Silent,
    /// It gave its report up.
    Dead,
}

/// When a report was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sightings {
    /// Whether somebody holds it.
    pub(crate) held: bool,
    /// When it was first known.
    pub(crate) first: Instant,
    /// When it was last seen to change.
    pub(crate) changed: Option<Instant>,
    /// Whether another hub has lost its link to this one since.
    pub(crate) missed: bool,
    /// Whether it was asked for since, and had not changed.
    pub(crate) lapsed: bool,
}

impl Sightings {
    /// When it was last seen to be as it is.
    pub(crate) fn told(&self) -> Instant {
        self.changed.unwrap_or(self.first)
    }

    /// What they say at `now`, and until when.
    pub(crate) fn liveness(&self, now: Instant) -> (Liveness, Option<Instant>) {
        let Self { held, changed, missed, lapsed, first: _ } = *self;
        if !held {
            return (Liveness::Dead, None);
        }
        if lapsed {
            return (Liveness::Silent, None);
        }
        let end = self.told() + if missed { MISSED_LIFE } else { LIFE };
        match (now < end, changed) {
            (true, Some(_)) => (Liveness::Alive, Some(end)),
            (true, None) => (Liveness::Unknown, Some(end)),
            (false, _) => (Liveness::Suspect, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_lives_while_its_report_changes() {
        use Liveness::{Alive, Dead, Silent, Suspect, Unknown};
        let first = Instant::now();
        let at = |millis: u64| first + Duration::from_millis(millis);
        // Held, changed at, missed, lapsed, now, verdict.
        let cases = [
            (true, None, false, false, 0, Unknown),
            (true, None, false, false, 3_499, Unknown),
            (true, None, false, false, 3_500, Suspect),
            (true, None, true, false, 2_000, Suspect),
            (true, Some(1_500), false, false, 4_999, Alive),
            (true, Some(1_500), false, false, 5_000, Suspect),
            (true, Some(1_500), true, false, 3_499, Alive),
            (true, Some(1_500), true, false, 3_500, Suspect),
            (true, Some(1_500), false, true, 5_100, Silent),
            (false, Some(1_500), false, true, 5_100, Dead),
            (false, Some(1_500), false, false, 1_501, Dead),
            (false, None, false, false, 0, Dead),
        ];
        for (held, changed, missed, lapsed, now, expected) in cases {
            let sightings = Sightings { held, first, changed: changed.map(at), missed, lapsed };
            let verdict = sightings.liveness(at(now)).0;
            assert_eq!(verdict, expected, "{held} {changed:?} {missed} {lapsed} {now}");
        }
    }
}

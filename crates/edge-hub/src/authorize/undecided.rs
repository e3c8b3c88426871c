//! For how long an open watch goes on whose watcher cannot be reviewed. Pure: time comes in as a parameter.

use std::time::Duration;

use tokio::time::Instant;

use super::Decision;

/// Since when the API server could not say whether the watcher of an open watch still may, though there is a link.
#[derive(Debug, Default)]
pub struct Undecided(Option<Instant>);

impl Undecided {
    /// Whether the watch goes on after that decision. Without a link it does, as it went on before. With one it goes on for as long as an allowance is
    /// believed at most: whoever keeps the API server from answering does not keep a right by that.
    pub fn goes_on(&mut self, decision: &Decision, believed: Duration, now: Instant) -> bool {
        match decision {
            Decision::Allowed | Decision::Unknown(_) => {
                self.0 = None;
                true
            }
            Decision::Passing(_) => now.saturating_duration_since(*self.0.get_or_insert(now)) < believed,
            Decision::Denied(_) | Decision::Unauthorized(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_be_reviewed_for_long_is_not_believed_for_longer() {
        const MINUTE: Duration = Duration::from_mins(1);
        let [passing, unknown, denied] =
            [Decision::Passing, Decision::Unknown, Decision::Denied].map(|of| of(String::new()));
        let began = Instant::now();
        let goes_on = |decisions: &[&Decision]| {
            let (mut undecided, mut minute) = (Undecided::default(), 0);
            decisions.iter().all(|decision| {
                minute += 1;
                undecided.goes_on(decision, 5 * MINUTE, began + minute * MINUTE)
            })
        };
        assert!(goes_on(&[&passing; 5]), "not before the fifth minute is over");
        assert!(!goes_on(&[&passing; 6]));
        for known in [&Decision::Allowed, &unknown] {
            let both = [[&passing; 5].as_slice(), &[known], &[&passing; 5]].concat();
            assert!(goes_on(&both), "{known:?}: it begins anew");
        }
        assert!(goes_on(&[&unknown; 90]), "without a link");
        assert!(!goes_on(&[&denied]));
    }
}

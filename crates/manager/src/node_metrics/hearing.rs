//! A leader that no node reaches, though the API server does: the Lease says nothing of that, and all nodes would expire while a standby
//! that they reach stands by. It gives the Lease away, and another replica tries.
//!
//! Where all nodes are really away that does no harm: the next leader has a copy in which they are stale, so it does not miss them, and who gave
//! the Lease away does not again for a while.

use std::time::Duration;

use api::slo::freshness::FreshnessState;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::warn;

use super::Host;

/// So many nodes must have been fresh: of fewer it is likely that they are away.
const MANY: usize = 3;

/// So many may be left, and count for none: that of the leader's own machine reaches it whatever is cut off.
const LEFT: usize = 1;

/// How long none may be fresh, each of which has been silent for 2.5 of its intervals then. Within that the store's copies learn of it, and
/// nodes that report each second come to a new leader.
const PATIENCE: Duration = Duration::from_secs(5);

/// The Lease is not given away again for so long.
const BACKOFF: Duration = Duration::from_mins(5);

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);

/// What a replica knows of how it is heard, over its leaderships.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    /// The most nodes that were fresh at once in this leadership.
    most: usize,
    /// Since when none is.
    lost: Option<Duration>,
    /// When the Lease was given away last.
    given: Option<Duration>,
}

impl Hearing {
    /// Another leadership begins.
    pub(super) fn begin(&mut self) {
        (self.most, self.lost) = (0, None);
    }

    /// Whether to give the Lease away at `now`, on a steady clock, when so many nodes are `fresh`, and there are `others` that could lead.
    fn gives_away(&mut self, now: Duration, fresh: usize, others: bool) -> bool {
        self.most = self.most.max(fresh);
        if self.most < MANY || fresh > LEFT {
            self.lost = None;
            return false;
        }
        let lost = *self.lost.get_or_insert(now);
        let is_again = self.given.is_some_and(|given| now.saturating_sub(given) < BACKOFF);
        let gives = others && !is_again && now.saturating_sub(lost) >= PATIENCE;
        if gives {
            self.given = Some(now);
        }
        gives
    }
}

/// Returns when the Lease is to be given away. To be called while this replica leads; `begun` is when the process was.
pub(super) async fn lost(host: &Host, hearing: &mut Hearing, begun: Instant) {
    hearing.begin();
    let mut turn = interval(LOOK);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        let fresh = host.source.read(|store| store.states().get(&FreshnessState::Fresh).copied());
        let others = host.replicas_announced.load(std::sync::atomic::Ordering::Relaxed) > 1;
        if hearing.gives_away(begun.elapsed(), fresh.unwrap_or(0), others) {
            warn!(
                most = hearing.most,
                "hears of no node any more: gives the leadership away, so that another replica tries"
            );
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// The second of the first giving away, of some in which so many are fresh.
    fn given(
        hearing: &mut Hearing,
        seconds: std::ops::Range<u32>,
        fresh: usize,
        others: bool,
    ) -> Option<u32> {
        let mut seconds = seconds;
        seconds.find(|second| hearing.gives_away(*second * S, fresh, others))
    }

    #[test]
    fn a_leader_that_no_node_reaches_any_more_gives_the_lease_away() {
        for left in [0, 1] {
            let mut hearing = Hearing::default();
            assert_eq!(given(&mut hearing, 0..100, 5_000, true), None, "all is well");
            assert_eq!(given(&mut hearing, 100..110, left, true), Some(105), "{left}");
        }
        // Some are away and others are not.
        let mut hearing = Hearing::default();
        assert_eq!(given(&mut hearing, 0..100, 5_000, true), None);
        assert_eq!(given(&mut hearing, 100..1_000, 2, true), None);
        // For a moment.
        assert_eq!(given(&mut hearing, 1_000..1_004, 0, true), None);
        assert_eq!(given(&mut hearing, 1_004..1_005, 2, true), None);
        assert_eq!(given(&mut hearing, 1_005..1_010, 0, true), None);
    }

    #[test]
    fn it_keeps_the_lease_where_another_could_not_do_better() {
        // There are few nodes, or none that this leader or the one before heard.
        let mut hearing = Hearing::default();
        assert_eq!(given(&mut hearing, 0..100, 2, true), None);
        assert_eq!(given(&mut hearing, 100..1_000, 0, true), None);
        // There is nobody else, until there is.
        assert_eq!(given(&mut hearing, 1_000..1_010, 3, false), None);
        assert_eq!(given(&mut hearing, 1_010..1_100, 0, false), None);
        assert_eq!(given(&mut hearing, 1_100..1_101, 0, true), Some(1_100));
    }

    #[test]
    fn all_nodes_away_move_the_lease_once_and_links_that_flap_seldom() {
        let (mut a, mut b) = (Hearing::default(), Hearing::default());
        a.begin();
        assert_eq!(given(&mut a, 0..10, 50, true), None);
        assert_eq!(given(&mut a, 10..60, 0, true), Some(15));
        // In B's copy all are stale.
        b.begin();
        assert_eq!(given(&mut b, 16..1_000, 0, true), None);
        // They come back and go again: B gives it to A, and A keeps it.
        assert_eq!(given(&mut b, 1_000..1_010, 50, true), None);
        assert_eq!(given(&mut b, 1_010..1_100, 0, true), Some(1_015));
        a.begin();
        assert_eq!(given(&mut a, 1_016..1_020, 50, true), None);
        assert_eq!(given(&mut a, 1_020..1_030, 0, true), Some(1_025));
        // Not again within five minutes of the last time.
        b.begin();
        assert_eq!(given(&mut b, 1_026..1_030, 50, true), None);
        assert_eq!(given(&mut b, 1_030..1_400, 0, true), Some(1_315));
    }
}

//! When a new leader knows enough to be read.

use std::time::Duration;

use node_report::Answer;

use super::{Coverage, Phase, Store, Tracked};
use crate::freshness::{Now, Silence};

/// Of a hundred live nodes so many must be in before lists are answered.
const COVERAGE_PERCENT: usize = 99;

/// So few nodes are looked through after each report; else it is done once in the time of [`LOOK`].
const FEW: usize = 500;
const LOOK: Duration = Duration::from_millis(100);

impl Store {
    /// How much is in.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = Coverage { objects: self.ledger.len(), ..Coverage::default() };
        for tracked in self.nodes.values().filter(|tracked| tracked.facts.ready) {
            coverage.live += 1;
            coverage.covered += usize::from(self.is_covered(tracked));
        }
        coverage
    }

    /// Whether what there is of a node may be served: somebody told it, or the node is declared gone.
    fn is_covered(&self, tracked: &Tracked) -> bool {
        let stored = self.ledger.get(&tracked.facts.name);
        let copied = !self.warm && tracked.reported.is_none() && tracked.heard == self.began;
        // Of one that never reported the leader before knew no more, and served it.
        let known = !copied && stored.is_some_and(|stored| tracked.inherited || stored.value.has_status());
        known || matches!(tracked.silence, Some(Silence::Expired | Silence::Hidden))
    }

    /// Opens the store for readers as soon as it knows enough.
    pub(super) fn warm(&mut self, now: Now) {
        let Phase::Warming { since } = self.phase else { return };
        if !self.nodes_listed {
            return;
        }
        self.looked = now.steady;
        let Coverage { live, covered, .. } = self.coverage();
        let waited = now.steady.saturating_sub(since);
        // One that is in, or is not alive, is not waited for, however seldom it reports; where none is alive all are.
        let awaited = |tracked: &&Tracked| live == 0 || (tracked.facts.ready && !self.is_covered(tracked));
        let slowest = self.nodes.values().filter(awaited).map(|tracked| tracked.facts.policy.interval);
        let slowest = slowest.max().unwrap_or_default().min(Answer::LONGEST_INTERVAL);
        // By then whoever has not reported counts as gone; the objects of such nodes are there, without a status.
        let declared_gone = self.settings.rules.judge(waited, slowest) >= Silence::Expired;
        // Where no node is alive, none can be in, and of them all nothing is known: as after an outage of the whole cluster.
        let can_tell = live > 0 || self.warm || self.nodes.is_empty();
        if (can_tell && covered * 100 >= live * COVERAGE_PERCENT) || declared_gone {
            self.phase = Phase::Serving;
        }
    }

    /// The same after a report. To look takes as long as there are nodes, so of many reports not each has a look; the next tick has.
    pub(super) fn warm_by_report(&mut self, now: Now) {
        let many = self.nodes.len() > FEW && now.steady.saturating_sub(self.looked) < LOOK;
        if !many {
            self.warm(now);
        }
    }
}

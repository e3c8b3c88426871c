//! What a server holds of one node: the plain form, for servers that need no other and as the measure for those that do.

use std::collections::BTreeMap;

use crate::report::{MAX_PODS, NodeUsage, PodUsage, Report};
use crate::sequence::{Held, Verdict, judge};

/// The state of a node as of the last report taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Which report that was; `None`: none yet.
    pub held: Option<Held>,
    /// When its newest sample was taken, by the node's clock.
    pub sampled_at_ms: i64,
    /// The node itself.
    pub usage: NodeUsage,
    /// Its pods by UID.
    pub pods: BTreeMap<String, PodUsage>,
}

impl View {
    /// Takes `report` if a leader of term `epoch` is to take it. The caller has checked it ([`Report::check`]).
    pub fn take(&mut self, epoch: u64, report: Report) -> Verdict {
        let verdict = judge(epoch, self.held, &report);
        if verdict != Verdict::Take {
            return verdict;
        }
        // Each delta is short, and many of them would not be together.
        if !report.is_full() && self.pods_after(&report) > MAX_PODS {
            return Verdict::NeedFull;
        }
        self.apply(report);
        verdict
    }

    /// How many pods there would be after a delta.
    fn pods_after(&self, delta: &Report) -> usize {
        let new = delta.pods.iter().filter(|pod| !self.pods.contains_key(&pod.uid)).count();
        let gone = delta.removed_pods.iter().filter(|uid| self.pods.contains_key(*uid)).count();
        self.pods.len() + new - gone
    }

    /// Puts in what `report` says, whatever is held.
    fn apply(&mut self, report: Report) {
        if report.is_full() {
            self.pods.clear();
        }
        for uid in &report.removed_pods {
            self.pods.remove(uid);
        }
        self.held = Some(Held { incarnation: report.incarnation, seq: report.seq });
        self.sampled_at_ms = report.sampled_at_ms;
        self.usage = report.usage.unwrap_or_default();
        self.pods.extend(report.pods.into_iter().map(|pod| (pod.uid.clone(), pod)));
    }
}

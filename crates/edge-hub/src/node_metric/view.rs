//! What the hub says of its reports. Fields are only ever added.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The reports of what the node uses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetricView {
    /// How long ago the leader took a report last.
    pub age_seconds: Option<u64>,
    /// Who leads, as it says itself.
    pub leader: Option<String>,
    /// Its term.
    pub epoch: Option<u64>,
    /// Number of that report.
    pub seq: Option<u64>,
    /// Time between reports in milliseconds.
    pub interval_ms: u32,
    /// Reports that were not taken since the start.
    pub refused: u64,
    /// What went wrong last, until it goes right.
    pub problem: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    view: NodeMetricView,
    taken: Option<Instant>,
    is_on: bool,
}

/// Where the task that reports says how it is. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Said(Arc<Mutex<State>>);

impl Said {
    /// How it is now; `None` if the hub does not report.
    pub fn view(&self) -> Option<NodeMetricView> {
        let state = self.0.lock();
        let age_seconds = state.taken.map(|taken| taken.elapsed().as_secs());
        state.is_on.then(|| NodeMetricView { age_seconds, ..state.view.clone() })
    }

    pub(super) fn begins(&self) {
        self.0.lock().is_on = true;
    }

    pub(super) fn taken(&self, leader: &str, epoch: u64, seq: u64, interval_ms: u32) {
        let mut state = self.0.lock();
        state.taken = Some(Instant::now());
        let view = &mut state.view;
        (view.leader, view.epoch, view.seq) = (Some(leader.to_owned()), Some(epoch), Some(seq));
        (view.interval_ms, view.problem) = (interval_ms, None);
    }

    /// A report was not taken.
    pub(super) fn refused(&self, problem: String) {
        let mut state = self.0.lock();
        state.view.refused += 1;
        state.view.problem = Some(problem);
    }

    /// There is nobody to report to.
    pub(super) fn stuck(&self, problem: String) {
        self.0.lock().view.problem = Some(problem);
    }
}

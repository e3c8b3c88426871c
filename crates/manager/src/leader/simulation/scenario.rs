//! What befalls the machines and the network during one run, and who believes to lead when.

use super::machine::{Machine, Time};
use crate::leader::timing::Timing;

/// What happens to one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) there: Time,
    pub(super) back: Time,
    pub(super) request_lost: bool,
    pub(super) answer_lost: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The processes of a machine stand still; their clocks do not.
    Freeze(Time),
    /// No request or answer passes between a machine and the store.
    Partition(Time),
    Crash,
    /// The process hands over and exits, as in a rolling update.
    Release,
    JumpTimeOfDay(i64),
    /// Somebody else edits the Lease's metadata.
    Touch,
    /// A connection to the holder breaks, for whatever reason.
    Doubt,
}

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) timing: Timing,
    pub(super) machines: Vec<Machine>,
    pub(super) starts: Vec<Time>,
    pub(super) faults: Vec<(Time, usize, Fault)>,
    pub(super) fates: Vec<Fate>,
    /// Who holds the Lease at the start, though it lives no more: `None` if there is no Lease, "" if it was released.
    pub(super) stored: Option<&'static str>,
    /// Every dial is refused, whoever listens.
    pub(super) refused: bool,
    pub(super) end: Time,
}

/// A value that says "you lead", in true time: current from its publication until it is withdrawn or ends.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) process: usize,
    pub(super) from: Time,
    pub(super) to: Time,
}

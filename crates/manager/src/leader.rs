//! Leadership among the replicas of the manager: one Lease, and a value with an expiry that says "you lead".
//!
//! ```text
//!  API server ◄── driver ── Candidate (pure) ── watch::Receiver<Option<Leadership>> ──► controllers
//!                    │         └ lease::decide                     └ LeadershipGuard::check() before each write
//!                    ├ inquiry: a standby dials a holder that is late
//!                    └ Err(Error::Lost): the process exits
//! ```
//! Inputs: a client without retries of its own ([`kube::Config::default_retry`] off: a retried renewal would count from
//! the wrong moment), an identity that no other process ever had, [`Timing`]. Fail-stop: a process that lost the
//! leadership does not try to win it again, it exits and starts anew. What has nothing that could outlive its leadership goes by
//! terms instead ([`Candidacy`]): it is dropped, and begins anew.
//!
//! What this cannot do: a write that was sent in time may be carried out late. [`LeadershipGuard::check`] returns how
//! long the leadership lasts, for use as the write's own time limit.

mod args;
mod candidacy;
mod candidate;
mod clock;
mod driver;
mod inquiry;
mod leadership;
mod lease;
mod metrics;
mod owner;
#[cfg(test)]
mod simulation;
mod timing;

pub use args::LeaderArgs;
pub use candidacy::Candidacy;
pub use clock::{Clock, Moment};
pub use driver::{Election, Error, Settings};
pub use leadership::{Leadership, LeadershipGuard, NotLeading};
pub use lease::Loss;
pub use metrics::Metrics;
pub use owner::owner;
pub use timing::{MAX_CLOCK_DRIFT, Timing, TimingError};

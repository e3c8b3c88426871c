//! What a node and its pods use: read once a second from procfs and cgroups (v1 and v2), kept for half an hour, and put into a report.
//!
//! ```text
//!  proc ──┐                    ┌─► rings (1,800 s of node and system) ─► averages, exact percentiles
//!         ├─► sampler.tick ────┼─► pods: counters over the policy's window
//!  cgroup ┘                    └─► peak: decaying histograms ─► reclaimable     ─► sampler.sample ─► node_report::Sample
//! ```
//! It knows the kernel and no cluster: what pods are called comes in ([`facts`]). Clocks come in. It writes nothing: the checkpoint is
//! bytes for the caller to keep. What the kernel does not tell is absent, never zero, and odd text of the kernel's makes a quantity absent,
//! never a panic.

pub mod cgroup;
pub mod checkpoint;
mod counters;
pub mod facts;
mod file;
pub mod histogram;
mod history;
mod hosts;
mod numa;
pub mod parse;
pub mod peak;
mod pods;
pub mod proc;
pub mod ring;
mod sampler;
mod threads;
mod usage;

pub use facts::{Facts, PodFacts};
pub use sampler::{Moment, Roots, Sampler};

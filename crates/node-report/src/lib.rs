//! The way of a node's metrics to the leader that serves them (ADR 0016): what a report and its answer look like on the wire,
//! and which report follows which.
//!
//! Reporter and server both use this crate, and it knows neither: no socket, no clock, no Kubernetes. What the kernel of a node cannot
//! tell is absent (`None`), never zero.
//!
//! | question | module |
//! |---|---|
//! | what a report says | [`report`] |
//! | what the leader answers | [`answer`] |
//! | paths, headers, status codes, limits | [`http`] |
//! | which report a server takes, drops or refuses | [`sequence`] |
//! | what a server holds of a node once it took it | [`view`] |
//! | which report a node sends next: full or delta | [`encoder`] |
//! | when a pod has changed enough to be sent | [`threshold`] |

pub mod answer;
pub mod encoder;
pub mod http;
pub mod report;
pub mod sequence;
pub mod threshold;
pub mod view;

pub use answer::{Answer, CgroupBase, HostApplication, MemoryPolicy, Policy};
pub use encoder::{Encoder, Sample, Source};
pub use report::{NodeUsage, PodUsage, Priority, Qos, Report, Resources};
pub use sequence::{Held, Verdict, judge};
pub use threshold::Threshold;
pub use view::View;

/// Encoding of the messages, as `prost` does it: `encode_to_vec`, `decode`.
pub use prost::{DecodeError, Message};

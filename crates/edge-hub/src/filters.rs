//! Filters: what a client of this node is shown of an object, under the names and annotations that OpenYurt's users know.
//!
//! ```text
//!  client ─► rules: which filters? ─► registry: one Filter for all that share a set ─► serve: lists, watches, objects
//!                                        ▲ View (node, pool, its nodes, the hub's address, Services' annotations)
//!                                     follow
//! ```
//! Each filter is a pure function of an object and a [`View`]. A [`Filter`] keeps the view that it was made with: what it answers
//! never changes. When the view changes so that it would answer otherwise, another takes its place, and watches through the old
//! one tell what the new one shows otherwise.

mod catalog;
mod client;
mod difference;
mod discard_cloud_service;
mod filter;
pub mod follow;
mod forward_kube_svc_traffic;
mod in_cluster_config;
mod local_pods;
mod master_service;
mod node_port_isolation;
mod pod_access;
mod registry;
mod rules;
mod service_env_updater;
mod service_topology;
mod shown;
#[cfg(test)]
mod tests;
mod view;

pub use self::catalog::{FilterName, Filtered, UnknownFilter};
pub use self::client::Client;
pub use self::difference::Difference;
pub use self::filter::{Filter, Outcome, Telling, filter};
pub use self::local_pods::{LocalPod, LocalPods};
pub(crate) use self::pod_access::internal_addresses;
pub use self::pod_access::{PodAccess, Unreached};
pub use self::registry::Filters;
pub use self::rules::Rules;
pub use self::shown::{Place, reader};
pub use self::view::{Otherwise, Topology, View};

//! The vocabulary of Isthmus: custom resources, labels, annotations and conditions, and the CRDs generated from them.
//!
//! This crate holds data only: no client, no runtime. Every well-known name of the project stands here and nowhere
//! else, so that a name can be looked up, and changed, in one place.

pub mod annotations;
pub mod apps;
pub mod conditions;
pub mod labels;

pub use apps::node_pool::{
    GroupVersionResource, LeaderElectionStrategy, LeaderEndpoint, NetworkMode, NodePool, NodePoolSpec,
    NodePoolStatus, PoolType,
};

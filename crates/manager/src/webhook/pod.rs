//! Pods at their creation.

mod binding;
mod exclusion;
mod host_network;
pub mod plan;
mod raw;

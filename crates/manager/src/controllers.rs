//! The controllers, which run on the leading replica only.

pub(crate) mod hub_identity;
pub(crate) mod node_pool;
pub mod webhook_certificates;

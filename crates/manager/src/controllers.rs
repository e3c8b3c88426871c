//! The controllers, which run on the leading replica only.

pub(crate) mod node_pool;
pub mod webhook_certificates;

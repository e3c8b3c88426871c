//! The controllers, which run on the leading replica only.

pub(crate) mod conditions;
pub(crate) mod gateway;
pub(crate) mod hub_access;
pub(crate) mod hub_identity;
pub(crate) mod node_places;
pub(crate) mod node_pool;
pub(crate) mod told_events;
pub(crate) mod unreadable;
pub mod webhook_certificates;

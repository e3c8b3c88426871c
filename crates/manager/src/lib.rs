//! The cluster's side of Isthmus: controllers, admission webhook, leadership.

pub mod app;
pub mod args;
pub mod commands;
pub mod config;
pub mod controllers;
pub mod crds;
mod duration;
pub mod hostnet;
pub mod leader;
pub(crate) mod leading;
pub mod metrics_server;
pub mod node_metrics;
pub(crate) mod nodes;
pub(crate) mod pods;
pub mod pools;
pub(crate) mod raw_json;
pub(crate) mod retire;
pub(crate) mod watches;
pub mod webhook;
pub(crate) mod work_queue;

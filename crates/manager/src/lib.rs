//! The cluster's side of Isthmus: controllers, admission webhook, leadership.

pub mod args;
pub(crate) mod controllers;
pub mod crds;
pub mod hostnet;
pub mod leader;
pub(crate) mod nodes;
pub(crate) mod pods;
pub mod pools;
pub(crate) mod watches;
pub mod webhook;
pub(crate) mod work_queue;

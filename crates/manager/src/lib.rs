//! The cluster's side of Isthmus: controllers, admission webhook, leadership.

pub(crate) mod controllers;
pub(crate) mod nodes;
pub(crate) mod pods;
pub(crate) mod pools;
pub(crate) mod watches;
pub(crate) mod work_queue;

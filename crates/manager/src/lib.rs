//! The cluster's side of Isthmus: controllers, admission webhook, certificates.

pub mod pools;
pub mod webhook;

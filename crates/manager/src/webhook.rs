//! The admission webhook.

pub mod pod;

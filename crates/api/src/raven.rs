//! Group `raven.openyurt.io`.

pub mod gateway;

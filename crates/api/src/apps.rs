//! Group `apps.openyurt.io`.

pub mod node_pool;

//! manager

pub mod controllers {
    //! What runs only while leading.
    pub mod webhook_certificates;
}
pub mod metrics_server;

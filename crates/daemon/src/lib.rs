//! What every long-running process needs: logs, probes, metrics, readiness, shutdown.
//!
//! Knows nothing of Kubernetes' API, so that the smallest agent can use it.

pub mod admin;
pub mod build_info;
pub mod exit;
pub mod metrics;
pub mod process_metrics;
pub mod ready;
pub mod shutdown;
pub mod telemetry;

//! What every long-running process needs: logs, probes, metrics, readiness, shutdown; and every command: what it prints, how it ends.
//!
//! Knows nothing of Kubernetes' API, so that the smallest agent can use it.

pub mod admin;
pub mod build_info;
pub mod exit;
pub mod metrics;
pub mod print;
pub mod process_metrics;
pub mod ready;
pub mod shutdown;
pub mod telemetry;

//! End-to-end tests. `hack/test e2e` starts the cluster, installs the chart and runs them one after the other.

mod aggregated_api;
#[path = "../../../crates/api/tests/it/case.rs"]
mod case;
mod crds;
mod faults;
mod hostnet;
mod hub;
mod manager;
mod node_metric_policies;
mod node_metrics;
mod node_pool;
mod transcode;
mod tunnel;
mod webhook;
mod webhook_bypassed;

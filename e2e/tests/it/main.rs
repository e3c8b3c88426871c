//! End-to-end tests. `hack/test e2e` starts the cluster, installs the chart and runs them one after the other.

mod crds;
mod manager;
mod node_pool;
mod webhook;

//! The options of node metrics.

use std::time::Duration;

use node_sampler::Roots;

use super::Server;

/// What the node and its pods use, reported to the managers' leader.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Node metrics")]
pub struct NodeMetricArgs {
    /// Measure what the node and its pods use, and report it to the managers.
    #[arg(long)]
    pub node_metric: bool,

    /// Who takes reports, in place of the servers that ConfigMap isthmus-node-metric names; any manager tells who leads.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', requires = "node_metric")]
    pub node_metric_server: Vec<Server>,

    /// The kubelet's --cgroup-root, if it has one: beneath it are the cgroups of pods.
    #[arg(long, value_name = "CGROUP", default_value = "", requires = "node_metric")]
    pub node_metric_cgroup_root: String,
}

/// How the node is measured and reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMetricConfig {
    /// In place of the servers of the ConfigMap, if there are any.
    pub servers: Vec<Server>,
    /// Where the kernel's files are.
    pub roots: Roots,
    /// Time between reports until the leader says another.
    pub interval: Duration,
}

impl NodeMetricArgs {
    /// `None`: off.
    pub fn into_config(self) -> Option<NodeMetricConfig> {
        let Self { node_metric, node_metric_server, node_metric_cgroup_root } = self;
        node_metric.then(|| NodeMetricConfig {
            servers: node_metric_server,
            roots: Roots { kubelet: node_metric_cgroup_root, ..Roots::default() },
            interval: Duration::from_secs(10),
        })
    }
}

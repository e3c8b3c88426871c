//! The command line as typed.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args as Group, Parser, Subcommand};
use daemon::exit;

use crate::duration;
use crate::leader::{Timing, TimingError};

/// The name of the binary, in its help and its messages.
pub(crate) const PROGRAM: &str = "isthmus-manager";

/// The cluster's side of Isthmus: keeps nodes as their `NodePool` says, gives pods of host-network pools the network of
/// their node, and issues the certificates for that.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version = daemon::build_info::BUILD.version, max_term_width = 110, after_help = exit::HELP)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controllers (on the leading replica) and the admission webhook (on every replica).
    Run(Box<RunArgs>),
    /// Print the custom resource definitions, or apply them to a cluster.
    Crds(CrdsArgs),
    /// Show what nodes use, as they report it.
    Top(crate::node_metrics::top::TopArgs),
    /// Take away what NodeMetric left on nodes, where it is served no more.
    RetireNodeMetrics(crate::node_metrics::retire::RetireArgs),
    /// Keep kube-proxy, cluster DNS and CNI agents off the nodes of host-network pools.
    Hostnet(crate::hostnet::HostnetArgs),
}

/// Arguments of `run`.
#[derive(Debug, Group)]
#[command(after_help = exit::HELP)]
pub struct RunArgs {
    /// Namespace of this process: its Lease and the Secrets of its certificates are there.
    #[arg(long, env = "POD_NAMESPACE", default_value = "isthmus-system")]
    pub namespace: String,

    /// Name of this replica in the Lease; must differ between replicas.
    #[arg(long, env = "POD_NAME", default_value = "isthmus-manager")]
    pub identity: String,

    /// What the hubs of the nodes are given.
    #[command(flatten)]
    pub hubs: HubArgs,

    /// Gateways.
    #[command(flatten)]
    pub gateways: GatewayArgs,

    /// Where to listen.
    #[command(flatten)]
    pub listeners: ListenerArgs,

    /// The webhook's certificates.
    #[command(flatten)]
    pub webhook: WebhookArgs,

    /// The API of NodeMetric.
    #[command(flatten)]
    pub node_metrics: crate::node_metrics::NodeMetricArgs,

    /// How leadership is held.
    #[command(flatten)]
    pub leader: crate::leader::LeaderArgs,

    /// What is logged.
    #[command(flatten)]
    pub log: daemon::telemetry::LogArgs,
}

/// What the hubs of the nodes are given.
#[derive(Clone, Debug, Group)]
#[command(next_help_heading = "Hubs of the nodes")]
pub struct HubArgs {
    /// Namespace in which the hubs of the nodes look for the `ConfigMap` `leader-hub-<pool>`.
    #[arg(long, default_value = "kube-system")]
    pub hub_namespace: String,

    /// Approve the certificates that the hubs of the nodes ask for, and deny those that somebody else asks for.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub approve_hub_certificates: bool,

    /// Keep the Role `isthmus-edge-hub-pools`, by which the hubs of the nodes read the `ConfigMap` `leader-hub-<pool>` of every pool.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub hub_access: bool,
}

/// Gateways.
#[derive(Clone, Debug, Group)]
#[command(next_help_heading = "Gateways")]
pub struct GatewayArgs {
    /// Run the Gateway controller: election of endpoints, the Services that lead to them, names of edge nodes.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub gateways: bool,

    /// Make a Gateway for every pool of type Edge, not only for those with annotation isthmus.dev/gateway=true. Value `false` of the
    /// annotation excepts a pool.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub gateways_for_edge_pools: bool,

    /// The Lease by which replicas elect who runs that controller.
    #[arg(long, default_value = "isthmus-manager-gateways", value_name = "NAME")]
    pub gateway_lease: String,

    /// How long a standby leaves that Lease alone. If this leader dies in the same moment as a gateway, the Services follow within five
    /// seconds as long as this is 3s or less, and else so much later. At least a second.
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = duration::parse)]
    pub gateway_lease_duration: Duration,
}

impl GatewayArgs {
    /// The durations of that election.
    ///
    /// # Errors
    /// The lease's duration is of no use.
    pub fn timing(&self) -> Result<Timing, TimingError> {
        Timing::within(self.gateway_lease_duration)
    }
}

/// Where to listen.
#[derive(Debug, Group)]
#[command(next_help_heading = "Listeners")]
pub struct ListenerArgs {
    /// Address of the admission webhook (HTTPS).
    #[arg(long, default_value = "[::]:10273")]
    pub webhook_address: SocketAddr,

    /// Address of the probes /livez and /readyz (HTTP).
    #[arg(long, default_value = "[::]:10272")]
    pub health_address: SocketAddr,

    /// Address of /metrics (HTTPS; callers need a token that may get the non-resource URL /metrics).
    #[arg(long, default_value = "[::]:10271")]
    pub metrics_address: SocketAddr,
}

/// What the webhook's certificates are for and where they are kept.
#[derive(Debug, Group)]
#[command(next_help_heading = "Webhook")]
pub struct WebhookArgs {
    /// Service through which the API server reaches the webhook; its certificate is for this name.
    #[arg(long, default_value = "isthmus-webhook")]
    pub webhook_service: String,

    /// `MutatingWebhookConfiguration` that is given our CA.
    #[arg(long, default_value = "isthmus")]
    pub mutating_webhook_configuration: String,

    /// `ValidatingWebhookConfiguration` that is given our CA.
    #[arg(long, default_value = "isthmus")]
    pub validating_webhook_configuration: String,

    /// Secret that holds the CA with its key.
    #[arg(long, default_value = "isthmus-webhook-ca")]
    pub ca_secret: String,

    /// Secret that holds the serving certificate with its key.
    #[arg(long, default_value = "isthmus-webhook-serving")]
    pub serving_secret: String,

    /// Life of a serving certificate; 90 days at most. It is renewed after two thirds of it.
    #[arg(long, default_value = "90d", value_parser = duration::parse)]
    pub certificate_validity: Duration,
}

/// Arguments of `crds`.
#[derive(Debug, Group)]
#[command(after_help = exit::HELP)]
pub struct CrdsArgs {
    /// What to do with them; `print` if nothing is said.
    #[command(subcommand)]
    pub action: Option<CrdsAction>,
}

/// What to do with the custom resource definitions.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum CrdsAction {
    /// Print them as YAML, for `kubectl apply --server-side -f -`.
    Print,
    /// Apply them to the cluster of the current context, and wait until the API server serves them.
    Apply,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}

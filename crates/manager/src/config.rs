//! The configuration of `isthmus-manager run`, resolved and checked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::args::{GatewayArgs, HubArgs, ListenerArgs, RunArgs, WebhookArgs};
use crate::controllers::webhook_certificates;
use crate::leader::{Settings, TimingError};

/// How late the API server may read a webhook configuration, and a replica the Secret of its certificate. Both follow
/// watches, which lag by milliseconds; a replica reads the Secret anew within a quarter of this even without its watch.
const SETTLE: Duration = Duration::from_secs(20);

/// Why the flags do not make a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The durations of leader election do not fit together.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// The duration of the Gateway controller's lease is of no use.
    #[error("--gateway-lease-duration: {0}")]
    GatewayTiming(#[source] TimingError),
    /// Certificates cannot be kept as asked.
    #[error("--certificate-validity: {0}")]
    Certificates(#[from] webhook_certificates::ConfigError),
    /// NodeMetric cannot be served as asked.
    #[error(transparent)]
    NodeMetrics(#[from] crate::node_metrics::ConfigError),
    /// A name that must not be empty.
    #[error("{0}: must not be empty")]
    Empty(&'static str),
    /// Two elections by one Lease: who leads one would keep everybody from the other.
    #[error("{0} and {1}: must not both name the Lease {2}")]
    SameLease(&'static str, &'static str, String),
}

/// What `run` works with.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) identity: String,
    pub(crate) hubs: HubArgs,
    pub(crate) gateways: GatewayArgs,
    pub(crate) webhook_address: SocketAddr,
    pub(crate) health_address: SocketAddr,
    pub(crate) metrics_address: SocketAddr,
    /// Whom the Lease shall belong to.
    pub(crate) deployment: Option<String>,
    pub(crate) election: Settings,
    /// Of who runs the Gateway controller.
    pub(crate) gateway_election: Settings,
    pub(crate) certificates: Arc<webhook_certificates::Config>,
    pub(crate) node_metrics: Option<crate::node_metrics::Config>,
}

impl TryFrom<RunArgs> for Config {
    type Error = Error;

    fn try_from(args: RunArgs) -> Result<Self, Error> {
        let RunArgs { namespace, identity, hubs, gateways, listeners, webhook, node_metrics, leader, log: _ } =
            args;
        let ListenerArgs { webhook_address, health_address, metrics_address } = listeners;
        let names = [
            ("--namespace", &namespace),
            ("--identity", &identity),
            ("--hub-namespace", &hubs.hub_namespace),
            ("--webhook-service", &webhook.webhook_service),
            ("--gateway-lease", &gateways.gateway_lease),
        ];
        if let Some((flag, _)) = names.into_iter().find(|(_, name)| name.is_empty()) {
            return Err(Error::Empty(flag));
        }
        let election = Settings {
            namespace: namespace.clone(),
            name: leader.leader_elect_resource_name.clone(),
            identity: unique(&identity),
            timing: leader.timing()?,
            owner: None,
            at: None,
        };
        let gateway_election = Settings {
            name: gateways.gateway_lease.clone(),
            timing: gateways.timing().map_err(Error::GatewayTiming)?,
            ..election.clone()
        };
        let node_metrics = node_metrics.resolve(&namespace, &identity, &webhook.serving_secret)?;
        apart(&election, &gateway_election, node_metrics.as_ref())?;
        let certificates = Arc::new(certificates(namespace, webhook, node_metrics.as_ref()));
        certificates.check()?;
        Ok(Self {
            identity,
            hubs,
            gateways,
            webhook_address,
            health_address,
            metrics_address,
            deployment: leader.leader_elect_deployment.filter(|name| !name.is_empty()),
            election,
            gateway_election,
            certificates,
            node_metrics,
        })
    }
}

/// Each election has a Lease of its own.
fn apart(
    election: &Settings,
    gateways: &Settings,
    node_metrics: Option<&crate::node_metrics::Config>,
) -> Result<(), Error> {
    let mut leases =
        vec![("--leader-elect-resource-name", &election.name), ("--gateway-lease", &gateways.name)];
    leases.extend(node_metrics.map(|served| ("--node-metric-lease", &served.lease)));
    for (place, (flag, name)) in leases.iter().enumerate() {
        if let Some((other, _)) = leases[..place].iter().find(|(_, other)| other == name) {
            return Err(Error::SameLease(other, flag, (*name).clone()));
        }
    }
    Ok(())
}

/// The identity in the Lease: no process that ran before under the same name must be taken for this one.
pub(crate) fn unique(identity: &str) -> String {
    let random = std::collections::hash_map::RandomState::new();
    format!("{identity}_{:016x}", std::hash::BuildHasher::hash_one(&random, identity))
}

/// What the certificates are for: the webhook's Service, by the names that the API server calls it.
fn certificates(
    namespace: String,
    webhook: WebhookArgs,
    node_metrics: Option<&crate::node_metrics::Config>,
) -> webhook_certificates::Config {
    let WebhookArgs {
        webhook_service: service,
        mutating_webhook_configuration,
        validating_webhook_configuration,
        ca_secret,
        serving_secret,
        certificate_validity,
    } = webhook;
    let mut dns_names =
        vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")];
    // One certificate for all that replicas serve.
    dns_names.extend(node_metrics.map(crate::node_metrics::Config::server_name));
    webhook_certificates::Config {
        namespace,
        ca_secret,
        serving_secret,
        dns_names,
        mutating_configurations: vec![mutating_webhook_configuration],
        validating_configurations: vec![validating_webhook_configuration],
        api_services: node_metrics.map(crate::node_metrics::Config::api_service).into_iter().collect(),
        leaf_validity: certificate_validity,
        settle: SETTLE,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn what_flags_do_not_make_a_configuration_is_said_with_their_names() {
        for (flags, expected) in [
            (&[][..], None),
            (&["--node-metric-lease=isthmus-manager-gateways", "--node-metrics=false"], None),
            (
                &["--leader-elect-resource-name=isthmus-manager-gateways"],
                Some(
                    "--leader-elect-resource-name and --gateway-lease: must not both name the Lease isthmus-manager-gateways",
                ),
            ),
            (
                &[
                    "--node-metrics=true",
                    "--node-metric-advertise=10.0.0.1",
                    "--node-metric-lease=isthmus-manager",
                ],
                Some(
                    "--leader-elect-resource-name and --node-metric-lease: must not both name the Lease isthmus-manager",
                ),
            ),
            (&["--gateway-lease="], Some("--gateway-lease: must not be empty")),
            (
                &["--gateway-lease-duration=999ms"],
                Some(
                    "--gateway-lease-duration: lease duration 999ms must be a whole number of milliseconds, from 1s to 2147483647s",
                ),
            ),
        ] {
            let words = ["isthmus-manager", "run", "--identity=me"].into_iter().chain(flags.iter().copied());
            let Command::Run(run) = Args::try_parse_from(words).unwrap().command else { panic!("run") };
            let said = Config::try_from(*run).err().map(|error| error.to_string());
            assert_eq!(said.as_deref(), expected, "{flags:?}");
        }
    }
}

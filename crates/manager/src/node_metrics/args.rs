//! The flags of the API of NodeMetric, and what they resolve to.

use std::net::SocketAddr;
use std::time::Duration;

use api::slo::names::{SLO_CONFIG_MAP, SLO_CONFIG_NAMESPACE, V1ALPHA1, V1BETA1};
use clap::Args as Group;

use crate::leader::{Timing, TimingError};

/// The API of NodeMetric (docs/node-metrics.md).
#[derive(Clone, Debug, Group)]
#[command(next_help_heading = "Node metrics")]
pub struct NodeMetricArgs {
    /// Serve NodeMetric, and take the nodes' reports.
    #[arg(long = "node-metrics", default_value_t = false, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub enabled: bool,

    /// Address of the API (HTTPS), which the API server asks.
    #[arg(long = "node-metric-address", default_value = "[::]:10274", value_name = "ADDRESS")]
    pub address: SocketAddr,

    /// Address of the listener of reports (HTTPS, with nodes' certificates).
    #[arg(long = "node-metric-report-address", default_value = "[::]:10275", value_name = "ADDRESS")]
    pub report_address: SocketAddr,

    /// Host by which other replicas and nodes reach this replica's listeners.
    #[arg(long = "node-metric-advertise", env = "POD_IP", default_value = "127.0.0.1", value_name = "HOST")]
    pub advertise: String,

    /// Where nodes send reports, in place of the replicas' own addresses: `host:port,…`.
    #[arg(long = "node-metric-servers", value_delimiter = ',', value_name = "HOST:PORT")]
    pub servers: Vec<String>,

    /// Service of the API; the certificate is for its name.
    #[arg(long = "node-metric-service", default_value = "isthmus-node-metric", value_name = "NAME")]
    pub service: String,

    /// Version of the API: v1beta1, or v1alpha1 for Koordinator's components where no CRD holds that version.
    #[arg(long = "node-metric-api-version", default_value = "v1beta1", value_name = "VERSION",
          value_parser = ["v1beta1", "v1alpha1"])]
    pub api_version: String,

    /// How long the metrics of a node that ceased to report remain to be seen, as Expired.
    #[arg(long = "node-metric-grace", default_value = "5m", value_name = "DURATION",
          value_parser = crate::duration::parse)]
    pub grace: Duration,

    /// Reports a second beyond which nodes are asked to wait.
    #[arg(long = "node-metric-reports-per-second", default_value_t = 2000, value_name = "N")]
    pub reports_per_second: u32,

    /// Show what each node uses in the metrics of this process, with its name as a label: seven series a node.
    #[arg(long = "node-metric-node-series", default_value_t = false, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub node_series: bool,

    /// Namespace of Koordinator's ConfigMap that says what nodes collect.
    #[arg(long = "node-metric-config-namespace", default_value = SLO_CONFIG_NAMESPACE, value_name = "NAMESPACE")]
    pub config_namespace: String,

    /// That ConfigMap.
    #[arg(long = "node-metric-config-map", default_value = SLO_CONFIG_MAP, value_name = "NAME")]
    pub config_map: String,

    /// The Lease by which replicas elect who takes reports.
    #[arg(long = "node-metric-lease", default_value = "isthmus-node-metric", value_name = "NAME")]
    pub lease: String,

    /// How long a standby leaves that Lease alone; about as long reads and reports are gone when a leader stands still or is cut off, and a
    /// quarter of it when its process ends. A leader stands an API server that is silent for half of it. At least a second.
    #[arg(long = "node-metric-lease-duration", default_value = "3500ms", value_name = "DURATION",
          value_parser = crate::duration::parse)]
    pub lease_duration: Duration,
}

/// What the API of NodeMetric works with.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) namespace: String,
    pub(crate) identity: String,
    pub(crate) address: SocketAddr,
    pub(crate) report_address: SocketAddr,
    pub(crate) advertise: String,
    pub(crate) servers: Vec<String>,
    pub(crate) service: String,
    pub(crate) serving_secret: String,
    pub(crate) api_version: &'static str,
    pub(crate) grace: Duration,
    pub(crate) reports_per_second: u32,
    pub(crate) node_series: bool,
    pub(crate) policies: (String, String),
    pub(crate) lease: String,
    pub(crate) timing: Timing,
}

/// Why the flags do not make a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The lease's duration is of no use.
    #[error("--node-metric-lease-duration: {0}")]
    Timing(#[from] TimingError),
    /// Nobody could reach this replica.
    #[error("--node-metric-advertise: must not be empty")]
    Advertise,
}

impl NodeMetricArgs {
    /// What to work with; `None` if NodeMetric is not to be served. `serving_secret` holds the certificate that replicas serve.
    pub(crate) fn resolve(
        self,
        namespace: &str,
        identity: &str,
        serving_secret: &str,
    ) -> Result<Option<Config>, ConfigError> {
        let Self {
            enabled,
            address,
            report_address,
            advertise,
            servers,
            service,
            api_version,
            grace,
            reports_per_second,
            node_series,
            config_namespace,
            config_map,
            lease,
            lease_duration,
        } = self;
        if !enabled {
            return Ok(None);
        }
        if advertise.is_empty() {
            return Err(ConfigError::Advertise);
        }
        let timing = Timing::enduring(lease_duration)?;
        Ok(Some(Config {
            namespace: namespace.to_owned(),
            identity: identity.to_owned(),
            address,
            report_address,
            advertise,
            servers,
            service,
            serving_secret: serving_secret.to_owned(),
            api_version: if api_version == "v1alpha1" { V1ALPHA1 } else { V1BETA1 },
            grace,
            reports_per_second,
            node_series,
            policies: (config_namespace, config_map),
            lease,
            timing,
        }))
    }
}

impl Config {
    /// The name that the API server, nodes and replicas verify.
    pub(crate) fn server_name(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// `v1beta1.slo.koordinator.sh`
    pub(crate) fn api_service(&self) -> String {
        let (group, version) = self.api_version.split_once('/').unwrap_or_default();
        format!("{version}.{group}")
    }

    /// `host:port` of this replica's API.
    pub(super) fn api_at(&self) -> String {
        super::at(&self.advertise, self.address)
    }

    /// The same where it is an address, and can be asked without a look at names.
    pub(super) fn listens_at(&self) -> Option<SocketAddr> {
        self.api_at().parse().ok()
    }

    /// `host:port` of this replica's listener of reports.
    pub(super) fn reports_at(&self) -> String {
        super::at(&self.advertise, self.report_address)
    }
}

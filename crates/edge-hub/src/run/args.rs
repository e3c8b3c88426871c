//! The command line of `edge-hub run`. Names and defaults are those of OpenYurt's hub where it has the option.

use std::{collections::BTreeSet, net::IpAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use kube_wire::names::{label_value_errors, subdomain_errors};

use crate::{
    identity::{AUTHORITIES, CaPin, IdentityKind, KUBELETS},
    node_metric::NodeMetricArgs,
    offline::discover::OpenApi,
    tunnel_roles::TunnelArgs,
    upstream::Endpoint,
};

/// Arguments of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Name of this node, as the cluster knows it.
    #[arg(long, env = "NODE_NAME", value_name = "NAME", value_parser = name_of_node)]
    pub node_name: String,

    /// API servers, as https://host:port, with commas between them or the option once for each; the first that answers is used.
    #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
    pub server_addr: Vec<Endpoint>,

    /// The hub's identity upstream.
    #[command(flatten)]
    pub identity: IdentityArgs,

    /// Where to listen, and to whom.
    #[command(flatten)]
    pub listeners: ListenerArgs,

    /// What is shared and kept.
    #[command(flatten)]
    pub cache: CacheArgs,

    /// What clients are shown.
    #[command(flatten)]
    pub filters: FilterArgs,

    /// The tunnel between cloud and edge.
    #[command(flatten)]
    pub tunnel: TunnelArgs,
    /// Reports of what the node uses.
    #[command(flatten)]
    pub node_metric: NodeMetricArgs,

    /// What is logged.
    #[command(flatten)]
    pub log: daemon::telemetry::LogArgs,
}

/// The hub's identity upstream.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Identity")]
pub struct IdentityArgs {
    /// Whose certificate the hub shows to the API server.
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t = IdentityKind::Kubelet)]
    pub identity: IdentityKind,

    /// Authorities that sign the API servers' certificates, and those of clients (PEM).
    #[arg(
        long,
        value_name = "FILE",
        default_value = AUTHORITIES,
        conflicts_with = "ca_cert_hash"
    )]
    pub ca_file: PathBuf,

    /// Digest of the cluster's authority, sha256:HEX as kubeadm prints it, in place of --ca-file: the authority is read from
    /// the cluster once, and kept.
    #[arg(long, value_name = "DIGEST", value_delimiter = ',')]
    pub ca_cert_hash: Vec<CaPin>,

    /// Client certificate (PEM): the kubelet's own by default. With --identity=own it is asked with for the first one, if it is there.
    #[arg(long, value_name = "FILE", default_value = KUBELETS)]
    pub client_cert_file: PathBuf,

    /// Key of the client certificate (PEM); if not given, it is in the same file.
    #[arg(long, value_name = "FILE")]
    pub client_key_file: Option<PathBuf>,

    /// File, mode 0600, with a bootstrap token of the group system:bootstrappers:isthmus: with --identity=own it is asked with
    /// for the first certificate when there is none of the kubelet's. Not needed afterwards.
    #[arg(long, value_name = "FILE")]
    pub bootstrap_token_file: Option<PathBuf>,

    /// How long a certificate is asked for, 10m to 8784h; renewed at 70 to 90 % of that, and at SIGHUP.
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = validity)]
    pub certificate_validity: Duration,
}

/// The API takes no less, and the manager approves no more.
fn validity(text: &str) -> Result<Duration, String> {
    between(text, "30m, 12h or 8760h", Duration::from_mins(10)..=Duration::from_hours(8784), "10m to 8784h")
}

/// How long a right is believed at most that was revoked is not for an option to make longer.
fn authorized(text: &str) -> Result<Duration, String> {
    between(text, "10s, 1m or 5m", Duration::from_secs(1)..=Duration::from_mins(5), "1s to 5m")
}

/// A length of time within bounds, which the error tells as they are written.
fn between(
    text: &str,
    examples: &str,
    bounds: RangeInclusive<Duration>,
    written: &str,
) -> Result<Duration, String> {
    let read: jiff::SignedDuration = text.parse().map_err(|_| format!("write it as {examples}"))?;
    let read = Duration::try_from(read).unwrap_or_default();
    if bounds.contains(&read) { Ok(read) } else { Err(format!("it must be {written}")) }
}

/// Where to listen, and to whom.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Listeners")]
pub struct ListenerArgs {
    /// Loopback address of the HTTP proxy for agents of this node.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", value_parser = loopback)]
    pub bind_proxy_address: IpAddr,

    /// Port of the HTTP proxy.
    #[arg(long, value_name = "PORT", default_value_t = 10261)]
    pub proxy_port: u16,

    /// Address of the HTTPS proxy for pods; it is off without a serving certificate. Filters that send pods to the hub do so at
    /// this address if it is one of the node, and at the Node's `InternalIP` if it is 0.0.0.0 or :: and the certificate names that
    /// and kubernetes.default.svc; on loopback they do nothing.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub secure_bind_address: IpAddr,

    /// Port of the HTTPS proxy.
    #[arg(long, value_name = "PORT", default_value_t = 10268)]
    pub proxy_secure_port: u16,

    /// Serving certificate of the HTTPS proxy (PEM); followed when it changes.
    #[arg(long, value_name = "FILE", requires = "serving_key_file")]
    pub serving_cert_file: Option<PathBuf>,

    /// Key of the serving certificate (PEM); followed when it changes.
    #[arg(long, value_name = "FILE", requires = "serving_cert_file")]
    pub serving_key_file: Option<PathBuf>,

    /// Loopback address of probes, metrics and `edge-hub status`.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", value_parser = loopback)]
    pub bind_address: IpAddr,

    /// Port of probes and metrics.
    #[arg(long, value_name = "PORT", default_value_t = 10267)]
    pub serve_port: u16,

    /// Local users whose processes act as the node when they send no credentials: the kubelet's, by default.
    #[arg(long, value_name = "UID", value_delimiter = ',', default_value = "0", value_parser = uid)]
    pub node_uids: Vec<u32>,

    /// Whether processes of pods that share the node's network act as the node, too, if their user is one of --node-uids. Without it
    /// a pod is who its token says.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    pub node_pods: bool,

    /// How long the API server's yes to who may read is believed while there is a link, 1s to 5m. Open watches are reviewed each minute, or as often as
    /// that if it is shorter: a right that is revoked ends a watch within both together. Each review costs the link some 2 kB.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = authorized)]
    pub authorized_ttl: Duration,
}

impl ListenerArgs {
    /// The users as a set.
    pub fn node_uids(&self) -> BTreeSet<u32> {
        self.node_uids.iter().copied().collect()
    }
}

/// What is shared and kept.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cache")]
pub struct CacheArgs {
    /// Folder of what must survive a restart.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/edge-hub")]
    pub root_dir: PathBuf,

    /// File with the key that Secrets and tokens in that folder are encrypted with, 32 bytes, mode 0600 or 0400; if not given, it is made beside them as
    /// storage.key.
    #[arg(long, value_name = "FILE")]
    pub storage_key_file: Option<PathBuf>,

    /// Resources of which one stream serves everyone who may read them, beside Services and `EndpointSlices`, as
    /// group/version/resource (the core group empty: /v1/nodes).
    #[arg(long, value_name = "G/V/R", value_delimiter = ',')]
    pub pool_scope_resources: Vec<String>,

    /// Resources that are never kept and always asked of the API server, beside events and leases.
    #[arg(long, value_name = "G/V/R", value_delimiter = ',')]
    pub pass_through_resources: Vec<String>,

    /// How fresh reads of the most recent state must be: strict, any, or bounded:SECONDS; of one resource, or of all others
    /// (default=bounded:10).
    #[arg(long, value_name = "G/V/R=POLICY", value_delimiter = ',')]
    pub freshness: Vec<String>,

    /// What of `OpenAPI` the hub fetches by itself for the time without a link, though nobody asks (default used).
    #[arg(long, value_enum, value_name = "WHAT")]
    pub openapi: Option<OpenApi>,

    /// File that says the same and more, in YAML; it is read again when it changes, `tunnel` and `tunnelDestinations` at the start alone.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// What clients are shown.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// Whether clients are shown objects through filters: Services without those of the cloud alone, endpoints of the node's
    /// pool, and so on.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub enable_resource_filter: bool,

    /// Filters that are off; * for all.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub disabled_resource_filters: Vec<String>,

    /// The pool that this node is in; if not given, it is read from the node's label.
    #[arg(long, value_name = "NAME", value_parser = name_of_pool)]
    pub nodepool_name: Option<String>,
}

/// A listener without TLS must not be reached from elsewhere.
fn loopback(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| "not an IP address".to_owned())?;
    if address.is_loopback() {
        Ok(address)
    } else {
        Err("must be a loopback address: this listener has no TLS".to_owned())
    }
}

fn uid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "not the number of a user: `id -u NAME` says it".to_owned())
}

/// A name that a Node can have.
fn name_of_node(text: &str) -> Result<String, String> {
    match subdomain_errors(text).first() {
        None => Ok(text.to_owned()),
        Some(error) => Err(error.clone()),
    }
}

/// A name that a pool with nodes can have: it is the value of their label as well.
fn name_of_pool(text: &str) -> Result<String, String> {
    match label_value_errors(text).first() {
        None => name_of_node(text),
        Some(error) => Err(error.clone()),
    }
}

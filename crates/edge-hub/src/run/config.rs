//! Arguments as typed, resolved in one fallible step: files read, names parsed, defaults filled in.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use kube_wire::resource::GroupVersionResource;
use tracing::warn;

use super::args::{CacheArgs, FilterArgs, IdentityArgs, ListenerArgs, RunArgs};
use crate::{
    authenticate::Authenticator,
    cloud_config::{self, FileError, Layer, NOT_A_RESOURCE, WrongFreshness, follow::Start},
    filters::{FilterName, Rules, UnknownFilter, View},
    freshness::Policy,
    identity::{IdentityConfig, IdentityKind, UnusableFile},
    listen::seats,
    node_metric::NodeMetricConfig,
    offline::discover::OpenApi,
    tunnel_roles::{TunnelConfig, TunnelConfigError},
    upstream::Endpoint,
};

/// Everything that the hub needs to start.
#[derive(Debug, Clone)]
pub struct Config {
    /// API servers in their order.
    pub endpoints: Vec<Endpoint>,
    /// Trust and identity upstream.
    pub identity: IdentityConfig,
    /// Who stands for the node.
    pub authenticator: Authenticator,
    /// Where to listen.
    pub listeners: Listeners,
    /// Folder of the store.
    pub root: PathBuf,
    /// File with the key that private things in it are sealed with; if none is given, it is beside the store.
    pub storage_key: Option<PathBuf>,
    /// What is shared, and how fresh it must be.
    pub sharing: Sharing,
    /// How long things are kept or believed.
    pub lifetimes: Lifetimes,
    /// The same as the flags and the file say it, to be put together anew.
    pub cloud: Start,
    /// What clients are shown.
    pub filters: Filtering,
    /// The tunnel, if it is on.
    pub tunnel: Option<TunnelConfig>,
    /// How the node is measured and reported, if it is.
    pub node_metric: Option<NodeMetricConfig>,
}

/// What clients are shown.
#[derive(Debug, Clone)]
pub struct Filtering {
    /// Which filters apply to whom.
    pub rules: Rules,
    /// What is known before anything is read.
    pub view: View,
}

/// How long things are kept or believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// A subscription without watchers, after its last list, while there is a link.
    pub idle: Duration,
    /// What a restart found on the disk and nobody asked for since, while there is a link.
    pub unasked_for: Duration,
    /// An allowance, while there is a link.
    pub allowed: Duration,
    /// A refusal, while there is a link.
    pub refused: Duration,
    /// An open watch, before it is asked again whether its watcher still may.
    pub review: Duration,
    /// The head of an answer to what is handed on: the API server itself gives a request up after a minute. What it passes to others
    /// (`proxy`, logs of containers) may take as long as those like.
    pub head: Duration,
    /// What the kubelet said of its pods while there was no link, once there is one: it repeats it every ten seconds, and the cloud's
    /// controllers write the endpoints anew.
    pub handover: Duration,
    /// A link, at most, before the list of `OpenAPI` documents is asked for, and they are: nobody waits for them, and first comes what somebody does. As
    /// often it is looked whether more of them are of use.
    pub before_openapi: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            idle: Duration::from_mins(10),
            unasked_for: Duration::from_hours(24 * 7),
            allowed: Duration::from_mins(5),
            refused: Duration::from_secs(30),
            review: Duration::from_mins(1),
            head: Duration::from_secs(75),
            handover: Duration::from_secs(30),
            before_openapi: Duration::from_mins(2),
        }
    }
}

impl Lifetimes {
    /// The usual ones, with allowances that are believed for so long; open watches are reviewed no more seldom.
    fn believing(allowed: Duration) -> Self {
        let usual = Self::default();
        Self { allowed, review: usual.review.min(allowed), ..usual }
    }
}

/// Where to listen.
#[derive(Debug, Clone)]
pub struct Listeners {
    /// HTTP for agents of the node.
    pub proxy: SocketAddr,
    /// HTTPS, with certificate and key files, if it is on.
    pub secure: Option<(SocketAddr, PathBuf, PathBuf)>,
    /// Probes, metrics, status.
    pub admin: SocketAddr,
    /// The Unix socket.
    pub socket: PathBuf,
    /// How many connections each may have, but that of probes.
    pub connections: usize,
}

/// What is shared, and how fresh it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// Resources of which one stream serves everyone who may read them.
    pub pooled: BTreeSet<GroupVersionResource>,
    /// Resources that are never kept.
    pub passed_through: BTreeSet<GroupVersionResource>,
    /// Freshness of single resources.
    pub freshness: BTreeMap<GroupVersionResource, Policy>,
    /// Freshness by default.
    pub default_freshness: Policy,
    /// Agents whose subscriptions are kept without clients; `*` for all.
    pub cache_agents: BTreeSet<Box<str>>,
    /// What of `OpenAPI` is fetched though nobody asks.
    pub openapi: OpenApi,
}

/// What is wrong with the arguments. Each names the option.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A resource is not written as it must be.
    #[error("{0}: {1:?} {what}", what = NOT_A_RESOURCE)]
    Resource(&'static str, String),
    /// How fresh reads must be is not written as it must be.
    #[error("--freshness: {0}")]
    Freshness(#[from] WrongFreshness),
    /// The file is wrong.
    #[error(transparent)]
    File(#[from] FileError),
    /// No such filter.
    #[error("--disabled-resource-filters: {0}")]
    Filter(#[from] UnknownFilter),
    /// Certificates cannot be read.
    #[error(transparent)]
    Identity(#[from] UnusableFile),
    /// Nobody would ask for anything with the token.
    #[error(
        "--bootstrap-token-file is of no use with --identity=kubelet, which asks for no certificate: give --identity=own with it, or leave it out"
    )]
    UnusedToken,
    /// Two listeners cannot have one port.
    #[error("{0} and {1} are both {2}: give each a port of its own")]
    OnePort(&'static str, &'static str, u16),
    /// The tunnel's options are wrong.
    #[error(transparent)]
    Tunnel(#[from] TunnelConfigError),
}

impl Sharing {
    /// What a node shares when nothing is configured: Services and `EndpointSlices`, as OpenYurt does.
    pub fn standard() -> Self {
        let resource = GroupVersionResource::new;
        Self {
            pooled: BTreeSet::from([
                resource("", "v1", "services"),
                resource("discovery.k8s.io", "v1", "endpointslices"),
            ]),
            // Written often and read by their writer only.
            passed_through: BTreeSet::from([
                resource("", "v1", "events"),
                resource("events.k8s.io", "v1", "events"),
                resource("coordination.k8s.io", "v1", "leases"),
            ]),
            freshness: BTreeMap::new(),
            default_freshness: Policy::Bounded(Duration::from_secs(10)),
            cache_agents: BTreeSet::new(),
            openapi: OpenApi::default(),
        }
    }

    /// How fresh a read of the most recent state must be. What guards access or holds leadership is never old.
    pub fn freshness(&self, resource: &GroupVersionResource) -> Policy {
        let strict = &*resource.group == "coordination.k8s.io";
        let named = self.freshness.get(resource).copied();
        named.unwrap_or(if strict { Policy::Strict } else { self.default_freshness })
    }

    /// Whether one stream serves all callers. Secrets and `ConfigMaps` never: who may read which is decided by name.
    pub fn pools(&self, resource: &GroupVersionResource) -> bool {
        !cloud_config::private(resource) && self.keeps(resource) && self.pooled.contains(resource)
    }
}

/// What the flags say.
fn layer(cache: &CacheArgs) -> Result<Layer, ConfigError> {
    let CacheArgs { pool_scope_resources, pass_through_resources, freshness, openapi, .. } = cache;
    let named = |flag, text: &str| {
        cloud_config::resource(text).ok_or_else(|| ConfigError::Resource(flag, text.to_owned()))
    };
    let set = |flag, list: &[String]| list.iter().map(|text| named(flag, text)).collect::<Result<_, _>>();
    let mut layer = Layer {
        pooled: Some(set("--pool-scope-resources", pool_scope_resources)?),
        passed_through: set("--pass-through-resources", pass_through_resources)?,
        openapi: *openapi,
        ..Layer::default()
    };
    for text in freshness {
        layer.say_how_fresh(text)?;
    }
    for resource in layer.pooled.iter().flatten().filter(|resource| cloud_config::private(resource)) {
        warn!(flag = "--pool-scope-resources", %resource, "never shared: who may read which is decided by name");
    }
    Ok(layer)
}

fn rules(args: &FilterArgs) -> Result<Rules, UnknownFilter> {
    let FilterArgs { enable_resource_filter, disabled_resource_filters, nodepool_name: _ } = args;
    let mut rules = Rules::default();
    for name in disabled_resource_filters.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        if name == "*" {
            rules.enabled.clear();
        } else {
            rules.enabled.remove(&name.parse::<FilterName>()?);
        }
    }
    if !enable_resource_filter {
        rules.enabled.clear();
    }
    Ok(rules)
}

/// Whether options go together that stand in different places.
fn together(identity: &IdentityArgs, listeners: &ListenerArgs) -> Result<(), ConfigError> {
    // With a digest the token proves what is read by it, whoever the hub is.
    let proves = !identity.ca_cert_hash.is_empty();
    if identity.identity == IdentityKind::Kubelet && identity.bootstrap_token_file.is_some() && !proves {
        return Err(ConfigError::UnusedToken);
    }
    let at = SocketAddr::new;
    let proxy = ("--proxy-port", at(listeners.bind_proxy_address, listeners.proxy_port));
    let admin = ("--serve-port", at(listeners.bind_address, listeners.serve_port));
    let secure = ("--proxy-secure-port", at(listeners.secure_bind_address, listeners.proxy_secure_port));
    let of_secure = [(proxy, secure), (admin, secure)].into_iter();
    let of_secure = of_secure.filter(|_| listeners.serving_cert_file.is_some());
    let mut pairs = std::iter::once((proxy, admin)).chain(of_secure);
    match pairs.find(|((_, one), (_, other))| collide(*one, *other)) {
        None => Ok(()),
        Some(((one, address), (other, _))) => Err(ConfigError::OnePort(one, other, address.port())),
    }
}

/// Whether only one of both can be listened on. Port 0 is any that is free.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let all = one.ip().is_unspecified() || other.ip().is_unspecified();
    let share = one.ip() == other.ip() || (all && one.is_ipv4() == other.is_ipv4());
    share && one.port() == other.port() && one.port() != 0
}

impl RunArgs {
    /// Whether the words in the options are good, as far as that can be told without the node's files.
    pub fn check_words(&self) -> Result<(), ConfigError> {
        together(&self.identity, &self.listeners)?;
        layer(&self.cache)?;
        rules(&self.filters)?;
        Ok(())
    }
}

impl TryFrom<RunArgs> for Config {
    type Error = ConfigError;

    fn try_from(args: RunArgs) -> Result<Self, ConfigError> {
        let RunArgs {
            node_name,
            server_addr,
            identity,
            listeners,
            cache,
            filters,
            tunnel,
            node_metric,
            log: _,
        } = args;
        together(&identity, &listeners)?;
        let IdentityArgs {
            identity: kind,
            ca_file,
            ca_cert_hash,
            client_cert_file,
            client_key_file,
            bootstrap_token_file,
            certificate_validity,
        } = identity;
        let flags = layer(&cache)?;
        let file = cache
            .config
            .map(|path| Ok::<_, FileError>((path.clone(), cloud_config::read(&path)?)))
            .transpose()?;
        let (root_dir, storage_key) = (cache.root_dir, cache.storage_key_file);
        let node_uids = listeners.node_uids();
        let ListenerArgs {
            bind_proxy_address,
            proxy_port,
            secure_bind_address,
            proxy_secure_port,
            serving_cert_file,
            serving_key_file,
            bind_address,
            serve_port,
            node_uids: _,
            node_pods,
            authorized_ttl,
        } = listeners;
        let by_flags = rules(&filters)?;
        let none = Layer::default();
        let said = file.as_ref().map_or(&none, |(_, layer)| layer);
        let sharing = Sharing::resolve(&flags, said, &none);
        let by_file = (said.tunnel, said.tunnel_destinations.as_slice());
        let tunnel = TunnelConfig::resolve(&node_name, tunnel, by_file)?;
        let filters = Filtering {
            rules: cloud_config::rules(&by_flags, said, &none),
            view: View::of_node(&node_name, filters.nodepool_name.as_deref(), None),
        };
        let identity = IdentityConfig {
            kind,
            node: node_name.clone(),
            folder: root_dir.join("pki"),
            ca: ca_file,
            given: (client_cert_file.clone(), client_key_file.unwrap_or(client_cert_file)),
            token: bootstrap_token_file,
            pins: ca_cert_hash,
            validity: certificate_validity,
        };
        identity.check()?;
        Ok(Self {
            identity,
            endpoints: server_addr,
            authenticator: Authenticator {
                node_uids,
                node_pods,
                node_user: format!("{}{node_name}", api::names::NODE_USER_PREFIX).into(),
            },
            listeners: Listeners {
                proxy: (bind_proxy_address, proxy_port).into(),
                secure: serving_cert_file.zip(serving_key_file).map(|(certificate, key)| {
                    ((secure_bind_address, proxy_secure_port).into(), certificate, key)
                }),
                admin: (bind_address, serve_port).into(),
                socket: root_dir.join("hub.sock"),
                connections: seats::ALL,
            },
            root: root_dir,
            storage_key,
            sharing,
            lifetimes: Lifetimes::believing(authorized_ttl),
            cloud: Start { flags, rules: by_flags, file },
            filters,
            tunnel,
            node_metric: node_metric.into_config(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Args, Command};

    #[test]
    fn options_that_do_not_go_together_are_named() {
        let token = "--bootstrap-token-file /t";
        let pinned = format!("{token} --ca-cert-hash sha256:{}", "0".repeat(64));
        let secure = "--serving-cert-file /c --serving-key-file /k --proxy-secure-port 10267";
        let (anywhere, elsewhere) = (
            format!("{secure} --secure-bind-address 0.0.0.0"),
            format!("{secure} --secure-bind-address 10.0.0.1"),
        );
        for (options, expected) in [
            ("", None),
            (token, Some("--bootstrap-token-file is of no use with --identity=kubelet")),
            ("--identity own --bootstrap-token-file /t", None),
            (pinned.as_str(), None),
            ("--serve-port 10261", Some("--proxy-port and --serve-port are both 10261")),
            ("--serve-port 10261 --bind-address 127.0.0.2", None),
            ("--serve-port 0 --proxy-port 0", None),
            (
                "--freshness /v1/pods=soon",
                Some("--freshness: /v1/pods: \"soon\" is no freshness policy: write strict"),
            ),
            ("--freshness default=any,pods=any", Some("--freshness: \"pods\" is not group/version/resource")),
            (
                "--freshness /v1/pods",
                Some("--freshness: \"/v1/pods\" is not RESOURCE=POLICY: write /v1/pods=strict"),
            ),
            ("--proxy-secure-port 10267", None),
            (secure, Some("--serve-port and --proxy-secure-port are both 10267")),
            (anywhere.as_str(), Some("--serve-port and --proxy-secure-port are both 10267")),
            (elsewhere.as_str(), None),
        ] {
            let words = ["edge-hub", "run", "--node-name", "a", "--server-addr", "https://a:1"];
            let words = words.into_iter().chain(options.split_whitespace());
            let Command::Run(run) = Args::try_parse_from(words).unwrap().command else { unreachable!() };
            let said = run.check_words().err().map_or_else(String::new, |error| error.to_string());
            match expected {
                Some(expected) => assert!(said.starts_with(expected), "{options}: {said}"),
                None => assert_eq!(said, "", "{options}"),
            }
        }
    }

    #[test]
    fn the_one_option_is_named_whose_file_cannot_be_read() {
        let words = ["run", "--node-name", "a", "--server-addr", "https://a:1", "--ca-file", "/nope"];
        let words = std::iter::once("edge-hub").chain(words);
        let Command::Run(run) = Args::try_parse_from(words).unwrap().command else { unreachable!() };
        let said = Config::try_from(*run).err().map_or_else(String::new, |error| error.to_string());
        assert!(said.starts_with("--ca-file: cannot read /nope: No such file"), "{said}");
    }

    #[test]
    fn resources_are_read_as_openyurt_writes_them() {
        use cloud_config::resource;
        assert_eq!(resource("/v1/nodes"), Some(GroupVersionResource::new("", "v1", "nodes")));
        assert_eq!(resource("a.b/v1/c"), Some(GroupVersionResource::new("a.b", "v1", "c")));
        for text in ["nodes", "v1/nodes", "a/b/c/d", "//x", "/v1/"] {
            assert!(resource(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn what_is_believed_for_less_is_reviewed_more_often() {
        assert_eq!(Lifetimes::believing(Duration::from_mins(5)), Lifetimes::default());
        let short = Lifetimes::believing(Duration::from_secs(5));
        assert_eq!((short.allowed, short.review), (Duration::from_secs(5), Duration::from_secs(5)));
    }

    #[test]
    fn private_and_virtual_resources_are_not_shared() {
        let mut sharing = Sharing::standard();
        let secrets = GroupVersionResource::new("", "v1", "secrets");
        sharing.pooled.insert(secrets.clone());
        assert!(!sharing.pools(&secrets) && sharing.keeps(&secrets));
        assert!(sharing.pools(&GroupVersionResource::new("", "v1", "services")));
        for (group, name) in
            [("metrics.k8s.io", "nodes"), ("authorization.k8s.io", "subjectaccessreviews"), ("", "events")]
        {
            assert!(!sharing.keeps(&GroupVersionResource::new(group, "v1", name)), "{group}/{name}");
        }
    }
}

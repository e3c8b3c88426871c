//! What the hub says of itself. Fields are only ever added.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::configuration::ConfigurationView;
use crate::{
    cloud_config,
    hub::{Hub, UnreadKeys},
    identity::IdentityView,
    node_metric::NodeMetricView,
    offline::documents::KeptOpenApi,
    subscriptions::{Owner, Progress, Subscription},
    tunnel_roles::TunnelView,
    upstream::{LinkState, Server, ServerState},
};

/// The hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HubView {
    /// Its version.
    pub version: String,
    /// The link to the API server.
    pub link: LinkView,
    /// Who the hub is to the API server.
    #[serde(default)]
    pub identity: IdentityView,
    /// Why the cluster's keys cannot be read, while that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_keys: Option<UnreadKeys>,
    /// What is shared, and by which configuration; `None`: the hub does not say.
    #[serde(default)]
    pub configuration: Option<ConfigurationView>,
    /// How many pods of the node are shown where the kubelet says, since the API server does not know it.
    #[serde(default)]
    pub corrected_pods: usize,
    /// Filters that are on and do nothing, since pods do not reach the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_filters: Option<IdleFilters>,
    /// The tunnel, if it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelView>,
    /// Reports of what the node uses; `None`: the hub makes none.
    #[serde(default)]
    pub node_metric: Option<NodeMetricView>,
    /// How many requests found no room for a subscription since the start.
    #[serde(default)]
    pub crowded_out: u64,
    /// What is held, in the order of their names.
    pub subscriptions: Vec<SubscriptionView>,
    /// The disk.
    pub store: StoreView,
}

/// Filters that do nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleFilters {
    /// Which.
    pub names: Vec<String>,
    /// What they lack.
    pub reason: String,
}

/// The link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkView {
    /// Whether an API server is connected.
    pub up: bool,
    /// Which, if one is.
    pub server: Option<String>,
    /// For how long it has been as it is.
    pub for_seconds: u64,
    /// Why there is none.
    pub reason: Option<String>,
    /// When the last one ended, by the node's clock, if there was none since this start and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_before_this_start: Option<String>,
    /// Bytes to the API server, TLS included.
    pub sent_bytes: u64,
    /// Bytes from it.
    pub received_bytes: u64,
    /// All API servers, in the order in which they are tried.
    #[serde(default)]
    pub servers: Vec<ServerView>,
}

/// An API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerView {
    /// Its address.
    pub server: String,
    /// How it is.
    pub state: ServerConnection,
    /// How long ago that came to be known: since when it is connected, when it failed last, or when the hub began.
    pub for_seconds: u64,
    /// Why it failed.
    pub reason: Option<String>,
}

/// How an API server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerConnection {
    /// It is the link.
    Connected,
    /// The last attempt failed, or its connection ended.
    Failed,
    /// Nobody tried: one before it answers.
    Untried,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionView {
    /// `resource`, or `resource.group`.
    pub resource: String,
    /// Namespace and selectors, as they stand in the path; empty for everything.
    pub scope: String,
    /// `node`, or the user whose it is.
    pub owner: String,
    /// Objects that are held.
    pub objects: usize,
    /// The version up to which everything is held.
    pub version: Option<u64>,
    /// How long ago that was last known to be current.
    pub age_seconds: Option<u64>,
    /// Open watches.
    pub watchers: usize,
    /// How the upstream side is.
    pub state: State,
    /// Why it is refused.
    pub reason: Option<String>,
    /// Bytes that clients were given, less those that came over the link for them.
    pub saved_bytes: u64,
}

/// How the upstream side of a subscription is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Not held whole yet.
    Syncing,
    /// Current.
    Watching,
    /// Held, and not watched now.
    Interrupted,
    /// The API server does not give it.
    Refused,
}

/// The disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreView {
    /// Bytes of keys and bodies given to the store since the start.
    pub given_bytes: u64,
    /// Bytes written into files.
    pub written_bytes: u64,
    /// Length of all files of objects.
    pub length_bytes: u64,
    /// Documents of `OpenAPI` beside them; `None`: the hub does not say.
    #[serde(default)]
    pub openapi: Option<KeptOpenApi>,
    /// What could not be read at the start and was not fetched since, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// What the disk does not take, and why: it is in memory alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unstored: Vec<String>,
}

impl HubView {
    /// The hub as it is now.
    pub fn of(hub: &Hub) -> Self {
        let [sent_bytes, received_bytes] = hub.meters.link().read();
        let (up, server, held, reason) = match &*hub.upstream.state().borrow() {
            LinkState::Up(session) => {
                (true, Some(session.endpoint().to_string()), session.connected().elapsed(), None)
            }
            LinkState::Down { since, reason } => (false, None, since.elapsed(), Some(reason.clone())),
        };
        let statistics = hub.storage.statistics();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            link: LinkView {
                up,
                server,
                for_seconds: held.as_secs(),
                reason,
                ended_before_this_start: hub.last_link.ended().map(|at| at.to_string()),
                sent_bytes,
                received_bytes,
                servers: hub.upstream.servers().into_iter().map(ServerView::from).collect(),
            },
            identity: hub.identity.view(),
            unread_keys: hub.unread_keys.load().as_deref().cloned(),
            configuration: Some(ConfigurationView::of(hub)),
            corrected_pods: hub.filters.view().local_pods.pods.len(),
            idle_filters: hub.filters.idle().map(|(names, reason)| IdleFilters {
                names: names.iter().map(ToString::to_string).collect(),
                reason,
            }),
            tunnel: hub.tunnel.as_deref().map(TunnelView::of),
            node_metric: hub.node_metric.view(),
            crowded_out: hub.subscriptions.crowded_out(),
            subscriptions: hub
                .subscriptions
                .all()
                .iter()
                .map(|open| SubscriptionView::of(open, hub))
                .collect(),
            store: StoreView {
                given_bytes: statistics.given,
                written_bytes: statistics.written,
                length_bytes: statistics.length,
                openapi: Some(hub.documents.openapi()),
                unreadable: hub.storage.unreadable(),
                unstored: hub.storage.unstored(),
            },
        }
    }
}

impl From<Server> for ServerView {
    fn from(server: Server) -> Self {
        let for_seconds = server.ago().as_secs();
        let (state, reason) = match server.state {
            ServerState::Connected => (ServerConnection::Connected, None),
            ServerState::Failed(reason) => (ServerConnection::Failed, Some(reason)),
            ServerState::Untried => (ServerConnection::Untried, None),
        };
        Self { server: server.endpoint.to_string(), state, for_seconds, reason }
    }
}

impl SubscriptionView {
    /// A subscription as it is now.
    pub fn of(subscription: &Subscription, hub: &Hub) -> Self {
        let key = subscription.key();
        let (state, reason) = match &*subscription.progress().borrow() {
            Progress::Syncing => (State::Syncing, None),
            Progress::Watching => (State::Watching, None),
            Progress::Interrupted => (State::Interrupted, None),
            Progress::Refused(status) => (State::Refused, Some(status.message.clone())),
        };
        let age = subscription.age(hub.upstream.is_up()).proved;
        let path = key.path();
        let resource = &key.resource;
        let selectors = match path.split_once('?') {
            // They name the object, and any process of the node may ask for this. Those that the hub reads of the cluster's configuration are no secret.
            Some(_) if cloud_config::private(resource) && !hub.subscriptions.is_own(key) => "by name",
            Some((_, query)) => query,
            None => "",
        };
        let namespace = key.namespace.as_ref();
        Self {
            resource: resource_name(resource),
            scope: [namespace, selectors]
                .iter()
                .filter(|part| !part.is_empty())
                .copied()
                .collect::<Vec<_>>()
                .join("?"),
            owner: match &key.owner {
                Owner::Node => "node".to_owned(),
                Owner::Users => "users".to_owned(),
                Owner::User(name) => name.to_string(),
            },
            objects: subscription.read(watch_cache::Cache::snapshot).map_or(0, |held| held.len()),
            version: subscription.version().map(kube_wire::resource_version::ResourceVersion::get),
            age_seconds: (age != Duration::MAX).then_some(age.as_secs()),
            watchers: subscription.watchers(),
            state,
            reason,
            saved_bytes: subscription.traffic().saved(),
        }
    }
}

/// `services`, `endpointslices.discovery.k8s.io`.
pub fn resource_name(resource: &kube_wire::resource::GroupVersionResource) -> String {
    if resource.group.is_empty() {
        resource.resource.to_string()
    } else {
        format!("{}.{}", resource.resource, resource.group)
    }
}

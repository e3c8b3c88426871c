//! The filters by name: to which resources and clients each applies by default, and its two halves.

use std::{borrow::Cow, fmt, str::FromStr};

use kube_wire::{
    edit::{Field, Message},
    object::Object,
    request::Verb,
    resource::GroupVersionResource,
};

use super::{
    View, discard_cloud_service, forward_kube_svc_traffic, in_cluster_config, local_pods, master_service,
    node_port_isolation, service_env_updater, service_topology,
};

/// A filter, in the order in which they are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilterName {
    /// Hides Services that are the cloud's alone.
    DiscardCloudService,
    /// Hides node ports from pools that they are not for.
    NodePortIsolation,
    /// Leads pods to the hub instead of the API server, by their environment.
    MasterService,
    /// Keeps the traffic of a Service on the node or in the pool.
    ServiceTopology,
    /// Leads the traffic of the Service `kubernetes` to the hub.
    ForwardKubeSvcTraffic,
    /// Has kube-proxy use its `ServiceAccount`.
    InClusterConfig,
    /// Leads pods that name the API server in their environment to the hub.
    ServiceEnvUpdater,
    /// Shows pods of this node where the kubelet says they are, while the API server does not know it. For all components.
    LocalPods,
}

/// The resources that some filter applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filtered {
    /// `v1/services`.
    Services,
    /// `v1/endpoints`.
    Endpoints,
    /// `discovery.k8s.io/v1/endpointslices`.
    EndpointSlices,
    /// `v1/configmaps`.
    ConfigMaps,
    /// `v1/pods`.
    Pods,
}

impl Filtered {
    /// The resource, if some filter applies to it.
    pub fn of(resource: &GroupVersionResource) -> Option<Self> {
        match (&*resource.group, &*resource.version, &*resource.resource) {
            ("", "v1", "services") => Some(Self::Services),
            ("", "v1", "endpoints") => Some(Self::Endpoints),
            ("", "v1", "configmaps") => Some(Self::ConfigMaps),
            ("", "v1", "pods") => Some(Self::Pods),
            ("discovery.k8s.io", "v1", "endpointslices") => Some(Self::EndpointSlices),
            _ => None,
        }
    }
}

/// No filter has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no filter: write one of {names}", names = FilterName::ALL.map(|name| name.to_string()).join(", "))]
pub struct UnknownFilter(String);

impl FilterName {
    /// All of them, in the order in which they are applied: what hides objects before what changes them.
    pub const ALL: [Self; 8] = [
        Self::DiscardCloudService,
        Self::NodePortIsolation,
        Self::MasterService,
        Self::ServiceTopology,
        Self::ForwardKubeSvcTraffic,
        Self::InClusterConfig,
        Self::ServiceEnvUpdater,
        Self::LocalPods,
    ];

    /// The name in configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DiscardCloudService => "discardcloudservice",
            Self::NodePortIsolation => "nodeportisolation",
            Self::MasterService => "masterservice",
            Self::ServiceTopology => "servicetopology",
            Self::ForwardKubeSvcTraffic => "forwardkubesvctraffic",
            Self::InClusterConfig => "inclusterconfig",
            Self::ServiceEnvUpdater => "serviceenvupdater",
            Self::LocalPods => "localpods",
        }
    }

    /// The components whose requests are filtered when nothing is configured.
    pub fn default_components(self) -> &'static [&'static str] {
        match self {
            Self::MasterService | Self::InClusterConfig | Self::ServiceEnvUpdater => &["kubelet"],
            Self::ServiceTopology => &["kube-proxy", "coredns", "nginx-ingress-controller"],
            Self::DiscardCloudService | Self::NodePortIsolation | Self::ForwardKubeSvcTraffic => {
                &["kube-proxy"]
            }
            Self::LocalPods => &[],
        }
    }

    /// Whether it applies to a request for objects of `namespace` (empty: all namespaces).
    pub fn applies(self, resource: Filtered, verb: Verb, namespace: &str) -> bool {
        let within = |only: &str| namespace.is_empty() || namespace == only;
        let streams = matches!(verb, Verb::List | Verb::Watch);
        let all = streams || verb == Verb::Get;
        match self {
            Self::MasterService => streams && resource == Filtered::Services && within("default"),
            Self::DiscardCloudService | Self::NodePortIsolation => streams && resource == Filtered::Services,
            Self::ServiceTopology => {
                streams && matches!(resource, Filtered::Endpoints | Filtered::EndpointSlices)
            }
            Self::ForwardKubeSvcTraffic => {
                streams && resource == Filtered::EndpointSlices && within("default")
            }
            Self::InClusterConfig => all && resource == Filtered::ConfigMaps && within(api::names::NAMESPACE),
            Self::ServiceEnvUpdater => all && resource == Filtered::Pods,
            Self::LocalPods => all && matches!(resource, Filtered::Endpoints | Filtered::EndpointSlices),
        }
    }

    /// Whether the client is shown the object at all.
    pub(super) fn keeps(self, object: &Object, view: &View) -> bool {
        match self {
            Self::DiscardCloudService => discard_cloud_service::keeps(object),
            Self::NodePortIsolation => node_port_isolation::keeps(object, view),
            _ => true,
        }
    }

    /// Changes what the client is shown of the object called `key`. Says whether it did.
    pub(super) fn edit(
        self,
        resource: Filtered,
        object: &Object,
        message: &mut Message,
        view: &View,
    ) -> bool {
        match self {
            Self::DiscardCloudService | Self::NodePortIsolation => false,
            Self::MasterService => master_service::edit(object, message, view),
            Self::ServiceTopology => service_topology::edit(resource, object, message, view),
            Self::ForwardKubeSvcTraffic => forward_kube_svc_traffic::edit(object, message, view),
            Self::InClusterConfig => in_cluster_config::edit(object, message),
            Self::ServiceEnvUpdater => service_env_updater::edit(message, view),
            Self::LocalPods => local_pods::edit(resource, message, &view.local_pods),
        }
    }

    /// Whether it could change or hide an object of this name; to be asked before anything is decoded.
    pub(super) fn concerns(self, object: &Object, view: &View) -> bool {
        let is = |namespace, name| object.key().namespace() == namespace && object.key().name() == name;
        match self {
            Self::DiscardCloudService | Self::NodePortIsolation => false,
            Self::MasterService | Self::ForwardKubeSvcTraffic => {
                view.hub.is_some() && is("default", "kubernetes")
            }
            Self::ServiceTopology => service_topology::topology(object, view).is_some(),
            Self::InClusterConfig => view.hub.is_some() && is(api::names::NAMESPACE, "kube-proxy"),
            Self::ServiceEnvUpdater => view.hub.is_some(),
            Self::LocalPods => !view.local_pods.pods.is_empty(),
        }
    }

    /// Whether it shows the object by what the view says, so that another view may show it otherwise at the same version, or may have.
    pub(super) fn shows_by_view(self, object: &Object, view: &View) -> bool {
        match self {
            Self::ServiceTopology => service_topology::topology(object, view).is_some(),
            // One object each. Of pods their kubelet takes whatever it is told, at whatever version.
            Self::MasterService | Self::ForwardKubeSvcTraffic | Self::InClusterConfig => {
                self.concerns(object, view)
            }
            _ => false,
        }
    }

    /// Whether it can do anything at all while the view is so.
    pub(super) fn acts(self, view: &View) -> bool {
        match self {
            // Where pods are not led to the hub, their own configuration must go on saying where the API server is.
            Self::MasterService
            | Self::ForwardKubeSvcTraffic
            | Self::InClusterConfig
            | Self::ServiceEnvUpdater => view.hub.is_some(),
            _ => true,
        }
    }

    /// What it looks at in a view, as text: the same text, the same answers. Another run of the hub writes it the same way.
    pub(super) fn looks_at(self, view: &View) -> String {
        match self {
            Self::DiscardCloudService => String::new(),
            Self::InClusterConfig => format!("{:?}", view.hub.is_some()),
            Self::NodePortIsolation => format!("{:?}", view.pool),
            Self::MasterService | Self::ForwardKubeSvcTraffic | Self::ServiceEnvUpdater => {
                format!("{:?}", view.hub)
            }
            Self::ServiceTopology => service_topology::looks_at(view),
            Self::LocalPods => format!("{:?}", view.local_pods.pods),
        }
    }

    /// Whether it answers the same with both views.
    pub(super) fn indifferent(self, a: &View, b: &View) -> bool {
        match self {
            Self::DiscardCloudService => true,
            Self::InClusterConfig => a.hub.is_some() == b.hub.is_some(),
            Self::NodePortIsolation => a.pool == b.pool,
            Self::MasterService | Self::ForwardKubeSvcTraffic | Self::ServiceEnvUpdater => a.hub == b.hub,
            Self::ServiceTopology => service_topology::indifferent(a, b),
            Self::LocalPods => a.local_pods == b.local_pods,
        }
    }
}

impl fmt::Display for FilterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for FilterName {
    type Err = UnknownFilter;

    fn from_str(text: &str) -> Result<Self, UnknownFilter> {
        Self::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| UnknownFilter(text.to_owned()))
    }
}

/// `spec` of every kind that is filtered, but for `EndpointSlices`, `Endpoints` and `ConfigMaps`.
pub(super) const SPEC: Field = Field::new("spec", 2);

/// `spec.type` of a Service; empty if there is none.
pub(super) fn service_type(object: &Object) -> String {
    let message = Message::of(object).and_then(|service| service.message(SPEC));
    message.and_then(|spec| spec.text(Field::new("type", 4)).map(Cow::into_owned)).unwrap_or_default()
}

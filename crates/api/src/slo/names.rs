//! Names by which NodeMetric's clients and peers find things.

/// API group.
pub const GROUP: &str = "slo.koordinator.sh";

/// [`GROUP`] in the version that is ours.
pub const V1BETA1: &str = "slo.koordinator.sh/v1beta1";

/// [`GROUP`] in Koordinator's own version.
pub const V1ALPHA1: &str = "slo.koordinator.sh/v1alpha1";

/// Condition of a Node: its metrics are fresh.
pub const NODE_METRIC_FRESH: &str = "NodeMetricFresh";

/// Reason of [`NODE_METRIC_FRESH`]: the node reports.
pub const REPORTING: &str = "Reporting";

/// Reason of [`NODE_METRIC_FRESH`]: reports ceased, and the last mean nothing any more.
pub const REPORTS_CEASED: &str = "ReportsCeased";

/// Reason of [`NODE_METRIC_FRESH`]: they ceased for so long that the NodeMetric is out of view.
pub const OUT_OF_VIEW: &str = "OutOfView";

/// ConfigMap of Koordinator's that says what nodes collect.
pub const SLO_CONFIG_MAP: &str = "slo-controller-config";

/// Namespace of [`SLO_CONFIG_MAP`], unless another is said.
pub const SLO_CONFIG_NAMESPACE: &str = "koordinator-system";

/// Key of [`SLO_CONFIG_MAP`]: the strategy of co-location, and in it that of collecting.
pub const COLOCATION_CONFIG: &str = "colocation-config";

/// Key of [`SLO_CONFIG_MAP`]: the thresholds of `NodeLoad`.
pub const NODE_LOAD_CONFIG: &str = "node-load-config";

/// Key of [`SLO_CONFIG_MAP`]: programs beside pods that nodes measure by themselves.
pub const HOST_APPLICATION_CONFIG: &str = "host-application-config";

/// Key of ConfigMap [`crate::names::NODE_METRIC_CONFIG_MAP`]: `host:port` by which other replicas reach the leader's API.
pub const LEADER: &str = "leader";

/// Key of ConfigMap [`crate::names::NODE_METRIC_CONFIG_MAP`]: no leader has told of a resource version above this.
pub const VERSION_CEILING: &str = "version-ceiling";

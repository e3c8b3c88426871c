//! The vocabulary of Isthmus: custom resources, labels, annotations and conditions, and the CRDs generated from them.
//!
//! This crate holds data only: no client, no runtime. Every well-known name of the project stands here and nowhere
//! else, so that a name can be looked up, and changed, in one place.
//!
//! | kind | group | versions (storage first) | module |
//! |---|---|---|---|
//! | `NodePool` | `apps.openyurt.io` | v1beta2, v1beta1, v1alpha1 (deprecated) | [`apps::node_pool`] |
//! | `Gateway` | `raven.openyurt.io` | v1beta1, v1alpha1 | [`raven::gateway`] |
//! | `NodeMetric` | `slo.koordinator.sh` | v1beta1; served from memory, no CRD | [`slo::node_metric`] |
//! | `NodeLoad` | `slo.koordinator.sh` | v1beta1; served from memory, no CRD | [`slo::load`] |

// Comments on fields become what `kubectl explain` prints, where names of kinds are plain words.
#![allow(clippy::doc_markdown)]

pub mod annotations;
pub mod apps;
pub mod conditions;
pub mod crds;
pub mod koordinator;
pub mod labels;
pub mod names;
pub mod pool_nodes;
pub mod quantity;
pub mod raven;
mod schema;
pub mod slo;

pub use apps::node_pool::{
    GroupVersionResource, LeaderElectionStrategy, LeaderEndpoint, NetworkMode, NodePool, NodePoolSpec,
    NodePoolStatus, PoolType,
};
pub use crds::crds;
pub use raven::gateway::{
    Endpoint, EndpointType, ExposeType, Gateway, GatewayAddress, GatewayLink, GatewayNode, GatewaySpec,
    GatewayStatus, ProxyConfig, TunnelConfig,
};
pub use slo::load::{NodeLoad, NodeLoadSpec, NodeLoadStatus};
pub use slo::node_metric::{NodeMetric, NodeMetricSpec, NodeMetricStatus};

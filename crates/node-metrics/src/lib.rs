//! NodeMetric, served from memory: the store behind `slo.koordinator.sh`, the listener of nodes' reports, the copy that standbys keep.
//!
//! ```text
//!  node ── report (TLS, protobuf) ──► listener ──► Store ◄── Nodes, policies (controller of crate manager)
//!                                                   │  ▲
//!  clients ── aggregated API ──► NodeMetricStorage ─┘  └── copy of the leader's watch (standby)
//! ```
//! Who leads, and where the Kubernetes API is, are its caller's business; the rules of sequence are crate `node-report`'s, all of
//! HTTP but the reports' listener is crate `aggregated-api`'s.
//!
//! | question | module |
//! |---|---|
//! | what is read, and when it may not be | [`store`], [`storage`] |
//! | versions, history, deletions | [`ledger`] |
//! | which silence means what | [`freshness`] |
//! | what a status says | [`render`] |
//! | how loaded a node is, for schedulers | [`load`] |
//! | who may report, and when a report is shed | [`listener`], [`admission`] |
//! | what nodes are to collect | [`policy`] |
//! | how a standby follows | [`follow`], [`copy_stream`] |

pub mod admission;
mod books;
pub mod copy_stream;
pub mod follow;
pub mod freshness;
pub mod ledger;
pub mod listener;
pub mod load;
pub mod metrics;
pub mod policy;
pub mod proxy;
pub mod recent;
pub mod record;
pub mod render;
pub mod replica;
pub mod reported;
pub mod storage;
pub mod store;
mod turns;
pub mod usage_metrics;

use aggregated_api::{MalformedResource, ResourceInfo};
use kube_wire::request::Verb;

pub use api::slo::names::GROUP;

/// The resource in paths.
pub const RESOURCE: &str = "nodemetrics";

/// The resource as version `version` of the API. Koordinator's own components ask for `v1alpha1`, which a cluster that has
/// Koordinator's `NodeSLO` cannot leave to an aggregated API.
pub fn resource(version: &str) -> Result<ResourceInfo, MalformedResource> {
    let mut crd = api::crds::node_metrics();
    for served in &mut crd.spec.versions {
        version.clone_into(&mut served.name);
    }
    let mut info = ResourceInfo::from_crd(&serde_json::to_value(crd)?, version)?;
    // Garbage collectors would follow a resource that says it can be deleted.
    info.unadvertised = vec![Verb::Delete, Verb::DeleteCollection];
    info.selectable_fields = vec![".status.freshness.state".to_owned()];
    info.missing_cell = "<none>".into();
    Ok(info)
}

/// `nodeloads` of the same version: read, never written.
pub fn load_resource(version: &str) -> Result<ResourceInfo, MalformedResource> {
    let mut crd = api::crds::node_loads();
    for served in &mut crd.spec.versions {
        version.clone_into(&mut served.name);
    }
    let mut info = ResourceInfo::from_crd(&serde_json::to_value(crd)?, version)?;
    info.verbs = vec![Verb::Get, Verb::List, Verb::Watch];
    info.status = false;
    info.selectable_fields = vec![".status.state".to_owned()];
    info.missing_cell = "<none>".into();
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_read_only() {
        let info = load_resource("v1beta1").unwrap();
        assert_eq!(
            (info.plural.as_str(), info.api_version().as_str()),
            ("nodeloads", "slo.koordinator.sh/v1beta1")
        );
        assert_eq!(info.verbs, [Verb::Get, Verb::List, Verb::Watch]);
        assert!(!info.status && !info.namespaced);
    }

    #[test]
    fn the_resource_is_what_clients_of_koordinator_know() {
        for version in ["v1beta1", "v1alpha1"] {
            let info = resource(version).unwrap();
            assert_eq!(info.api_version(), format!("{GROUP}/{version}"));
            assert_eq!(
                (info.plural.as_str(), info.short_names.as_slice()),
                (RESOURCE, &["nm".to_owned()][..])
            );
            assert!(info.status && !info.namespaced);
            assert!(info.verbs.contains(&Verb::Delete) && info.unadvertised.contains(&Verb::Delete));
            let columns: Vec<_> = info.columns.iter().map(|column| column.name.as_str()).collect();
            assert_eq!(columns, ["CPU", "CPU%", "Memory", "Mem%", "P95", "Pressure", "Pods", "Age", "State"]);
        }
        // Nothing that a reporter may leave out is required.
        let schema = resource("v1beta1").unwrap().schema;
        let status = &schema["properties"]["status"];
        assert_eq!(status["properties"]["podsMetric"]["items"]["required"], serde_json::Value::Null);
        assert_eq!(status["required"], serde_json::Value::Null);
    }
}

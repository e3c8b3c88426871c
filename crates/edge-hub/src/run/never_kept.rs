//! What is never kept, and why.

use api::names::{HUB_CONFIG_MAP, PASS_THROUGH_RESOURCES};
use kube_wire::resource::GroupVersionResource;

use super::Sharing;

impl Sharing {
    /// Whether a resource may be kept at all.
    pub fn keeps(&self, resource: &GroupVersionResource) -> bool {
        !has_no_state(resource) && !self.passed_through.contains(resource)
    }

    /// Why nothing of a resource is kept, for who cannot be answered without the API server; `None` if it may be.
    pub fn absence(&self, resource: &GroupVersionResource) -> Option<String> {
        if has_no_state(resource) {
            return Some(format!("{resource} is made by the API server for each request, and never kept"));
        }
        if !self.passed_through.contains(resource) {
            return None;
        }
        Some(if Self::standard().passed_through.contains(resource) {
            format!("{} are never kept", resource.resource)
        } else {
            format!(
                "{resource} is passed through (`passThroughResources` in the file of --config, --pass-through-resources, or `{PASS_THROUGH_RESOURCES}` of ConfigMap {HUB_CONFIG_MAP}), and so never kept"
            )
        })
    }
}

/// Whether it is virtual, which has no versions, or a review, which is no state.
fn has_no_state(resource: &GroupVersionResource) -> bool {
    let virtual_group =
        ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"].contains(&&*resource.group);
    virtual_group
        || resource.group.starts_with("authentication.")
        || resource.group.starts_with("authorization.")
        || &*resource.resource == "componentstatuses"
}

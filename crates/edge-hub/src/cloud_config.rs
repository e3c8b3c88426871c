//! What is shared, kept and filtered, as flags, a file and the cluster's ConfigMaps say it, and how they come together.
//!
//! ```text
//!  flags ──────────────────┐
//!  --config FILE (0.5 s) ──┼─► Layer ─► Sharing::resolve, rules (pure) ─► hub: subscriptions opened and closed, filters replaced
//!  yurt-hub-cfg ───────────┤
//!  leader-hub-<pool> ──────┘
//! ```
//! Pooled resources are those of `pool-scoped-metadata` if the pool's ConfigMap has it, else of the file if it has the key, else
//! the standard ones; those of flags are always added. What is passed through is neither pooled nor kept, whoever says so. Of a
//! freshness policy, and of `OpenAPI`, the flag counts before the file. Components of filters and cached agents add up. Secrets and `ConfigMaps` are never
//! pooled.

mod config_map;
mod file;
pub mod follow;
mod followed_file;
pub(crate) mod places;
mod resolve;

use std::collections::{BTreeMap, BTreeSet};

use kube_wire::{names::label_errors, resource::GroupVersionResource};

pub use self::config_map::{leader_hub, problems_of_yurt_hub_cfg, yurt_hub_cfg};
pub use self::file::{FileError, read};
pub use self::resolve::{in_vain, private, rules};
use crate::{
    filters::FilterName, freshness::Policy, offline::discover::OpenApi, tunnel_roles::DestinationRule,
};

/// What one place says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    /// Resources of which one stream serves everyone; `None` if nothing is said about them.
    pub pooled: Option<BTreeSet<GroupVersionResource>>,
    /// Resources that are never kept.
    pub passed_through: BTreeSet<GroupVersionResource>,
    /// Freshness of single resources.
    pub freshness: BTreeMap<GroupVersionResource, Policy>,
    /// Freshness of all others.
    pub default_freshness: Option<Policy>,
    /// Agents whose answers are kept however seldom they ask; `*` for all.
    pub cache_agents: BTreeSet<Box<str>>,
    /// What of `OpenAPI` is fetched though nobody asks.
    pub openapi: Option<OpenApi>,
    /// More components of filters.
    pub components: BTreeMap<FilterName, BTreeSet<Box<str>>>,
    /// Whether the tunnel is on; read at the start, and from the file only.
    pub tunnel: bool,
    /// What may be reached through it; the same.
    pub tunnel_destinations: Vec<DestinationRule>,
}

/// Reads `group/version/resource`, the core group empty: `/v1/services`. What no API can be named is none: a `*`, a kind for a
/// resource, a query.
pub fn resource(text: &str) -> Option<GroupVersionResource> {
    match text.trim().split('/').collect::<Vec<_>>()[..] {
        [group, version, resource]
            if (group.is_empty() || group.split('.').all(is_label))
                && [version, resource].into_iter().all(begins_with_a_letter) =>
        {
            Some(GroupVersionResource::new(group, version, resource))
        }
        _ => None,
    }
}

/// Whether it is a label of RFC 1035, as versions and plural names of a `CustomResourceDefinition` are.
fn begins_with_a_letter(label: &str) -> bool {
    is_label(label) && label.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Whether it is a label of RFC 1123, as those of a group are.
fn is_label(text: &str) -> bool {
    label_errors(text).is_empty()
}

/// Names of components, or of agents: as `Client` knows them, in lower case.
fn components<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<Box<str>> {
    names.into_iter().map(|name| name.trim().to_lowercase().into()).collect()
}

impl Layer {
    /// What there is to say of names of agents and components that nobody has, by the keys under which they stand: `agents`, and filters behind `filters`.
    fn nameless(&self, agents: &str, filters: &str) -> Vec<String> {
        let of_filters = self.components.iter();
        let of_filters = of_filters.flat_map(|(of, names)| nameless(names, &format!("{filters}{of}"), false));
        nameless(&self.cache_agents, agents, true).into_iter().chain(of_filters).collect()
    }
}

/// The same of these, by their key. `all`: whether `*` is everybody.
fn nameless(names: &BTreeSet<Box<str>>, key: &str, all: bool) -> Vec<String> {
    let has_none = |name: &&str| !(all && *name == "*") && (name.is_empty() || name.contains(['/', '*']));
    let problem = |name: &str| {
        format!(
            "{key}: {name:?} is nobody's name: write what stands before the first / of a User-Agent, or the name of a ServiceAccount"
        )
    };
    names.iter().map(AsRef::as_ref).filter(has_none).map(problem).collect()
}

/// A list as ConfigMaps write it: names separated by commas.
fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_has_a_group_a_version_and_a_plural_name() {
        for text in
            ["/v1/pods", " apps/v1/deployments ", "a-b.1c.io/v1beta1/x2s", "networking.k8s.io/v1/ingresses"]
        {
            assert_eq!(resource(text).map(|of| of.to_string()).as_deref(), Some(text.trim()));
        }
        for text in [
            "",
            "pods",
            "v1/pods",
            "/v1/",
            "//pods",
            "/v1/*",
            "*/*/*",
            "/v1/pods?x=1",
            "/v1/pods/status",
            "/v1/Pods",
            "Apps/v1/deployments",
            "/V1/pods",
            "a..b/v1/pods",
            ".a/v1/pods",
            "a./v1/pods",
            "/v1/-pods",
            "/v1/pods-",
            "/v1/1s",
            "/1/pods",
            "/v1/p ods",
            "/v1/pöds",
            "a_b/v1/pods",
        ] {
            assert_eq!(resource(text), None, "{text:?}");
        }
        assert_eq!(resource(&format!("/v1/{}", "a".repeat(64))), None);
    }
}

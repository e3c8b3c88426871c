//! What is shared, kept and filtered, as flags, a file and the cluster's ConfigMaps say it, and how they come together.
//!
//! ```text
//!  flags ──────────────────┐
//!  --config FILE (0.5 s) ──┼─► Layer ─► Sharing::resolve, rules (pure) ─► hub: subscriptions opened and closed, filters replaced
//!  yurt-hub-cfg ───────────┤
//!  leader-hub-<pool> ──────┘
//! ```
//! Pooled resources are those of `pool-scoped-metadata` if the pool's ConfigMap has it, else of `yurt-hub-cfg` if it has the key, else of the file if it
//! has, else the standard ones; those of flags are always added. What is passed through adds up, and is neither pooled nor kept, whoever says so. Of a
//! freshness policy the flag counts before the file, the file before `yurt-hub-cfg`; of `OpenAPI` the flag before the file. Components of filters and
//! cached agents add up. Secrets and `ConfigMaps` are never pooled.

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
pub use self::resolve::{beside, in_vain, private, rules};
use crate::{
    filters::FilterName,
    freshness::{Policy, UnknownPolicy},
    offline::discover::OpenApi,
    tunnel_roles::DestinationRule,
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
    /// What of it counts for nothing and is not among all that, by its keys: names of agents and components that nobody has, and of ConfigMaps entries that
    /// cannot be read.
    pub problems: Vec<String>,
}

/// What is said of a name of a resource that [`resource`] does not take.
pub const NOT_A_RESOURCE: &str =
    "is not group/version/resource in lower case; the core group is empty: /v1/services";

/// `RESOURCE=POLICY` is not written as it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongFreshness {
    /// A policy of nothing.
    #[error("{0:?} is not RESOURCE=POLICY: write /v1/pods=strict, or default=bounded:10")]
    Assignment(String),
    /// A policy of no resource.
    #[error("{0:?} {what}", what = NOT_A_RESOURCE)]
    Resource(String),
    /// No such policy.
    #[error("{0}: {1}")]
    Policy(String, #[source] UnknownPolicy),
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

impl Layer {
    /// Takes `RESOURCE=POLICY`, or `default=POLICY`. What is said last of a resource counts.
    pub fn say_how_fresh(&mut self, text: &str) -> Result<(), WrongFreshness> {
        let (of, policy) = text.split_once('=').ok_or_else(|| WrongFreshness::Assignment(text.to_owned()))?;
        let named = resource(of);
        if named.is_none() && of != "default" {
            return Err(WrongFreshness::Resource(of.to_owned()));
        }
        let policy =
            policy.parse::<Policy>().map_err(|error| WrongFreshness::Policy(of.trim().to_owned(), error))?;
        match named {
            Some(resource) => drop(self.freshness.insert(resource, policy)),
            None => self.default_freshness = Some(policy),
        }
        Ok(())
    }

    /// Names of components, or of agents: as `Client` knows them, in lower case. What nobody is called is told of by the key under which it stands, and
    /// left out. `all`: whether `*` is everybody.
    fn named<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
        key: &str,
        all: bool,
    ) -> BTreeSet<Box<str>> {
        let names = names.into_iter().map(|name| Box::<str>::from(name.trim().to_lowercase()));
        let (names, nobodys): (BTreeSet<Box<str>>, BTreeSet<Box<str>>) =
            names.partition(|name| (all && &**name == "*") || is_name(name));
        self.problems.extend(nobodys.iter().map(|name| {
            format!(
                "{key}: {name:?} is nobody's name: write what stands before the first / of a User-Agent, or the name of a ServiceAccount"
            )
        }));
        names
    }
}

/// Whether a component can be called so. A product of a `User-Agent` has no blanks (RFC 9110, 10.1.5), but some programs' have.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|one: char| one.is_control() || ['/', '*'].contains(&one))
}

/// A list as ConfigMaps write it: names separated by commas.
fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_is_called_is_told_of_and_not_in_force() {
        let names = ["till-agent", "Backup", "a b", "a\tb", "", " ", "*x", "a/b", "*", "system:node-x"];
        for (all, of_these) in [(true, &["*", "a b", "backup"][..]), (false, &["a b", "backup"][..])] {
            let mut layer = Layer::default();
            let found = layer.named(names, "key", all);
            let taken: Vec<&str> = of_these.iter().chain(&["system:node-x", "till-agent"]).copied().collect();
            assert_eq!(found.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), taken);
            let told: Vec<_> =
                layer.problems.iter().filter_map(|problem| problem.split(" is nobody's").next()).collect();
            let mut expected =
                vec!["key: \"\"", "key: \"*\"", "key: \"*x\"", "key: \"a\\tb\"", "key: \"a/b\""];
            expected.retain(|problem| !(all && problem.contains("\"*\"")));
            assert_eq!(told, expected);
        }
    }

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

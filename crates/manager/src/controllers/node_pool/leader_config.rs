//! Pure: the `ConfigMap` in which `OpenYurt`'s hubs read who leads their pool and what the leaders share.

use std::collections::BTreeMap;

use api::names::{LEADER_HUB_PREFIX, leader_hub_config_map};
use api::{GroupVersionResource, LeaderEndpoint, NodePool, labels};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

/// The name and contents of the `ConfigMap`, without its namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeaderConfig {
    pub(crate) name: String,
    pub(crate) owner: Option<OwnerReference>,
    pub(crate) data: BTreeMap<String, String>,
}

/// The pool whose `ConfigMap` has that name.
pub(crate) fn pool(name: &str) -> Option<String> {
    name.strip_prefix(LEADER_HUB_PREFIX).map(str::to_owned)
}

/// The `ConfigMap` to write, or `None` if `present` is right already.
pub(crate) fn plan(
    pool: &NodePool,
    leaders: &[LeaderEndpoint],
    present: Option<&ConfigMap>,
) -> Option<LeaderConfig> {
    let wanted = LeaderConfig {
        name: leader_hub_config_map(pool.metadata.name.as_deref().unwrap_or_default()),
        owner: pool.controller_owner_ref(&()),
        data: data(pool, leaders),
    };
    let is_right = present.is_some_and(|present| {
        let marked = present.metadata.labels.as_ref().and_then(|l| l.get(labels::CONFIG_MAP_NAME));
        let owners = present.metadata.owner_references.as_deref().unwrap_or_default();
        marked == Some(&wanted.name)
            && wanted
                .data
                .iter()
                .all(|(key, value)| present.data.as_ref().and_then(|d| d.get(key)) == Some(value))
            && wanted.owner.iter().all(|owner| owners.iter().any(|present| present.uid == owner.uid))
    });
    (!is_right).then_some(wanted)
}

/// The keys as `OpenYurt`'s hubs read them.
fn data(pool: &NodePool, leaders: &[LeaderEndpoint]) -> BTreeMap<String, String> {
    let mut endpoints: Vec<String> =
        leaders.iter().map(|l| format!("{}/{}", l.node_name, l.address)).collect();
    endpoints.sort();
    BTreeMap::from([
        ("leaders".to_owned(), endpoints.join(",")),
        ("pool-scoped-metadata".to_owned(), shared_resources(pool).join(",")),
        ("interconnectivity".to_owned(), pool.spec.inter_connectivity.to_string()),
        ("enable-leader-election".to_owned(), pool.spec.enable_leader_election.to_string()),
    ])
}

/// The resources that the leaders share, as sorted `group/version/resource`; Services and `EndpointSlices` always are.
fn shared_resources(pool: &NodePool) -> Vec<String> {
    let always = [("", "v1", "services"), ("discovery.k8s.io", "v1", "endpointslices")];
    let mut names: Vec<String> =
        always.iter().map(|(group, version, resource)| format!("{group}/{version}/{resource}")).collect();
    names.extend(pool.spec.pool_scope_metadata.iter().map(|gvr| {
        let GroupVersionResource { group, version, resource } = gvr;
        format!("{group}/{version}/{resource}")
    }));
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> NodePool {
        let mut pool = NodePool::new("shop", api::NodePoolSpec::default());
        pool.metadata.uid = Some("u1".to_owned());
        pool.spec.pool_scope_metadata = vec![
            GroupVersionResource { group: String::new(), version: "v1".into(), resource: "services".into() },
            GroupVersionResource {
                group: "apps.openyurt.io".into(),
                version: "v1".into(),
                resource: "x".into(),
            },
        ];
        pool
    }

    #[test]
    fn data_is_as_the_hubs_read_it() {
        let leaders = ["b", "a"].map(|n| LeaderEndpoint { node_name: n.into(), address: "10.0.0.1".into() });
        let data = plan(&pool(), &leaders, None).unwrap().data;
        assert_eq!(data["leaders"], "a/10.0.0.1,b/10.0.0.1");
        assert_eq!(
            data["pool-scoped-metadata"],
            "/v1/services,apps.openyurt.io/v1/x,discovery.k8s.io/v1/endpointslices"
        );
        assert_eq!(
            (data["interconnectivity"].as_str(), data["enable-leader-election"].as_str()),
            ("false", "false")
        );
    }

    #[test]
    fn a_right_config_map_is_not_written_and_a_wrong_one_is() {
        let wanted = plan(&pool(), &[], None).unwrap();
        let mut present = ConfigMap { data: Some(wanted.data.clone()), ..ConfigMap::default() };
        present.metadata.labels = Some([(labels::CONFIG_MAP_NAME.to_owned(), wanted.name.clone())].into());
        present.metadata.owner_references = wanted.owner.clone().map(|owner| vec![owner]);
        assert_eq!(plan(&pool(), &[], Some(&present)), None);
        present.data.as_mut().unwrap().insert("theirs".into(), "stays".into());
        assert_eq!(plan(&pool(), &[], Some(&present)), None, "a key of somebody else is none of ours");
        present.data.as_mut().unwrap().insert("leaders".into(), "evil/6.6.6.6".into());
        assert_eq!(plan(&pool(), &[], Some(&present)), Some(wanted));
    }
}

//! Pure: the `ConfigMap` in which `OpenYurt`'s hubs read who leads their pool and what the leaders share, and ours which nodes are in it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::names::{LEADER_HUB_PREFIX, POOL_NODES, leader_hub_config_map};
use api::{GroupVersionResource, LeaderEndpoint, NodePool, PoolType, labels, pool_nodes};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use crate::nodes::NodeView;

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
    members: &[Arc<NodeView>],
    present: Option<&ConfigMap>,
) -> Option<LeaderConfig> {
    let wanted = LeaderConfig {
        name: leader_hub_config_map(pool.metadata.name.as_deref().unwrap_or_default()),
        owner: pool.controller_owner_ref(&()),
        data: data(pool, leaders, members),
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

/// How many nodes of an edge pool have an address, if they are too many for its hubs to be told of.
pub(crate) fn untold(pool: &NodePool, members: &[Arc<NodeView>]) -> Option<usize> {
    let nodes = addressed(members);
    (pool.spec.type_ == PoolType::Edge && pool_nodes::write(&nodes).is_none()).then_some(nodes.len())
}

/// The nodes that say where they are. A node writes that itself: what is no address would be read as the entry of another.
fn addressed(members: &[Arc<NodeView>]) -> BTreeMap<&str, IpAddr> {
    let address = |node: &NodeView| node.internal_ip.as_ref()?.parse().ok();
    members.iter().filter_map(|node| Some((node.name.as_str(), address(node)?))).collect()
}

/// The keys as `OpenYurt`'s hubs read them, and ours.
fn data(pool: &NodePool, leaders: &[LeaderEndpoint], members: &[Arc<NodeView>]) -> BTreeMap<String, String> {
    let mut endpoints: Vec<String> =
        leaders.iter().map(|l| format!("{}/{}", l.node_name, l.address)).collect();
    endpoints.sort();
    // Empty where they are too many, or the pool is the cloud's: what was told before must not stay.
    let nodes = match pool.spec.type_ {
        PoolType::Edge => pool_nodes::write(&addressed(members)).unwrap_or_default(),
        PoolType::Cloud => String::new(),
    };
    BTreeMap::from([
        (POOL_NODES.to_owned(), nodes),
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
        let data = plan(&pool(), &leaders, &[], None).unwrap().data;
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
        let wanted = plan(&pool(), &[], &[], None).unwrap();
        let mut present = ConfigMap { data: Some(wanted.data.clone()), ..ConfigMap::default() };
        present.metadata.labels = Some([(labels::CONFIG_MAP_NAME.to_owned(), wanted.name.clone())].into());
        present.metadata.owner_references = wanted.owner.clone().map(|owner| vec![owner]);
        assert_eq!(plan(&pool(), &[], &[], Some(&present)), None);
        present.data.as_mut().unwrap().insert("theirs".into(), "stays".into());
        assert_eq!(plan(&pool(), &[], &[], Some(&present)), None, "a key of somebody else is none of ours");
        present.data.as_mut().unwrap().insert("leaders".into(), "evil/6.6.6.6".into());
        assert_eq!(plan(&pool(), &[], &[], Some(&present)), Some(wanted));
    }

    fn node(name: &str, address: Option<&str>) -> Arc<NodeView> {
        let internal_ip = address.map(str::to_owned);
        Arc::new(NodeView { name: name.to_owned(), internal_ip, ..NodeView::default() })
    }

    #[test]
    fn hubs_of_an_edge_pool_are_told_where_its_nodes_are() {
        let members = [
            node("b", Some("fd00::b")),
            node("a", Some("192.168.1.10")),
            node("without", None),
            node("liar", Some("10.0.0.1,a/10.6.6.6")),
        ];
        let mut pool = pool();
        let told =
            |pool: &NodePool, members: &[_]| plan(pool, &[], members, None).unwrap().data["nodes"].clone();
        assert_eq!(told(&pool, &members), "a/192.168.1.10,b/fd00::b");
        assert_eq!(untold(&pool, &members), None);
        let names =
            (0..=pool_nodes::POOL_NODES_MAX).map(|number| node(&format!("n{number}"), Some("10.0.0.1")));
        let many: Vec<_> = names.collect();
        assert_eq!(told(&pool, &many), "");
        assert_eq!(untold(&pool, &many), Some(pool_nodes::POOL_NODES_MAX + 1));
        assert_eq!(untold(&pool, &many[1..]), None);
        pool.spec.type_ = PoolType::Cloud;
        assert_eq!((told(&pool, &members).as_str(), untold(&pool, &many)), ("", None));
    }

    #[test]
    fn it_is_written_when_a_name_or_an_address_changes_and_for_no_heartbeat() {
        let before = plan(&pool(), &[], &[node("a", Some("10.0.0.1"))], None).unwrap();
        let mut present = ConfigMap { data: Some(before.data.clone()), ..ConfigMap::default() };
        present.metadata.labels = Some([(labels::CONFIG_MAP_NAME.to_owned(), before.name.clone())].into());
        present.metadata.owner_references = before.owner.clone().map(|owner| vec![owner]);
        let beat = NodeView {
            ready: true,
            resource_version: "9".into(),
            ..NodeView::clone(&node("a", Some("10.0.0.1")))
        };
        let writes = |members: &[Arc<NodeView>]| plan(&pool(), &[], members, Some(&present)).is_some();
        assert!(!writes(&[Arc::new(beat)]));
        assert!(
            writes(&[node("a", Some("10.0.0.2"))]) && writes(&[node("b", Some("10.0.0.1"))]) && writes(&[])
        );
    }
}

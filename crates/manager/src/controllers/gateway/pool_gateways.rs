//! Pure: the Gateways that are made for pools, which ask for one by an annotation, or by being of type Edge where that is set.
//!
//! Such a Gateway belongs to its pool and goes with it. One that somebody made by hand under the pool's name is left alone, and
//! does for the pool what ours would.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::annotations::POOL_GATEWAY;
use api::names::MANAGER;
use api::{Gateway, GatewaySpec, NodePool, PoolType, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};

/// What is to be done.
#[derive(Debug, Default)]
pub(crate) struct PoolGateways {
    pub(crate) create: Vec<Gateway>,
    pub(crate) delete: Vec<Arc<Gateway>>,
    /// Pools that ask for what somebody made by hand.
    pub(crate) hand_made: Vec<Arc<NodePool>>,
}

/// What is to be done for `pools`, given all Gateways. `for_edge_pools`: pools of type Edge need not ask.
pub(crate) fn plan(
    pools: &[Arc<NodePool>],
    gateways: &[Arc<Gateway>],
    unreadable: &BTreeSet<String>,
    for_edge_pools: bool,
) -> PoolGateways {
    let mut plan = PoolGateways::default();
    for pool in pools.iter().filter(|pool| pool.metadata.deletion_timestamp.is_none()) {
        let name = pool.name_any();
        let said = pool.annotations().get(POOL_GATEWAY).map(|value| value.eq_ignore_ascii_case(labels::TRUE));
        let asks = said.unwrap_or(for_edge_pools && pool.spec.type_ == PoolType::Edge);
        let present = gateways.iter().find(|gateway| gateway.name_any() == name);
        match present {
            Some(gateway) if is_ours(gateway, &name) => {
                if !asks && gateway.metadata.deletion_timestamp.is_none() {
                    plan.delete.push(Arc::clone(gateway));
                }
            }
            Some(_) if said == Some(true) => plan.hand_made.push(Arc::clone(pool)),
            None if asks && !unreadable.contains(&name) => plan.create.extend(gateway(pool)),
            Some(_) | None => {}
        }
    }
    plan
}

/// Whether the Gateway was made for the pool of that name.
fn is_ours(gateway: &Gateway, pool: &str) -> bool {
    gateway.labels().get(labels::MANAGED_BY).is_some_and(|value| value == MANAGER)
        && gateway
            .owner_references()
            .iter()
            .any(|owner| owner.kind == NodePool::kind(&()) && owner.name == pool)
}

fn gateway(pool: &NodePool) -> Option<Gateway> {
    // To block the pool's deletion one needs a right on its finalizers, and nothing here must come first.
    let owner = OwnerReference { block_owner_deletion: None, ..pool.controller_owner_ref(&())? };
    let mut gateway = Gateway::new(&pool.name_any(), GatewaySpec::default());
    gateway.metadata.labels = Some([(labels::MANAGED_BY.to_owned(), MANAGER.to_owned())].into());
    gateway.metadata.owner_references = Some(vec![owner]);
    Some(gateway)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(name: &str, type_: &str, annotation: Option<&str>) -> Arc<NodePool> {
        let annotations = annotation.map(|value| json!({ (POOL_GATEWAY): value }));
        Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": name, "uid": format!("u-{name}"), "annotations": annotations },
                "spec": { "type": type_ },
            }))
            .unwrap(),
        )
    }

    #[test]
    fn pools_get_what_they_ask_for_and_hand_made_ones_stay() {
        let hand_made = |name: &str| Arc::new(Gateway::new(name, GatewaySpec::default()));
        let ours = |name: &str| Arc::new(gateway(&pool(name, "Edge", None)).unwrap());
        // Pool's type and annotation, what there is, for all edge pools; created, deleted, told of.
        let cases = [
            ("Edge", None, None, false, [0, 0, 0]),
            ("Edge", None, None, true, [1, 0, 0]),
            ("Cloud", None, None, true, [0, 0, 0]),
            ("Edge", Some("false"), None, true, [0, 0, 0]),
            ("Edge", Some("false"), Some(ours("p")), true, [0, 1, 0]),
            ("Cloud", Some("True"), None, false, [1, 0, 0]),
            ("Edge", Some("true"), Some(ours("p")), false, [0, 0, 0]),
            ("Edge", None, Some(ours("p")), false, [0, 1, 0]),
            ("Edge", None, Some(ours("p")), true, [0, 0, 0]),
            ("Edge", Some("true"), Some(hand_made("p")), false, [0, 0, 1]),
            ("Edge", None, Some(hand_made("p")), true, [0, 0, 0]),
            ("Edge", None, Some(hand_made("p")), false, [0, 0, 0]),
        ];
        for (type_, annotation, present, for_all, expected) in cases {
            let gateways: Vec<_> = present.clone().into_iter().collect();
            let plan = plan(&[pool("p", type_, annotation)], &gateways, &BTreeSet::new(), for_all);
            let PoolGateways { create, delete, hand_made } = plan;
            assert_eq!(
                [create.len(), delete.len(), hand_made.len()],
                expected,
                "{type_} {annotation:?} {for_all}"
            );
        }
        let unread = plan(&[pool("p", "Edge", Some("true"))], &[], &["p".to_owned()].into(), false);
        assert!(unread.create.is_empty());
    }

    #[test]
    fn a_gateway_of_a_pool_belongs_to_it() {
        let made = gateway(&pool("p", "Edge", None)).unwrap();
        assert!(is_ours(&made, "p") && !is_ours(&made, "q"));
        let owner = &made.owner_references()[0];
        assert_eq!(
            (owner.uid.as_str(), owner.controller, owner.block_owner_deletion),
            ("u-p", Some(true), None)
        );
        assert_eq!((made.spec.proxy_config.replicas, made.spec.endpoints.len()), (1, 0));
    }
}

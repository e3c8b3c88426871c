//! Pure: which nodes reach one another directly, and which Gateway stands for them.
//!
//! A node is behind the Gateway that its label names, or that selects it, or that has the name of its pool, in this order. Cloud nodes
//! of which none of that is true are one domain; the exposed Gateway without a selector that lists one of them stands for it. An
//! edge node of which none is true stands for itself.
//!
//! A kubelet changes most labels of its own Node whenever it likes, and who is behind a Gateway may ask for what its nodes may. So a selector of such labels
//! alone takes of the nodes that carry them those only that the Gateway lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{
    Gateway, PoolType, labels,
    raven::{cloud, selected},
};
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use super::selectors;
use crate::nodes::NodeView;

/// What a node is a part of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Domain {
    /// The nodes behind the Gateway of that name.
    Gateway(String),
    /// The cloud nodes that are in no pool and behind no Gateway.
    Cloud,
    /// The nodes of a pool without a Gateway.
    Pool,
    /// Itself.
    Solo,
}

/// By whose word a node is where it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Word {
    /// Its pool or its label, which nodes do not change, and may bring when they are first registered.
    Placed,
    /// A selector that wants a label which only administrators set, or a Gateway that lists the node.
    Administrator,
}

impl Word {
    /// Whether a node that the Gateway does not list may stand for it. Who stands for an exposed one speaks for the cloud: that
    /// is nobody who chose where he is.
    pub(crate) fn is_enough(self, exposed: bool) -> bool {
        match self {
            Self::Placed => !exposed,
            Self::Administrator => true,
        }
    }
}

/// What is known of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) domain: Domain,
    pub(crate) by: Word,
    /// Whether it is on the edge's side.
    pub(crate) edge: bool,
    pub(crate) ready: bool,
    pub(crate) internal_ip: Option<String>,
    pub(crate) pod_cidrs: Vec<String>,
}

/// By what nodes are told apart.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    gateways: BTreeSet<String>,
    selectors: Vec<Selects>,
    /// The type of every pool, as far as it can be read.
    pools: BTreeMap<String, Option<PoolType>>,
    /// Selectors that cannot be understood, and why, by Gateway.
    pub(crate) malformed: BTreeMap<String, String>,
}

/// The selector of a Gateway.
#[derive(Debug)]
struct Selects {
    gateway: String,
    selector: Selector,
    by: Word,
    /// The nodes that are meant, if it is not all that it matches.
    among: Option<BTreeSet<String>>,
}

impl Selects {
    fn takes(&self, node: &NodeView) -> bool {
        self.among.as_ref().is_none_or(|nodes| nodes.contains(&node.name))
            && self.selector.matches(&node.labels)
    }
}

impl Rules {
    /// The rules of `gateways`, which are sorted by name, and `pools`. A Gateway that cannot be read keeps the nodes whose label
    /// names it, and a pool its nodes: they must not look like solo nodes.
    pub(crate) fn new(
        gateways: &[Arc<Gateway>],
        unreadable: &BTreeSet<String>,
        pools: BTreeMap<String, Option<PoolType>>,
    ) -> Self {
        let mut rules = Self {
            gateways: gateways
                .iter()
                .map(|gateway| gateway.name_any())
                .chain(unreadable.iter().cloned())
                .collect(),
            pools,
            ..Self::default()
        };
        for gateway in gateways.iter().filter(|gateway| has_selector(gateway)) {
            let selector = gateway.spec.node_selector.clone().unwrap_or_default();
            let administrator = selected::by_an_administrator(&selector);
            let trusted = administrator || selected::by_its_place(&selector);
            let read = selectors::fault(&selector)
                .map_or_else(|| Selector::try_from(selector).map_err(|error| error.to_string()), Err);
            let selector = match read {
                Ok(selector) => selector,
                Err(error) => {
                    rules.malformed.insert(gateway.name_any(), error);
                    continue;
                }
            };
            let listed =
                || gateway.spec.endpoints.iter().map(|endpoint| endpoint.node_name.clone()).collect();
            rules.selectors.push(Selects {
                gateway: gateway.name_any(),
                selector,
                by: if administrator || !trusted { Word::Administrator } else { Word::Placed },
                among: (!trusted).then(listed),
            });
        }
        rules
    }

    /// Gateways that select by labels alone which a kubelet may set on its own Node.
    pub(crate) fn untrusted(&self) -> BTreeSet<String> {
        let untrusted = self.selectors.iter().filter(|selects| selects.among.is_some());
        untrusted.map(|selects| selects.gateway.clone()).collect()
    }

    /// What `node` is.
    pub(crate) fn member(&self, node: &NodeView) -> Member {
        let labelled = node.labels.get(labels::GATEWAY).filter(|name| self.gateways.contains(*name));
        let selected = || self.selectors.iter().find(|selects| selects.takes(node));
        let pool = node.pool().filter(|pool| self.pools.contains_key(*pool));
        let type_ = pool.and_then(|pool| self.pools.get(pool)).copied().flatten();
        let edge = type_ == Some(PoolType::Edge)
            || node.labels.get(labels::IS_EDGE_WORKER).is_some_and(|value| value == labels::TRUE);
        // Beside its label a selector of the same Gateway may say more.
        let confirmed = |name: &String| {
            let mut own = self.selectors.iter().filter(|selects| selects.gateway == *name);
            own.any(|selects| selects.by == Word::Administrator && selects.takes(node))
        };
        let gateway = labelled
            .map(|name| (name.clone(), if confirmed(name) { Word::Administrator } else { Word::Placed }))
            .or_else(|| selected().map(|selects| (selects.gateway.clone(), selects.by)))
            .or_else(|| {
                pool.filter(|pool| self.gateways.contains(*pool)).map(|pool| (pool.to_owned(), Word::Placed))
            });
        let by = gateway.as_ref().map_or(Word::Placed, |(_, word)| *word);
        let domain = match (gateway, pool) {
            (Some((gateway, _)), _) => Domain::Gateway(gateway),
            (None, Some(_)) => Domain::Pool,
            (None, None) if edge => Domain::Solo,
            (None, None) => Domain::Cloud,
        };
        Member {
            name: node.name.clone(),
            domain,
            by,
            edge,
            ready: node.ready,
            internal_ip: node.internal_ip.clone(),
            pod_cidrs: node.pod_cidrs.iter().filter(|cidr| !cidr.is_empty()).cloned().collect(),
        }
    }
}

fn has_selector(gateway: &Gateway) -> bool {
    cloud::selects(&gateway.name_any(), gateway.spec.node_selector.as_ref())
}

/// Gives the cloud nodes to the Gateway that stands for the cloud. Others that would are returned, with its name.
pub(crate) fn claim_cloud(gateways: &[Arc<Gateway>], members: &mut [Member]) -> BTreeMap<String, String> {
    let cloud: BTreeSet<&str> =
        members.iter().filter(|m| m.domain == Domain::Cloud).map(|m| m.name.as_str()).collect();
    let claims = gateways.iter().map(|gateway| cloud::Claim {
        name: gateway.metadata.name.as_deref().unwrap_or_default(),
        created: gateway.creation_timestamp().map(|time| time.0),
        expose_type: gateway.spec.expose_type,
        selects: has_selector(gateway),
        lists_cloud_node: gateway.spec.endpoints.iter().any(|e| cloud.contains(e.node_name.as_str())),
    });
    let claims = cloud::of_cloud(claims);
    let Some((first, others)) = claims.split_first() else { return BTreeMap::new() };
    for member in members.iter_mut().filter(|member| member.domain == Domain::Cloud) {
        member.domain = Domain::Gateway((*first).to_owned());
    }
    others.iter().map(|other| ((*other).to_owned(), (*first).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn gateway(name: &str, spec: &Value) -> Arc<Gateway> {
        Arc::new(serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap())
    }

    fn pools(list: &[(&str, Option<PoolType>)]) -> BTreeMap<String, Option<PoolType>> {
        list.iter().map(|(name, type_)| ((*name).to_owned(), *type_)).collect()
    }

    fn node(name: &str, labels: &[(&str, &str)]) -> NodeView {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeView { name: name.to_owned(), labels, ..NodeView::default() }
    }

    /// Labels, domain, whether it is of the edge.
    type Case<'a> = (&'a [(&'a str, &'a str)], Domain, bool);

    #[test]
    fn a_node_is_behind_what_its_label_a_selector_or_its_pool_says() {
        let gateways = [
            gateway(
                "broken",
                &json!({ "nodeSelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } }),
            ),
            gateway("hand", &json!({ "nodeSelector": {} })),
            gateway("hz", &json!({})),
            gateway(
                "openyurt",
                &json!({ "nodeSelector": { "matchLabels": { (labels::GATEWAY): "openyurt" } } }),
            ),
            gateway(
                "sel",
                &json!({ "nodeSelector": { "matchLabels": { "site": "b" } }, "endpoints": [{ "nodeName": "n", "type": "proxy" }] }),
            ),
            gateway("thief", &json!({ "nodeSelector": { "matchLabels": { "site": "c" } } })),
        ];
        // `odd` and `openyurt` cannot be read.
        let pools = pools(&[
            ("hz", Some(PoolType::Edge)),
            ("sh", Some(PoolType::Edge)),
            ("dc", Some(PoolType::Cloud)),
            ("odd", None),
            ("openyurt", None),
        ]);
        let rules = Rules::new(&gateways, &["unread".to_owned()].into(), pools);
        assert_eq!(rules.malformed.keys().collect::<Vec<_>>(), ["broken"]);
        let behind = |name: &str| Domain::Gateway(name.to_owned());
        let (pool, edge) = (labels::NODE_POOL, (labels::IS_EDGE_WORKER, "true"));
        let cases: [Case<'_>; 18] = [
            (&[], Domain::Cloud, false),
            (&[edge], Domain::Solo, true),
            (&[(labels::IS_EDGE_WORKER, "false")], Domain::Cloud, false),
            (&[(pool, "hz")], behind("hz"), true),
            (&[(pool, "sh")], Domain::Pool, true),
            (&[(pool, "dc")], Domain::Pool, false),
            (&[(pool, "odd")], Domain::Pool, false),
            (&[(pool, "odd"), edge], Domain::Pool, true),
            (&[(pool, "openyurt"), edge], behind("openyurt"), true),
            (&[(pool, "openyurt")], behind("openyurt"), false),
            (&[(pool, "nowhere"), edge], Domain::Solo, true),
            (&[("site", "b"), (pool, "hz")], behind("sel"), true),
            (&[("site", "c"), (pool, "hz")], behind("hz"), true),
            (&[("site", "c"), edge], Domain::Solo, true),
            (&[(labels::GATEWAY, "hand"), ("site", "b"), (pool, "hz")], behind("hand"), true),
            (&[(labels::GATEWAY, "openyurt")], behind("openyurt"), false),
            (&[(labels::GATEWAY, "nowhere"), (pool, "hz")], behind("hz"), true),
            (&[(labels::GATEWAY, "unread"), edge], behind("unread"), true),
        ];
        for (labels, domain, edge) in cases {
            let member = rules.member(&node("n", labels));
            assert_eq!((member.domain, member.edge), (domain, edge), "{labels:?}");
        }
        assert_eq!(rules.untrusted(), ["sel", "thief"].map(str::to_owned).into());
        // Whom the Gateway does not list has no say in it.
        let other = rules.member(&node("other", &[("site", "b"), (pool, "hz")]));
        assert_eq!(other.domain, behind("hz"));
    }

    #[test]
    fn by_whose_word_a_node_is_where_it_is() {
        const RESTRICTED: &str = "node-restriction.kubernetes.io/site";
        let gateways = [
            gateway("admin", &json!({ "nodeSelector": { "matchLabels": { RESTRICTED: "b" } } })),
            gateway("hz", &json!({})),
            gateway("own", &json!({ "nodeSelector": { "matchLabels": { "site": "b" } } })),
            gateway(
                "listed",
                &json!({ "nodeSelector": { "matchLabels": { "site": "c" } }, "endpoints": [{ "nodeName": "n", "type": "proxy" }] }),
            ),
            gateway(
                "both",
                &json!({ "nodeSelector": { "matchLabels": { labels::GATEWAY: "both", RESTRICTED: "c" } } }),
            ),
            gateway("pool", &json!({ "nodeSelector": { "matchLabels": { labels::NODE_POOL: "by-pool" } } })),
        ];
        let rules = Rules::new(&gateways, &BTreeSet::new(), pools(&[("hz", Some(PoolType::Edge))]));
        for (labels, word, may_stand) in [
            (vec![(labels::NODE_POOL, "hz")], Word::Placed, [true, false]),
            (vec![(labels::GATEWAY, "own"), ("site", "b")], Word::Placed, [true, false]),
            (vec![(RESTRICTED, "b"), (labels::NODE_POOL, "hz")], Word::Administrator, [true, true]),
            (vec![("site", "b"), (labels::NODE_POOL, "hz")], Word::Placed, [true, false]),
            (vec![("site", "c"), (labels::NODE_POOL, "hz")], Word::Administrator, [true, true]),
            // As OpenYurt's webhook has it, which adds the label to every selector.
            (vec![(labels::GATEWAY, "both"), (RESTRICTED, "c")], Word::Administrator, [true, true]),
            (vec![(labels::GATEWAY, "both")], Word::Placed, [true, false]),
            (vec![(labels::NODE_POOL, "by-pool")], Word::Placed, [true, false]),
        ] {
            let by = rules.member(&node("n", &labels)).by;
            assert_eq!(
                (by, [false, true].map(|exposed| by.is_enough(exposed))),
                (word, may_stand),
                "{labels:?}"
            );
        }
    }

    #[test]
    fn the_oldest_exposed_gateway_that_lists_a_cloud_node_stands_for_the_cloud() {
        let listing = |name: &str, node: &str, expose: &str, created: &str, selector: Option<&str>| {
            let mut gateway = json!({
                "metadata": { "name": name, "creationTimestamp": created },
                "spec": { "exposeType": expose, "endpoints": [{ "nodeName": node, "type": "proxy" }] },
            });
            if let Some(site) = selector {
                gateway["spec"]["nodeSelector"] = json!({ "matchLabels": { "site": site } });
            }
            Arc::new(serde_json::from_value::<Gateway>(gateway).unwrap())
        };
        let gateways = [
            listing("a", "c1", "PublicIP", "2026-01-02T00:00:00Z", None),
            listing("b", "c2", "LoadBalancer", "2026-01-01T00:00:00Z", None),
            listing("c", "c1", "", "2025-01-01T00:00:00Z", None),
            listing("d", "e1", "PublicIP", "2025-01-01T00:00:00Z", None),
            listing("e", "c1", "PublicIP", "2025-01-01T00:00:00Z", Some("x")),
        ];
        let rules = Rules::new(&gateways, &BTreeSet::new(), BTreeMap::new());
        let mut members: Vec<Member> =
            [node("c1", &[]), node("c2", &[]), node("e1", &[(labels::IS_EDGE_WORKER, "true")])]
                .iter()
                .map(|node| rules.member(node))
                .collect();
        let taken = claim_cloud(&gateways, &mut members);
        assert_eq!(taken, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        let cloud = Domain::Gateway("b".to_owned());
        let domains: Vec<&Domain> = members.iter().map(|member| &member.domain).collect();
        assert_eq!(domains, [&cloud, &cloud, &Domain::Solo]);
    }
}

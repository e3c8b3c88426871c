//! Whose word counts: of reports, and of who stands for a Gateway.

use super::*;

#[test]
fn reports_of_nodes_that_are_no_endpoints_count_for_nothing() {
    let mut world = world();
    world.hub("b", Liveness::Alive, &["a"]);
    world.hub("solo", Liveness::Alive, &["a"]);
    assert_eq!(world.reasons(1), ["Elected", "", "NoExposedGateway"]);
    // Nor does what a hub says of a node that it does not exist.
    world.hub("c1", Liveness::Alive, &["x", "c1"]);
    assert_eq!(world.reasons(1), ["Elected", "", "NoTunnel"]);
}

/// The key of a node writes most labels of that node, and brings its pool when it registers it anew: so neither makes it a gateway
/// that nobody listed.
#[test]
fn who_chose_himself_where_he_is_is_not_elected() {
    const RESTRICTED: &str = "node-restriction.kubernetes.io/site";
    let by = |key: &str| serde_json::from_value(json!({ "matchLabels": { key: "here" } })).ok();
    for (exposed, key, reason, elected) in [
        (false, "site", "SelectorNotTrusted", false),
        (false, RESTRICTED, "Elected", true),
        (true, "site", "SelectorNotTrusted", false),
        (true, RESTRICTED, "Elected", true),
        (false, api::labels::NODE_POOL, "Elected", true),
        (true, api::labels::NODE_POOL, "EndpointsNotListed", false),
    ] {
        let mut world = world();
        world.hub("c1", Liveness::Alive, &["a"]);
        world.hub("c2", Liveness::Alive, &[]);
        let labels = &mut world.nodes[0].labels;
        // A thief has the administrator's word for nothing.
        if key == "site" {
            *labels = BTreeMap::from([(api::labels::IS_EDGE_WORKER.to_owned(), "true".to_owned())]);
        }
        let value = if key == api::labels::NODE_POOL { "shop" } else { "here" };
        labels.insert(key.to_owned(), value.to_owned());
        world.nodes.remove(1);
        world.spec(1, |spec| {
            spec.node_selector = if key == api::labels::NODE_POOL { None } else { by(key) };
            if exposed {
                spec.expose_type = ExposeType::LoadBalancer;
            }
        });
        if exposed {
            world.hub("a", Liveness::Alive, &["solo"]);
        }
        let plan = world.plan();
        let verdict = &plan.verdicts[1];
        assert_eq!(verdict.elected.reason, reason, "{exposed} {key}: {}", verdict.elected.message);
        assert_eq!(!active(&plan, 1).is_empty(), elected, "{exposed} {key}");
        // Nor is it among those whom the Gateway's nodes may ask for.
        assert_eq!(verdict.nodes.len(), usize::from(key != "site"), "{exposed} {key}");
        // Nor does its word count about links.
        assert_eq!(living(&world.observed).contains("a"), exposed && elected, "{exposed} {key}");
        // Whom an administrator lists is elected, whatever says that he is behind the Gateway.
        let endpoint = api::Endpoint {
            node_name: "a".to_owned(),
            type_: EndpointType::Proxy,
            ..api::Endpoint::default()
        };
        world.spec(1, |spec| spec.endpoints.push(endpoint));
        let plan = world.plan();
        assert_eq!(active(&plan, 1), ["a"], "{exposed} {key}");
        let says_so =
            plan.verdicts[1].elected.message.contains("takes those alone that spec.endpoints lists");
        assert_eq!(says_so, key == "site", "{exposed} {key}: {}", plan.verdicts[1].elected.message);
    }
}

/// The pool of the shop is gone, and its Gateway selects.
#[test]
fn a_selector_that_selects_nobody_is_told_apart_from_none_and_from_one_that_is_not_trusted() {
    const RESTRICTED: &str = "node-restriction.kubernetes.io/site";
    for (selector, reason, said) in [
        (
            json!(null),
            "NoEndpoint",
            "no node is behind the gateway: label nodes raven.openyurt.io/gateway=shop",
        ),
        (
            json!({}),
            "NoEndpoint",
            "no node is behind the gateway: label nodes raven.openyurt.io/gateway=shop",
        ),
        (
            json!({ "matchLabels": { RESTRICTED: "x" } }),
            "NoEndpoint",
            "spec.nodeSelector selects no node: put its labels",
        ),
        (
            json!({ "matchLabels": { "site": "x" } }),
            "SelectorNotTrusted",
            "spec.nodeSelector selects by labels that a",
        ),
        (
            json!({ "matchLabels": { "a b": "x" } }),
            "NoEndpoint",
            "spec.nodeSelector cannot be understood: matchLabels: \"a b\" is no label's key: ",
        ),
        (
            json!({ "matchExpressions": [{ "key": "site", "operator": "in", "values": ["x"] }] }),
            "NoEndpoint",
            "spec.nodeSelector cannot be understood: matchExpressions: \"in\" is no operator: there are In, NotIn, ",
        ),
    ] {
        let mut world = world();
        world.observed.pools.clear();
        world.spec(1, |spec| spec.node_selector = serde_json::from_value(selector.clone()).unwrap());
        world.nodes.drain(..2);
        let elected = world.plan().verdicts[1].elected.clone();
        assert_eq!((elected.holds, elected.reason), (false, reason), "{selector}: {}", elected.message);
        assert!(elected.message.starts_with(said), "{selector}: {}", elected.message);
        // Beside endpoints that are listed.
        world.spec(1, |spec| {
            spec.endpoints = vec![api::Endpoint {
                node_name: "a".to_owned(),
                type_: EndpointType::Proxy,
                ..api::Endpoint::default()
            }];
        });
        let elected = world.plan().verdicts[1].elected.clone();
        let understood = !elected.message.contains("cannot be understood");
        assert_eq!(understood, !said.contains("cannot be understood"), "{selector}: {}", elected.message);
    }
}

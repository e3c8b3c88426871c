use std::collections::BTreeSet;

use serde_json::json;
use tls::digest::Sha256Digest;
use tls::request::{RequestError, Subject};

use super::*;
use crate::controllers::hub_identity::observe::{NodeState, Purpose};
use crate::controllers::hub_identity::plan::{self, Decision, decide};

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn request() -> Request {
    Request {
        purpose: Purpose::Gateway,
        name: "edge-hub-gateway-c1".to_owned(),
        uid: None,
        resource_version: None,
        username: "system:node:c1".to_owned(),
        groups: set(&["system:nodes", "isthmus:edge-hubs", "system:authenticated"]),
        usages: set(&["digital signature", "server auth"]),
        expiration_seconds: Some(86_400),
        parsed: Ok(CertificateRequest {
            subject: Subject {
                common_name: "system:node:c1".to_owned(),
                organizations: vec!["system:nodes".to_owned()],
            },
            has_attributes: true,
            dns_names: Some(vec![GATEWAY_SERVER_NAME.to_owned(), "c1".to_owned()]),
            key: KeyKind::EcdsaP256,
            key_digest: Sha256Digest::of(b"key"),
        }),
        is_ours: true,
        conditions: Vec::new(),
    }
}

/// What it asks for, to be changed.
fn parsed(request: &mut Request) -> &mut CertificateRequest {
    request.parsed.as_mut().unwrap()
}

fn listed() -> Observed {
    Observed { node: Some(NodeState::default()), rival: None, gateway: Some(DialledBy::Everyone) }
}

#[test]
fn a_gateway_may_have_exactly_one_kind_of_certificate() {
    type Change = fn(&mut Request);
    let own: [(&str, Change); 3] = [
        ("as it is", |_| {}),
        ("one name", |r| drop(parsed(r).dns_names.as_mut().unwrap().pop())),
        ("as its kubelet", |r| assert!(r.groups.remove("isthmus:edge-hubs"))),
    ];
    for (what, change) in own {
        let mut request = request();
        change(&mut request);
        assert_eq!(plan::node(&request), Some("c1"), "{what}");
        assert_eq!(decide(&request, "c1", &listed()), Decision::Approve(Entitled::Gateway), "{what}");
    }
    let cases: [(&str, Change, Refusal); 18] = [
        ("another node", |r| r.username = "system:node:c2".into(), Refusal::GatewayRequester),
        ("not as a node", |r| assert!(r.groups.remove("system:nodes")), Refusal::GatewayRequester),
        ("an administrator", |r| r.username = "admin".into(), Refusal::GatewayRequester),
        (
            "a token",
            |r| {
                r.username = "system:bootstrap:abc123".into();
                r.groups = set(&["system:bootstrappers:isthmus"]);
            },
            Refusal::GatewayRequester,
        ),
        (
            "a group more",
            |r| parsed(r).subject.organizations.push("isthmus:edge-hubs".into()),
            Refusal::GatewaySubject,
        ),
        ("no group", |r| parsed(r).subject.organizations.clear(), Refusal::GatewaySubject),
        ("no node", |r| parsed(r).subject.common_name = "c1".into(), Refusal::GatewaySubject),
        ("two CN", |r| r.parsed = Err(RequestError::Subject("two CN")), Refusal::GatewaySubject),
        ("a form that is not read", |r| r.parsed = Err(RequestError::Pem), Refusal::Form),
        (
            "a name more",
            |r| parsed(r).dns_names.as_mut().unwrap().push("kubernetes.default".into()),
            Refusal::GatewayNames,
        ),
        ("another's name", |r| parsed(r).dns_names.as_mut().unwrap()[1] = "c2".into(), Refusal::GatewayNames),
        ("an address", |r| parsed(r).dns_names = None, Refusal::GatewayNames),
        (
            "letters of another case",
            |r| parsed(r).dns_names.as_mut().unwrap()[0].make_ascii_uppercase(),
            Refusal::GatewayNames,
        ),
        ("key", |r| parsed(r).key = KeyKind::Other, Refusal::Key),
        ("a client's", |r| assert!(r.usages.insert("client auth".into())), Refusal::GatewayUsages),
        ("a kubelet's", |r| assert!(r.usages.insert("key encipherment".into())), Refusal::GatewayUsages),
        ("no end", |r| r.expiration_seconds = None, Refusal::Lifetime),
        ("too long", |r| r.expiration_seconds = Some(40_000_000), Refusal::Lifetime),
    ];
    for (what, change, refusal) in cases {
        let mut request = request();
        change(&mut request);
        let node = plan::node(&request).unwrap();
        assert_eq!(decide(&request, node, &listed()), Decision::Deny(refusal), "{what}");
    }
    let unlisted = Observed { gateway: None, ..listed() };
    assert_eq!(decide(&request(), "c1", &unlisted), Decision::Deny(Refusal::NotAGateway));
    let of_pool = Observed { gateway: Some(DialledBy::OwnPool), ..listed() };
    assert_eq!(decide(&request(), "c1", &of_pool), Decision::Deny(Refusal::OtherGateway));
    let mut pools = request();
    parsed(&mut pools).dns_names.as_mut().unwrap()[0] = POOL_GATEWAY_SERVER_NAME.to_owned();
    assert_eq!(decide(&pools, "c1", &of_pool), Decision::Approve(Entitled::Gateway));
    assert_eq!(decide(&pools, "c1", &listed()), Decision::Deny(Refusal::OtherGateway));
    let deleted = Observed { node: None, ..listed() };
    assert_eq!(decide(&request(), "c1", &deleted), Decision::Deny(Refusal::UnknownNode));
}

#[test]
fn a_node_that_is_called_like_the_clouds_gateways_gets_no_certificate_of_theirs() {
    let of_pool = Observed { gateway: Some(DialledBy::OwnPool), ..listed() };
    let refused = Decision::Deny(Refusal::OtherGateway);
    for (node, names, observed, expected) in [
        (GATEWAY_SERVER_NAME, &[GATEWAY_SERVER_NAME][..], &of_pool, &refused),
        (GATEWAY_SERVER_NAME, &[POOL_GATEWAY_SERVER_NAME, GATEWAY_SERVER_NAME], &of_pool, &refused),
        (GATEWAY_SERVER_NAME, &[POOL_GATEWAY_SERVER_NAME], &of_pool, &Decision::Approve(Entitled::Gateway)),
        (POOL_GATEWAY_SERVER_NAME, &[GATEWAY_SERVER_NAME, POOL_GATEWAY_SERVER_NAME], &listed(), &refused),
    ] {
        let mut request = request();
        request.username = format!("system:node:{node}");
        parsed(&mut request).subject.common_name = request.username.clone();
        parsed(&mut request).dns_names = Some(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(decide(&request, node, observed), *expected, "{node} asks for {names:?}");
    }
}

#[test]
fn requests_of_kubelets_are_left_alone() {
    let mut request = request();
    request.is_ours = false;
    parsed(&mut request).dns_names = Some(vec!["c1".to_owned()]);
    assert_eq!(plan::node(&request), None);
}

#[test]
fn gateways_are_listed_by_an_exposed_one_or_active_in_another() {
    use DialledBy::{Everyone, OwnPool};
    let endpoint = |node: &str, type_: &str| json!({ "nodeName": node, "type": type_ });
    let cases = [
        ("PublicIP", vec![endpoint("c1", "proxy")], vec![], Some(Everyone)),
        ("LoadBalancer", vec![endpoint("c2", "proxy"), endpoint("c1", "proxy")], vec![], Some(Everyone)),
        ("", vec![endpoint("c1", "proxy")], vec![endpoint("c1", "proxy")], Some(OwnPool)),
        ("", vec![], vec![endpoint("c1", "proxy")], Some(OwnPool)),
        // Listed by its owner, and not elected by us.
        ("", vec![endpoint("c1", "proxy")], vec![endpoint("c2", "proxy")], None),
        ("", vec![endpoint("c1", "proxy")], vec![], None),
        ("", vec![], vec![endpoint("c1", "tunnel")], None),
        ("PublicIP", vec![endpoint("c1", "tunnel")], vec![], None),
        ("PublicIP", vec![endpoint("c2", "proxy")], vec![endpoint("c1", "proxy")], None),
        ("LoadBalancer", vec![], vec![endpoint("c1", "proxy")], Some(Everyone)),
        ("LoadBalancer", vec![], vec![], None),
    ];
    for (expose, listed, active, expected) in cases {
        let gateway = json!({
            "metadata": { "name": "g" }, "spec": { "exposeType": expose, "endpoints": listed },
            "status": { "activeEndpoints": active },
        });
        let gateway: Gateway = serde_json::from_value(gateway).unwrap();
        assert_eq!(dialled_by(&gateway, "c1"), expected, "{gateway:?}");
    }
}

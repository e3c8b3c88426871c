mod outage;

use api::names::{HUB_GROUP, HUB_SIGNER, NODE_GROUP};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{
        CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
        CertificateSigningRequestStatus,
    },
};
use kube::core::ObjectMeta;
use tls::request::{CertificateRequest, KeyKind, RequestError, Subject, generate_key, make};

use super::{
    observe::{NodeState, Observed, Purpose, Request},
    plan::{Decision, Entitled, Refusal, decide, node},
};

const NODE: (&str, &[&str]) = ("system:node:shop-1", &["system:nodes", "system:authenticated"]);
const HUB: (&str, &[&str]) =
    ("system:node:shop-1", &["system:nodes", "isthmus:edge-hubs", "system:authenticated"]);
const TOKEN: (&str, &[&str]) =
    ("system:bootstrap:abc123", &["system:bootstrappers", "system:bootstrappers:isthmus"]);

fn object(
    common_name: &str,
    organizations: &[&str],
    (username, groups): (&str, &[&str]),
) -> CertificateSigningRequest {
    let subject = Subject {
        common_name: common_name.to_owned(),
        organizations: organizations.iter().map(|&group| group.to_owned()).collect(),
    };
    let pem = make(&subject, &generate_key().unwrap()).unwrap();
    CertificateSigningRequest {
        metadata: ObjectMeta { name: Some("edge-hub-x".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: HUB_SIGNER.to_owned(),
            username: Some(username.to_owned()),
            groups: Some(groups.iter().map(|&group| group.to_owned()).collect()),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            expiration_seconds: Some(86_400),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

fn request(by: (&str, &[&str])) -> Request {
    Request::read(Purpose::Hub, &object("system:node:shop-1", &[NODE_GROUP, HUB_GROUP], by)).unwrap()
}

/// What it asks for, to be changed.
fn parsed(request: &mut Request) -> &mut CertificateRequest {
    request.parsed.as_mut().unwrap()
}

fn known(token: Option<&str>) -> Observed {
    let state = NodeState { resource_version: None, token: token.map(str::to_owned) };
    Observed { node: Some(state), rival: None, gateway: None }
}

fn unknown() -> Observed {
    Observed::default()
}

#[test]
fn who_may_have_the_certificate_of_a_hub() {
    let taken = Observed {
        node: None,
        rival: Some("edge-hub-y".to_owned()),
        gateway: Some(super::gateway::DialledBy::Everyone),
    };
    let approve = Decision::Approve;
    let deny = Decision::Deny;
    let others: [(&str, &[&str]); 7] = [
        ("system:node:shop-2", &["system:nodes"]),
        ("system:node:shop-2", &["system:nodes", "isthmus:edge-hubs"]),
        ("system:node:shop-1", &["system:authenticated"]),
        ("system:node:shop-1", &["isthmus:edge-hubs"]),
        ("system:serviceaccount:a:b", &["system:nodes", "system:bootstrappers:isthmus"]),
        ("admin", &["system:masters"]),
        (
            "system:bootstrap:abc123",
            &["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"],
        ),
    ];
    let mut cases = vec![
        (NODE, known(None), approve(Entitled::Node)),
        (HUB, known(None), approve(Entitled::Node)),
        (NODE, unknown(), deny(Refusal::UnknownNode)),
        (HUB, unknown(), deny(Refusal::UnknownNode)),
        (TOKEN, unknown(), approve(Entitled::NewNode)),
        (TOKEN, taken, deny(Refusal::NameTaken)),
        (TOKEN, known(None), deny(Refusal::NodeExists)),
        (TOKEN, known(Some("")), deny(Refusal::NodeExists)),
        (TOKEN, known(Some("abc124")), deny(Refusal::NodeExists)),
        (TOKEN, known(Some("abc123")), approve(Entitled::Allowed)),
    ];
    for by in others {
        cases.push((by, known(Some("abc123")), deny(Refusal::Requester)));
        cases.push((by, unknown(), deny(Refusal::Requester)));
    }
    for (by, observed, expected) in cases {
        assert_eq!(decide(&request(by), "shop-1", &observed), expected, "{by:?} {observed:?}");
    }
}

#[test]
fn a_hub_may_have_exactly_one_kind_of_certificate() {
    type Change = fn(&mut Request);
    let cases: [(&str, Change, Refusal); 18] = [
        ("one O", |r| drop(parsed(r).subject.organizations.remove(0)), Refusal::Subject),
        ("an O more", |r| parsed(r).subject.organizations.push("system:masters".into()), Refusal::Subject),
        (
            "an O twice",
            |r| parsed(r).subject.organizations = vec![HUB_GROUP.into(), HUB_GROUP.into()],
            Refusal::Subject,
        ),
        ("another O", |r| parsed(r).subject.organizations[0] = "system:masters".into(), Refusal::Subject),
        ("no node", |r| parsed(r).subject.common_name = "shop-1".into(), Refusal::Subject),
        ("an empty node", |r| parsed(r).subject.common_name = "system:node:".into(), Refusal::Subject),
        ("no name", |r| parsed(r).subject.common_name = "system:node:Shop/1".into(), Refusal::Subject),
        ("two CN", |r| r.parsed = Err(RequestError::Subject("two CN")), Refusal::Subject),
        ("a form that is not read", |r| r.parsed = Err(RequestError::Pem), Refusal::Form),
        ("names", |r| parsed(r).has_attributes = true, Refusal::Extensions),
        ("key", |r| parsed(r).key = KeyKind::Other, Refusal::Key),
        ("a usage more", |r| r.usages.extend(["server auth".into()]), Refusal::Usages),
        ("a usage less", |r| r.usages.retain(|usage| usage != "client auth"), Refusal::Usages),
        (
            "another usage",
            |r| {
                r.usages.remove("client auth");
                r.usages.insert("any".into());
            },
            Refusal::Usages,
        ),
        ("no end", |r| r.expiration_seconds = None, Refusal::Lifetime),
        ("too short", |r| r.expiration_seconds = Some(599), Refusal::Lifetime),
        ("too long", |r| r.expiration_seconds = Some(31_622_401), Refusal::Lifetime),
        ("negative", |r| r.expiration_seconds = Some(-1), Refusal::Lifetime),
    ];
    for (what, change, expected) in cases {
        let mut request = request(NODE);
        change(&mut request);
        let node = node(&request).unwrap();
        assert_eq!(decide(&request, node, &known(None)), Decision::Deny(expected), "{what}");
    }
    for seconds in [600, 31_622_400] {
        let mut request = request(NODE);
        request.expiration_seconds = Some(seconds);
        assert_eq!(decide(&request, "shop-1", &known(None)), Decision::Approve(Entitled::Node), "{seconds}");
    }
}

/// Whether it is decided on.
fn is_taken(object: &CertificateSigningRequest) -> bool {
    Request::read(Purpose::Hub, object).is_some_and(|request| node(&request).is_some())
}

#[test]
fn what_is_not_read_is_denied_if_it_has_the_group_of_hubs() {
    let odd = |groups: &[&str]| {
        let mut object = object("system:node:shop-1", groups, NODE);
        let text = str::from_utf8(&object.spec.request.0).unwrap();
        object.spec.request = ByteString(format!("-- {groups:?}\n{text}").into_bytes());
        object
    };
    let request = Request::read(Purpose::Hub, &odd(&[NODE_GROUP, HUB_GROUP])).unwrap();
    assert!(matches!(request.parsed, Err(RequestError::Pem)));
    assert_eq!(node(&request), Some(""));
    assert_eq!(decide(&request, "", &unknown()), Decision::Deny(Refusal::Form));
    assert!(!is_taken(&odd(&[NODE_GROUP])));
    assert!(!is_taken(&odd(&[NODE_GROUP, "isthmus:edge-hubs2"])));
}

#[test]
fn others_requests_and_decided_ones_are_left_alone() {
    for (name, groups) in [
        ("system:node:shop-1", &["system:nodes"][..]),
        ("alice", &["developers"]),
        ("alice", &[]),
        ("system:node:shop-1", &["isthmus:edge-hubs2", "system:nodes"]),
    ] {
        let request = Request::read(Purpose::Hub, &object(name, groups, NODE)).unwrap();
        assert_eq!(node(&request), None, "{name} {groups:?}");
    }
    let ours = || object("system:node:shop-1", &[NODE_GROUP, HUB_GROUP], NODE);
    let read = |change: fn(&mut CertificateSigningRequest)| {
        let mut object = ours();
        change(&mut object);
        is_taken(&object)
    };
    let with = |object: &mut CertificateSigningRequest, kind: &str| {
        let condition = CertificateSigningRequestCondition { type_: kind.to_owned(), ..Default::default() };
        object.status =
            Some(CertificateSigningRequestStatus { conditions: Some(vec![condition]), certificate: None });
    };
    assert!(read(|_| {}));
    assert!(!read(
        |object| object.spec.signer_name = "kubernetes.io/kube-apiserver-client-kubelet".to_owned()
    ));
    assert!(!read(|object| object.spec.request = ByteString(b"garbage".to_vec())));
    for (kind, expected) in [("Approved", false), ("Denied", false), ("Failed", false), ("Other", true)] {
        let mut object = ours();
        with(&mut object, kind);
        assert_eq!(is_taken(&object), expected, "{kind}");
    }
}

#[test]
fn names_of_nodes_are_names() {
    let of = |name: &str| {
        let mut request = request(NODE);
        parsed(&mut request).subject.common_name = format!("system:node:{name}");
        node(&request).unwrap().to_owned()
    };
    for name in ["a", "shop-1", "a.b-c.d1", &"a".repeat(253)] {
        assert_eq!(of(name), name);
    }
    for name in
        ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a/b", "a b", &"a".repeat(254), "system:node:a", "ä"]
    {
        assert_eq!(of(name), "", "{name}");
    }
}

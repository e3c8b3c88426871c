//! Who may have the certificate of which hub. Pure and total: the request and what was observed in, approval or denial out.

use std::fmt;

use api::annotations::HUB_BOOTSTRAP_TOKEN;
use api::names::{
    BOOTSTRAP_USER_PREFIX, HUB_BOOTSTRAP_GROUP, HUB_GROUP, HUB_USAGES, NODE_GROUP, NODE_USER_PREFIX,
};
use kube_wire::names::subdomain_errors;
use tls::request::{CertificateRequest, KeyKind, RequestError};

use super::gateway;
use super::observe::{Observed, Purpose, Request};

/// How long a certificate may be asked for, in seconds: from what the API takes at least to a leap year.
const LIFETIME: std::ops::RangeInclusive<i32> = 600..=8784 * 3600;

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// The requester is entitled.
    Approve(Entitled),
    /// It is not, or it asks for something else.
    Deny(Refusal),
}

/// Why somebody is entitled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Entitled {
    /// The node itself asks for its hub, first or again.
    Node,
    /// A bootstrap token asks for a node that is new.
    NewNode,
    /// A bootstrap token asks for a node for which an operator allowed it.
    Allowed,
    /// The node itself asks for its gateway.
    Gateway,
}

/// Why a request is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Refusal {
    /// It is written in a form that other programs could read differently.
    Form,
    /// The subject is not exactly that of a hub.
    Subject,
    /// It asks for extensions, such as subject alternative names.
    Extensions,
    /// The key is of another kind.
    Key,
    /// The usages are not those of a hub.
    Usages,
    /// The lifetime is missing or out of bounds.
    Lifetime,
    /// The requester is somebody else.
    Requester,
    /// The node has no Node.
    UnknownNode,
    /// A bootstrap token asks for a node that exists.
    NodeExists,
    /// A bootstrap token asks for a name that was given to another key.
    NameTaken,
    /// The subject is not exactly that of a gateway.
    GatewaySubject,
    /// It asks for other names than a gateway's.
    GatewayNames,
    /// The usages are not those of a gateway.
    GatewayUsages,
    /// Somebody else asks for a gateway.
    GatewayRequester,
    /// No exposed Gateway has the node as an endpoint, and in no other it is active.
    NotAGateway,
    /// An endpoint of an exposed Gateway asks for the name of one of another, or the other way round.
    OtherGateway,
}

impl Refusal {
    /// For the condition.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Form => "FormNotAllowed",
            Self::Subject => "SubjectNotOfAHub",
            Self::Extensions => "ExtensionsNotAllowed",
            Self::Key => "KeyNotAllowed",
            Self::Usages | Self::GatewayUsages => "UsagesNotAllowed",
            Self::Lifetime => "LifetimeNotAllowed",
            Self::Requester | Self::GatewayRequester => "RequesterNotEntitled",
            Self::UnknownNode => "NodeUnknown",
            Self::NodeExists => "NodeExists",
            Self::NameTaken => "NameTaken",
            Self::GatewaySubject => "SubjectNotOfAGateway",
            Self::GatewayNames => "NamesNotAllowed",
            Self::NotAGateway => "NotAGateway",
            Self::OtherGateway => "NameOfAnotherGateway",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Form => {
                "a request of a hub or gateway is one PEM block in its canonical form, without anything around it, signed with its own key"
            }
            Self::Subject => "the subject of a hub is CN=system:node:<node>, O=system:nodes, O=isthmus:edge-hubs and nothing else",
            Self::Extensions => "a hub's request has no extensions, such as subject alternative names",
            Self::Key => "the key of a hub or gateway is ECDSA P-256",
            Self::Usages => "a hub's usages are \"client auth\" and \"digital signature\"",
            Self::Lifetime => "a request of a hub or gateway has expirationSeconds of 600 to 31622400",
            Self::Requester => "only the node itself, or a bootstrap token of group system:bootstrappers:isthmus, may ask for its hub",
            Self::UnknownNode => "there is no such Node: it was deleted, or has not registered yet",
            Self::NodeExists => {
                return write!(
                    formatter,
                    "this Node exists, and a bootstrap token is for new nodes: let the hub ask with the kubelet's certificate, delete \
                     the Node, or name the token's public half in its annotation {HUB_BOOTSTRAP_TOKEN}"
                );
            }
            Self::GatewaySubject => "the subject of a gateway is CN=system:node:<node>, O=system:nodes and nothing else",
            Self::GatewayNames => {
                "a gateway's names are gateway.isthmus.internal, or gateway.pool.isthmus.internal, and its node's, and nothing else is asked for"
            }
            Self::GatewayUsages => "a gateway's usages are \"digital signature\" and \"server auth\"",
            Self::GatewayRequester => "only the node itself may ask for its gateway",
            Self::NotAGateway => "no Gateway with exposeType lists this node as an endpoint of type proxy, and in no other it is active",
            Self::OtherGateway => {
                "gateway.isthmus.internal is the name of endpoints of Gateways with exposeType; an endpoint of another has gateway.pool.isthmus.internal"
            }
            Self::NameTaken => "this name was given to another key a short time ago: delete that request if it was not used",
        })
    }
}

impl Entitled {
    /// For the condition.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Node => "NodeAsksForItsHub",
            Self::NewNode => "TokenAsksForNewNode",
            Self::Allowed => "TokenAllowedForNode",
            Self::Gateway => "NodeAsksForItsGateway",
        }
    }
}

/// The node whose hub or gateway a request is for; `None` if it concerns neither and is left alone.
pub(super) fn node(request: &Request) -> Option<&str> {
    request.is_ours.then(|| node_of(request))
}

/// The node that the subject names. A name that is of no node, or cannot be read, is empty: it is denied, not left alone.
fn node_of(request: &Request) -> &str {
    let parsed = request.parsed.as_ref().ok();
    let name = parsed.and_then(|parsed| parsed.subject.common_name.strip_prefix(NODE_USER_PREFIX));
    name.filter(|name| subdomain_errors(name).is_empty()).unwrap_or("")
}

/// What is asked for, if it can be read without doubt. `subject` is the refusal if that is what cannot.
pub(super) fn read(request: &Request, subject: Refusal) -> Result<&CertificateRequest, Refusal> {
    let refusal = |error: &RequestError| {
        if matches!(error, RequestError::Subject(_)) { subject } else { Refusal::Form }
    };
    request.parsed.as_ref().map_err(refusal)
}

/// Whether a bootstrap token asks.
pub(super) fn is_bootstrap(request: &Request) -> bool {
    token(request).is_some()
}

fn token(request: &Request) -> Option<&str> {
    let id = request.username.strip_prefix(BOOTSTRAP_USER_PREFIX)?;
    request.groups.contains(HUB_BOOTSTRAP_GROUP).then_some(id)
}

/// Decides on a request for the hub or gateway of `node`.
pub(super) fn decide(request: &Request, node: &str, observed: &Observed) -> Decision {
    let decided = match request.purpose {
        Purpose::Hub => shape(request, node).and_then(|()| entitled(request, node, observed)),
        Purpose::Gateway => gateway::entitled(request, node, observed),
    };
    match decided {
        Ok(entitled) => Decision::Approve(entitled),
        Err(refusal) => Decision::Deny(refusal),
    }
}

/// Whether exactly what a hub may have is asked for.
fn shape(request: &Request, node: &str) -> Result<(), Refusal> {
    let parsed = read(request, Refusal::Subject)?;
    let mut groups: Vec<&str> = parsed.subject.organizations.iter().map(String::as_str).collect();
    groups.sort_unstable();
    let mut wanted = [NODE_GROUP, HUB_GROUP];
    wanted.sort_unstable();
    if node.is_empty() || groups != wanted {
        return Err(Refusal::Subject);
    }
    if parsed.has_attributes {
        return Err(Refusal::Extensions);
    }
    if parsed.key != KeyKind::EcdsaP256 {
        return Err(Refusal::Key);
    }
    if !has_usages(request, &HUB_USAGES) {
        return Err(Refusal::Usages);
    }
    if lasts(request) { Ok(()) } else { Err(Refusal::Lifetime) }
}

/// Whether the usages are these and no others.
pub(super) fn has_usages(request: &Request, usages: &[&str]) -> bool {
    request.usages.len() == usages.len() && usages.iter().all(|usage| request.usages.contains(*usage))
}

/// Whether it is asked for a time that may be.
pub(super) fn lasts(request: &Request) -> bool {
    request.expiration_seconds.is_some_and(|seconds| LIFETIME.contains(&seconds))
}

/// Whether the node itself asks.
pub(super) fn is_itself(request: &Request, node: &str) -> bool {
    request.username.strip_prefix(NODE_USER_PREFIX) == Some(node) && request.groups.contains(NODE_GROUP)
}

fn entitled(request: &Request, node: &str, observed: &Observed) -> Result<Entitled, Refusal> {
    let Observed { node: state, rival, gateway: _ } = observed;
    if is_itself(request, node) {
        return if state.is_some() { Ok(Entitled::Node) } else { Err(Refusal::UnknownNode) };
    }
    let token = token(request).ok_or(Refusal::Requester)?;
    match state {
        Some(state) if state.token.as_deref() == Some(token) => Ok(Entitled::Allowed),
        // Not ready is not dead: a node without its link must not lose its name to a stolen token.
        Some(_) => Err(Refusal::NodeExists),
        None if rival.is_some() => Err(Refusal::NameTaken),
        None => Ok(Entitled::NewNode),
    }
}

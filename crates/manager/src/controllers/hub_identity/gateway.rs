//! Who may have the serving certificate of which gateway. Pure and total, as `plan`.
//!
//! Agents take whoever shows a certificate with the gateways' name for a gateway of theirs, and the node from its subject. So a node gets one
//! for itself, and only if an exposed Gateway lists it or it is an active endpoint of another. That one has another name: API servers and
//! Prometheus, which come in at gateways, know no nodes and verify the name alone. Kubelets ask the same signer for their own: those are
//! left alone.

use api::names::{
    GATEWAY_SERVER_NAME, GATEWAY_SERVER_NAMES, GATEWAY_USAGES, NODE_GROUP, POOL_GATEWAY_SERVER_NAME,
};
use api::{EndpointType, Gateway};

use super::observe::{Observed, Request};
use super::plan::{Entitled, Refusal, has_usages, is_itself, lasts, read};
use tls::request::{CertificateRequest, KeyKind};

/// Who dials a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DialledBy {
    /// Nodes of its own pool.
    OwnPool,
    /// Everyone: an exposed Gateway has it for an endpoint.
    Everyone,
}

impl DialledBy {
    /// The name of such gateways.
    fn server_name(self) -> &'static str {
        match self {
            Self::OwnPool => POOL_GATEWAY_SERVER_NAME,
            Self::Everyone => GATEWAY_SERVER_NAME,
        }
    }
}

/// Whether a request as it is written mentions the name of a gateway.
pub(super) fn is_claimed(request: &str) -> bool {
    GATEWAY_SERVER_NAMES.iter().any(|name| tls::request::mentions(request, name))
}

/// Decides on a request for the gateway of `node`.
pub(super) fn entitled(request: &Request, node: &str, observed: &Observed) -> Result<Entitled, Refusal> {
    let parsed = read(request, Refusal::GatewaySubject)?;
    shape(request, parsed, node)?;
    if !is_itself(request, node) {
        return Err(Refusal::GatewayRequester);
    }
    if observed.node.is_none() {
        return Err(Refusal::UnknownNode);
    }
    let name = observed.gateway.ok_or(Refusal::NotAGateway)?.server_name();
    let mut names = parsed.dns_names.iter().flatten();
    // A node may be called like a gateway, and is none for that.
    let is_a_nodes = !GATEWAY_SERVER_NAMES.contains(&node);
    if names.all(|asked| asked == name || is_a_nodes && asked == node) {
        Ok(Entitled::Gateway)
    } else {
        Err(Refusal::OtherGateway)
    }
}

/// Whether exactly what a gateway may have is asked for.
fn shape(request: &Request, parsed: &CertificateRequest, node: &str) -> Result<(), Refusal> {
    if node.is_empty() || parsed.subject.organizations != [NODE_GROUP] {
        return Err(Refusal::GatewaySubject);
    }
    let ours = |name: &String| name == node || GATEWAY_SERVER_NAMES.contains(&name.as_str());
    if !parsed.dns_names.as_ref().is_some_and(|names| names.iter().all(ours)) {
        return Err(Refusal::GatewayNames);
    }
    if parsed.key != KeyKind::EcdsaP256 {
        return Err(Refusal::Key);
    }
    if !has_usages(request, &GATEWAY_USAGES) {
        return Err(Refusal::GatewayUsages);
    }
    if lasts(request) { Ok(()) } else { Err(Refusal::Lifetime) }
}

/// Whose links `node` accepts for the Gateway: any endpoint that an exposed one lists, or, if it lists none, those that are active; of one
/// that is not exposed those that are active, which forward for their pool. `None` if it accepts none for it.
pub(super) fn dialled_by(gateway: &Gateway, node: &str) -> Option<DialledBy> {
    if !gateway.spec.expose_type.is_none() {
        let is_endpoint = gateway.proxy_candidates().any(|candidate| candidate == node);
        return is_endpoint.then_some(DialledBy::Everyone);
    }
    let mut active = gateway.status.iter().flat_map(|status| &status.active_endpoints);
    let is_active = active.any(|e| e.type_ == EndpointType::Proxy && e.node_name == node);
    is_active.then_some(DialledBy::OwnPool)
}

#[cfg(test)]
mod tests;

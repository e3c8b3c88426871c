//! Who may have the serving certificate of which gateway. Pure and total, as `plan`.
//!
//! Agents take whoever shows a certificate with the gateways' name for a gateway of theirs, and the node from its subject. So a node gets one
//! for itself, and only if an exposed Gateway lists it or it is an active endpoint of another. (Agents know from Gateways whom they dial, so
//! the certificate of a pool's endpoint is of no use outside its pool.) Kubelets ask the same signer for their own: those are left alone.

use api::names::{GATEWAY_SERVER_NAME, GATEWAY_USAGES, NODE_GROUP};
use api::{EndpointType, Gateway};

use super::observe::{Observed, Request};
use super::plan::{Entitled, Refusal, has_usages, is_itself, lasts, node_of};
use tls::request::KeyKind;

/// The node whose gateway a request is for; `None` if it is none of ours.
pub(super) fn node(request: &Request) -> Option<&str> {
    request.claims_gateway.then(|| node_of(request))
}

/// Decides on a request for the gateway of `node`.
pub(super) fn entitled(request: &Request, node: &str, observed: &Observed) -> Result<Entitled, Refusal> {
    shape(request, node)?;
    if !is_itself(request, node) {
        return Err(Refusal::GatewayRequester);
    }
    if observed.node.is_none() {
        return Err(Refusal::UnknownNode);
    }
    if observed.is_gateway { Ok(Entitled::Gateway) } else { Err(Refusal::NotAGateway) }
}

/// Whether exactly what a gateway may have is asked for.
fn shape(request: &Request, node: &str) -> Result<(), Refusal> {
    let parsed = &request.parsed;
    if node.is_empty() || parsed.subject.organizations != [NODE_GROUP] {
        return Err(Refusal::GatewaySubject);
    }
    let ours = |name: &String| name == GATEWAY_SERVER_NAME || name == node;
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

/// Whether `node` accepts links for the Gateway: of an exposed one any endpoint that it lists, or, if it lists none, those that are
/// active; of one that is not exposed those that are active, which forward for their pool.
pub(super) fn has_endpoint(gateway: &Gateway, node: &str) -> bool {
    if !gateway.spec.expose_type.is_none() {
        return gateway.proxy_candidates().any(|candidate| candidate == node);
    }
    let active = gateway.status.iter().flat_map(|status| &status.active_endpoints);
    active.into_iter().any(|e| e.type_ == EndpointType::Proxy && e.node_name == node)
}

#[cfg(test)]
mod tests;

//! Pure: the conditions of a Gateway, and above all why something is not so, in words that say what to do about it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use api::names::{ENABLE_L3_TUNNEL, ENABLE_L7_PROXY, RAVEN_CONFIG_MAP};
use api::raven::cloud;
use api::raven::gateway::NODES_MAX;
use api::{Endpoint, EndpointType, GatewayAddress, GatewayLink, labels};
use kube::ResourceExt as _;

use super::unlinked::PARTLY;
use super::verdict::{Case, Overall};
use super::wording::{join, list};

/// Something that is or is not so, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Finding {
    pub(crate) holds: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn yes(reason: &'static str, message: String) -> Self {
        Self { holds: true, reason, message }
    }

    pub(crate) fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { holds: false, reason, message: message.into() }
    }
}

impl Case<'_> {
    pub(super) fn elected(&self, proxies: &[String], tunnels: &[String]) -> Finding {
        let of = |type_, elected: &[String]| self.shortfall(type_, elected);
        let listed = |type_| !self.endpoints(type_).is_empty();
        let proxy = if self.has_only_tunnels() { None } else { of(EndpointType::Proxy, proxies) };
        let tunnel = if listed(EndpointType::Tunnel) { of(EndpointType::Tunnel, tunnels) } else { None };
        let some = proxies.len() + tunnels.len() > 0;
        let off = |finding: &Finding| OFF.contains(&finding.reason);
        // What is turned off on purpose is no fault while the other type is there.
        let fault = [&proxy, &tunnel].into_iter().flatten().find(|finding| !some || !off(finding));
        if let Some(fault) = fault {
            return fault.clone();
        }
        let names: BTreeSet<&str> = proxies.iter().chain(tunnels).map(String::as_str).collect();
        let mut message = format!("active: {}", join(names));
        if self.is_untrusted {
            let _ = write!(message, "; {UNTRUSTED}, and so takes those alone that spec.endpoints lists");
        }
        if self.has_only_tunnels() {
            let _ = write!(message, "; {NO_PROXY}");
        }
        let strangers = self.strangers();
        if !strangers.is_empty() {
            let _ = write!(message, "; {}", list(&strangers));
        }
        Finding::yes("Elected", message)
    }

    /// Whether endpoints are listed, and none of them forwards for its nodes.
    fn has_only_tunnels(&self) -> bool {
        !self.is_unlisted() && self.endpoints(EndpointType::Proxy).is_empty()
    }

    /// The endpoints that are no nodes of the gateway, such as one whose name is misspelt, which would be missed only when the others are gone.
    fn strangers(&self) -> Vec<String> {
        let listed = self.gateway.spec.endpoints.iter();
        let unknown = listed.filter(|endpoint| !self.members.contains_key(endpoint.node_name.as_str()));
        unknown.map(|endpoint| self.why_not(endpoint, endpoint.type_)).collect()
    }

    /// Why fewer endpoints of a type are elected than asked for.
    pub(super) fn shortfall(&self, type_: EndpointType, elected: &[String]) -> Option<Finding> {
        let (switch, disabled) = match type_ {
            EndpointType::Proxy => (ENABLE_L7_PROXY, OFF[0]),
            EndpointType::Tunnel => (ENABLE_L3_TUNNEL, OFF[1]),
        };
        let word = word(type_);
        if !self.is_on(type_) {
            let message = format!("ConfigMap {RAVEN_CONFIG_MAP} turns it off: set {switch} to \"true\"");
            return Some(Finding::no(disabled, message));
        }
        let replicas = self.replicas(type_);
        if replicas == 0 {
            return Some(Finding::no(
                OFF[2],
                format!("spec.{word}Config.Replicas is 0, which turns the {word} off"),
            ));
        }
        // One that is silent is in no Service.
        let counts = |node: &&String| type_ == EndpointType::Tunnel || !self.is_silent(node);
        let active = elected.len();
        let elected: Vec<&String> = elected.iter().filter(counts).collect();
        if elected.len() >= replicas {
            return None;
        }
        let endpoints = self.endpoints(type_);
        if endpoints.is_empty() {
            return Some(
                self.nobody_may_stand().unwrap_or_else(|| Finding::no("NoEndpoint", self.no_endpoint())),
            );
        }
        let waiting: Vec<String> = endpoints
            .iter()
            .filter(|endpoint| !elected.contains(&&endpoint.node_name))
            .map(|endpoint| self.why_not(endpoint, type_))
            .collect();
        if !elected.is_empty() {
            let mut message = format!("{active} of {replicas} {word} endpoints are active");
            // They keep their places, and so are counted where people look first.
            if elected.len() < active {
                let _ = write!(message, ", and {} of {active} report", elected.len());
            }
            return Some(Finding::no("TooFewEndpoints", format!("{message}; {}", list(&waiting))));
        }
        let candidates = self.candidates(type_);
        let reason = if candidates.is_empty() {
            "NoEndpoint"
        } else if candidates.iter().any(|candidate| candidate.ready) {
            "NoTunnel"
        } else {
            "NoReadyNode"
        };
        Some(Finding::no(reason, list(&waiting)))
    }

    /// What is so if a Gateway lists no nodes, and none may stand for it.
    fn nobody_may_stand(&self) -> Option<Finding> {
        let (reason, why) = match (self.is_unlisted(), self.members.is_empty()) {
            (true, false) => (
                "EndpointsNotListed",
                "who stands for an exposed Gateway speaks for the cloud, and a kubelet may bring its pool and its Gateway when it registers",
            ),
            (true, true) if self.is_untrusted => ("SelectorNotTrusted", UNTRUSTED),
            _ => return None,
        };
        let message = format!(
            "{why}: list nodes in spec.endpoints, or have spec.nodeSelector select by a label that a kubelet may not set, such as {RESTRICTED}"
        );
        Some(Finding::no(reason, message))
    }

    fn no_endpoint(&self) -> String {
        if let Some(error) = self.selector_error {
            return format!("spec.nodeSelector cannot be understood: {error}");
        }
        let name = self.gateway.name_any();
        if cloud::selects(&name, self.gateway.spec.node_selector.as_ref()) {
            return format!(
                "spec.nodeSelector selects no node: put its labels on nodes (kubectl get nodes --show-labels has those that they have), change it, \
                 or label nodes {}={name}",
                labels::GATEWAY
            );
        }
        format!(
            "no node is behind the gateway: label nodes {}={name}, set spec.nodeSelector, or name the gateway as their pool",
            labels::GATEWAY
        )
    }

    fn why_no_member(&self, node: &str) -> String {
        let label = format!("{}={}", labels::GATEWAY, self.gateway.name_any());
        match (self.cloud_is_of, self.selector_error) {
            (Some(other), _) => format!(
                "{node}: the cloud nodes are behind Gateway {other}: list the endpoint there, or label nodes {label}"
            ),
            (None, Some(error)) => format!(
                "{node}: it is not behind the gateway, whose spec.nodeSelector cannot be understood: {error}"
            ),
            (None, None) => format!(
                "{node}: no such node is behind the gateway: is it misspelt, or of another pool or Gateway? If it belongs here, put it \
                 into the pool, or label it {label}"
            ),
        }
    }

    fn why_not(&self, endpoint: &Endpoint, type_: EndpointType) -> String {
        let node = &endpoint.node_name;
        let Some(member) = self.members.get(node.as_str()) else { return self.why_no_member(node) };
        match (type_, self.is_exposed()) {
            (EndpointType::Proxy, true) if self.is_silent(node) => {
                format!(
                    "{node}: {}; its tunnels may be up, so it keeps its place while nobody else can have it",
                    unrenewed(node)
                )
            }
            (EndpointType::Proxy, true) if self.hubs.contains_key(node) => {
                format!("{node}: {}", unrenewed(node))
            }
            (EndpointType::Proxy, true) => {
                format!(
                    "{node}: its hub accepts no links: there is no ConfigMap {}; `edge-hub status` on the node says why, and the chart's value edgeHub.gatewayNodes must name it",
                    api::names::gateway_lease(node)
                )
            }
            _ if !member.ready => format!("{node}: the node is not ready"),
            _ => format!("{node}: it waits its turn"),
        }
    }

    pub(super) fn connected(
        &self,
        proxies: &[String],
        links: &[GatewayLink],
        addresses: &[GatewayAddress],
        overall: &Overall<'_>,
    ) -> Finding {
        let partly = self.partly(overall.unlinked, addresses);
        if !self.switches.l7 {
            return Finding::no(OFF[0], format!("ConfigMap {RAVEN_CONFIG_MAP} turns it off"));
        }
        if proxies.is_empty() {
            let why = if self.has_only_tunnels() {
                NO_PROXY
            } else {
                "no proxy endpoint is active, see condition Elected"
            };
            return Finding::no("NotElected", why);
        }
        if self.is_exposed() {
            return self.accepts(proxies, addresses, overall, partly);
        }
        if links.is_empty() {
            return if self.living.is_empty() {
                Finding::no(NO_EXPOSED, "there is no exposed gateway whose hub accepts links")
            } else if overall.unreachable.is_empty() {
                self.no_tunnel(proxies, overall)
            } else {
                let names = join(overall.unreachable.iter().map(String::as_str));
                Finding::no(
                    NO_EXPOSED,
                    format!(
                        "no exposed gateway has an address that could be dialled, see condition Exposed of {names}"
                    ),
                )
            };
        }
        let beyond = self.members.len().saturating_sub(NODES_MAX);
        if beyond > 0 {
            let mut message = format!(
                "{beyond} of {} nodes are not reached through the tunnel, which knows {NODES_MAX} of a pool: make more pools of it, each \
                 with a Gateway",
                self.members.len()
            );
            if let Some(partly) = partly {
                let _ = write!(message, "; {partly}");
            }
            return Finding::no("TooManyNodes", message);
        }
        let gateways: BTreeSet<&str> = links.iter().map(|link| link.gateway.as_str()).collect();
        let nodes: BTreeSet<&str> = links.iter().map(|link| link.node_name.as_str()).collect();
        told("Connected", format!("{} via {}", join(nodes), join(gateways)), partly)
    }
}

/// Of a hub that did report, and what may be the matter.
fn unrenewed(node: &str) -> String {
    format!(
        "its hub does not renew ConfigMap {}: `edge-hub status` on the node says why, and the chart's value edgeHub.gatewayNodes must name it",
        api::names::gateway_lease(node)
    )
}

/// That it is connected; and if not by all that should be, whom it lacks.
pub(super) fn told(reason: &'static str, message: String, partly: Option<String>) -> Finding {
    match partly {
        Some(partly) => Finding::yes(PARTLY, format!("{message}; {partly}")),
        None => Finding::yes(reason, message),
    }
}

/// Reason of a Gateway whose endpoints have nothing to dial.
const NO_EXPOSED: &str = "NoExposedGateway";

/// Reason of a Gateway that others are connected to.
pub(super) const ACCEPTING: &str = "Accepting";

/// Reasons for which a type of endpoint is off.
const OFF: [&str; 3] = ["L7Disabled", "L3Disabled", "ReplicasZero"];

/// What is amiss where all endpoints are of the other type.
const NO_PROXY: &str = "no endpoint is of type proxy (one that does not say is of type tunnel), so nobody forwards for the nodes behind \
                        the gateway: set spec.endpoints[].type to proxy";

/// Why a selector does not put nodes behind its Gateway.
const UNTRUSTED: &str = "spec.nodeSelector selects by labels that a kubelet may set on its own Node";

/// A label that only administrators set.
const RESTRICTED: &str = "node-restriction.kubernetes.io/site";

fn word(type_: EndpointType) -> &'static str {
    match type_ {
        EndpointType::Proxy => "proxy",
        EndpointType::Tunnel => "tunnel",
    }
}

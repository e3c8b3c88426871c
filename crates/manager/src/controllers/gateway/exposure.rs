//! Pure: where an exposed Gateway is dialled, and why it is not, or not at all of its active endpoints.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use api::{Endpoint, EndpointType, ExposeType, GatewayAddress};
use kube::ResourceExt as _;

use super::findings::Finding;
use super::services;
use super::verdict::{Case, Overall, proxies_of};
use super::wording::{join, list};

impl Case<'_> {
    /// Its addresses, and condition `Exposed`, if it is to be exposed.
    pub(super) fn exposure(
        &self,
        active: &[Endpoint],
        overall: &Overall<'_>,
    ) -> (Vec<GatewayAddress>, Option<Finding>) {
        if !self.is_exposed() {
            return (Vec::new(), None);
        }
        if !self.switches.l7 || self.replicas(EndpointType::Proxy) == 0 {
            return (Vec::new(), self.shortfall(EndpointType::Proxy, &[]));
        }
        let proxies: Vec<&Endpoint> = proxies_of(active).collect();
        let addresses = self.addresses(&proxies);
        let missing = match self.gateway.spec.expose_type {
            ExposeType::LoadBalancer => addresses.is_empty().then(|| {
                let name = services::public_name(&self.gateway.name_any());
                let pending = format!(
                    "Service {}/{name} has no address yet: is there a load balancer controller? If not, annotate it with {}",
                    api::names::NAMESPACE,
                    api::annotations::PUBLIC_SERVICE_EXTERNAL_IP
                );
                Finding::no("AddressPending", pending)
            }),
            ExposeType::PublicIP | ExposeType::None => unaddressed(&proxies, &addresses),
        };
        let balanced = self.gateway.spec.expose_type == ExposeType::LoadBalancer;
        let (port, elsewhere) = self.links_at(active);
        let differ = (balanced && !elsewhere.is_empty() && !addresses.is_empty()).then(|| {
            let hubs = elsewhere.iter().map(|(node, at)| format!("that of {node} at {at}"));
            let hubs: Vec<String> = hubs.collect();
            let message = format!(
                "the Service leads to port {port}, and hubs accept links elsewhere: {}: give all the same --tunnel-address",
                list(&hubs)
            );
            Finding::no("ListenersDiffer", message)
        });
        let mut finding = if proxies.is_empty() && differ.is_none() {
            Finding::no("NotElected", "no endpoint is active, see condition Elected")
        } else {
            // Each is for someone to mend, whatever else is.
            let closed = self.closed_ways_in(&proxies, overall.closed);
            let amiss = [differ, missing, closed, self.differing_ports(overall.ports)].into_iter().flatten();
            let together = |first: Finding, next: Finding| Finding {
                message: format!("{}; {}", first.message, next.message),
                ..first
            };
            let known = || Finding::yes("AddressKnown", format!("dialled at {}", all(&addresses)));
            amiss.reduce(together).unwrap_or_else(known)
        };
        if let Some(said) = self.external_addr(&proxies) {
            let _ = write!(finding.message, "; {said}");
        }
        (addresses, Some(finding))
    }

    /// Where it is dialled, if it is exposed and these are its active endpoints.
    fn addresses(&self, proxies: &[&Endpoint]) -> Vec<GatewayAddress> {
        match self.gateway.spec.expose_type {
            ExposeType::LoadBalancer => {
                let port = services::public_port(self.gateway);
                let hosts = self.service.map(services::hosts).unwrap_or_default();
                let address = |host| GatewayAddress { host, port, node_name: String::new() };
                hosts.into_iter().map(address).collect()
            }
            ExposeType::PublicIP | ExposeType::None => {
                let public = proxies.iter().filter(|endpoint| !endpoint.public_ip.is_empty());
                let address = |endpoint: &&Endpoint| GatewayAddress {
                    host: endpoint.public_ip.clone(),
                    port: if endpoint.public_port == 0 { endpoint.port() } else { endpoint.public_port },
                    node_name: endpoint.node_name.clone(),
                };
                public.map(address).collect()
            }
        }
    }

    /// The IPs at which it is dialled and that kube-proxy takes for its own.
    pub(super) fn taken_by_kube_proxy(&self) -> BTreeSet<String> {
        let is_balanced = self.switches.l7 && self.gateway.spec.expose_type == ExposeType::LoadBalancer;
        self.service.filter(|_| is_balanced).map(services::taken_by_kube_proxy).unwrap_or_default()
    }
}

/// The exposed Gateways with active proxy endpoints, by what is elected of each, if none of them has an address: nobody can dial then.
pub(super) fn unreachable(cases: &[Case<'_>], elected: &[[Vec<String>; 2]]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (case, [proxies, _]) in cases.iter().zip(elected) {
        if case.is_exposed() && !proxies.is_empty() {
            let active = case.active(proxies, &[]);
            if !case.addresses(&proxies_of(&active).collect::<Vec<_>>()).is_empty() {
                return BTreeSet::new();
            }
            names.insert(case.gateway.name_any());
        }
    }
    names
}

/// What else to look at where nodes do not come to a gateway and kube-proxy takes these: its rules lead them to where no site behind NAT comes.
pub(super) fn past_the_balancer(taken: &BTreeSet<String>) -> Option<String> {
    if taken.is_empty() {
        return None;
    }
    Some(format!(
        "; if kube-proxy runs there it must read through edge-hub, else it leads what is for {} past the balancer, to the gateways' internal \
         addresses",
        join(taken.iter().map(String::as_str))
    ))
}

/// What is so if nodes cannot dial some of these endpoints, or any: nobody but the Gateway's author knows their addresses.
fn unaddressed(proxies: &[&Endpoint], addresses: &[GatewayAddress]) -> Option<Finding> {
    let without = proxies.iter().filter(|endpoint| endpoint.public_ip.is_empty());
    let without: Vec<&str> = without.map(|endpoint| endpoint.node_name.as_str()).collect();
    if without.is_empty() {
        return None;
    }
    let mut message = format!(
        "active endpoints without publicIP: {}: nobody dials them; set publicIP of each in spec.endpoints",
        join(without)
    );
    if !addresses.is_empty() {
        let _ = write!(message, "; the others are dialled at {}", all(addresses));
    }
    Some(Finding::no("NoAddress", message))
}

/// As they are dialled.
pub(super) fn all(addresses: &[GatewayAddress]) -> String {
    addresses.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn shown(at: &GatewayAddress) -> String {
    if at.host.contains(':') {
        format!("[{}]:{}", at.host, at.port)
    } else {
        format!("{}:{}", at.host, at.port)
    }
}

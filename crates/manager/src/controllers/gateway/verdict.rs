//! Pure: what is true of one Gateway: its nodes, who is elected and why nobody is, where it is dialled, what it is connected to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use api::annotations::EXTRA_ALLOWED_SOURCE_CIDRS;
use api::names::{ENABLE_L3_TUNNEL, ENABLE_L7_PROXY};
use api::{Endpoint, EndpointType, ExposeType, Gateway, GatewayAddress, GatewayLink, GatewayNode, labels};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt as _;

use super::accepting::{InPart, Lacking};
use super::dialers::Dialers;
use super::domains::Member;
use super::elect::{Candidate, Evidence, IDLE, Judgement};
use super::findings::Finding;
use super::hub_reports::Hub;
use super::liveness::Liveness;
use super::ports::{self, External, Merged};
use super::services;
use super::unlinked::Unlinked;
use super::ways_in::Closed;

/// The switches of raven's ConfigMap.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Switches {
    /// Whether requests are proxied.
    pub(crate) l7: bool,
    /// Whether there are tunnels between the pods of sites.
    pub(crate) l3: bool,
}

impl Switches {
    /// As the ConfigMap says. Both are on without it: who installed no raven has nothing to turn on. In a ConfigMap that is there, a
    /// key that is missing is off, as with raven.
    pub(crate) fn of(config: Option<&ConfigMap>) -> Self {
        let Some(config) = config else { return Self { l7: true, l3: true } };
        let on = |key: &str| {
            let value = config.data.as_ref().and_then(|data| data.get(key));
            value.is_some_and(|value| value.trim().eq_ignore_ascii_case(labels::TRUE))
        };
        Self { l7: on(ENABLE_L7_PROXY), l3: on(ENABLE_L3_TUNNEL) }
    }
}

/// What is true of a Gateway.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) nodes: Vec<GatewayNode>,
    pub(crate) active: Vec<Endpoint>,
    pub(crate) addresses: Vec<GatewayAddress>,
    pub(crate) links: Vec<GatewayLink>,
    pub(crate) elected: Finding,
    /// `None` if it is not to be exposed.
    pub(crate) exposed: Option<Finding>,
    pub(crate) connected: Finding,
    /// Where a load balancer leads, on the endpoints' nodes.
    pub(crate) link_port: u16,
    pub(crate) lacking: Lacking,
}

/// A Gateway and what concerns it.
pub(crate) struct Case<'a> {
    pub(crate) gateway: &'a Arc<Gateway>,
    pub(crate) switches: Switches,
    /// The nodes behind it, by name.
    pub(crate) members: BTreeMap<&'a str, &'a Member>,
    /// What hubs say of themselves, by node.
    pub(crate) hubs: &'a BTreeMap<String, Hub>,
    /// The nodes of exposed gateways whose hubs accept links, or did when that was last known.
    pub(crate) living: &'a BTreeSet<String>,
    /// Since when there has been such a node.
    pub(crate) living_since: Option<Instant>,
    /// The Gateway that stands for the cloud, if this one would.
    pub(crate) cloud_is_of: Option<&'a str>,
    /// Why its selector cannot be understood.
    pub(crate) selector_error: Option<&'a str>,
    /// Whether it selects by labels alone that a kubelet may set.
    pub(crate) is_untrusted: bool,
    /// Where raven's ConfigMap says that links are accepted.
    pub(crate) external: External,
    /// The Service that exposes it, if there is one.
    pub(crate) service: Option<&'a Service>,
    pub(crate) now: Instant,
}

/// What the elections of all Gateways came to, for each of them.
pub(crate) struct Overall<'a> {
    /// Who dials.
    pub(crate) dialers: &'a Dialers<'a>,
    /// Who has no link.
    pub(crate) unlinked: &'a Unlinked,
    /// Which nodes are linked to some of a Gateway's endpoints alone, by its name.
    pub(crate) in_part: &'a BTreeMap<String, InPart<'a>>,
    /// Since when they have been.
    pub(crate) in_part_since: &'a Unlinked,
    /// The Gateways whose endpoints have had no time to dial yet, and until when.
    pub(crate) dialling: &'a BTreeMap<String, Instant>,
    /// The exposed Gateways that have active endpoints, if none of them has an address.
    pub(crate) unreachable: &'a BTreeSet<String>,
    /// The ways in that do not listen.
    pub(crate) closed: &'a Closed,
    /// The ports of the internal Service.
    pub(crate) ports: &'a Merged,
    /// The IPs of all balancers that kube-proxy takes for its own.
    pub(crate) taken: &'a BTreeSet<String>,
}

/// Those of these endpoints that are of type proxy.
pub(super) fn proxies_of(endpoints: &[Endpoint]) -> impl Iterator<Item = &Endpoint> {
    endpoints.iter().filter(|endpoint| endpoint.type_ == EndpointType::Proxy)
}

impl Case<'_> {
    pub(crate) fn is_exposed(&self) -> bool {
        !self.gateway.spec.expose_type.is_none()
    }

    /// Whether the endpoints are the gateway's nodes, because none are listed.
    pub(super) fn is_unlisted(&self) -> bool {
        self.gateway.spec.endpoints.is_empty()
    }

    pub(super) fn replicas(&self, type_: EndpointType) -> usize {
        let spec = &self.gateway.spec;
        let replicas = match type_ {
            EndpointType::Proxy => spec.proxy_config.replicas,
            EndpointType::Tunnel => spec.tunnel_config.replicas,
        };
        usize::try_from(replicas).unwrap_or(0)
    }

    pub(super) fn is_on(&self, type_: EndpointType) -> bool {
        match type_ {
            EndpointType::Proxy => self.switches.l7,
            EndpointType::Tunnel => self.switches.l3,
        }
    }

    /// How many are to be elected.
    pub(crate) fn places(&self, type_: EndpointType) -> usize {
        if self.is_on(type_) { self.replicas(type_) } else { 0 }
    }

    /// The endpoints of a type, in order of preference, each node once; of proxies, if no endpoint is listed, those of the nodes that are
    /// behind the Gateway by a word that is enough.
    pub(crate) fn endpoints(&self, type_: EndpointType) -> Vec<Endpoint> {
        if self.is_unlisted() && type_ == EndpointType::Proxy {
            let may_stand = self.members.values().filter(|member| member.by.is_enough(self.is_exposed()));
            let endpoint =
                |member: &&Member| Endpoint { node_name: member.name.clone(), type_, ..Endpoint::default() };
            return may_stand.map(endpoint).collect();
        }
        let mut seen = BTreeSet::new();
        let listed = self.gateway.spec.endpoints.iter().filter(|endpoint| endpoint.type_ == type_);
        listed.filter(|endpoint| seen.insert(endpoint.node_name.as_str())).cloned().collect()
    }

    /// The nodes that can be elected as endpoints of a type.
    pub(crate) fn candidates(&self, type_: EndpointType) -> Vec<Candidate> {
        let endpoints = self.endpoints(type_).into_iter();
        let candidate = |endpoint: Endpoint| {
            let member = self.members.get(endpoint.node_name.as_str())?;
            Some(Candidate {
                evidence: self.evidence(&member.name),
                ready: member.ready,
                addressed: type_ == EndpointType::Tunnel || self.can_be_dialled(&endpoint),
                node: endpoint.node_name,
            })
        };
        endpoints.filter_map(candidate).collect()
    }

    /// Whether there would be an address at which nodes dial a proxy endpoint, if that is for the endpoint or its balancer to have.
    fn can_be_dialled(&self, endpoint: &Endpoint) -> bool {
        match self.gateway.spec.expose_type {
            ExposeType::PublicIP => self.is_unlisted() || !endpoint.public_ip.is_empty(),
            ExposeType::LoadBalancer => {
                self.service.is_some_and(|service| !services::hosts(service).is_empty())
            }
            ExposeType::None => true,
        }
    }

    fn evidence(&self, node: &str) -> Evidence {
        if !self.is_exposed() {
            return match self.gateways_of(node).is_empty() {
                false => Evidence::Working,
                true if self.is_unanswering(node) => Evidence::Unanswering,
                true => Evidence::Nothing,
            };
        }
        match self.hubs.get(node).map(|hub| hub.liveness) {
            // One that is not listed listens only once it is elected: there is none to give way to.
            Some(Liveness::Alive) if self.is_unlisted() || self.has_links(node) => Evidence::Working,
            Some(Liveness::Alive) => Evidence::Idle,
            Some(Liveness::Unknown | Liveness::Suspect) => Evidence::Unknown,
            Some(Liveness::Silent) if self.may_live(node) => Evidence::Silent,
            Some(Liveness::Silent | Liveness::Dead) | None => Evidence::Nothing,
        }
    }

    /// Whether anybody is linked to an endpoint of an exposed Gateway.
    pub(super) fn has_links(&self, node: &str) -> bool {
        self.hubs.get(node).is_some_and(|hub| !hub.links.is_empty())
    }

    /// Whether a gateway gave a node's last link up a moment ago because nothing was answered over it.
    pub(super) fn is_unanswering(&self, node: &str) -> bool {
        self.living.iter().filter_map(|name| self.hubs.get(name)).any(|hub| hub.silent.contains(node))
    }

    /// Whether a gateway that says nothing of itself may live: another one has a link to it, or there is none that could tell.
    fn may_live(&self, node: &str) -> bool {
        let mut living = self.living.iter().filter_map(|name| self.hubs.get(name)).peekable();
        living.peek().is_none() || living.any(|hub| hub.siblings.contains(node))
    }

    /// Whether an endpoint of an exposed Gateway says nothing of itself, and its tunnels may be up all the same.
    pub(super) fn is_silent(&self, node: &str) -> bool {
        self.is_exposed() && self.evidence(node) == Evidence::Silent
    }

    /// How endpoints of a type are judged. The hub of a listed node of an exposed Gateway shows that it is there before it is elected;
    /// one that is not listed only learns by being elected that it shall listen. `dialled` is since when there have been nodes that would dial.
    pub(crate) fn judgement(
        &self,
        type_: EndpointType,
        started: Instant,
        dialled: Option<Instant>,
    ) -> Judgement {
        match type_ {
            EndpointType::Tunnel => Judgement::Readiness,
            EndpointType::Proxy if !self.is_exposed() => Judgement::OnTrial(self.living_since),
            EndpointType::Proxy if self.is_unlisted() => Judgement::OnTrial(Some(started)),
            // A new leader does not begin with what takes links: for a minute it only looks.
            EndpointType::Proxy => Judgement::Strict(dialled.map(|since| since.max(started + IDLE))),
        }
    }

    /// The nodes of exposed gateways to which `node` has a link, with its round-trip times.
    pub(super) fn gateways_of(&self, node: &str) -> Vec<(&str, i32)> {
        let living = self.living.iter().filter_map(|name| Some((name.as_str(), self.hubs.get(name)?)));
        living.filter_map(|(name, hub)| Some((name, *hub.links.get(node)?))).collect()
    }

    /// Where links are accepted for the most part, and the active endpoints whose hubs accept them elsewhere, and where.
    pub(super) fn links_at<'b>(&self, active: &'b [Endpoint]) -> (u16, Vec<(&'b str, u16)>) {
        let reported: Vec<(&str, u16)> = proxies_of(active)
            .filter_map(|endpoint| {
                Some((endpoint.node_name.as_str(), self.hubs.get(&endpoint.node_name)?.port?))
            })
            .collect();
        let port = ports::links(self.external.port(), &reported.iter().map(|(_, port)| *port).collect());
        (port, reported.into_iter().filter(|(_, at)| *at != port).collect())
    }

    /// The endpoints that are elected, by type, as the status has them.
    pub(super) fn active(&self, proxies: &[String], tunnels: &[String]) -> Vec<Endpoint> {
        let mut active = Vec::new();
        for (type_, elected, key) in [
            (EndpointType::Proxy, proxies, ENABLE_L7_PROXY),
            (EndpointType::Tunnel, tunnels, ENABLE_L3_TUNNEL),
        ] {
            for mut endpoint in self.endpoints(type_) {
                if elected.contains(&endpoint.node_name) {
                    endpoint.port = endpoint.port();
                    endpoint.config.insert(key.to_owned(), labels::TRUE.to_owned());
                    active.push(endpoint);
                }
            }
        }
        active.sort_by(|a, b| (&a.node_name, a.type_).cmp(&(&b.node_name, b.type_)));
        active
    }

    /// What is true of the Gateway, given who is elected by type, and what came of all elections.
    pub(crate) fn verdict(&self, proxies: &[String], tunnels: &[String], overall: &Overall<'_>) -> Verdict {
        let active = self.active(proxies, tunnels);
        let (addresses, exposed) = self.exposure(&active, overall);
        let links = if self.is_exposed() { Vec::new() } else { self.links(proxies) };
        Verdict {
            gateway: Arc::clone(self.gateway),
            nodes: self.nodes(tunnels),
            elected: self.elected(proxies, tunnels),
            connected: self.connected(proxies, &links, &addresses, overall),
            exposed,
            link_port: self.links_at(&active).0,
            lacking: self.lacking(proxies, overall),
            active,
            addresses,
            links,
        }
    }

    fn nodes(&self, tunnels: &[String]) -> Vec<GatewayNode> {
        let extra = self.gateway.annotations().get(EXTRA_ALLOWED_SOURCE_CIDRS);
        let extra: Vec<String> = extra
            .into_iter()
            .flat_map(|list| list.split(','))
            .map(|cidr| cidr.trim().to_owned())
            .filter(|cidr| !cidr.is_empty())
            .collect();
        let node = |member: &&Member| {
            let mut subnets = member.pod_cidrs.clone();
            if tunnels.contains(&member.name) {
                subnets.extend(extra.iter().cloned());
            }
            let private_ip = member.internal_ip.clone().unwrap_or_default();
            GatewayNode { node_name: member.name.clone(), private_ip, subnets }
        };
        self.members.values().map(node).collect()
    }

    fn links(&self, proxies: &[String]) -> Vec<GatewayLink> {
        let mut links: Vec<GatewayLink> = proxies
            .iter()
            .flat_map(|node| {
                self.gateways_of(node).into_iter().map(|(gateway, round_trip_millis)| GatewayLink {
                    node_name: node.clone(),
                    gateway: gateway.to_owned(),
                    round_trip_millis,
                })
            })
            .collect();
        links.sort();
        // As many as the schema takes.
        links.truncate(1024);
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_on_without_ravens_config_map_and_as_it_says_with_it() {
        let of = |data: &[(&str, &str)]| {
            let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let Switches { l7, l3 } =
                Switches::of(Some(&ConfigMap { data: Some(data), ..ConfigMap::default() }));
            (l7, l3)
        };
        assert_eq!(Switches::of(None), Switches { l7: true, l3: true });
        assert_eq!(Switches::of(Some(&ConfigMap::default())), Switches { l7: false, l3: false });
        assert_eq!(of(&[("other", "true")]), (false, false));
        assert_eq!(of(&[("enable-l7-proxy", "True")]), (true, false));
        assert_eq!(of(&[("enable-l7-proxy", "false"), ("enable-l3-tunnel", " TRUE\n")]), (false, true));
        assert_eq!(of(&[("enable-l7-proxy", "yes"), ("enable-l3-tunnel", "")]), (false, false));
    }
}

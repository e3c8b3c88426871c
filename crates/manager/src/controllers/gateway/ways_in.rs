//! Pure: which ways in of a gateway do not listen, by what its hub reports. Nobody is to be sent there. And which are not what was listed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use api::Endpoint;
use api::names::PROXY_INTERNAL_SERVICE;

use super::findings::Finding;
use super::hub_reports::Hub;
use super::ports::{self, Merged, ProxyPort};
use super::verdict::Case;
use super::wording::list;

/// How long a hub may take to follow the Service before that is told of. It is sent nothing meanwhile.
const FOLLOW: Duration = Duration::from_secs(5);

/// The ports of the internal Service that lead to where the hub of a node does not listen, whose address is `ip`.
pub(crate) fn closed(hub: &Hub, ip: IpAddr, ports: &[ProxyPort]) -> BTreeSet<ProxyPort> {
    // An older hub does not say.
    let Some(open) = &hub.ways_in else { return BTreeSet::new() };
    ports.iter().filter(|port| !listens(open, ip, port.target)).cloned().collect()
}

/// Whether what is sent to `ip` comes to a listener. A hub may have been given another address, to which that is mapped; then it listens
/// at none of its own.
fn listens(open: &BTreeSet<SocketAddr>, ip: IpAddr, target: u16) -> bool {
    let here = open.iter().any(|at| at.ip() == ip);
    open.iter().filter(|at| at.port() == target).any(|at| {
        let all = at.ip().is_unspecified() && (at.is_ipv6() || ip.is_ipv4());
        at.ip() == ip || all || (!here && at.is_ipv6() == ip.is_ipv6())
    })
}

/// Since when ways in are closed, by node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed(BTreeMap<String, BTreeMap<ProxyPort, Instant>>);

impl Closed {
    /// What is so at `now`, by what was so before.
    pub(crate) fn next(&self, nodes: BTreeMap<String, BTreeSet<ProxyPort>>, now: Instant) -> Self {
        let since = |node: &String, port: &ProxyPort| {
            self.0.get(node).and_then(|ports| ports.get(port)).copied().unwrap_or(now)
        };
        let next = nodes.into_iter().map(|(node, ports)| {
            let ports = ports.into_iter().map(|port| (port.clone(), since(&node, &port))).collect();
            (node, ports)
        });
        Self(next.collect())
    }

    /// Those of a node that are closed.
    pub(crate) fn of(&self, node: &str) -> impl Iterator<Item = &ProxyPort> {
        self.0.get(node).into_iter().flat_map(BTreeMap::keys)
    }

    /// Those of a node that are to be told of.
    pub(crate) fn for_long(&self, node: &str, now: Instant) -> impl Iterator<Item = &ProxyPort> {
        let ports = self.0.get(node).into_iter().flatten();
        ports.filter(move |(_, since)| **since + FOLLOW <= now).map(|(port, _)| port)
    }

    /// When the next is to be told of.
    pub(crate) fn look_at(&self, now: Instant) -> Option<Instant> {
        let all = self.0.values().flat_map(BTreeMap::values);
        all.map(|since| *since + FOLLOW).filter(|due| *due > now).min()
    }
}

impl Case<'_> {
    /// What is so if active endpoints do not listen where the internal Service leads.
    pub(super) fn closed_ways_in(&self, proxies: &[&Endpoint], ways: &Closed) -> Option<Finding> {
        let closed = |endpoint: &&&Endpoint| {
            let node = endpoint.node_name.as_str();
            let ports =
                ways.for_long(node, self.now).map(|port| format!("{} for port {}", port.target, port.port));
            let ports: Vec<String> = ports.collect();
            (!ports.is_empty()).then(|| format!("{node} does not listen at {}", ports.join(", ")))
        };
        let closed: Vec<String> = proxies.iter().filter_map(|endpoint| closed(&endpoint)).collect();
        (!closed.is_empty()).then(|| {
            let message = format!(
                "{}: Service {PROXY_INTERNAL_SERVICE} leads nobody to it there, and refuses connections to that port where no other gateway \
                 listens; `edge-hub status` on the node says why",
                list(&closed)
            );
            Finding::no("WaysInClosed", message)
        })
    }

    /// What is so if ports that this Gateway lists as HTTP are served as HTTPS by what it or another one lists, or the other way round.
    pub(super) fn differing_ports(&self, merged: &Merged) -> Option<Finding> {
        let config = &self.gateway.spec.proxy_config;
        let [http, https] = [&config.proxy_http_port, &config.proxy_https_port];
        let differ = [
            differing(merged, http, true, ["proxyHTTPPort", "HTTPS", "TLS"]),
            differing(merged, https, false, ["proxyHTTPSPort", "HTTP", "plain HTTP"]),
        ];
        let differ: Vec<String> = differ.into_iter().flatten().collect();
        (!differ.is_empty()).then(|| Finding::no("PortsDiffer", differ.join("; ")))
    }
}

/// What there is to say if ports that `field` lists are served by the protocol `other`, which is HTTPS if `secure`, and so reached by `means` of that.
fn differing(
    merged: &Merged,
    listed: &str,
    secure: bool,
    [field, other, means]: [&str; 3],
) -> Option<String> {
    let differ = |port: &u16| merged.is_secure(*port) == Some(secure);
    let shown = |port: u16| match merged.lister(port) {
        Some(gateway) => format!("{port}, which Gateway {gateway} lists as {other}"),
        None => format!("{port}, which a Gateway that cannot be read lists as {other}"),
    };
    let differ: Vec<String> = ports::list(listed).filter(differ).map(shown).collect();
    (!differ.is_empty()).then(|| {
        format!(
            "{field} lists {}: Service {PROXY_INTERNAL_SERVICE} has each port once, and so that of nodes is reached by {means} alone: take it \
             from one of the lists",
            list(&differ)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::gateway::liveness::Liveness;

    fn ports() -> Vec<ProxyPort> {
        let port = |port, target| ProxyPort { name: format!("https-{port}"), port, target };
        vec![port(10250, 10263), port(9100, 10264)]
    }

    /// Where it listens, the node's address, the targets that are closed.
    type Case<'a> = (Option<&'a [&'a str]>, &'a str, &'a [u16]);

    #[test]
    fn what_a_hub_does_not_say_that_it_listens_on_is_closed() {
        let cases: [Case<'_>; 12] = [
            (None, "10.0.0.1", &[]),
            (Some(&[]), "10.0.0.1", &[10263, 10264]),
            (Some(&["10.0.0.1:10263", "10.0.0.1:10264"]), "10.0.0.1", &[]),
            (Some(&["10.0.0.1:10264"]), "10.0.0.1", &[10263]),
            (Some(&["0.0.0.0:10263", "0.0.0.0:10264"]), "10.0.0.1", &[]),
            (Some(&["0.0.0.0:10263"]), "10.0.0.1", &[10264]),
            (Some(&["0.0.0.0:10263", "0.0.0.0:10264"]), "fd00::1", &[10263, 10264]),
            (Some(&["[::]:10263", "[::]:10264"]), "10.0.0.1", &[]),
            // Something else has it in the one family.
            (Some(&["10.0.0.1:10264", "[fd00::1]:10263", "[fd00::1]:10264"]), "10.0.0.1", &[10263]),
            (Some(&["[fd00::1]:10263", "[fd00::1]:10264"]), "10.0.0.1", &[10263, 10264]),
            // The operator chose another address.
            (Some(&["192.168.9.9:10263", "192.168.9.9:10264"]), "10.0.0.1", &[]),
            (Some(&["192.168.9.9:10263"]), "10.0.0.1", &[10264]),
        ];
        for (open, ip, expected) in cases {
            let hub = Hub {
                liveness: Liveness::Alive,
                links: BTreeMap::new(),
                siblings: BTreeSet::new(),
                silent: BTreeSet::new(),
                port: None,
                ways_in: open.map(|list| list.iter().map(|at| at.parse().unwrap()).collect()),
            };
            let mut targets: Vec<u16> =
                closed(&hub, ip.parse().unwrap(), &ports()).iter().map(|port| port.target).collect();
            targets.sort_unstable();
            assert_eq!(targets, expected, "{open:?} {ip}");
        }
    }

    #[test]
    fn what_follows_in_time_is_not_told_of() {
        let start = Instant::now();
        let one = || BTreeMap::from([("c1".to_owned(), BTreeSet::from([ports().remove(0)]))]);
        let first = Closed::default().next(one(), start);
        let told = |closed: &Closed, now| closed.for_long("c1", now).count();
        assert_eq!((first.of("c1").count(), first.of("c2").count()), (1, 0));
        assert_eq!((told(&first, start), first.look_at(start)), (0, Some(start + FOLLOW)));
        let later = first.next(one(), start + FOLLOW);
        assert_eq!((told(&later, start + FOLLOW), later.look_at(start + FOLLOW)), (1, None));
        let open = later.next(BTreeMap::new(), start + FOLLOW);
        assert_eq!((told(&open, start + FOLLOW), open.of("c1").count()), (0, 0));
    }
}

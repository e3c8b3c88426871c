//! Where streams may go: a list of rules, and nothing that is not on it.
//!
//! Some addresses are never reached whatever the rules say: the metadata service of clouds (link-local), multicast,
//! the unspecified address; and loopback, but by a rule that names it.

use std::{net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;

use crate::view::Domain;

/// One kind of destination that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What.
    pub to: Destination,
    /// At which ports.
    pub ports: Vec<RangeInclusive<u16>>,
    /// For streams that come from which domains; empty is from everywhere.
    pub from: Vec<Domain>,
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Nodes of the cluster, by name or address, of all domains or of one.
    Nodes {
        /// `None`: of all.
        domain: Option<Domain>,
    },
    /// The loopback address of the node that is named: what listens on nothing else.
    NodeLoopback {
        /// `None`: of all.
        domain: Option<Domain>,
    },
    /// A name that is no node's, resolved in `domain`: exact, or `*.` and what it ends with.
    Name {
        /// The pattern, in lower case.
        pattern: String,
        /// Where the name means something.
        domain: Domain,
    },
    /// Addresses that are no node's of the domain that asks, reached from `domain`: Services and pods.
    Network {
        /// The network.
        network: IpNet,
        /// Where these addresses mean something.
        domain: Domain,
    },
}

impl Rule {
    /// Whether the rule is for streams from `from` to a port.
    pub fn covers(&self, from: &Domain, port: u16) -> bool {
        (self.from.is_empty() || self.from.contains(from))
            && self.ports.iter().any(|ports| ports.contains(&port))
    }

    /// Kubelets and the exporters usually scraped on nodes: 10250, 10255, 9100, 9445.
    pub fn kubelets() -> Self {
        let ports = [10250, 10255, 9100, 9445].map(|port| port..=port);
        Self { to: Destination::Nodes { domain: None }, ports: ports.to_vec(), from: Vec::new() }
    }
}

/// Whether `name` is what `pattern` means.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(end) => name.strip_suffix(end).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => pattern == name,
    }
}

/// Whether an address is out of reach whatever the rules say.
pub fn is_never(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    link_local || address.is_multicast() || address.is_unspecified() || address.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_labels() {
        for (pattern, name, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "x.a.b", false),
            ("*.a.b", "x.a.b", true),
            ("*.a.b", "x.y.a.b", true),
            ("*.a.b", "a.b", false),
            ("*.a.b", ".a.b", false),
            ("*.a.b", "xa.b", false),
        ] {
            assert_eq!(name_matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn some_addresses_are_never_reached() {
        for address in [
            "169.254.169.254",
            "127.0.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:169.254.169.254",
        ] {
            assert!(is_never(address.parse().unwrap()), "{address}");
        }
        for address in ["10.0.0.1", "192.168.1.10", "fd00::1", "8.8.8.8"] {
            assert!(!is_never(address.parse().unwrap()), "{address}");
        }
    }
}

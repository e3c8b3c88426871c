//! Where streams may go: a list of rules, and nothing that is not on it.
//!
//! Some addresses are never reached whatever the rules say: the metadata service of clouds (link-local), multicast,
//! the unspecified address; and loopback, but by a rule that names it.

use std::{collections::BTreeSet, net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;

use crate::view::Domain;

/// One kind of destination that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What.
    pub to: Destination,
    /// At which ports.
    pub ports: Vec<RangeInclusive<u16>>,
    /// For streams that come from where.
    pub from: Callers,
}

/// Who may use a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Callers {
    /// Streams from everywhere.
    All,
    /// Those from these domains; none are nobody.
    Of(BTreeSet<Domain>),
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
    /// Whether the rule is for streams from `from` to a port. `None` is somebody who speaks for no domain.
    pub fn covers(&self, from: Option<&Domain>, port: u16) -> bool {
        let allowed = match &self.from {
            Callers::All => true,
            Callers::Of(domains) => from.is_some_and(|from| domains.contains(from)),
        };
        allowed && self.ports.iter().any(|ports| ports.contains(&port))
    }

    /// Ports of all nodes for callers of exposed domains, the cloud's; and of the nodes of `mine` for its own. Another pool's nodes are not
    /// among them: whoever has the key of an edge node would reach the kubelets of all the others.
    pub fn nodes(
        ports: &[u16],
        mine: Option<&Domain>,
        exposed: impl IntoIterator<Item = Domain>,
    ) -> impl Iterator<Item = Self> {
        let ports: Vec<_> = ports.iter().map(|port| *port..=*port).collect();
        let of = |domain, from| Self {
            to: Destination::Nodes { domain },
            ports: ports.clone(),
            from: Callers::Of(from),
        };
        let (all, own) = (of(None, exposed.into_iter().collect()), mine.cloned());
        let own = own.map(|mine| of(Some(mine.clone()), [mine].into()));
        [all].into_iter().chain(own)
    }
}

/// Ports of kubelets and of the exporters usually scraped on nodes.
pub const KUBELETS: [u16; 4] = [10250, 10255, 9100, 9445];

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
    fn a_rule_for_nobody_covers_nobody() {
        let a = Domain::Pool("a".into());
        let rule = |from| Rule { to: Destination::Nodes { domain: None }, ports: vec![1..=2], from };
        let covers = |from| rule(from).covers(Some(&a), 2);
        assert!(covers(Callers::All) && covers(Callers::Of([a.clone()].into())));
        assert!(!covers(Callers::Of(BTreeSet::new())) && !covers(Callers::Of([Domain::Cloud].into())));
        // Who speaks for no domain has what is for everyone.
        assert!(rule(Callers::All).covers(None, 2) && !rule(Callers::Of([a.clone()].into())).covers(None, 2));
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

//! What may be reached, and by whom, as people write it: `WHAT[@WHERE]=PORT[+PORT|-PORT]…[:WHO[+WHO]…]`. Parsing, and turning it into
//! rules of the tunnel.
//!
//! Whoever speaks for the cloud may use every rule: its gateways forward for the others. Who else may is what WHO says. Where nothing is
//! said a name or a port of nodes is for everyone, as what is listed for the edge mostly is; a network, which is what an API server's
//! `EgressSelector` needs, and what listens on loopback is for the cloud alone.

use std::{collections::BTreeSet, net::IpAddr, ops::RangeInclusive, str::FromStr};

use ipnet::IpNet;
use tunnel::{
    destination::{Callers, Destination, Rule},
    view::Domain,
};

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationRule {
    what: What,
    place: Option<Place>,
    ports: Vec<RangeInclusive<u16>>,
    callers: Who,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    All,
    /// These beside the cloud.
    Cloud(BTreeSet<Place>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Nodes,
    Loopback,
    Name(String),
    Network(IpNet),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Cloud,
    Pool(String),
    Node(String),
}

/// A rule that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not WHAT[@WHERE]=PORTS[:WHO]: {1}; write nodes=9100+9445, loopback@pool/a=9091, *.svc.cluster.local=80+443:pool/a or 10.96.0.0/12@cloud=443:cloud"
)]
pub struct DestinationError(String, &'static str);

impl FromStr for DestinationRule {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let wrong = |problem| DestinationError(text.to_owned(), problem);
        let (to, ports) = text.trim().rsplit_once('=').ok_or_else(|| wrong("no ="))?;
        let (what, place) = match to.split_once('@') {
            Some((what, place)) => (what, Some(place)),
            None => (to, None),
        };
        let (ports, callers) = match ports.split_once(':') {
            Some((ports, callers)) => (ports, Some(callers)),
            None => (ports, None),
        };
        let place = place
            .map(|text| Place::read(text).ok_or_else(|| wrong("WHERE is cloud, pool/NAME or node/NAME")));
        let place = place.transpose()?;
        let what = match what {
            "nodes" => What::Nodes,
            "loopback" => What::Loopback,
            other => match network(other) {
                Some(network) => What::Network(network),
                None => What::Name(pattern(other).ok_or_else(|| wrong("neither a name nor a network"))?),
            },
        };
        let ports = ports.split('+').map(range).collect::<Option<Vec<_>>>();
        let callers = match callers {
            Some(text) => Who::read(text).ok_or_else(|| {
                wrong("WHO is all, or some of cloud, pool/NAME and node/NAME with + between them")
            })?,
            None if matches!(what, What::Network(_) | What::Loopback) => Who::Cloud(BTreeSet::new()),
            None => Who::All,
        };
        Ok(Self { what, place, ports: ports.ok_or_else(|| wrong("ports are 1 to 65535"))?, callers })
    }
}

impl Place {
    fn read(text: &str) -> Option<Self> {
        match text.split_once('/') {
            None if text == "cloud" => Some(Self::Cloud),
            Some(("pool", name)) if is_a_name(name) => Some(Self::Pool(name.to_owned())),
            Some(("node", name)) if is_a_name(name) => Some(Self::Node(name.to_owned())),
            None | Some(_) => None,
        }
    }

    fn domain(&self, cloud: &Domain) -> Domain {
        match self {
            Self::Cloud => cloud.clone(),
            Self::Pool(name) => Domain::Pool(name.clone()),
            Self::Node(name) => Domain::Solo(name.clone()),
        }
    }
}

impl Who {
    fn read(text: &str) -> Option<Self> {
        if text == "all" {
            return Some(Self::All);
        }
        text.split('+').map(Place::read).collect::<Option<BTreeSet<_>>>().map(Self::Cloud)
    }

    fn callers(&self, exposed: &BTreeSet<Domain>) -> Callers {
        let Self::Cloud(others) = self else { return Callers::All };
        let others = others.iter().filter_map(|place| match place {
            Place::Cloud => None,
            Place::Pool(_) | Place::Node(_) => Some(place.domain(&Domain::Cloud)),
        });
        Callers::Of(exposed.iter().cloned().chain(others).collect())
    }
}

/// What can be the name of a pool or a node.
fn is_a_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

fn network(text: &str) -> Option<IpNet> {
    let one = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse::<IpNet>().ok().or_else(one).map(|network| network.trunc())
}

fn pattern(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let name = text.strip_prefix("*.").unwrap_or(&text);
    matches!(tunnel::target::Host::parse(name), Ok(tunnel::target::Host::Name(_))).then_some(text)
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (1..=last).contains(&first).then_some(first..=last)
}

impl DestinationRule {
    /// As the tunnel has it. `cloud` is the domain that stands for the cloud here, `exposed` are all those that others dial.
    pub(super) fn rule(&self, cloud: &Domain, exposed: &BTreeSet<Domain>) -> Rule {
        let Self { what, place, ports, callers } = self;
        let domain = place.as_ref().map(|place| place.domain(cloud));
        let or_cloud = || domain.clone().unwrap_or_else(|| cloud.clone());
        let to = match what {
            What::Nodes => Destination::Nodes { domain },
            What::Loopback => Destination::NodeLoopback { domain },
            What::Name(pattern) => Destination::Name { pattern: pattern.clone(), domain: or_cloud() },
            What::Network(network) => Destination::Network { network: *network, domain: or_cloud() },
        };
        Rule { to, ports: ports.clone(), from: callers.callers(exposed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let cloud = Domain::Pool("gw".into());
        let exposed = [cloud.clone()].into();
        let read = |text: &str| text.parse::<DestinationRule>().unwrap().rule(&cloud, &exposed);
        let rule = |to: Destination, ports: &[RangeInclusive<u16>]| {
            let for_all = matches!(to, Destination::Nodes { .. } | Destination::Name { .. });
            let from = if for_all { Callers::All } else { Callers::Of(exposed.clone()) };
            Rule { to, ports: ports.to_vec(), from }
        };
        assert_eq!(
            read("nodes=9100+9200-9210"),
            rule(Destination::Nodes { domain: None }, &[9100..=9100, 9200..=9210])
        );
        let of_a = Some(Domain::Pool("a".into()));
        assert_eq!(read("loopback@pool/a=1"), rule(Destination::NodeLoopback { domain: of_a }, &[1..=1]));
        let name = |pattern: &str, domain: &Domain| Destination::Name {
            pattern: pattern.into(),
            domain: domain.clone(),
        };
        assert_eq!(read("*.Svc.Local=443"), rule(name("*.svc.local", &cloud), &[443..=443]));
        assert_eq!(read("db@node/n1=1-65535"), rule(name("db", &Domain::Solo("n1".into())), &[1..=65535]));
        let network =
            |text: &str| Destination::Network { network: text.parse().unwrap(), domain: cloud.clone() };
        assert_eq!(read("10.96.1.2/12@cloud=80"), rule(network("10.96.0.0/12"), &[80..=80]));
        assert_eq!(read("fd00::1=80"), rule(network("fd00::1/128"), &[80..=80]));
        for bad in [
            "",
            "nodes",
            "nodes=",
            "nodes=0",
            "nodes=2-1",
            "nodes=x",
            "a b=1",
            "a@b=1",
            "a@pool/=1",
            "*=1",
            "a..b=1",
            "a=1:",
            "a=:all",
            "a=1:b",
            "a=1:pool/",
            "a=1:all+cloud",
            "a=1:pool/a:pool/b",
            "a=1:pool/a,pool/b",
        ] {
            let error = bad.parse::<DestinationRule>().unwrap_err().to_string();
            assert!(error.contains("write nodes="), "{error}");
        }
    }
    #[test]
    fn who_may_call_is_what_is_said_and_the_cloud() {
        let (cloud, pool) = (Domain::Pool("gw".into()), |name: &str| Domain::Pool(name.to_owned()));
        let exposed: BTreeSet<Domain> = [cloud.clone(), pool("region")].into();
        let of = |others: &[Domain]| Callers::Of(exposed.iter().chain(others).cloned().collect());
        for (text, expected) in [
            ("nodes=1", Callers::All),
            ("a.b=1", Callers::All),
            // What only an API server and a scraper of the cloud need is not open to the key of an edge node because nobody was named.
            ("10.96.0.0/12=443", of(&[])),
            ("fd00::1=443", of(&[])),
            ("loopback=1", of(&[])),
            ("10.96.0.0/12=443:all", Callers::All),
            ("loopback=1:all", Callers::All),
            ("nodes=1:cloud", of(&[])),
            ("a.b=1+2-3:pool/a", of(&[pool("a")])),
            ("fd00::/8@pool/b=1:cloud+pool/a+node/s.1", of(&[pool("a"), Domain::Solo("s.1".into())])),
        ] {
            let rule = text.parse::<DestinationRule>().unwrap().rule(&cloud, &exposed);
            assert_eq!(rule.from, expected, "{text}");
        }
        // Where nobody is exposed there is no cloud to be meant.
        let rule =
            "10.96.0.0/12=443".parse::<DestinationRule>().unwrap().rule(&Domain::Cloud, &BTreeSet::new());
        assert!(!rule.covers(Some(&Domain::Cloud), 443));
    }
}

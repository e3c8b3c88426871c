//! What may be reached, as people write it: `WHAT[@WHERE]=PORT[+PORT|-PORT]…`. Parsing, and turning it into rules of the tunnel.

use std::{net::IpAddr, ops::RangeInclusive, str::FromStr};

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
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Nodes,
    Loopback,
    Name(String),
    Network(IpNet),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Cloud,
    Pool(String),
    Node(String),
}

/// A rule that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not WHAT[@WHERE]=PORTS: {1}; write nodes=9100+9445, loopback@pool/a=9091, *.svc.cluster.local=80+443 or 10.96.0.0/12@cloud=443"
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
        let place = match place.map(|place| place.split_once('/').unwrap_or((place, ""))) {
            None => None,
            Some(("cloud", "")) => Some(Place::Cloud),
            Some(("pool", name)) if !name.is_empty() => Some(Place::Pool(name.to_owned())),
            Some(("node", name)) if !name.is_empty() => Some(Place::Node(name.to_owned())),
            Some(_) => return Err(wrong("WHERE is cloud, pool/NAME or node/NAME")),
        };
        let what = match what {
            "nodes" => What::Nodes,
            "loopback" => What::Loopback,
            other => match network(other) {
                Some(network) => What::Network(network),
                None => What::Name(pattern(other).ok_or_else(|| wrong("neither a name nor a network"))?),
            },
        };
        let ports = ports.split('+').map(range).collect::<Option<Vec<_>>>();
        Ok(Self { what, place, ports: ports.ok_or_else(|| wrong("ports are 1 to 65535"))? })
    }
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
    /// As the tunnel has it. `cloud` is the domain that stands for the cloud here.
    pub(super) fn rule(&self, cloud: &Domain) -> Rule {
        let Self { what, place, ports } = self;
        let domain = place.as_ref().map(|place| match place {
            Place::Cloud => cloud.clone(),
            Place::Pool(name) => Domain::Pool(name.clone()),
            Place::Node(name) => Domain::Solo(name.clone()),
        });
        let or_cloud = || domain.clone().unwrap_or_else(|| cloud.clone());
        let to = match what {
            What::Nodes => Destination::Nodes { domain },
            What::Loopback => Destination::NodeLoopback { domain },
            What::Name(pattern) => Destination::Name { pattern: pattern.clone(), domain: or_cloud() },
            What::Network(network) => Destination::Network { network: *network, domain: or_cloud() },
        };
        Rule { to, ports: ports.clone(), from: Callers::All }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let cloud = Domain::Pool("gw".into());
        let read = |text: &str| text.parse::<DestinationRule>().unwrap().rule(&cloud);
        let rule = |to, ports: &[RangeInclusive<u16>]| Rule { to, ports: ports.to_vec(), from: Callers::All };
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
        ] {
            let error = bad.parse::<DestinationRule>().unwrap_err().to_string();
            assert!(error.contains("write nodes="), "{error}");
        }
    }
}

//! What a gateway tells the cluster of itself: the object, and what stands in it. Pure. It is a ConfigMap and no Lease, because
//! the admission plugin `NodeRestriction` lets nodes write no Lease but the kubelet's.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use api::{
    annotations::TUNNEL_REPORT,
    names::{NAMESPACE, gateway_lease},
    raven::tunnel_report::{PACKED_REPORT, ReportError, ReportedLink, StoredReport, TunnelReport},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tunnel::{
    links::table::{LinkStatus, LinkTable},
    route::Direction,
};

/// Where reports are.
pub(super) const COLLECTION: &str = "/api/v1/namespaces/kube-system/configmaps";

/// How often a report is written anew though nothing changed.
pub(super) const BEAT: Duration = Duration::from_millis(1500);

/// After how long without one the gateway counts as dead.
const LIFE_SECONDS: u64 = 4;

/// What of its tunnels a gateway reports.
pub(super) struct Tunnels {
    links: Vec<LinkStatus>,
    silent: BTreeSet<String>,
    ways_in: BTreeSet<SocketAddr>,
}

impl Tunnels {
    /// As they are now, with the ways in that listen.
    pub(super) fn of(table: &LinkTable, ways_in: BTreeSet<SocketAddr>) -> Self {
        // In this order: of a link that goes in between it is known why.
        let links = table.snapshot();
        Self { links, silent: table.silent(), ways_in }
    }
}

/// The report of these tunnels, whose links are accepted at `port`. A round trip that is much what it was before is told as before.
pub(super) fn report(instance: &str, port: u16, tunnels: &Tunnels, before: &TunnelReport) -> TunnelReport {
    let Tunnels { links, silent, ways_in } = tunnels;
    let mut nodes: BTreeMap<&str, Option<Duration>> = BTreeMap::new();
    let reverse = |link: &&LinkStatus| link.asking && link.direction == Direction::Reverse && !link.draining;
    for link in links.iter().filter(reverse) {
        let shortest = nodes.entry(&link.peer).or_default();
        *shortest = shortest.iter().copied().chain(link.round_trip).min();
    }
    // Edge nodes dial this one; those that it dials are gateways.
    let dialled = links.iter().filter(|link| link.asking && link.direction == Direction::Forward);
    let siblings: BTreeSet<&str> =
        dialled.filter(|link| !link.draining).map(|link| link.peer.as_str()).collect();
    let siblings = siblings.into_iter().map(str::to_owned).collect();
    let silent = silent.iter().filter(|node| !nodes.contains_key(node.as_str())).cloned().collect();
    let before: BTreeMap<&str, i32> =
        before.links.iter().map(|link| (link.node.as_str(), link.round_trip_millis)).collect();
    let links = nodes
        .into_iter()
        .map(|(node, round_trip)| {
            let known = before.get(node).copied();
            let round_trip_millis = match (round_trip.map(millis), known) {
                (Some(new), Some(old)) if i64::from(new - old).abs() * 4 < i64::from(old) => old,
                (Some(new), _) => new,
                (None, known) => known.unwrap_or_default(),
            };
            ReportedLink { node: node.to_owned(), round_trip_millis }
        })
        .collect();
    let ways_in = Some(ways_in.iter().copied().collect());
    TunnelReport { instance: instance.to_owned(), links, siblings, silent, port: Some(port), ways_in }
}

fn millis(round_trip: Duration) -> i32 {
    i32::try_from(round_trip.as_millis()).unwrap_or(i32::MAX).max(1)
}

/// The object, as it is to be; `holder` is empty at the end.
pub(super) fn object(
    node: &str,
    holder: &str,
    report: &TunnelReport,
    now: Timestamp,
    version: Option<&str>,
) -> Result<Value, ReportError> {
    let StoredReport { annotation, packed } = StoredReport::new(report)?;
    let mut metadata = json!({ "name": gateway_lease(node), "namespace": NAMESPACE });
    if let Some(annotation) = annotation {
        metadata["annotations"] = json!({ TUNNEL_REPORT: annotation });
    }
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
    }
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {
            "holderIdentity": holder,
            "leaseDurationSeconds": LIFE_SECONDS.to_string(),
            "renewTime": format!("{now:.6}"),
        },
    });
    if let Some(packed) = packed {
        object["binaryData"] = json!({ PACKED_REPORT: packed });
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use tunnel::protocol::Class;

    use super::*;

    fn link(peer: &str, direction: Direction, round_trip: Option<u64>, draining: bool) -> LinkStatus {
        LinkStatus {
            peer: peer.to_owned(),
            direction,
            asking: direction == Direction::Reverse,
            class: Class::Bulk,
            up: Duration::ZERO,
            round_trip: round_trip.map(Duration::from_micros),
            streams: 0,
            draining,
            received: 0,
            sent: 0,
        }
    }

    fn of(links: impl Into<Vec<LinkStatus>>) -> Tunnels {
        Tunnels { links: links.into(), silent: BTreeSet::new(), ways_in: BTreeSet::new() }
    }

    #[test]
    fn who_fell_silent_is_reported_unless_it_has_a_link_again() {
        let silent = ["a", "b"].map(str::to_owned).into();
        let tunnels = Tunnels { silent, ..of([link("b", Direction::Reverse, None, false)]) };
        assert_eq!(report("i", 10262, &tunnels, &TunnelReport::default()).silent, ["a"]);
    }

    /// Also that there is none is said: who says nothing of them is taken to listen everywhere.
    #[test]
    fn ways_in_that_listen_are_reported() {
        let ways_in = |list: &[&str]| {
            let ways_in = list.iter().map(|address| address.parse().unwrap()).collect();
            let told = report("i", 10262, &Tunnels { ways_in, ..of([]) }, &TunnelReport::default()).ways_in;
            told.map(|ways| ways.iter().map(SocketAddr::to_string).collect::<Vec<_>>())
        };
        assert_eq!(ways_in(&[]), Some(Vec::new()));
        assert_eq!(
            ways_in(&["[fd00::1]:10263", "10.0.0.1:10264", "10.0.0.1:10263"]),
            Some(["10.0.0.1:10263", "10.0.0.1:10264", "[fd00::1]:10263"].map(str::to_owned).into())
        );
    }

    #[test]
    fn nodes_with_a_reverse_link_are_reported_once() {
        let links = [
            link("b", Direction::Reverse, Some(12_400), false),
            link("b", Direction::Reverse, Some(9_900), false),
            link("a", Direction::Reverse, Some(80), false),
            link("c", Direction::Forward, Some(5_000), false),
            link("d", Direction::Reverse, Some(5_000), true),
            link("e", Direction::Reverse, None, false),
        ];
        let first = report("i", 10262, &of(links), &TunnelReport::default());
        assert_eq!(first.port, Some(10262));
        let told = |report: &TunnelReport| -> Vec<(String, i32)> {
            report.links.iter().map(|link| (link.node.clone(), link.round_trip_millis)).collect()
        };
        assert_eq!(told(&first), [("a".to_owned(), 1), ("b".to_owned(), 9), ("e".to_owned(), 0)]);
        let later =
            |micros| told(&report("i", 10262, &of([link("b", Direction::Reverse, micros, false)]), &first));
        assert_eq!(later(Some(11_000)), [("b".to_owned(), 9)], "less than a quarter");
        assert_eq!(later(Some(12_000)), [("b".to_owned(), 12)]);
        assert_eq!(later(None), [("b".to_owned(), 9)]);
    }

    #[test]
    fn gateways_that_this_one_dialled_are_reported_once() {
        let forward = |peer: &str, asking, draining| LinkStatus {
            asking,
            ..link(peer, Direction::Forward, None, draining)
        };
        let links = [
            forward("g3", true, false),
            forward("g2", true, false),
            forward("g2", true, true),
            forward("g4", true, true),
            forward("edge", false, false),
            link("edge", Direction::Reverse, None, false),
        ];
        assert_eq!(report("i", 10262, &of(links), &TunnelReport::default()).siblings, ["g2", "g3"]);
    }

    #[test]
    fn the_object_is_that_of_the_node() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let made = object("n", "", &TunnelReport::default(), now, Some("7")).unwrap();
        assert_eq!(made["metadata"]["name"], "isthmus-gateway-n");
        assert_eq!(made["metadata"]["resourceVersion"], "7");
        assert_eq!(made["data"]["renewTime"], "2023-11-14T22:13:20.000000Z");
        let report: TunnelReport =
            serde_json::from_str(made["metadata"]["annotations"][TUNNEL_REPORT].as_str().unwrap()).unwrap();
        assert_eq!(report, TunnelReport::default());
        let new = object("n", "i", &report, now, None).unwrap();
        assert!(new["metadata"].get("resourceVersion").is_none());
    }

    #[test]
    fn a_report_of_thousands_of_links_is_an_object_that_the_api_server_takes() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let links: Vec<LinkStatus> = (0..10_000)
            .map(|number| link(&format!("store-{number:05}"), Direction::Reverse, Some(number * 37), false))
            .collect();
        let report = report("i", 10262, &of(links), &TunnelReport::default());
        let made = object("n", "i", &report, now, None).unwrap();
        assert!(made["metadata"].get("annotations").is_none(), "256 KiB at most");
        assert!(made.to_string().len() < 200_000);
        let stored = StoredReport::of(&serde_json::from_value(made).unwrap());
        assert_eq!(stored.read().unwrap().links.len(), 10_000);
    }
}

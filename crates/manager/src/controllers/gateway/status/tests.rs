use std::sync::Arc;

use kube::runtime::events::EventType;
use serde_json::json;

use super::*;
use crate::controllers::gateway::accepting::Lacking;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 5);

fn verdict(status: Option<GatewayStatus>) -> Verdict {
    let mut gateway: Gateway = serde_json::from_value(json!({
        "metadata": { "name": "shop", "generation": 7 },
        "spec": { "endpoints": [{ "nodeName": "a", "type": "proxy" }, { "nodeName": "b", "type": "proxy" }] },
    }))
    .unwrap();
    gateway.status = status;
    let active = gateway.spec.endpoints[..1].to_vec();
    let link = GatewayLink { node_name: "a".into(), gateway: "c1".into(), round_trip_millis: 20 };
    Verdict {
        gateway: Arc::new(gateway),
        nodes: Vec::new(),
        active,
        addresses: Vec::new(),
        links: vec![link.clone(), GatewayLink { gateway: "c2".into(), round_trip_millis: 35, ..link }],
        elected: Finding::yes("Elected", "active: a".into()),
        exposed: None,
        connected: Finding::yes("Connected", "a via c1, c2".into()),
        link_port: 10262,
        lacking: Lacking::default(),
    }
}

#[test]
fn a_status_says_at_a_glance_who_is_connected_and_where() {
    let status = compute(&verdict(None), NOW);
    assert_eq!(
        (status.proxy_endpoints.as_str(), status.connected_to.as_str(), status.round_trip.as_str()),
        ("1/1", "c1,c2", "20ms")
    );
    assert_eq!(status.observed_generation, Some(7));
    let mut more = verdict(None);
    Arc::make_mut(&mut more.gateway).spec.proxy_config.replicas = 2;
    assert_eq!(compute(&more, NOW).proxy_endpoints, "1/2");
    let conditions: Vec<_> =
        status.conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str())).collect();
    assert_eq!(conditions, [("Connected", "True"), ("Elected", "True")]);
    // The same again is the same: nothing is written.
    assert_eq!(compute(&verdict(Some(status.clone())), NOW + Duration::from_mins(1)), status);
}

#[test]
fn round_trip_times_stay_while_they_change_a_little() {
    let before = compute(&verdict(None), NOW);
    for (millis, shown) in [(15, "20ms"), (25, "20ms"), (26, "26ms"), (14, "14ms")] {
        let mut verdict = verdict(Some(before.clone()));
        verdict.links[0].round_trip_millis = millis;
        let status = compute(&verdict, NOW);
        assert_eq!(status.round_trip, shown, "{millis}");
        assert_eq!(status == before, shown == "20ms");
        assert!(differ_in_times_only(&before, &status));
    }
    let mut verdict = verdict(Some(before.clone()));
    verdict.links.pop();
    assert!(!differ_in_times_only(&before, &compute(&verdict, NOW)));
}

#[test]
fn who_is_linked_to_an_exposed_gateway_is_written_no_more_often_than_times() {
    let accepting = |names: &str| {
        let mut verdict = verdict(None);
        verdict.connected = Finding::yes(ACCEPTING, format!("links of {names} are accepted by c1"));
        compute(&verdict, NOW)
    };
    assert_ne!(accepting("a"), accepting("a, b"));
    assert!(differ_in_times_only(&accepting("a"), &accepting("a, b")));
    let mut verdict = verdict(None);
    verdict.connected = Finding::no("NoTunnel", "no hub of an active endpoint accepts links");
    assert!(!differ_in_times_only(&accepting("a"), &compute(&verdict, NOW)));
}

#[test]
fn events_tell_of_changes_only() {
    let told = |before: Option<&GatewayStatus>, after: &GatewayStatus| -> Vec<String> {
        let word = |event: &Event| {
            format!("{}{}", if event.type_ == EventType::Normal { "" } else { "!" }, event.reason)
        };
        changes(before, after).iter().map(word).collect()
    };
    let first = compute(&verdict(None), NOW);
    assert_eq!(told(None, &first), ["ActiveEndpointElected"]);
    assert_eq!(told(Some(&first), &first), Vec::<String>::new());
    let mut moved = verdict(Some(first.clone()));
    moved.active = moved.gateway.spec.endpoints[1..].to_vec();
    moved.links.clear();
    moved.connected = Finding::no("NoTunnel", "none of b has a link");
    let moved = compute(&moved, NOW);
    assert_eq!(told(Some(&first), &moved), ["ActiveEndpointElected", "!ActiveEndpointLost", "!NoTunnel"]);
    assert_eq!(told(Some(&moved), &first), ["ActiveEndpointElected", "!ActiveEndpointLost", "Connected"]);
}

/// It is connected all the same, so its status does not change, and somebody should look.
#[test]
fn events_tell_of_a_gateway_that_is_connected_in_part() {
    let of = |finding: Finding| {
        let mut verdict = verdict(None);
        verdict.connected = finding;
        compute(&verdict, NOW)
    };
    let (whole, partly) = (
        of(Finding::yes("Connected", "a, b via c1".into())),
        of(Finding::yes(PARTLY, "a via c1; without a link is b".into())),
    );
    let none = of(Finding::no("NoTunnel", "none of a, b has a link"));
    let more = of(Finding::yes(PARTLY, "a via c1, c2; without a link is b".into()));
    let told = |before: &GatewayStatus, after: &GatewayStatus| -> Vec<(bool, String)> {
        let words = |event: &Event| (event.type_ == EventType::Normal, event.reason.clone());
        changes(Some(before), after).iter().map(words).collect()
    };
    let one = |good, reason: &str| vec![(good, reason.to_owned())];
    assert_eq!(told(&whole, &partly), one(false, "PartlyConnected"));
    assert_eq!(told(&partly, &whole), one(true, "Connected"));
    assert_eq!((told(&partly, &partly), told(&partly, &more)), (vec![], vec![]));
    let many = of(Finding::no("TooManyNodes", "1 of 1025 nodes are not reached"));
    for before in [&none, &many, &GatewayStatus { conditions: Vec::new(), ..whole.clone() }] {
        assert_eq!(told(before, &partly), one(false, "PartlyConnected"), "{before:?}");
    }
    assert_eq!(told(&none, &whole), one(true, "Connected"));
    assert_eq!(told(&partly, &none), one(false, "NoTunnel"));
    // Which of them is linked to whom is written as seldom as round-trip times; that it has begun, at once.
    assert!(differ_in_times_only(&partly, &more) && !differ_in_times_only(&whole, &partly));
}

#[test]
fn what_is_no_longer_said_is_removed() {
    let mut idle = verdict(None);
    idle.links.clear();
    let patch = whole(&compute(&idle, NOW));
    for field in ["activeEndpoint", "addresses", "links"] {
        assert_eq!(patch.get(field), Some(&Value::Null), "{field}");
    }
    assert_eq!((&patch["connectedTo"], &patch["roundTrip"]), (&json!(""), &json!("")));
}

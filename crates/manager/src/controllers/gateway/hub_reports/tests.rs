use api::annotations::TUNNEL_REPORT;
use api::raven::tunnel_report::{PACKED_REPORT, ReportedLink, TunnelReport};
use serde_json::{Value, json};

use super::*;
use crate::controllers::gateway::liveness::{LIFE, MISSED_LIFE};

fn report(version: u32, holder: &str, links: &Value) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {
            "name": "isthmus-gateway-c1", "resourceVersion": version.to_string(),
            "annotations": { (TUNNEL_REPORT): links.as_str().map_or_else(|| links.to_string(), str::to_owned) },
        },
        "data": { "holderIdentity": holder, "leaseDurationSeconds": "100000" },
    }))
    .unwrap()
}

#[test]
fn only_what_says_something_new_is_told() {
    let reports = HubReports::default();
    let one = json!({ "instance": "x", "links": [{ "node": "e1", "roundTripMillis": 0 }], "newer": 1 });
    let cases = [
        ("first", report(1, "c1", &json!({ "instance": "x" })), true),
        ("the first renewal shows that it is alive", report(2, "c1", &json!({ "instance": "x" })), true),
        ("a renewal", report(3, "c1", &json!({ "instance": "x" })), false),
        ("an older one", report(2, "c1", &one), false),
        ("a link", report(4, "c1", &one), true),
        (
            "the same in other words",
            report(5, "c1", &json!({ "instance": "y", "links": one["links"] })),
            false,
        ),
        (
            "a sibling",
            report(6, "c1", &json!({ "instance": "y", "links": one["links"], "siblings": ["c2"] })),
            true,
        ),
        (
            "another port",
            report(7, "c1", &json!({ "instance": "y", "links": one["links"], "port": 443 })),
            true,
        ),
        (
            "a way in",
            report(
                8,
                "c1",
                &json!({ "instance": "y", "links": one["links"], "port": 443, "waysIn": ["10.0.0.1:10263"] }),
            ),
            true,
        ),
        (
            "no way in",
            report(9, "c1", &json!({ "instance": "y", "links": one["links"], "port": 443, "waysIn": [] })),
            true,
        ),
        ("garbage", report(10, "c1", &json!("{")), true),
        ("who fell silent", report(11, "c1", &json!({ "instance": "y", "silent": ["e1"] })), true),
        ("a link again", report(12, "c1", &one), true),
        ("the end", report(13, "", &one), true),
    ];
    for (what, report, news) in cases {
        assert_eq!(!reports.apply(&report, Instant::now()).is_empty(), news, "{what}");
    }
    let other: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "coredns" } })).unwrap();
    assert!(reports.apply(&other, Instant::now()).is_empty());
    let now = Instant::now();
    let hubs = reports.at(now);
    assert_eq!(hubs.keys().collect::<Vec<_>>(), ["c1"]);
    assert_eq!(
        (hubs["c1"].liveness, &hubs["c1"].links),
        (Liveness::Dead, &BTreeMap::from([("e1".to_owned(), 0)]))
    );
    assert_eq!(reports.replace(&[], Instant::now()), ["c1".to_owned()].into());
}

#[test]
fn a_packed_report_counts_as_the_annotation_did() {
    let reports = HubReports::default();
    reports.apply(&report(1, "c1", &json!({ "instance": "x" })), Instant::now());
    let link = |number| ReportedLink { node: format!("e{number}"), round_trip_millis: 1 };
    let long = TunnelReport { links: (0..10_000).map(link).collect(), ..TunnelReport::default() };
    let mut packed = report(2, "c1", &Value::Null);
    packed.metadata.annotations = None;
    let stored = StoredReport::new(&long).unwrap().packed.unwrap();
    packed.binary_data = Some([(PACKED_REPORT.to_owned(), stored)].into());
    assert!(!reports.apply(&packed, Instant::now()).is_empty());
    assert_eq!(reports.at(Instant::now())["c1"].links.len(), 10_000);
    packed.metadata.resource_version = Some("3".to_owned());
    assert!(reports.apply(&packed, Instant::now()).is_empty(), "a renewal");
}

#[test]
fn a_report_that_should_have_changed_is_asked_for_once() {
    let reports = HubReports::default();
    let links = json!({ "instance": "x" });
    reports.apply(&report(1, "c1", &links), Instant::now());
    let later = Instant::now() + LIFE;
    assert!(reports.next_end(Instant::now()).is_some_and(|end| end <= later));
    assert_eq!(reports.suspects(later), [("c1".to_owned(), "1".to_owned())]);
    assert!(!reports.lapse("c1", "0", later), "another version was asked for");
    assert_eq!(reports.at(later)["c1"].liveness, Liveness::Suspect);
    assert!(reports.lapse("c1", "1", later));
    assert_eq!((reports.at(later)["c1"].liveness, reports.suspects(later).len()), (Liveness::Silent, 0));
    assert!(!reports.apply(&report(2, "c1", &links), Instant::now()).is_empty(), "it is back");
    assert_eq!(reports.at(Instant::now())["c1"].liveness, Liveness::Alive);
}

/// Its death is in the others' reports before its own lapses.
#[test]
fn a_hub_that_others_lost_has_one_beat_to_show_that_it_lives() {
    let of = |node: &str, version, holder: &str, siblings: &[&str]| {
        let mut report = report(version, holder, &json!({ "instance": "x", "siblings": siblings }));
        report.metadata.name = Some(format!("isthmus-gateway-{node}"));
        report
    };
    let at_first = || {
        let (reports, start) = (HubReports::default(), Instant::now());
        for (version, node) in [(1, "c1"), (2, "c2"), (3, "c1"), (4, "c2")] {
            reports.apply(&of(node, version, node, &["c1", "c2", "gone"]), start);
        }
        (reports, start)
    };
    let (reports, start) = at_first();
    let suspects = |reports: &HubReports, now| {
        reports.suspects(now).into_iter().map(|(node, _)| node).collect::<Vec<_>>()
    };
    assert_eq!(suspects(&reports, start + MISSED_LIFE), [""; 0]);
    assert!(!reports.apply(&of("c2", 5, "c2", &["gone"]), start + Duration::from_secs(1)).is_empty());
    assert_eq!(suspects(&reports, start + Duration::from_millis(1_999)), [""; 0]);
    assert_eq!(reports.next_end(start + Duration::from_secs(1)), Some(start + MISSED_LIFE));
    assert_eq!(suspects(&reports, start + MISSED_LIFE), ["c1"]);
    // It was the link alone: it reports.
    reports.apply(&of("c1", 6, "c1", &[]), start + MISSED_LIFE);
    assert_eq!(suspects(&reports, start + Duration::from_millis(3_999)), ["c2"]);
    // Another that lives has a link to it, so it was not its end.
    let (reports, start) = at_first();
    reports.apply(&of("c3", 5, "c3", &["c1"]), start);
    reports.apply(&of("c3", 6, "c3", &["c1"]), start);
    reports.apply(&of("c2", 7, "c2", &["gone"]), start);
    assert_eq!(suspects(&reports, start + MISSED_LIFE), [""; 0]);
    // One that began anew had no links yet.
    let (reports, start) = at_first();
    reports.apply(&of("c2", 5, "c2 again", &[]), start);
    assert_eq!(suspects(&reports, start + MISSED_LIFE), [""; 0]);
    // One that ends has no links, and that says nothing of others.
    let (reports, start) = at_first();
    reports.apply(&of("c2", 5, "", &[]), start);
    assert_eq!(suspects(&reports, start + MISSED_LIFE), [""; 0]);
    assert_eq!(suspects(&reports, start + LIFE), ["c1"]);
}

/// The report of one hub was known when the API server went away; what it said, and a time at which it may be back.
fn after_an_interruption() -> (HubReports, Value, Instant) {
    let (reports, links, start) = (HubReports::default(), json!({ "instance": "x" }), Instant::now());
    reports.apply(&report(1, "c1", &links), start);
    reports.interrupted();
    (reports, links, start + Duration::from_mins(1))
}

#[test]
fn nobody_lapses_for_an_api_server_that_was_away() {
    let (reports, links, back) = after_an_interruption();
    for (after, silent) in [(0, false), (7_999, false), (8_000, true)] {
        let now = back + Duration::from_millis(after);
        assert_eq!(reports.lapse("c1", "1", now), silent, "{after}");
        let expected = if silent { Liveness::Silent } else { Liveness::Suspect };
        assert_eq!(reports.at(now)["c1"].liveness, expected, "{after}");
    }
    // Another report shows as well that the API server is back, and a later interruption begins anew.
    reports.interrupted();
    reports.apply(&report(2, "c1", &links), back + RETURN);
    assert!(!reports.lapse("c1", "2", back + RETURN));
    assert!(reports.lapse("c1", "2", back + RETURN * 2));
}

#[test]
fn a_hub_that_is_back_has_no_more_time_than_any_other() {
    let (reports, links, back) = after_an_interruption();
    // The first may be of before.
    reports.apply(&report(2, "c1", &links), back);
    assert!(!reports.lapse("c1", "2", back + LIFE));
    reports.apply(&report(3, "c1", &links), back + LIFE);
    assert!(reports.lapse("c1", "3", back + LIFE * 2));
    assert!(back + LIFE * 2 < back + RETURN);
}

/// A watch that goes on from a version that etcd has not come to again tells nothing, and a list tells of lower ones.
#[test]
fn a_report_of_a_restored_etcd_is_taken_though_its_version_is_lower() {
    let link = |node: &str| json!({ "instance": "x", "links": [{ "node": node, "roundTripMillis": 1 }] });
    let links = |reports: &HubReports, now| reports.at(now)["c1"].links.keys().cloned().collect::<Vec<_>>();
    let at_first = || {
        let (reports, start) = (HubReports::default(), Instant::now());
        reports.apply(&report(1_000, "c1", &link("before")), start);
        reports.apply(&report(1_001, "c1", &link("before")), start);
        (reports, start + LIFE)
    };
    for listed in [false, true] {
        let (reports, now) = at_first();
        let told = reports.restored();
        let [restored, written] =
            [(50, "restored"), (51, "after")].map(|(n, node)| report(n, "c1", &link(node)));
        let take = |config: &ConfigMap, seen: &str, now| {
            if listed {
                reports.replace(std::slice::from_ref(config), now)
            } else {
                reports.answer(config, seen, now)
            }
        };
        // What is there now may be of one that is dead.
        assert!(!take(&restored, "1001", now).is_empty());
        assert_eq!(
            (reports.at(now)["c1"].liveness, &links(&reports, now)[..]),
            (Liveness::Unknown, &["restored".to_owned()][..])
        );
        assert_eq!(reports.suspects(now + LIFE), [("c1".to_owned(), "50".to_owned())]);
        // Whoever watches lists anew; a list that says so is one already.
        assert_eq!(told.has_changed().unwrap(), !listed);
        // The same again is no change, another one is.
        assert!(take(&restored, "50", now + LIFE).is_empty());
        assert!(!take(&written, "50", now + LIFE).is_empty());
        assert_eq!(reports.at(now + LIFE)["c1"].liveness, Liveness::Alive);
        // And so the watch tells what comes next.
        assert!(!reports.apply(&report(52, "c1", &link("later")), now + LIFE).is_empty());
        assert_eq!(links(&reports, now + LIFE), ["later"]);
    }
    // An answer that is overtaken by the watch is an old one.
    let (reports, now) = at_first();
    reports.apply(&report(1_002, "c1", &link("newest")), now);
    assert!(reports.answer(&report(1_000, "c1", &link("old")), "1001", now).is_empty());
    assert_eq!(links(&reports, now), ["newest"]);
}

/// It is asked for twice a second for as long as its hub may take to return, and a list that begins anew each time may never be whole.
#[test]
fn watches_begin_anew_once_for_a_report_that_is_not_there_and_seldom_again() {
    let (reports, start) = (HubReports::default(), Instant::now());
    let of = |node: &str, version| {
        let mut report = report(version, node, &json!({ "instance": "x" }));
        report.metadata.name = Some(format!("isthmus-gateway-{node}"));
        report
    };
    reports.apply(&of("c1", 1), start);
    reports.apply(&of("c2", 2), start);
    let mut told = reports.restored();
    let mut begins = |node: &str, seen: &str, after: u64| {
        reports.missing(node, seen, start + Duration::from_secs(after));
        let begins = told.has_changed().unwrap();
        told.mark_unchanged();
        begins
    };
    for (what, node, seen, after, expected) in [
        ("the first time", "c1", "1", 10, true),
        ("the same again", "c1", "1", 11, false),
        ("another", "c2", "2", 11, true),
        ("the first is not new for that", "c1", "1", 14, false),
        ("after a while", "c1", "1", 15, true),
        ("which grows", "c1", "1", 20, false),
        ("to twice as much", "c1", "1", 25, true),
        ("and each has its own", "c2", "2", 25, true),
        ("for days", "c1", "1", 100_000, true),
        ("but no further than that", "c1", "1", 100_299, false),
        ("so that it is never given up", "c1", "1", 100_300, true),
    ] {
        if what == "for days" {
            for turn in 1..=20 {
                begins(node, seen, 1_000 * turn);
            }
        }
        assert_eq!(begins(node, seen, after), expected, "{what}");
    }
    // The watch has told of it since it was asked for.
    reports.apply(&of("c1", 3), start);
    assert!(!begins("c1", "1", 200_000));
    assert!(begins("c1", "3", 200_000), "and it is gone again");
    assert_eq!(reports.absences.lock().nodes(), ["c1", "c2"]);
    // What the watches have told is forgotten.
    reports.replace(&[of("c1", 3)], start);
    assert!(!begins("c1", "3", 200_001));
    assert_eq!(reports.absences.lock().nodes(), ["c1"]);
}

/// A report that should have changed is asked for at any time, and a list takes a while.
#[test]
fn what_was_answered_while_a_list_was_on_its_way_is_not_undone_by_it() {
    let configs = ConfigMaps::default();
    let of = |version| report(version, "c1", &json!({ "instance": "x" }));
    let known = || {
        let alive = configs.hubs.at(Instant::now())["c1"].liveness;
        (alive, configs.hubs.entries.read()["c1"].resource_version.clone())
    };
    for version in [1, 2] {
        configs.apply(of(version));
    }
    configs.listing();
    configs.hubs.answer(&of(4), "2", Instant::now());
    assert!(configs.replace(vec![of(3)]).is_empty());
    assert_eq!(known(), (Liveness::Alive, "4".to_owned()));
    // Whoever is on no list is gone, or the watch tells of it at once.
    configs.listing();
    configs.hubs.answer(&of(5), "4", Instant::now());
    assert_eq!(configs.replace(vec![]), ["c1".to_owned()].into());
    // What was known before a list that has less: etcd was restored.
    for version in [6, 7] {
        configs.apply(of(version));
    }
    std::thread::sleep(Duration::from_millis(1));
    configs.listing();
    assert_eq!(configs.replace(vec![of(3)]), ["c1".to_owned()].into());
    assert_eq!(known(), (Liveness::Unknown, "3".to_owned()));
}

use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn changes(pairs: &[(&str, Option<&str>)]) -> Changes {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect()
}

fn taint(key: &str, value: &str, effect: &str) -> NodeTaint {
    NodeTaint { key: key.into(), value: Some(value.into()), effect: effect.into(), ..NodeTaint::default() }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn maps_merge_as_promised() {
    struct Case {
        name: &'static str,
        wanted: &'static [(&'static str, &'static str)],
        owned: &'static [(&'static str, &'static str)],
        covered: &'static [(&'static str, &'static str)],
        actual: &'static [(&'static str, &'static str)],
        changes: &'static [(&'static str, Option<&'static str>)],
        covered_after: &'static [(&'static str, &'static str)],
    }
    let none = Case {
        name: "nothing wanted, nothing owned: nothing is touched",
        wanted: &[],
        owned: &[],
        covered: &[],
        actual: &[("a", "1")],
        changes: &[],
        covered_after: &[],
    };
    let cases = [
        Case {
            name: "a new key is added",
            wanted: &[("a", "1")],
            actual: &[],
            changes: &[("a", Some("1"))],
            ..none
        },
        Case {
            name: "a node's own value is covered",
            wanted: &[("a", "1")],
            actual: &[("a", "own")],
            changes: &[("a", Some("1"))],
            covered_after: &[("a", "own")],
            ..none
        },
        Case {
            name: "a node's own value is covered even where it is the same",
            wanted: &[("a", "1")],
            actual: &[("a", "1")],
            covered_after: &[("a", "1")],
            ..none
        },
        Case {
            name: "drift is repaired and is not the node's own",
            wanted: &[("a", "1")],
            owned: &[("a", "1")],
            actual: &[("a", "drift")],
            changes: &[("a", Some("1"))],
            ..none
        },
        Case {
            name: "what was owned goes",
            owned: &[("a", "1")],
            actual: &[("a", "1"), ("b", "2")],
            changes: &[("a", None)],
            ..none
        },
        Case {
            name: "the node's own value comes back",
            owned: &[("a", "1")],
            covered: &[("a", "own")],
            actual: &[("a", "1")],
            changes: &[("a", Some("own"))],
            ..none
        },
        Case {
            name: "the node's own value comes back where it was the same, without a write",
            owned: &[("a", "1")],
            covered: &[("a", "1")],
            actual: &[("a", "1")],
            ..none
        },
        Case {
            name: "the node's own value comes back after somebody removed the pool's",
            owned: &[("a", "1")],
            covered: &[("a", "own")],
            actual: &[],
            changes: &[("a", Some("own"))],
            ..none
        },
        Case {
            name: "a value written by somebody else since stays",
            owned: &[("a", "1")],
            covered: &[("a", "own")],
            actual: &[("a", "theirs")],
            ..none
        },
        Case { name: "gone already", owned: &[("a", "1")], actual: &[], ..none },
        Case {
            name: "a pool's new value",
            wanted: &[("a", "2")],
            owned: &[("a", "1")],
            covered: &[("a", "own")],
            actual: &[("a", "1")],
            changes: &[("a", Some("2"))],
            covered_after: &[("a", "own")],
        },
        none,
    ];
    for case in cases {
        let mut covered = map(case.covered);
        let got =
            merge_map(&map(case.wanted), &map(case.owned), &mut covered, &map(case.actual), |_, _| true);
        assert_eq!(got, changes(case.changes), "{}", case.name);
        assert_eq!(covered, map(case.covered_after), "{}: covered", case.name);
    }
}

#[test]
fn what_may_not_be_covered_is_not_remembered() {
    let mut covered = BTreeMap::new();
    merge_map(&map(&[("a", "1")]), &map(&[]), &mut covered, &map(&[("a", "1")]), |_, _| false);
    assert_eq!(covered, map(&[]));
}

#[test]
fn taints_merge_by_key_and_effect() {
    let own = taint("k", "own", "NoSchedule");
    let pool = taint("k", "pool", "NoSchedule");
    let other = taint("node.kubernetes.io/not-ready", "", "NoExecute");
    let mut covered = Vec::new();
    let actual = [other.clone(), own.clone()];
    let merged = merge_taints(std::slice::from_ref(&pool), &[], &mut covered, &actual, |_| true).unwrap();
    assert_eq!((merged.clone(), covered.clone()), (vec![other.clone(), pool.clone()], vec![own.clone()]));

    assert_eq!(
        merge_taints(std::slice::from_ref(&pool), std::slice::from_ref(&pool), &mut covered, &merged, |_| {
            true
        }),
        None
    );

    let same_key = taint("k", "pool", "NoExecute");
    let released = merge_taints(
        &[],
        std::slice::from_ref(&pool),
        &mut covered,
        &[pool.clone(), same_key.clone()],
        |_| true,
    )
    .unwrap();
    assert_eq!((released, covered), (vec![own, same_key], vec![]));
}

#[test]
fn a_record_of_openyurt_is_read_and_a_null_map_is_empty() {
    let text = r#"{"labels":{"a":"1"},"annotations":null,"taints":[{"key":"k","effect":"NoSchedule"}]}"#;
    let record: Record = serde_json::from_str(text).unwrap();
    assert_eq!(record.owned.labels, map(&[("a", "1")]));
    assert_eq!((record.owned.taints.len(), record.pool, record.covered.is_empty()), (1, None, true));
}

#[test]
fn a_record_is_read_back_as_written() {
    let record = Record {
        owned: Attributes { labels: map(&[("a", "1")]), ..Attributes::default() },
        pool: Some("shop".to_owned()),
        covered: Attributes { taints: vec![taint("k", "v", "NoExecute")], ..Attributes::default() },
    };
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    // The top level is what OpenYurt reads.
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["labels"], serde_json::json!({ "a": "1" }));
}

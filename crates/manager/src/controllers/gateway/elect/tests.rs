mod idle;

use proptest::prelude::*;

use super::*;

use Evidence::{Idle, Nothing, Silent, Unanswering, Unknown, Working};

fn candidate(node: &str, evidence: Evidence, ready: bool) -> Candidate {
    Candidate { node: node.to_owned(), evidence, ready, addressed: true }
}

fn all(list: &[(&str, Evidence)]) -> Vec<Candidate> {
    list.iter().map(|(node, evidence)| candidate(node, *evidence, true)).collect()
}

/// What is known, how many, how they are judged, who was elected, who is.
type Case<'a> = (&'a [(&'a str, Evidence)], usize, Judgement, &'a [&'a str], &'a [&'a str]);

#[test]
fn the_order_decides_and_who_is_elected_stays() {
    let now = Instant::now();
    let strict = Judgement::Strict(None);
    let trial = Judgement::OnTrial(Some(now));
    let cases: [Case<'_>; 29] = [
        (&[], 1, strict, &["gone"], &[]),
        (&[("b", Working), ("a", Working)], 1, strict, &[], &["b"]),
        (&[("b", Working), ("a", Working)], 2, strict, &[], &["b", "a"]),
        (&[("b", Working), ("a", Working)], 0, strict, &["a"], &[]),
        (&[("b", Working), ("a", Working)], 1, strict, &["a"], &["a"]),
        (&[("b", Idle), ("a", Idle)], 1, strict, &[], &["b"]),
        (&[("b", Working), ("a", Idle)], 1, strict, &["a"], &["a"]),
        (&[("c", Idle), ("b", Idle), ("a", Working)], 1, strict, &["a", "b"], &["a"]),
        (&[("c", Idle), ("b", Idle), ("a", Silent)], 1, strict, &["a"], &["c"]),
        (&[("b", Working), ("a", Nothing)], 1, strict, &["a"], &["b"]),
        (&[("b", Nothing), ("a", Nothing)], 1, strict, &["a"], &[]),
        (&[("b", Unknown), ("a", Unknown)], 2, strict, &["a"], &["a"]),
        (&[("b", Working), ("a", Unknown)], 1, strict, &["a"], &["a"]),
        (&[("c", Working), ("b", Working), ("a", Working)], 1, strict, &["a", "b"], &["b"]),
        (&[("b", Silent), ("a", Silent)], 1, strict, &["a"], &["a"]),
        (&[("b", Silent), ("a", Silent)], 2, strict, &["a"], &["a"]),
        (&[("b", Working), ("a", Silent)], 1, strict, &["a"], &["b"]),
        (&[("b", Working), ("a", Silent)], 2, strict, &["a", "b"], &["b", "a"]),
        (&[("c", Working), ("b", Unknown), ("a", Silent)], 2, strict, &["a", "b"], &["c", "b"]),
        (&[("b", Nothing), ("a", Silent)], 1, trial, &["a"], &["a"]),
        (&[("b", Nothing), ("a", Nothing)], 1, trial, &[], &["b"]),
        (&[("b", Nothing), ("a", Nothing)], 1, trial, &["a"], &["a"]),
        (&[("b", Nothing), ("a", Working)], 1, trial, &["a", "b"], &["a"]),
        (&[("b", Nothing), ("a", Unanswering)], 1, trial, &["a"], &["a"]),
        (&[("b", Working), ("a", Unanswering)], 1, strict, &["a"], &["b"]),
        (&[("b", Nothing), ("a", Nothing)], 3, trial, &[], &["b", "a"]),
        (&[("b", Nothing), ("a", Nothing)], 1, Judgement::OnTrial(None), &["a"], &["a"]),
        (&[("b", Nothing), ("a", Nothing)], 1, Judgement::Readiness, &["a"], &["a"]),
        (&[("b", Nothing), ("a", Nothing)], 1, Judgement::Readiness, &[], &["b"]),
    ];
    for (list, replicas, judgement, before, expected) in cases {
        let before = Record::of(before.iter().map(|name| (*name).to_owned()), now);
        let outcome = elect(&all(list), replicas, judgement, &before, now);
        assert_eq!(outcome.elected, expected, "{list:?} {replicas} {judgement:?} {before:?}");
    }
}

#[test]
fn a_node_that_is_not_ready_is_elected_only_if_it_works() {
    let now = Instant::now();
    let list =
        [candidate("a", Nothing, false), candidate("b", Working, false), candidate("c", Nothing, true)];
    let elected = |judgement| elect(&list, 3, judgement, &Record::default(), now).elected;
    assert_eq!(elected(Judgement::Strict(None)), ["b"]);
    assert_eq!(elected(Judgement::OnTrial(None)), ["b", "c"]);
    assert_eq!(elected(Judgement::Readiness), ["c"]);
}

fn nodes(list: &[Known<'_>]) -> Vec<Candidate> {
    list.iter().map(|(node, evidence, ready)| candidate(node, *evidence, *ready)).collect()
}

/// A node, what is known of its tunnels, whether it is ready.
type Known<'a> = (&'a str, Evidence, bool);

/// What is known, how many, how they are judged, who was elected, who is.
type Unready<'a> = (&'a [Known<'a>], usize, Judgement, &'a [&'a str], &'a [&'a str]);

#[test]
fn a_node_that_is_not_ready_keeps_its_place_while_nobody_better_is_there() {
    let now = Instant::now();
    let trial = Judgement::OnTrial(Some(now));
    let (on, off) = (true, false);
    let cases: [Unready<'_>; 16] = [
        (&[("a", Nothing, off)], 1, trial, &[], &[]),
        (&[("a", Nothing, off)], 1, trial, &["a"], &["a"]),
        (&[("a", Unanswering, off)], 1, trial, &["a"], &["a"]),
        (&[("a", Unknown, off)], 1, trial, &["a"], &["a"]),
        (&[("a", Nothing, off)], 1, Judgement::OnTrial(None), &["a"], &["a"]),
        (&[("a", Nothing, off)], 1, Judgement::Strict(None), &["a"], &[]),
        (&[("a", Nothing, off)], 1, Judgement::Readiness, &["a"], &[]),
        (&[("a", Nothing, off)], 0, trial, &["a"], &[]),
        (&[("a", Nothing, off), ("b", Nothing, on)], 1, trial, &["a"], &["b"]),
        (&[("a", Nothing, off), ("b", Nothing, on)], 1, Judgement::OnTrial(None), &["a"], &["b"]),
        (&[("a", Nothing, off), ("b", Nothing, on)], 2, trial, &["a"], &["a", "b"]),
        (&[("a", Nothing, off), ("b", Working, off)], 1, trial, &["a"], &["b"]),
        (&[("a", Nothing, off), ("b", Nothing, off)], 2, trial, &["b"], &["b"]),
        (&[("a", Nothing, on), ("b", Working, off)], 1, trial, &["b"], &["b"]),
        (&[("a", Nothing, off), ("b", Nothing, on), ("c", Working, off)], 2, trial, &["a", "c"], &["b", "c"]),
        (&[("a", Nothing, off), ("b", Nothing, off), ("c", Nothing, on)], 2, trial, &["a", "b"], &["a", "c"]),
    ];
    for (list, replicas, judgement, before, expected) in cases {
        let before = Record::of(before.iter().map(|name| (*name).to_owned()), now);
        let outcome = elect(&nodes(list), replicas, judgement, &before, now);
        assert_eq!(outcome.elected, expected, "{list:?} {replicas} {judgement:?} {before:?}");
    }
}

/// The second, what is known then, who is elected.
type Step<'a> = (u64, &'a [Known<'a>], &'a str);

#[test]
fn a_hub_that_lives_has_its_place_when_it_dials_again() {
    let (on, off) = (true, false);
    let cases: [(&str, &[Step<'_>]); 7] = [
        (
            "the only one, whose kubelet has stopped, and a router that begins anew",
            &[
                (0, &[("a", Working, on)], "a"),
                (100, &[("a", Working, off)], "a"),
                (200, &[("a", Nothing, off)], "a"),
                (201, &[("a", Working, off)], "a"),
                (300, &[("a", Nothing, off)], "a"),
                (305, &[("a", Nothing, off)], "a"),
                (320, &[("a", Nothing, off)], "a"),
                (321, &[("a", Working, off)], "a"),
            ],
        ),
        (
            "the same with another that is not ready either",
            &[
                (0, &[("a", Nothing, on), ("b", Nothing, off)], "a"),
                (1, &[("a", Working, off), ("b", Nothing, off)], "a"),
                (200, &[("a", Nothing, off), ("b", Nothing, off)], "a"),
                (300, &[("a", Nothing, off), ("b", Nothing, off)], "a"),
                (301, &[("a", Working, off), ("b", Nothing, off)], "a"),
            ],
        ),
        (
            "the same with another that is ready",
            &[
                (0, &[("a", Working, on), ("b", Nothing, on)], "a"),
                (100, &[("a", Working, off), ("b", Nothing, on)], "a"),
                (200, &[("a", Nothing, off), ("b", Nothing, on)], "b"),
                (201, &[("a", Nothing, off), ("b", Working, on)], "b"),
            ],
        ),
        (
            "power lost, and another that is ready when this one is so no more",
            &[
                (0, &[("a", Working, on), ("b", Nothing, off)], "a"),
                (11, &[("a", Unanswering, on), ("b", Nothing, off)], "a"),
                (40, &[("a", Nothing, off), ("b", Nothing, off)], "a"),
                (90, &[("a", Nothing, off), ("b", Nothing, on)], "b"),
                // Though it had its turn: who is ready comes first.
                (105, &[("a", Nothing, off), ("b", Nothing, on)], "b"),
            ],
        ),
        (
            "who is ready again has all its time, and another that is ready waits for that",
            &[
                (0, &[("a", Working, on), ("b", Nothing, off)], "a"),
                (200, &[("a", Nothing, off), ("b", Nothing, off)], "a"),
                (300, &[("a", Nothing, on), ("b", Nothing, off)], "a"),
                (314, &[("a", Nothing, on), ("b", Nothing, on)], "a"),
                (315, &[("a", Nothing, on), ("b", Nothing, on)], "b"),
            ],
        ),
        (
            "a line that is cut for longer than nodes stay ready",
            &[
                (0, &[("a", Working, on)], "a"),
                (11, &[("a", Unanswering, on)], "a"),
                (50, &[("a", Nothing, off)], "a"),
                (600, &[("a", Nothing, off)], "a"),
                (601, &[("a", Working, off)], "a"),
                (610, &[("a", Working, on)], "a"),
            ],
        ),
        (
            "the same with two: who has the place then keeps it",
            &[
                (0, &[("a", Working, on), ("b", Nothing, on)], "a"),
                (11, &[("a", Unanswering, on), ("b", Nothing, on)], "b"),
                (26, &[("a", Nothing, on), ("b", Nothing, on)], "a"),
                (41, &[("a", Nothing, on), ("b", Nothing, on)], "b"),
                (50, &[("a", Nothing, off), ("b", Nothing, off)], "b"),
                (600, &[("a", Nothing, off), ("b", Nothing, off)], "b"),
                (601, &[("a", Nothing, off), ("b", Working, off)], "b"),
                (610, &[("a", Nothing, on), ("b", Working, off)], "b"),
            ],
        ),
    ];
    for (what, steps) in cases {
        let start = Instant::now();
        let mut record = Record::default();
        for (second, list, expected) in steps {
            let now = start + Duration::from_secs(*second);
            let outcome = elect(&nodes(list), 1, Judgement::OnTrial(Some(start)), &record, now);
            assert_eq!(outcome.elected, [*expected], "{what}, second {second}");
            assert!(outcome.look_at.is_none_or(|at| at > now), "{what}, second {second}");
            // Many sites are offline for long: there is nothing to look for.
            let away = list.iter().all(|(_, evidence, ready)| *evidence != Working && !ready);
            assert!(!away || outcome.look_at.is_none(), "{what}, second {second}");
            record = outcome.record;
        }
    }
}

#[test]
fn a_candidate_without_a_link_gives_way_and_comes_last_ever_longer() {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let judgement = Judgement::OnTrial(Some(start));
    let list = all(&[("a", Nothing), ("b", Nothing)]);
    let first = elect(&list, 1, judgement, &Record::default(), start);
    assert_eq!((first.elected.as_slice(), first.look_at), (&["a".to_owned()][..], Some(start + TRIAL)));
    let early = elect(&list, 1, judgement, &first.record, start + second * 14);
    assert_eq!(early.elected, ["a"]);
    let second_ = elect(&list, 1, judgement, &early.record, start + second * 15);
    assert_eq!(second_.elected, ["b"]);
    // `a` is last for a minute; once `b` has failed as well, its time is the first to end.
    let third = elect(&list, 1, judgement, &second_.record, start + second * 30);
    assert_eq!(third.elected, ["a"]);
    assert_eq!(third.record.gave_way["a"].length, Duration::from_mins(1));
    let mut record = third.record;
    let mut now = start + second * 30;
    for _ in 0..20 {
        now += TRIAL;
        record = elect(&list, 1, judgement, &record, now).record;
    }
    assert_eq!(record.gave_way["a"].length, Duration::from_mins(10));
    // A link makes good.
    let list = all(&[("a", Working), ("b", Nothing)]);
    assert!(!elect(&list, 1, judgement, &record, now).record.gave_way.contains_key("a"));
}

#[test]
fn who_had_a_link_may_lose_it_for_a_moment_however_long_it_had_it() {
    let start = Instant::now();
    let judgement = Judgement::OnTrial(Some(start));
    let (linked, without) = (all(&[("a", Working), ("b", Nothing)]), all(&[("a", Nothing), ("b", Nothing)]));
    let had = elect(&linked, 1, judgement, &Record::of(["a".to_owned()], start), start);
    assert_eq!((had.elected.as_slice(), had.look_at), (&["a".to_owned()][..], None));
    let late = start + Duration::from_mins(10);
    let lost = elect(&without, 1, judgement, &had.record, late);
    assert_eq!((lost.elected.as_slice(), lost.look_at), (&["a".to_owned()][..], Some(late + LOST)));
    let again = elect(&linked, 1, judgement, &lost.record, late + LOST / 2);
    assert_eq!((again.elected.as_slice(), again.look_at), (&["a".to_owned()][..], None));
    let lost = elect(&without, 1, judgement, &again.record, late + LOST);
    assert_eq!(lost.elected, ["a"], "the moment before counts for nothing");
    assert_eq!(elect(&without, 1, judgement, &lost.record, late + LOST * 2).elected, ["b"]);
    // Who lost it because there was nothing to dial has the time that dialling takes.
    let judgement = Judgement::OnTrial(Some(late + LOST * 2));
    let back = elect(&without, 1, judgement, &lost.record, late + LOST * 2);
    assert_eq!(
        (back.elected.as_slice(), back.look_at),
        (&["a".to_owned()][..], Some(late + LOST * 2 + TRIAL))
    );
}

#[test]
fn who_answers_no_more_over_its_link_gives_way_at_once() {
    let start = Instant::now();
    let judgement = Judgement::OnTrial(Some(start));
    let (linked, without) =
        (all(&[("a", Working), ("b", Nothing)]), all(&[("a", Unanswering), ("b", Nothing)]));
    let had = elect(&linked, 1, judgement, &Record::default(), start);
    let late = start + Duration::from_mins(10);
    let lost = elect(&without, 1, judgement, &had.record, late);
    assert_eq!((lost.elected.as_slice(), lost.look_at), (&["b".to_owned()][..], Some(late + TRIAL)));
    // It is told of once more; who was elected has its time.
    assert_eq!(elect(&without, 1, judgement, &lost.record, late + Duration::from_secs(1)).elected, ["b"]);
    // There is nobody else, or there was nothing to dial.
    let alone = all(&[("a", Unanswering)]);
    assert_eq!(elect(&alone, 1, judgement, &had.record, late).elected, ["a"]);
    let again = Judgement::OnTrial(Some(late + LOST));
    let unjudged = elect(&without, 1, Judgement::OnTrial(None), &had.record, late);
    let judged = elect(&without, 1, again, &unjudged.record, late + LOST);
    assert_eq!(
        (judged.elected.as_slice(), judged.look_at),
        (&["a".to_owned()][..], Some(late + LOST + TRIAL))
    );
}

#[test]
fn nobody_is_judged_while_there_is_nothing_to_dial() {
    let start = Instant::now();
    let list = all(&[("a", Nothing), ("b", Nothing)]);
    let before = Record::of(["a".to_owned()], start);
    let late = start + Duration::from_hours(1);
    let outcome = elect(&list, 1, Judgement::OnTrial(None), &before, late);
    assert_eq!((outcome.elected.as_slice(), outcome.look_at), (&["a".to_owned()][..], None));
    let outcome = elect(&list, 1, Judgement::OnTrial(Some(late)), &outcome.record, late);
    assert_eq!((outcome.elected.as_slice(), outcome.look_at), (&["a".to_owned()][..], Some(late + TRIAL)));
}

#[test]
fn the_only_candidate_stays_though_it_has_no_link() {
    let start = Instant::now();
    let list = all(&[("a", Nothing)]);
    let mut record = Record::of(["a".to_owned()], start);
    for seconds in [15, 30, 300] {
        let now = start + Duration::from_secs(seconds);
        let outcome = elect(&list, 1, Judgement::OnTrial(Some(start)), &record, now);
        assert_eq!((outcome.elected.as_slice(), outcome.look_at), (&["a".to_owned()][..], Some(now + TRIAL)));
        record = outcome.record;
    }
}

fn evidence() -> impl Strategy<Value = Evidence> {
    prop_oneof![Just(Working), Just(Idle), Just(Unknown), Just(Unanswering), Just(Nothing)]
}

proptest! {
    #[test]
    fn elections_keep_their_word(
        strict in any::<bool>(),
        dialled in any::<bool>(),
        steps in proptest::collection::vec(
            (proptest::collection::vec((evidence(), any::<bool>()), 4), 0_usize..4, 0_u64..20), 1..40
        ),
    ) {
        let mut now = Instant::now();
        let start = now;
        let mut record = Record::default();
        let mut elected_before: Vec<String> = Vec::new();
        let mut replicas_before = 0;
        let mut worked: Vec<String> = Vec::new();
        // Since when an elected candidate is without a link, while another could be elected in its place.
        let mut without: BTreeMap<String, Instant> = BTreeMap::new();
        for (states, replicas, seconds) in steps {
            now += Duration::from_secs(seconds);
            let judgement = if strict { Judgement::Strict(dialled.then_some(start)) } else { Judgement::OnTrial(Some(start)) };
            let list: Vec<Candidate> = ["d", "b", "c", "a"]
                .iter()
                .zip(states)
                .map(|(node, (evidence, ready))| (node, if strict || evidence != Idle { evidence } else { Nothing }, ready))
                .map(|(node, evidence, ready)| candidate(node, evidence, ready))
                .collect();
            let on_trial = !record.gave_way.is_empty();
            let outcome = elect(&list, replicas, judgement, &record, now);
            prop_assert_eq!(&outcome, &elect(&list, replicas, judgement, &record, now));
            prop_assert!(outcome.elected.len() <= replicas);
            let places: Vec<usize> = outcome
                .elected.iter().filter_map(|name| list.iter().position(|c| c.node == *name)).collect();
            prop_assert!(places.is_sorted() && places.len() == outcome.elected.len());
            for candidate in &list {
                let (was, is) =
                    (elected_before.contains(&candidate.node), outcome.elected.contains(&candidate.node));
                // Who works stays, unless there are fewer places.
                if was && candidate.evidence == Working && replicas >= replicas_before {
                    prop_assert!(is, "{} was dropped", candidate.node);
                }
                if is && strict {
                    prop_assert!(matches!(candidate.evidence, Working | Idle) || (was && candidate.evidence == Unknown));
                }
                // While anybody is linked to one of them, nobody is on trial, but who was before.
                if was && strict && candidate.evidence == Idle && replicas >= replicas_before && !on_trial && !is {
                    let others = list.iter().filter(|c| elected_before.contains(&c.node));
                    prop_assert!(others.clone().all(|c| c.evidence == Idle), "{} was dropped", candidate.node);
                }
                if is && !strict {
                    prop_assert!(matches!(candidate.evidence, Working | Idle) || candidate.ready || was);
                }
                // Who is not ready and has no link has no place that somebody ready, or linked, or more than it is there for.
                let better = |c: &Candidate| c.ready || c.evidence == Working;
                if is && !strict && !better(candidate) {
                    prop_assert!(list.iter().all(|c| !better(c) || outcome.elected.contains(&c.node)));
                }
                // And keeps it if there is nobody to give it to.
                let rivals = list.iter().filter(|c| better(c) || elected_before.contains(&c.node)).count();
                if was && !strict && rivals <= replicas {
                    prop_assert!(is, "{} was dropped for nobody", candidate.node);
                }
                // Who had a link at the last look keeps its place at the first without one, if it may be elected at all.
                let lost = was && worked.contains(&candidate.node) && candidate.ready && !strict;
                if lost && candidate.evidence != Unanswering && replicas >= replicas_before {
                    prop_assert!(is, "{} was given no time", candidate.node);
                }
                // It has none if it answered no more, and somebody works who can have the place.
                let spare = list.iter().any(|c| c.evidence == Working && !outcome.elected.contains(&c.node));
                if lost && candidate.evidence == Unanswering && spare {
                    prop_assert!(!is, "{} was given time", candidate.node);
                }
                // Nobody keeps a place without a link for longer than its trial, which begins when it is ready, while somebody who works has none.
                let judged = is && candidate.evidence != Working && candidate.ready;
                if judged && was {
                    let since = *without.entry(candidate.node.clone()).or_insert(now);
                    let better = list.iter().any(|c| c.evidence == Working && !outcome.elected.contains(&c.node));
                    prop_assert!(strict || !better || now - since < TRIAL, "{} stays", candidate.node);
                } else {
                    without.remove(&candidate.node);
                    if judged {
                        without.insert(candidate.node.clone(), now);
                    }
                }
            }
            worked = list.iter().filter(|c| c.evidence == Working).map(|c| c.node.clone()).collect();
            elected_before = outcome.elected;
            replicas_before = replicas;
            record = outcome.record;
        }
    }
}

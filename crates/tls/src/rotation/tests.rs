//! Single decisions, as a table: what is stored and seen, and the action that follows.

use super::*;

const SETTLE: Duration = Duration::from_mins(1);
const LONG: Duration = Duration::from_hours(1);
const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
const DAY: i64 = 24 * 3600;

fn id(name: u8) -> Sha256Digest {
    // The first two bytes are the jitter; zero keeps renewal at two thirds.
    let mut bytes = [0; 32];
    bytes[31] = name;
    bytes.into()
}

/// Valid from so many days ago for so many days in all.
fn validity(age: i64, life: i64) -> Validity {
    let at = |days: i64| Timestamp::from_second(NOW.as_second() + days * DAY).unwrap();
    Validity { not_before: at(-age), not_after: at(life - age) }
}

fn authority(name: u8, age: i64) -> Authority {
    Authority { id: id(name), validity: validity(age, 360) }
}

fn leaf(issuer: u8, age: i64) -> Leaf {
    Leaf { id: id(100), issuer: id(issuer), validity: validity(age, 30), names_match: true }
}

/// Authority 1 issues, its certificate is served, everyone trusts it.
fn steady() -> Stored {
    Stored {
        current: Some(authority(1, 10)),
        next: None,
        retired: Vec::new(),
        leaf: Some(leaf(1, 2)),
        published: vec![vec![id(1)], vec![id(1)]],
        forced: false,
    }
}

fn decide(stored: &Stored, seen_for: Duration) -> Action {
    let mut seen = Sightings::default();
    seen.record(stored, Duration::ZERO);
    plan(stored, &seen, SETTLE, Moment { wall: NOW, monotonic: seen_for })
}

fn check(name: &str, change: impl FnOnce(&mut Stored), seen_for: Duration, expected: &Action) {
    let mut stored = steady();
    change(&mut stored);
    assert_eq!(decide(&stored, seen_for), *expected, "{name}");
}

fn publish(strangers: Strangers) -> Action {
    Action::PublishBundle { strangers }
}

#[test]
fn decisions() {
    let none = Duration::ZERO;
    let with_next = |stored: &mut Stored| {
        stored.next = Some(authority(2, 0));
        stored.published = vec![vec![id(1), id(2)]];
    };
    let promoted = |stored: &mut Stored| {
        stored.current = Some(authority(2, 0));
        stored.retired = vec![id(1)];
        stored.published = vec![vec![id(2), id(1)]];
    };

    check(
        "nothing stored",
        |s| *s = Stored { current: None, leaf: None, published: vec![vec![]], ..steady() },
        none,
        &Action::CreateCurrent,
    );
    check("the store is lost", |s| s.current = None, none, &Action::CreateCurrent);
    check(
        "only the current one is lost",
        |s| {
            with_next(s);
            s.current = None;
        },
        none,
        &Action::Promote,
    );
    check("the store was replaced", |s| s.current = Some(authority(7, 0)), LONG, &publish(Strangers::Keep));
    check("one bundle was wiped", |s| s.published[1].clear(), LONG, &publish(Strangers::Drop));
    check("a bundle was wiped, just begun", |s| s.published[1].clear(), none, &publish(Strangers::Keep));
    check("a stranger in a bundle", |s| s.published[0].push(id(9)), LONG, &publish(Strangers::Drop));
    check(
        "order does not matter",
        |s| {
            with_next(s);
            s.published = vec![vec![id(2), id(1)]];
        },
        LONG,
        &Action::Promote,
    );
    check("no certificate", |s| s.leaf = None, none, &Action::IssueLeaf);
    check(
        "nowhere to publish",
        |s| {
            s.leaf = None;
            s.published.clear();
        },
        none,
        &Action::IssueLeaf,
    );
    check("an old certificate", |s| s.leaf = Some(leaf(1, 20)), none, &Action::IssueLeaf);
    check("an expired certificate", |s| s.leaf = Some(leaf(1, 31)), none, &Action::IssueLeaf);
    check("a certificate of the future", |s| s.leaf = Some(leaf(1, -1)), none, &Action::IssueLeaf);
    check(
        "other names",
        |s| s.leaf = Some(Leaf { names_match: false, ..leaf(1, 2) }),
        none,
        &Action::IssueLeaf,
    );
    check(
        "the authority is old",
        |s| s.current = Some(authority(1, 240)),
        none,
        &Action::CreateNext(Cause::Age),
    );
    check("a rotation is asked for", |s| s.forced = true, none, &Action::CreateNext(Cause::Forced));
    check(
        "asked for while one runs",
        |s| {
            with_next(s);
            s.forced = true;
        },
        LONG,
        &Action::Promote,
    );
    check("the next one is trusted", with_next, LONG, &Action::Promote);
    check(
        "the next one is too old",
        |s| {
            with_next(s);
            s.next = Some(authority(2, 250));
        },
        LONG,
        &Action::CreateNext(Cause::Age),
    );
    check("the new authority is trusted", promoted, LONG, &Action::IssueLeaf);
    check(
        "the new certificate is everywhere",
        |s| {
            promoted(s);
            s.leaf = Some(leaf(2, 0));
        },
        LONG,
        &Action::Retire,
    );
}

#[test]
fn rests() {
    let short = Duration::from_secs(20);
    let rest = |change: fn(&mut Stored), seen_for| {
        let mut stored = steady();
        change(&mut stored);
        match decide(&stored, seen_for) {
            Action::Wait { at_most, rest } => (at_most.as_secs(), rest),
            action => panic!("{action:?}"),
        }
    };
    assert_eq!(rest(|_| (), LONG), (300, Rest::Fresh));
    let next = |s: &mut Stored| {
        s.next = Some(authority(2, 0));
        s.published = vec![vec![id(1), id(2)]];
    };
    assert_eq!(rest(next, short), (40, Rest::BundleSettling));
    assert_eq!(rest(next, SETTLE), (0, Rest::BundleSettling));
    let served = |s: &mut Stored| {
        s.retired = vec![id(5)];
        s.published = vec![vec![id(1), id(5)]];
    };
    assert_eq!(rest(served, short), (40, Rest::LeafSettling));
    let stranger = |s: &mut Stored| s.published[0].push(id(9));
    assert_eq!(rest(stranger, short), (40, Rest::LeafSettling));
    // Its certificate cannot live longer than the authority, so a new one by it would gain nothing.
    let ends_together = |s: &mut Stored| {
        s.leaf.as_mut().unwrap().validity = validity(29, 30);
        s.current.as_mut().unwrap().validity.not_after = validity(29, 30).not_after;
        s.next = Some(authority(2, 0));
        s.published = vec![vec![id(1), id(2)]];
    };
    assert_eq!(rest(ends_together, short), (40, Rest::BundleSettling));
}

#[test]
fn a_wipe_restarts_the_settle_time() {
    let mut stored = steady();
    stored.next = Some(authority(2, 0));
    let mut seen = Sightings::default();
    let at = |seconds| Moment { wall: NOW, monotonic: Duration::from_secs(seconds) };
    let mut look = |published: &[u8], seconds| {
        stored.published = vec![published.iter().map(|name| id(*name)).collect()];
        seen.record(&stored, Duration::from_secs(seconds));
        plan(&stored, &seen, SETTLE, at(seconds))
    };
    assert!(matches!(look(&[1, 2], 0), Action::Wait { rest: Rest::BundleSettling, .. }));
    assert_eq!(look(&[], 50), publish(Strangers::Keep));
    assert!(matches!(look(&[1, 2], 51), Action::Wait { rest: Rest::BundleSettling, .. }));
    assert!(matches!(look(&[1, 2], 111), Action::Wait { rest: Rest::BundleSettling, .. }));
    assert_eq!(look(&[1, 2], 112), Action::Promote);
}

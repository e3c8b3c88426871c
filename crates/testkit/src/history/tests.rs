//! Each guarantee has a history that keeps it and one that does not.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

fn object(name: &str, rv: u64, label: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": rv.to_string(), "labels": {"l": label}}})
}

/// a is made at 1 and changed at 3 so that it loses its label; b is made at 2 and deleted at 4; c is made at 5.
fn epoch() -> Epoch {
    let revision = |rv, name: &str, label: Option<&str>| Revision {
        rv,
        key: name.to_owned(),
        object: label.map(|label| object(name, rv, label)),
    };
    let revisions = vec![
        revision(1, "a", Some("x")),
        revision(2, "b", Some("x")),
        revision(3, "a", Some("y")),
        revision(4, "b", None),
        revision(5, "c", Some("x")),
    ];
    Epoch { revisions }
}

fn model() -> Model {
    Model { epochs: vec![epoch()] }
}

fn session(request: Request, observations: Vec<Observation>, end: End) -> Session {
    let (client, resource) = ("c".to_owned(), "things".to_owned());
    Session {
        client,
        resource,
        scope: Scope::default(),
        request,
        began: Instant::now(),
        observations,
        end,
        user: "u".to_owned(),
        times: Vec::new(),
        open: None,
        epoch: 0,
        handed_on: false,
        is_old: false,
    }
}

fn selected(mut session: Session, labels: &str) -> Session {
    session.scope.labels = LabelSelector::parse(labels).unwrap();
    session
}

fn event(change: Change, name: &str, rv: u64, label: &str) -> Observation {
    Observation::Event(change, object(name, rv, label))
}

fn added(name: &str, rv: u64) -> Observation {
    event(Change::Added, name, rv, "x")
}

fn bookmark(rv: u64) -> Observation {
    Observation::Bookmark { rv, initial_end: false }
}

fn page(rv: u64, items: Vec<Value>, more: bool) -> Observation {
    Observation::Page { rv, items, more, remaining: None }
}

/// All that happens after version 2.
fn rest() -> Vec<Observation> {
    vec![event(Change::Modified, "a", 3, "y"), event(Change::Deleted, "b", 4, "x"), added("c", 5)]
}

fn after(rv: u64, observations: Vec<Observation>) -> Session {
    session(Request::WatchAfter(rv), observations, End::Quiescent)
}

fn broken_guarantee(sessions: &[Session]) -> Option<Guarantee> {
    check(&model(), sessions).err().map(|violation| violation.guarantee)
}

#[test]
fn what_is_right_passes() {
    let initial = Request::WatchInitial { at_least: Some(2), bookmarks: true };
    let end = Observation::Bookmark { rv: 3, initial_end: true };
    let marked = vec![
        event(Change::Added, "a", 3, "y"),
        added("b", 2),
        end,
        event(Change::Deleted, "b", 4, "x"),
        bookmark(4),
        added("c", 5),
    ];
    let gone = Observation::Error { code: 410, message: String::new() };
    let histories = [
        vec![after(2, rest())],
        vec![after(0, [vec![added("a", 1), added("b", 2)], rest()].concat())],
        vec![after(5, vec![]), after(9, vec![])],
        vec![after(2, vec![gone])],
        vec![
            session(Request::WatchAfter(2), rest()[..1].to_vec(), End::Broken),
            after(3, rest()[1..].to_vec()),
        ],
        vec![session(initial, marked, End::Quiescent)],
        vec![selected(
            after(
                2,
                vec![event(Change::Deleted, "a", 3, "x"), event(Change::Deleted, "b", 4, "x"), added("c", 5)],
            ),
            "l=x",
        )],
        vec![session(
            Request::List(ListAt::Any),
            vec![page(2, vec![object("a", 1, "x")], true), page(2, vec![object("b", 2, "x")], false)],
            End::Clean,
        )],
        vec![session(
            Request::WatchInitial { at_least: None, bookmarks: false },
            [vec![added("a", 1), added("b", 2)], rest()].concat(),
            End::Quiescent,
        )],
    ];
    for (index, history) in histories.iter().enumerate() {
        check(&model(), history).unwrap_or_else(|violation| panic!("{index}: {violation}"));
    }
}

#[test]
fn what_is_wrong_is_named() {
    let without = |at: usize| {
        let mut observations = rest();
        observations.remove(at);
        observations
    };
    let with = |at: usize, observation: Observation| {
        let mut observations = rest();
        observations.insert(at, observation);
        observations
    };
    let instead = |at: usize, observation: Observation| {
        let mut observations = rest();
        observations[at] = observation;
        observations
    };
    let list =
        |at: ListAt, observation: Observation| session(Request::List(at), vec![observation], End::Clean);
    let first = |to: usize| session(Request::WatchAfter(2), rest()[..to].to_vec(), End::Broken);
    let initial = |observations| {
        session(Request::WatchInitial { at_least: None, bookmarks: true }, observations, End::Quiescent)
    };
    let end = |rv| Observation::Bookmark { rv, initial_end: true };
    let both = || vec![object("a", 1, "x"), object("b", 2, "x")];
    let table = [
        (Guarantee::Filter, vec![selected(after(2, rest()), "l=x")]),
        (
            Guarantee::Filter,
            vec![selected(list(ListAt::Any, page(3, vec![object("a", 3, "y")], false)), "l=x")],
        ),
        (Guarantee::Ordered, vec![after(2, with(2, added("a", 1)))]),
        (Guarantee::Unique, vec![after(2, with(2, event(Change::Deleted, "b", 4, "x")))]),
        (
            Guarantee::Unique,
            vec![first(2), after(4, vec![event(Change::Deleted, "b", 4, "x"), added("c", 5)])],
        ),
        (Guarantee::Reliable, vec![after(2, without(1))]),
        (Guarantee::Reliable, vec![after(2, without(2))]),
        (Guarantee::Reliable, vec![after(2, instead(2, added("d", 5)))]),
        (Guarantee::Reliable, vec![after(2, instead(2, event(Change::Added, "c", 5, "z")))]),
        (Guarantee::Resumable, vec![after(2, without(0))]),
        (Guarantee::Resumable, vec![after(2, vec![])]),
        (Guarantee::Bookmarkable, vec![after(2, with(1, bookmark(4)))]),
        (Guarantee::Bookmarkable, vec![after(2, with(2, bookmark(3)))]),
        (Guarantee::Bookmarkable, vec![after(5, vec![bookmark(7), added("c", 6)])]),
        (Guarantee::PrevKv, vec![after(2, instead(1, event(Change::Deleted, "b", 4, "z")))]),
        (Guarantee::IsCreate, vec![after(2, instead(2, event(Change::Modified, "c", 5, "x")))]),
        (Guarantee::IsCreate, vec![after(2, instead(0, event(Change::Added, "a", 3, "y")))]),
        (Guarantee::NoRewind, vec![after(2, rest()), list(ListAt::Any, page(2, both(), false))]),
        (Guarantee::Completeness, vec![list(ListAt::Any, page(2, vec![object("b", 2, "x")], false))]),
        (Guarantee::Completeness, vec![list(ListAt::Any, page(2, vec![object("a", 1, "x")], false))]),
        (Guarantee::Completeness, vec![list(ListAt::Any, page(5, vec![], false))]),
        (Guarantee::Completeness, vec![list(ListAt::Exact(1), page(2, both(), false))]),
        (Guarantee::Completeness, vec![list(ListAt::NotOlderThan(3), page(2, both(), false))]),
        (Guarantee::Completeness, vec![initial(vec![added("a", 1), end(2)])]),
        (Guarantee::Completeness, vec![initial(vec![added("a", 1), added("b", 2)])]),
    ];
    for (index, (guarantee, history)) in table.iter().enumerate() {
        assert_eq!(broken_guarantee(history), Some(*guarantee), "{index}: {:?}", check(&model(), history));
    }
}

/// What a watch says before the mark of its state's end is what a list says, an object after the other.
#[test]
fn the_state_that_a_watch_begins_with_is_as_a_list() {
    let initial = |observations: &[Observation], rv| {
        let mut observations = observations.to_vec();
        observations.push(Observation::Bookmark { rv, initial_end: true });
        session(Request::WatchInitial { at_least: None, bookmarks: true }, observations, End::Clean)
    };
    let modified = |name: &str, rv, label: &str| event(Change::Modified, name, rv, label);
    let [a, b] = [added("a", 1), added("b", 2)];
    let cases = [
        ("as a list", vec![a.clone(), b.clone()], 2, None),
        ("MODIFIED", vec![modified("a", 1, "x"), b.clone()], 2, Some((Guarantee::IsCreate, 0))),
        (
            "up to date in the end",
            vec![a.clone(), b.clone(), modified("a", 3, "y")],
            3,
            Some((Guarantee::IsCreate, 2)),
        ),
        (
            "gone in the end",
            vec![event(Change::Added, "a", 3, "y"), b.clone(), event(Change::Deleted, "b", 4, "x")],
            4,
            Some((Guarantee::IsCreate, 2)),
        ),
        ("twice", vec![a.clone(), b.clone(), b.clone()], 2, Some((Guarantee::Unique, 2))),
        ("the first twice", vec![a.clone(), b.clone(), a.clone()], 2, Some((Guarantee::Unique, 2))),
        ("in another order", vec![b.clone(), a.clone()], 2, Some((Guarantee::Ordered, 1))),
        ("a bookmark within", vec![a, bookmark(1), b], 2, Some((Guarantee::Bookmarkable, 1))),
    ];
    for (what, observations, rv, expected) in cases {
        let violation = check(&model(), &[initial(&observations, rv)]).err();
        let found = violation.map(|violation| (violation.guarantee, violation.observation));
        assert_eq!(found, expected, "{what}");
    }
    // By the bytes of the whole key, not by namespace and then by name.
    let placed = |namespace: &str, rv| {
        let mut object = object("o", rv, "x");
        object["metadata"]["namespace"] = namespace.into();
        object
    };
    let revision = |namespace: &str, rv| Revision {
        rv,
        key: format!("{namespace}/o"),
        object: Some(placed(namespace, rv)),
    };
    let model = Model { epochs: vec![Epoch { revisions: vec![revision("a", 1), revision("a-b", 2)] }] };
    let [short, long] =
        [("a", 1), ("a-b", 2)].map(|(ns, rv)| Observation::Event(Change::Added, placed(ns, rv)));
    check(&model, &[initial(&[long.clone(), short.clone()], 2)]).unwrap();
    let violation = check(&model, &[initial(&[short, long], 2)]).unwrap_err();
    assert_eq!(violation.guarantee, Guarantee::Ordered);
}

#[test]
fn a_state_that_is_not_the_clusters_has_not_converged() {
    let mut state = epoch().at(5);
    check_converged(&model(), &Scope::default(), &state).unwrap();
    state.remove("c");
    let violation = check_converged(&model(), &Scope::default(), &state).unwrap_err();
    assert_eq!(violation.guarantee, Guarantee::Convergence);
}

#[test]
fn versions_may_go_back_only_with_the_clusters_history() {
    let restored = Revision { rv: 3, key: "d".to_owned(), object: Some(object("d", 3, "x")) };
    let mut again = Epoch { revisions: epoch().revisions[..2].to_vec() };
    again.revisions.push(restored);
    let model = Model { epochs: vec![epoch(), again] };
    let list = session(
        Request::List(ListAt::MostRecent),
        vec![page(3, vec![object("a", 1, "x"), object("b", 2, "x"), object("d", 3, "x")], false)],
        End::Clean,
    );
    let before = session(Request::WatchAfter(2), rest(), End::Broken);
    check(&model, &[before.clone(), list.clone()]).unwrap();
    assert!(check(&model, &[after(2, rest())]).is_err(), "open, and of an epoch that is over");
    let late = Session { epoch: 1, ..before.clone() };
    assert!(check(&model, &[late]).is_err(), "asked when it was known that it is over");
    let back = session(
        Request::List(ListAt::MostRecent),
        vec![page(5, vec![object("a", 3, "y"), object("c", 5, "x")], false)],
        End::Clean,
    );
    assert!(check(&model, &[before, list, back]).is_err(), "back in an epoch that is over");
}

#[test]
fn who_was_denied_was_shown_nothing_and_had_nothing_open() {
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    // From 10 until 20.
    let denial = |user: &str, resource: &str| Denial {
        user: user.to_owned(),
        resource: resource.to_owned(),
        from: at(10),
        until: Some(at(20)),
    };
    let denials = [denial("u", "things"), denial("v", "things"), denial("u", "others")];
    let list = |observation: Observation, seen| {
        let mut session = session(Request::List(ListAt::Any), vec![observation], End::Clean);
        session.times = vec![at(seen)];
        session
    };
    let watch = |observation: Option<Observation>, seen, open: (u64, Option<u64>)| {
        let mut session = after(2, Vec::from_iter(observation));
        session.times = vec![at(seen); session.observations.len()];
        session.open = Some((at(open.0), open.1.map(at)));
        session
    };
    let error = Observation::Error { code: 403, message: String::new() };
    let empty = || page(2, vec![], false);
    let cases = [
        ("before", list(empty(), 9), None),
        ("after", list(empty(), 20), None),
        ("an error", list(error, 15), None),
        ("an empty page", list(empty(), 15), Some(0)),
        ("watched before and after", watch(Some(added("c", 5)), 9, (1, Some(10))), None),
        ("watched after", watch(Some(added("c", 5)), 20, (20, None)), None),
        ("an event", watch(Some(added("c", 5)), 10, (1, Some(11))), Some(0)),
        ("a bookmark", watch(Some(bookmark(5)), 19, (12, Some(19))), Some(0)),
        ("open, and silent", watch(None, 0, (1, Some(11))), Some(0)),
        ("open to the end", watch(Some(added("c", 5)), 5, (1, None)), Some(1)),
    ];
    for (what, session, expected) in cases {
        let violation = check_isolated(&denials, &[session]).err();
        let found = violation.map(|violation| (violation.guarantee, violation.observation));
        assert_eq!(found, expected.map(|observation| (Guarantee::Isolation, observation)), "{what}");
    }
}

/// Which of these are told that what they were shown has expired, if nothing explains it.
#[test]
fn what_has_expired_has_a_reason() {
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    let gone = || Observation::Error { code: 410, message: String::new() };
    // Told of version 3 at 10, and that it has expired at 20.
    let mut first = session(Request::WatchAfter(2), rest()[..1].to_vec(), End::Broken);
    first.times = vec![at(10)];
    let mut back = session(Request::WatchAfter(3), vec![gone()], End::Clean);
    back.times = vec![at(20)];
    let told = [first.clone(), back.clone()];
    let mut open = session(Request::WatchAfter(2), vec![rest()[0].clone(), gone()], End::Clean);
    open.times = vec![at(10), at(20)];
    let named = |name: &str| Some(name.to_owned());
    let forgotten = |resource, since, below| Reasons {
        forgotten: vec![Forgotten { resource, since: at(since), below }],
        ..Reasons::default()
    };
    let doubtful = |resource, from, until: Option<u64>| Reasons {
        doubtful: vec![Doubtful { resource, from: at(from), until: until.map(at) }],
        ..Reasons::default()
    };
    let restarted = |seconds, kept| Reasons { restarts: vec![at(seconds)], kept, ..Reasons::default() };
    // Versions 4 and 5 came after what it was told.
    let cases = [
        ("nothing happened", Reasons::default(), false),
        ("it was compacted", forgotten(None, 15, 4), true),
        ("it was defined anew", forgotten(named("things"), 15, 4), true),
        ("another was defined anew", forgotten(named("others"), 15, 4), false),
        ("it was compacted up to there", forgotten(None, 15, 3), false),
        ("it was compacted later", forgotten(None, 21, 4), false),
        ("there was a doubt", doubtful(None, 5, Some(10)), true),
        ("there is a doubt", doubtful(named("things"), 20, None), true),
        ("there was one of another", doubtful(named("others"), 5, None), false),
        ("the doubt was over", doubtful(None, 5, Some(9)), false),
        ("the doubt came later", doubtful(None, 21, None), false),
        ("more came than a restart keeps", restarted(15, 1), true),
        ("no more came than it keeps", restarted(15, 2), false),
        ("it was restarted before", restarted(9, 1), false),
    ];
    for (what, reasons, explained) in &cases {
        for sessions in [&told[..], std::slice::from_ref(&open)] {
            let violation = check_expired(&model(), reasons, sessions).err();
            let found = violation.map(|violation| violation.guarantee);
            assert_eq!(found, (!explained).then_some(Guarantee::Resumable), "{what}");
        }
    }
    first.handed_on = true;
    assert_eq!(check_expired(&model(), &Reasons::default(), &[first.clone(), back.clone()]), Ok(0));
    assert_eq!(check_expired(&model(), &Reasons::default(), &[back]), Ok(0), "it was told of nothing");
    let mut again = after(3, rest()[1..].to_vec());
    again.times = vec![at(20), at(20)];
    first.handed_on = false;
    assert_eq!(check_expired(&model(), &Reasons::default(), &[first, again]), Ok(1));
}

/// A bookmark tells of a version to which a restart need not come back; of the change before it it must.
#[test]
fn a_restart_goes_on_from_the_last_change_that_was_shown() {
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    let gone = || Observation::Error { code: 410, message: String::new() };
    // Told of version 7 at 10, after the change of version 5, and that it has expired at 20.
    let mut first = session(Request::WatchAfter(5), vec![bookmark(7)], End::Broken);
    first.times = vec![at(10)];
    let mut back = session(Request::WatchAfter(7), vec![gone()], End::Clean);
    back.times = vec![at(20)];
    let is_explained = |model: &Model, restart: u64, since, below| {
        let forgotten = vec![Forgotten { resource: None, since: at(since), below }];
        let reasons = Reasons { forgotten, restarts: vec![at(restart)], kept: 40, ..Reasons::default() };
        check_expired(model, &reasons, &[first.clone(), back.clone()]).is_ok()
    };
    // (when it was restarted, when it was compacted, below which version, whether that is a reason).
    let table = [
        (15, 12, 7, true),
        (15, 12, 6, true),
        (15, 5, 6, true),
        (15, 18, 6, true),
        (15, 12, 5, false),
        (15, 21, 6, false),
        (9, 12, 7, false),
        (21, 12, 7, false),
        (9, 12, 8, true),
    ];
    for (restart, since, below, explained) in table {
        assert_eq!(is_explained(&model(), restart, since, below), explained, "{restart} {since} {below}");
    }
    let short =
        Epoch { revisions: epoch().revisions.into_iter().filter(|revision| revision.rv < 5).collect() };
    let restored = Model { epochs: vec![epoch(), short] };
    assert!(is_explained(&restored, 15, 12, 5), "it may be of the time after the restore");
    first.epoch = 1;
    let longer = Model { epochs: vec![Epoch::default(), epoch()] };
    let reasons = Reasons {
        forgotten: vec![Forgotten { resource: None, since: at(12), below: 5 }],
        restarts: vec![at(15)],
        kept: 4,
        ..Reasons::default()
    };
    let violation = check_expired(&longer, &reasons, &[first, back]).err();
    assert_eq!(
        violation.map(|violation| violation.guarantee),
        Some(Guarantee::Resumable),
        "it is not of the time before"
    );
}

/// The most recent state, asked for at 20 and told at 21, where writes have to be shown after ten seconds.
#[test]
fn the_most_recent_state_is_recent_or_says_that_it_is_not() {
    let zero = Instant::now();
    let at = |seconds| zero + Duration::from_secs(seconds);
    let list = |rv| {
        let list = session(Request::List(ListAt::MostRecent), vec![page(rv, vec![], false)], End::Clean);
        Session { began: at(20), times: vec![at(21)], ..list }
    };
    let watch = |rv| {
        let end = Observation::Bookmark { rv, initial_end: true };
        let watch = Request::WatchInitial { at_least: None, bookmarks: true };
        let watch = session(watch, vec![added("a", 1), end], End::Clean);
        Session { began: at(20), times: vec![at(21), at(21)], ..watch }
    };
    let of = |request| Session { request, ..list(2) };
    let acknowledged = |seconds, epoch, version| Acknowledged { at: at(seconds), epoch, version };
    let written = |acknowledged: &[Acknowledged]| Freshness {
        bound: Duration::from_secs(10),
        acknowledged: acknowledged.to_vec(),
        untold: Vec::new(),
    };
    let early = [acknowledged(1, 0, 2), acknowledged(9, 0, 4)];
    let untold = |resource: Option<&str>, from, until: Option<u64>| {
        let (resource, from, until) = (resource.map(str::to_owned), at(from), until.map(at));
        Freshness { untold: vec![Doubtful { resource, from, until }], ..written(&early) }
    };
    let cases = [
        ("all of it", list(4), written(&early), Ok(1)),
        ("more of it", list(5), written(&early), Ok(1)),
        ("an old list", list(3), written(&early), Err(0)),
        ("an old watch", watch(3), written(&early), Err(1)),
        ("a watch", watch(4), written(&early), Ok(1)),
        ("old, and it says so", Session { is_old: true, ..list(3) }, written(&early), Ok(0)),
        ("any", of(Request::List(ListAt::Any)), written(&early), Ok(0)),
        ("not most recent", of(Request::List(ListAt::NotOlderThan(1))), written(&early), Ok(0)),
        ("just in time", list(2), written(&[acknowledged(1, 0, 2), acknowledged(10, 0, 4)]), Ok(1)),
        ("what is selected", selected(list(3), "l=none"), written(&early), Ok(1)),
        ("nothing was written", list(0), written(&[]), Ok(0)),
        ("before anything", list(0), written(&[acknowledged(1, 0, 0)]), Ok(0)),
        ("it lags", list(3), untold(None, 15, None), Ok(0)),
        ("it lagged", list(3), untold(None, 15, Some(20)), Ok(0)),
        ("another's is untold", list(3), untold(Some("others"), 15, None), Err(0)),
        ("it was told in time", list(3), untold(Some("things"), 15, Some(19)), Err(0)),
        ("it lagged later", list(3), untold(None, 22, None), Err(0)),
        ("it went back", list(2), written(&[early[1], acknowledged(19, 1, 2)]), Ok(0)),
        ("it went back later", list(2), written(&[early[1], acknowledged(22, 1, 2)]), Err(0)),
    ];
    for (what, session, freshness, expected) in cases {
        let found = check_fresh(&model(), &freshness, &[session]).map_err(|violation| {
            assert_eq!(violation.guarantee, Guarantee::Fresh, "{what}");
            violation.observation
        });
        assert_eq!(found, expected, "{what}");
    }
}

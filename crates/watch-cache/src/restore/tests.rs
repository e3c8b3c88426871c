use super::Past;
use crate::{
    cache::{Cache, Limits},
    cursor::Step,
    event::Change::{self, Added, Deleted, Modified},
    fixture::{pod, rv, selection, short},
};

fn past(change: Change, key: &str, version: u64, previous: Option<u64>) -> Past {
    Past { change, object: pod(key, "1", version), previous: previous.map(|version| pod(key, "1", version)) }
}

#[test]
fn a_history_is_used_as_far_as_it_can_be_believed() {
    // The state is `a/x@11` and `a/y@14` at version 15.
    let whole = || {
        vec![
            past(Modified, "a/x", 11, Some(9)),
            past(Deleted, "a/z", 12, Some(8)),
            past(Modified, "a/y", 13, Some(10)),
            past(Modified, "a/y", 14, None),
        ]
    };
    let with = |at: usize, event: Past| {
        let mut history = whole();
        history[at] = event;
        history
    };
    let mut repeated = whole();
    repeated.push(past(Modified, "a/y", 14, Some(13)));
    let mut later = whole();
    later.push(past(Modified, "a/y", 16, Some(14)));
    let table = [
        ("whole", whole(), 7),
        ("none", vec![], 7),
        ("the first's previous object is not known", with(0, past(Modified, "a/x", 11, None)), 11),
        ("a previous object is of a later version", with(0, past(Modified, "a/x", 11, Some(12))), 11),
        ("something was there before it was added", with(0, past(Added, "a/x", 11, Some(9))), 11),
        ("deleted, but there", with(1, past(Deleted, "a/x", 12, Some(11))), 12),
        ("there, but not as changed", with(0, past(Modified, "a/x", 10, Some(9))), 11),
        ("not ascending", with(1, past(Deleted, "a/z", 13, Some(8))), 12),
        ("repeated", repeated, 15),
        ("beyond the state", later, 15),
    ];
    for (what, history, oldest) in table {
        let objects = vec![pod("a/y", "1", 14), pod("a/x", "1", 11)];
        let cache = Cache::restore(Limits::default(), objects, rv(15), (rv(7), history));
        assert_eq!(cache.oldest(), Some(rv(oldest)), "{what}");
        assert_eq!(cache.resource_version(), Some(rv(15)), "{what}");
        assert_eq!(cache.snapshot().unwrap().len(), 2, "{what}");
    }
}

#[test]
fn a_reader_goes_on_after_a_restart() {
    let history = vec![
        past(Added, "a/x", 11, None),
        past(Modified, "a/x", 12, None),
        past(Deleted, "a/x", 13, None),
        past(Added, "a/x", 14, None),
    ];
    let mut cache = Cache::restore(Limits::default(), vec![pod("a/x", "1", 14)], rv(14), (rv(10), history));
    let mut reader = cache.watch_after(rv(11), false, selection("")).unwrap();
    cache.apply(Modified, pod("a/x", "1", 14)).unwrap();
    cache.apply(Modified, pod("a/x", "1", 15)).unwrap();
    let Step::Events(told) = reader.next(&cache, 10) else { panic!("nothing was told") };
    assert_eq!(short(&told), ["~a/x@12", "-a/x@13", "+a/x@14", "~a/x@15"]);
}

#[test]
fn the_limits_hold_after_a_restart() {
    let history = (11..20).map(|version| past(Added, &format!("a/{version}"), version, None)).collect();
    let objects = (11..20).map(|version| pod(&format!("a/{version}"), "1", version)).collect();
    let limits = Limits { history_events: 3, ..Limits::default() };
    assert_eq!(Cache::restore(limits, objects, rv(20), (rv(10), history)).oldest(), Some(rv(16)));
}

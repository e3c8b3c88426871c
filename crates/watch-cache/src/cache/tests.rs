use kube_wire::object::Object;

use super::{Cache, Limits, OutOfOrder, Replaced, Rewind};
use crate::{
    cursor::Step,
    event::Change::{self, Added, Deleted, Modified},
    fixture::{pod, pod_of, rv, selection, short},
};

fn keys(cache: &Cache) -> Vec<String> {
    let show = |object: &std::sync::Arc<Object>| format!("{}@{}", object.key(), object.resource_version());
    cache.snapshot().unwrap().iter().map(show).collect()
}

#[test]
fn nothing_is_known_before_a_whole_list() {
    let mut cache = Cache::new(Limits::default());
    cache.bookmark(rv(5));
    assert_eq!(cache.apply(Added, pod("a/x", "1", 3)).unwrap_err(), OutOfOrder::NotComplete);
    assert!(!cache.is_complete() && cache.snapshot().is_none() && cache.resource_version().is_none());
    assert_eq!(cache.replace(vec![], rv(7)), Ok(Replaced::First));
    assert!(cache.is_complete(), "an empty list is a whole one, too");
    cache.reset();
    assert!(!cache.is_complete() && cache.snapshot().is_none());
}

#[test]
fn the_change_is_by_what_the_cache_holds() {
    // (told by upstream, key, version, what readers are told)
    let table: [(Change, &str, u64, Option<Change>); 8] = [
        (Added, "a/x", 10, None),
        (Deleted, "a/x", 9, None),
        (Added, "a/x", 11, Some(Modified)),
        (Added, "a/y", 12, Some(Added)),
        (Deleted, "a/x", 14, Some(Deleted)),
        (Modified, "a/y", 14, None),
        (Modified, "a/y", 15, Some(Modified)),
        (Added, "a/x", 16, Some(Added)),
    ];
    let mut cache = Cache::new(Limits::default());
    cache.replace(vec![pod("a/x", "1", 5)], rv(10)).unwrap();
    for (told, key, version, seen) in table {
        let before = cache.resource_version().unwrap();
        let event = cache.apply(told, pod(key, "1", version)).unwrap();
        assert_eq!(event.as_ref().map(|event| event.change), seen, "{told:?} {key}@{version}");
        assert_eq!(event.is_some_and(|event| event.previous.is_none()), seen == Some(Added));
        assert_eq!(cache.resource_version(), Some(before.max(rv(version))));
    }
    assert_eq!(keys(&cache), ["a/x@16", "a/y@15"]);
}

#[test]
fn an_object_of_a_list_that_ran_ahead_does_not_go_back() {
    let mut cache = Cache::new(Limits::default());
    // The list says 10, one of its objects 14.
    cache.replace(vec![pod("a/x", "new", 14)], rv(10)).unwrap();
    let mut reader = cache.watch_after(rv(10), false, selection("")).unwrap();
    for (change, version) in [(Modified, 12), (Deleted, 13), (Added, 14)] {
        assert!(cache.apply(change, pod("a/x", "old", version)).unwrap().is_none());
        assert_eq!(keys(&cache), ["a/x@14"]);
        assert_eq!(cache.resource_version(), Some(rv(version)));
    }
    assert_eq!(reader.next(&cache, 10), Step::Idle);
    cache.apply(Modified, pod("a/x", "newer", 15)).unwrap();
    let Step::Events(told) = reader.next(&cache, 10) else { panic!("nothing was told") };
    assert_eq!(short(&told), ["~a/x@15"]);
}

#[test]
fn a_change_of_another_object_or_of_none_means_that_an_event_was_missed() {
    for change in [Added, Modified, Deleted] {
        let mut cache = Cache::new(Limits::default());
        cache.replace(vec![pod_of("one", "a/x", "1", 5)], rv(5)).unwrap();
        let missed = cache.apply(change, pod_of("two", "a/x", "1", 6)).unwrap_err();
        assert_eq!(missed, OutOfOrder::Missed { key: "a/x".to_owned(), version: rv(6) });
        assert_eq!((keys(&cache), cache.resource_version()), (vec!["a/x@5".to_owned()], Some(rv(5))));
    }
    let mut cache = Cache::new(Limits::default());
    cache.replace(vec![pod_of("one", "a/x", "1", 5)], rv(5)).unwrap();
    for change in [Modified, Deleted] {
        let missed = cache.apply(change, pod_of("one", "a/y", "1", 6)).unwrap_err();
        assert_eq!(missed, OutOfOrder::Missed { key: "a/y".to_owned(), version: rv(6) });
        assert_eq!((keys(&cache), cache.resource_version()), (vec!["a/x@5".to_owned()], Some(rv(5))));
    }
    cache.apply(Deleted, pod_of("one", "a/x", "1", 6)).unwrap();
    cache.apply(Added, pod_of("two", "a/x", "1", 7)).unwrap();
    assert_eq!(keys(&cache), ["a/x@7"]);
}

#[test]
fn a_list_ends_the_history_unless_it_says_the_same() {
    let old = || vec![pod("a/x", "1", 5)];
    let other_bytes = || vec![pod("a/x", "2", 5)];
    // (list, version, answer, whether a reader at version 6 and one at 8 go on)
    let table = [
        (old(), 5, Err(Rewind { current: rv(6), listed: rv(5) }), true, true),
        (old(), 6, Ok(Replaced::Same), true, true),
        (other_bytes(), 6, Ok(Replaced::Anew), false, false),
        (vec![], 6, Ok(Replaced::Anew), false, false),
        (old(), 7, Ok(Replaced::Anew), false, true),
        (old(), 9, Ok(Replaced::Anew), false, false),
    ];
    for (objects, version, answer, at_6, at_8) in table {
        let mut cache = Cache::new(Limits::default());
        cache.replace(old(), rv(5)).unwrap();
        cache.bookmark(rv(6));
        let [mut now, mut future] = [6, 8].map(|at| cache.watch_after(rv(at), false, selection("")).unwrap());
        assert_eq!(cache.replace(objects.clone(), rv(version)), answer, "{version}");
        assert_eq!(now.next(&cache, 1) == Step::Idle, at_6, "at 6, list of {version}: {objects:?}");
        assert_eq!(future.next(&cache, 1) == Step::Idle, at_8, "at 8, list of {version}: {objects:?}");
    }
}

#[test]
fn no_reader_outlives_the_epoch() {
    let mut cache = Cache::new(Limits::default());
    cache.replace(vec![], rv(100)).unwrap();
    let mut readers = [100, 200].map(|at| cache.watch_after(rv(at), false, selection("")).unwrap());
    cache.reset();
    for reader in &mut readers {
        assert_eq!(reader.next(&cache, 1), Step::Expired { oldest: None, asked: reader.resource_version() });
    }
    cache.replace(vec![], rv(50)).unwrap();
    for reader in &mut readers {
        let oldest = Some(rv(50));
        assert_eq!(reader.next(&cache, 1), Step::Expired { oldest, asked: reader.resource_version() });
    }
}

use super::{Cursor, Step};
use crate::{
    cache::{Cache, Limits},
    event::Change::{Added, Deleted, Modified},
    fixture::{pod, rv, selection, short},
    selection::{Scope, Selection},
};

fn told(reader: &mut Cursor, cache: &Cache) -> Vec<String> {
    let mut told = Vec::new();
    while let Step::Events(deliveries) = reader.next(cache, 3) {
        told.extend(short(&deliveries));
    }
    told
}

#[test]
fn an_idle_reader_takes_few_words() {
    assert!(size_of::<Cursor<Selection>>() <= 104, "{} bytes", size_of::<Cursor<Selection>>());
}

#[test]
fn a_reader_that_has_caught_up_knows() {
    let mut cache = Cache::new(Limits::default());
    cache.replace(vec![pod("a/x", "1", 9), pod("a/y", "1", 9)], rv(10)).unwrap();
    let mut reader = cache.watch_initial(None, false, true, selection("")).unwrap();
    let mut asked = |cache: &Cache, budget| {
        let Step::Events(told) = reader.next(cache, budget) else { panic!("nothing was told") };
        (short(&told), reader.has_caught_up())
    };
    assert_eq!(asked(&cache, 1), (vec!["+a/x@9".to_owned()], false), "the rest of the state is left");
    assert_eq!(asked(&cache, 9), (vec!["+a/y@9".to_owned()], true));
    cache.apply(Modified, pod("a/x", "1", 11)).unwrap();
    cache.apply(Modified, pod("a/x", "1", 12)).unwrap();
    assert_eq!(asked(&cache, 1), (vec!["~a/x@11".to_owned()], false), "an event is left");
    assert_eq!(asked(&cache, 1), (vec!["~a/x@12".to_owned()], true));
    reader.request_bookmark();
    assert!(!reader.has_caught_up(), "a bookmark is left");
}

#[test]
fn the_selector_makes_the_change() {
    // (label before, label after, what a reader of `app=1` is told); `None` is no object.
    let table = [
        (None, Some("2"), None),
        (None, Some("1"), Some("+a/x@11")),
        (Some("2"), Some("2"), None),
        (Some("2"), Some("1"), Some("+a/x@11")),
        (Some("1"), Some("1"), Some("~a/x@11")),
        (Some("1"), Some("2"), Some("-a/x@11")),
        (Some("1"), None, Some("-a/x@11")),
        (Some("2"), None, None),
    ];
    for (before, after, seen) in table {
        let mut cache = Cache::new(Limits::default());
        let held: Vec<_> = before.map(|app| pod("a/x", app, 9)).into_iter().collect();
        cache.replace(held, rv(10)).unwrap();
        let mut reader = cache.watch_after(rv(10), false, selection("app=1")).unwrap();
        match after {
            Some(app) => {
                let change = if before.is_some() { Modified } else { Added };
                cache.apply(change, pod("a/x", app, 11)).unwrap()
            }
            None => cache.apply(Deleted, pod("a/x", before.unwrap(), 11)).unwrap(),
        };
        let Step::Events(deliveries) = reader.next(&cache, 1) else {
            assert_eq!(seen, None, "{before:?} {after:?}");
            continue;
        };
        assert_eq!(short(&deliveries), seen.into_iter().collect::<Vec<_>>(), "{before:?} {after:?}");
        for delivery in &deliveries {
            if let super::Delivery::Deleted(gone) = delivery {
                assert_eq!(gone.label("app").as_deref(), before, "the last state that was seen");
            }
        }
    }
}

#[test]
fn the_body_of_a_selector_exit_is_made_once() {
    let mut cache = Cache::new(Limits::default());
    cache.replace(vec![pod("a/x", "1", 9)], rv(10)).unwrap();
    let event = cache.apply(Modified, pod("a/x", "2", 11)).unwrap().unwrap();
    let [one, two] = [(); 2].map(|()| event.departed().unwrap());
    assert!(std::sync::Arc::ptr_eq(&one, &two));
}

#[test]
fn the_initial_state_comes_in_pieces_and_does_not_change_meanwhile() {
    let mut cache = Cache::new(Limits::default());
    let objects = ["b/x", "a/x", "a-b/x", "a/y"].map(|key| pod(key, "1", 9));
    cache.replace(objects.to_vec(), rv(10)).unwrap();
    let mut reader = cache.watch_initial(None, true, true, selection("")).unwrap();
    reader.request_bookmark();
    let Step::Events(first) = reader.next(&cache, 2) else { panic!("nothing was told") };
    assert_eq!(short(&first), ["+a-b/x@9", "+a/x@9"]);
    cache.apply(Deleted, pod("a/y", "1", 11)).unwrap();
    cache.apply(Added, pod("a/z", "1", 12)).unwrap();
    assert_eq!(told(&mut reader, &cache), ["+a/y@9", "+b/x@9", "end@10", "-a/y@11", "+a/z@12", "mark@12"]);
}

#[test]
fn a_reader_that_cannot_finish_is_told_at_once() {
    let mut cache = Cache::new(Limits { history_events: 1, ..Limits::default() });
    cache.replace(vec![pod("a/x", "1", 9), pod("a/y", "1", 9)], rv(10)).unwrap();
    let mut reader = cache.watch_initial(None, true, true, selection("")).unwrap();
    assert!(matches!(reader.next(&cache, 1), Step::Events(_)));
    for version in 11..14 {
        cache.apply(Modified, pod("a/x", "1", version)).unwrap();
    }
    assert_eq!(reader.next(&cache, 1), Step::Expired { oldest: Some(rv(12)), asked: rv(10) });
}

#[test]
fn a_reader_whose_selector_leaves_all_out_keeps_to_its_budget_and_goes_on() {
    let mut cache = Cache::new(Limits { history_events: 2, ..Limits::default() });
    cache.replace(vec![pod("a/x", "1", 9)], rv(10)).unwrap();
    let mut reader = cache.watch_after(rv(10), true, selection("app=none")).unwrap();
    for version in 11..30 {
        cache.apply(Modified, pod("a/x", "1", version)).unwrap();
        cache.bookmark(rv(version));
        if version % 2 == 0 {
            assert_eq!(reader.next(&cache, 1), Step::Events(vec![]), "there is one more to look at");
            assert_eq!(reader.next(&cache, 1), Step::Idle);
        }
    }
    assert_eq!(reader.resource_version(), rv(28));
}

#[test]
fn bookmarks_only_when_caught_up_and_asked_for() {
    let mut cache = Cache::new(Limits::default());
    cache.replace(vec![], rv(10)).unwrap();
    let [mut with, mut future] = [10, 13].map(|at| cache.watch_after(rv(at), true, selection("")).unwrap());
    let mut without = cache.watch_after(rv(10), false, selection("")).unwrap();
    for reader in [&mut with, &mut future, &mut without] {
        reader.request_bookmark();
    }
    cache.apply(Added, pod("a/x", "1", 11)).unwrap();
    cache.apply(Modified, pod("a/x", "1", 12)).unwrap();
    let Step::Events(first) = with.next(&cache, 1) else { panic!("nothing was told") };
    assert_eq!(short(&first), ["+a/x@11"], "not before the reader has caught up");
    assert_eq!(told(&mut with, &cache), ["~a/x@12", "mark@12"]);
    assert_eq!(told(&mut with, &cache), Vec::<String>::new(), "once a request");
    assert_eq!(told(&mut without, &cache), ["+a/x@11", "~a/x@12"]);
    assert_eq!(told(&mut future, &cache), Vec::<String>::new(), "its version is still to come");
    cache.bookmark(rv(14));
    assert_eq!(told(&mut future, &cache), ["mark@14"]);
}

#[test]
fn a_reader_whom_much_passes_by_hears_how_far_it_has_come() {
    // Of some 200 bytes each: what the history holds is many times what a bookmark comes after.
    let events = 8 * u64::from(super::PASSED) / pod("a/x", "1", 9).body().len() as u64;
    let mut cache = Cache::new(Limits { history_bytes: 4 * super::PASSED as usize, ..Limits::default() });
    cache.replace(vec![pod("a/x", "1", 9)], rv(10)).unwrap();
    let [mut quiet, mut all] =
        ["app=none", ""].map(|labels| cache.watch_after(rv(10), true, selection(labels)).unwrap());
    let mut without = cache.watch_after(rv(10), false, selection("app=none")).unwrap();
    let mut last = rv(10);
    for version in 11..11 + events {
        cache.apply(Modified, pod("a/x", "1", version)).unwrap();
        for delivery in told(&mut quiet, &cache) {
            assert_eq!(delivery, format!("mark@{version}"));
            last = rv(version);
        }
        assert!(
            cache.watch_after(last, true, selection("")).is_ok(),
            "{version}: {last:?} has left the history"
        );
        assert_eq!(told(&mut all, &cache), [format!("~a/x@{version}")], "who is told needs no bookmark");
        assert_eq!(told(&mut without, &cache), Vec::<String>::new(), "nor gets one who asked for none");
    }
    assert!(last > rv(10 + events / 2), "{last:?}");
    assert!(cache.watch_after(rv(10), true, selection("")).is_err(), "the history was long enough for all");
}

#[test]
fn a_reader_knows_the_objects_of_its_scope_where_it_has_nothing_left_to_hear() {
    let keys = |reader: &Cursor, cache: &Cache| {
        let objects = reader.state(cache)?;
        Some(objects.map(|object| object.key().as_str().to_owned()).collect::<Vec<_>>())
    };
    let mut cache = Cache::new(Limits::default());
    cache.replace(vec![pod("a/x", "1", 9), pod("b/y", "1", 8)], rv(10)).unwrap();
    let of_a = Selection { scope: Scope::Namespace("a".into()), ..selection("app=none") };
    let mut whole = cache.watch_initial(None, false, true, selection("")).unwrap();
    let mut of_a = cache.watch_after(rv(10), true, of_a).unwrap();
    let mut ahead = cache.watch_after(rv(13), true, selection("")).unwrap();
    assert_eq!(keys(&whole, &cache), None, "it is to be told the state");
    for reader in [&mut whole, &mut of_a, &mut ahead] {
        told(reader, &cache);
    }
    assert_eq!(keys(&whole, &cache).unwrap(), ["a/x", "b/y"]);
    assert_eq!(keys(&of_a, &cache).unwrap(), ["a/x"], "selected or not");
    assert_eq!(keys(&ahead, &cache), None, "what it knows is not held");
    assert!(whole.held(&cache).is_none());
    assert_eq!(ahead.held(&cache).unwrap().resource_version(), rv(10));
    cache.apply(Added, pod("a/z", "1", 11)).unwrap();
    assert_eq!(keys(&whole, &cache), None, "there is something to tell");
    told(&mut whole, &cache);
    assert_eq!(keys(&whole, &cache).unwrap(), ["a/x", "a/z", "b/y"]);
    cache.bookmark(rv(13));
    told(&mut ahead, &cache);
    assert_eq!(keys(&ahead, &cache).unwrap(), ["a/x", "a/z", "b/y"], "now it is");
    ahead.rewind(&cache, rv(10));
    assert_eq!(told(&mut ahead, &cache), ["+a/z@11"], "what came after that, once more");
    cache.reset();
    assert_eq!(keys(&ahead, &cache), None);
}

use http::{HeaderMap, HeaderValue, header};

use super::*;
use crate::{
    filters::{FilterName, Filtered, View},
    subscriptions::Owner,
};

fn client(number: usize) -> Client {
    let agent = HeaderValue::from_str(&format!("agent-{number}/1")).unwrap();
    Client::of(&Owner::Node, &HeaderMap::from_iter([(header::USER_AGENT, agent)]))
}

fn name(number: usize) -> Box<str> {
    let resource = kube_wire::resource::GroupVersionResource::new("", "v1", "services");
    reader(&client(number), &Key::pooled(&resource), false)
}

fn at(version: u64) -> ResourceVersion {
    ResourceVersion::new(version).unwrap()
}

fn in_pool(pool: &str) -> Filter {
    let view = View::of_node("n", Some(pool), None);
    Filter::new(Filtered::Services, [FilterName::NodePortIsolation].into(), view.into())
}

#[test]
fn a_list_after_a_change_lets_one_go_on_from_its_version_and_not_another() {
    let [first, second] = ["a", "b"].map(in_pool);
    let mut shown = Shown::default();
    shown.show("r", Some(&first), at(10), Place::WHOLE);
    for _ in 0..2 {
        assert!(shown.goes_on("r", Some(&first), at(10)), "nothing has changed");
    }
    // One of two with this name lists, by another filter or behind what was told; the other knows that version from before.
    for change in [0, 1] {
        if change == 1 {
            shown.retell("r", Some(&second), Some(&first), at(10));
            shown.retell("r", Some(&first), Some(&second), at(10));
        }
        shown.show("r", Some(&second), at(10), Place::WHOLE);
        let mut again = Shown::restore(&shown.export().unwrap());
        assert!(shown.goes_on("r", Some(&second), at(10)), "who listed");
        for shown in [&mut shown, &mut again] {
            assert!(!shown.goes_on("r", Some(&second), at(10)), "whoever else comes from there");
            assert!(shown.goes_on("r", Some(&second), at(11)));
        }
    }
}

#[test]
fn a_page_is_no_whole_and_pages_are_if_they_are_of_one_list() {
    let [first, second] = ["a", "b"].map(in_pool);
    let page = |is_first, is_last| Place { is_first, is_last, held: None };
    let goes_on = |pages: &[(&Filter, u64, Place)]| {
        let mut shown = Shown::default();
        for (filter, version, place) in pages {
            shown.show("r", Some(filter), at(*version), *place);
        }
        shown.goes_on("r", Some(&second), at(10))
    };
    let (begins, goes, ends) = (page(true, false), page(false, false), page(false, true));
    assert!(goes_on(&[(&second, 10, begins), (&second, 10, goes), (&second, 10, ends)]));
    for pages in [
        &[(&second, 10, begins)][..],
        &[(&second, 10, begins), (&second, 10, goes)],
        &[(&first, 10, begins), (&second, 10, ends)],
        &[(&second, 9, begins), (&second, 10, ends)],
        &[(&second, 10, ends)],
    ] {
        assert!(!goes_on(pages), "{} pages", pages.len());
    }
}

#[test]
fn a_list_without_a_filter_vouches_for_no_earlier_version_than_another_list() {
    let first = in_pool("a");
    let mut shown = Shown::default();
    shown.show("r", None, at(5), Place::WHOLE);
    assert!(shown.export().is_none() && shown.goes_on("r", None, at(3)), "who never saw a filter");
    shown.show("r", Some(&first), at(10), Place::WHOLE);
    shown.retell("r", Some(&first), None, at(20));
    shown.show("r", None, at(25), Place::WHOLE);
    for (version, saw) in [(15, false), (20, false), (21, true), (25, true)] {
        assert_eq!(shown.goes_on("r", None, at(version)), saw, "{version}");
    }
    // It was told nothing, and lists: from there on once.
    shown.show("s", Some(&first), at(10), Place::WHOLE);
    shown.show("s", None, at(25), Place::WHOLE);
    let mut again = Shown::restore(&shown.export().unwrap());
    for (version, saw) in [(15, false), (25, true), (25, false), (26, true)] {
        assert_eq!(shown.goes_on("s", None, at(version)), saw, "{version}");
    }
    assert!(!again.goes_on("s", None, at(25)) && again.goes_on("s", None, at(26)));
}

#[test]
fn pages_of_which_one_was_filtered_are_no_list_without_a_filter() {
    let first = in_pool("a");
    let page = |is_first, is_last| Place { is_first, is_last, held: Some(at(12)) };
    let (begins, goes, ends) = (page(true, false), page(false, false), page(false, true));
    for pages in [
        &[(Some(&first), begins), (None, ends)][..],
        &[(Some(&first), begins), (None, goes), (None, ends)],
        &[(None, begins), (Some(&first), goes), (None, ends)],
    ] {
        let mut shown = Shown::default();
        for (filter, place) in pages {
            shown.show("r", *filter, at(10), *place);
        }
        for (version, saw) in [(10, false), (12, false), (13, true)] {
            assert_eq!(shown.goes_on("r", None, at(version)), saw, "{} pages, {version}", pages.len());
        }
    }
    // Of one who never saw a filter also where the first of them is not known.
    let mut shown = Shown::default();
    for place in [goes, ends] {
        shown.show("r", None, at(10), place);
    }
    assert!(shown.goes_on("r", None, at(10)) && shown.export().is_none());
}

#[test]
fn a_list_of_an_earlier_version_vouches_for_itself_alone() {
    let [first, second] = ["a", "b"].map(in_pool);
    let earlier = Place { held: Some(at(30)), ..Place::WHOLE };
    let mut shown = Shown::default();
    shown.show("r", Some(&first), at(10), Place::WHOLE);
    shown.retell("r", Some(&first), Some(&second), at(20));
    shown.show("r", Some(&second), at(15), earlier);
    for (version, saw) in [(18, false), (15, true), (15, false), (20, false), (21, true)] {
        assert_eq!(shown.goes_on("r", Some(&second), at(version)), saw, "{version}");
    }
    // By another filter: who knows anything that is held may know it by the one before.
    shown.show("r", Some(&first), at(25), earlier);
    for (version, saw) in [(28, false), (25, true), (30, false), (31, true)] {
        assert_eq!(shown.goes_on("r", Some(&first), at(version)), saw, "{version}");
    }
    // Versions began anew.
    shown.show("r", Some(&first), at(5), Place { held: Some(at(6)), ..Place::WHOLE });
    assert!(!shown.goes_on("r", Some(&first), at(4)) && shown.goes_on("r", Some(&first), at(5)));
}

#[test]
fn it_is_known_what_a_reader_may_have_seen_otherwise_at_the_same_version() {
    let [first, second] = ["a", "b"].map(in_pool);
    let mut shown = Shown::default();
    let saw = |shown: &Shown, filter: Option<&Filter>| shown.saw_otherwise("r", filter, Instant::now());
    shown.show("r", None, at(5), Place::WHOLE);
    assert_eq!((saw(&shown, None), saw(&shown, Some(&first))), (0, 0), "it was shown all as it is");
    shown.show("r", Some(&first), at(10), Place::WHOLE);
    assert_eq!((saw(&shown, Some(&first)), saw(&shown, None)), (0, u64::MAX));
    // It is told what differs, up to a version: nothing of what came after that.
    shown.retell("r", Some(&first), None, at(20));
    assert_eq!(saw(&shown, None), 0, "nothing did");
    shown.see_otherwise("r", Some(&first), None, at(18));
    assert_eq!(saw(&shown, None), 19);
    // It lists: not all that are called so have, and its answer may have been lost.
    shown.show("r", Some(&second), at(30), Place { held: Some(at(31)), ..Place::WHOLE });
    assert_eq!((saw(&shown, Some(&second)), saw(&shown, None)), (32, u64::MAX));
    shown.show("r", Some(&second), at(40), Place::WHOLE);
    assert_eq!(saw(&shown, Some(&second)), 32);
    let again = Shown::restore(&shown.export().unwrap());
    assert_eq!((saw(&again, Some(&second)), saw(&again, None)), (32, u64::MAX));
    // As an earlier release stored it.
    let stored = serde_json::to_vec(&Stored(vec![("r".into(), first.fingerprint().into(), 10)])).unwrap();
    let mut again = Shown::restore(&stored);
    assert_eq!((saw(&again, Some(&first)), saw(&again, None)), (0, u64::MAX));
    assert!(again.goes_on("r", Some(&first), at(10)));
}

#[test]
fn what_a_reader_saw_otherwise_is_forgotten_when_whoever_was_there_has_come_back() {
    let [first, second] = ["a", "b"].map(in_pool);
    let saw = |shown: &Shown, filter: &Filter, later: Duration| {
        shown.saw_otherwise("r", Some(filter), Instant::now() + later)
    };
    let soon = LAPSES.saturating_sub(Duration::from_mins(1));
    let mut shown = Shown::default();
    shown.show("r", Some(&first), at(10), Place::WHOLE);
    shown.show("r", Some(&second), at(30), Place::WHOLE);
    // Whoever comes after a start has as long.
    let again = Shown::restore(&shown.export().unwrap());
    for shown in [&shown, &again] {
        assert_eq!((saw(shown, &second, soon), saw(shown, &second, LAPSES)), (31, 0));
        assert_eq!(saw(shown, &first, LAPSES), u64::MAX, "nobody has been shown that yet");
    }
    // It lists on, which renews nothing; the next change does.
    shown.show("r", Some(&second), at(40), Place::WHOLE);
    let long_ago = Instant::now().checked_sub(LAPSES).unwrap();
    shown.by_reader.get_mut("r").unwrap().otherwise = Some((31, long_ago));
    shown.show("r", Some(&second), at(50), Place::WHOLE);
    assert_eq!(saw(&shown, &second, Duration::ZERO), 0);
    // Versions have begun anew meanwhile: the one that is forgotten counts for nothing.
    shown.see_otherwise("r", Some(&first), Some(&second), at(20));
    assert_eq!((saw(&shown, &second, Duration::ZERO), saw(&shown, &second, LAPSES)), (21, 0));
    shown.by_reader.get_mut("r").unwrap().otherwise = Some((21, long_ago));
    let again = Shown::restore(&shown.export().unwrap());
    assert_eq!(saw(&again, &second, Duration::ZERO), 0, "it is stored as forgotten");
}

/// They are told as states at versions of their own, and their ends as well.
#[test]
fn corrections_of_pods_are_seen_at_no_version_that_an_object_has() {
    use crate::filters::{LocalPod, LocalPods};

    let pod = LocalPod { name: "a/p".into(), addresses: Vec::new(), ready: false };
    let mut view = View::of_node("n", None, None);
    view.local_pods = LocalPods { pods: [("u".into(), pod)].into() }.into();
    let filter =
        |names: &[FilterName]| Filter::new(Filtered::EndpointSlices, names.into(), view.clone().into());
    let (topology, local) = (FilterName::ServiceTopology, FilterName::LocalPods);
    let [plain, corrected, both] = [&[topology][..], &[local], &[topology, local]].map(filter);
    for (before, now, otherwise) in [
        (Some(&corrected), None, 0),
        (Some(&both), Some(&plain), 0),
        (Some(&plain), Some(&both), 0),
        (Some(&both), None, 11),
        (Some(&plain), Some(&corrected), 11),
    ] {
        let mut shown = Shown::default();
        shown.show("r", before, at(10), Place::WHOLE);
        let first = if otherwise == 0 { 0 } else { u64::MAX };
        assert_eq!(shown.saw_otherwise("r", now, Instant::now()), first);
        shown.see_otherwise("r", before, now, at(10));
        shown.retell("r", before, now, at(10));
        assert_eq!(shown.saw_otherwise("r", now, Instant::now()), otherwise);
        assert!(!shown.goes_on("r", now, at(10)), "what is shown is another thing all the same");
    }
}

#[test]
fn who_was_told_what_differs_goes_on_from_there_and_from_no_earlier_version() {
    let (client, other) = ("client", "other");
    let [first, second, third] = ["a", "b", "c"].map(in_pool);
    let mut shown = Shown::default();
    shown.show(client, Some(&first), at(10), Place::WHOLE);
    shown.retell(client, Some(&first), Some(&second), at(20));
    let mut again = Shown::restore(&shown.export().unwrap());
    for shown in [&mut shown, &mut again] {
        for (version, filter, saw) in
            [(19, &second, false), (20, &second, false), (21, &second, true), (21, &first, false)]
        {
            assert_eq!(shown.goes_on(client, Some(filter), at(version)), saw, "{version}");
        }
    }
    // Another watch of it, which had come further.
    shown.retell(client, Some(&first), Some(&second), at(25));
    assert!(!shown.goes_on(client, Some(&second), at(25)) && shown.goes_on(client, Some(&second), at(26)));
    // One that went by a filter that it was not shown the whole through says nothing of what the client knows.
    shown.retell(client, Some(&first), Some(&third), at(30));
    assert!(shown.goes_on(client, Some(&second), at(30)));
    shown.retell(other, Some(&first), Some(&third), at(30));
    assert!(!shown.goes_on(other, Some(&third), at(30)), "it never listed");
    // Its list of an earlier version, or of versions that began anew, is whole by itself.
    shown.show(client, Some(&second), at(5), Place::WHOLE);
    assert!(shown.goes_on(client, Some(&second), at(5)));
    // Nothing filters any more, and then something does again.
    shown.retell(client, Some(&second), None, at(40));
    assert!(!shown.goes_on(client, None, at(40)) && shown.goes_on(client, None, at(41)));
    shown.retell(client, None, Some(&first), at(50));
    shown.retell(client, Some(&first), Some(&second), at(50));
    for (version, saw) in [(50, false), (51, true)] {
        assert_eq!(shown.goes_on(client, Some(&second), at(version)), saw, "twice at one version: {version}");
    }
}

#[test]
fn the_oldest_reader_is_forgotten_and_no_other() {
    let view = View::of_node("n", None, None);
    let filter = Filter::new(Filtered::Services, [FilterName::NodePortIsolation].into(), view.into());
    let mut shown = Shown::default();
    for number in 0..REMEMBERED {
        shown.show(&name(number), Some(&filter), at(1), Place::WHOLE);
    }
    // The first is used again: now the second is the oldest.
    assert!(shown.goes_on(&name(0), Some(&filter), at(1)));
    shown.show(&name(REMEMBERED), Some(&filter), at(1), Place::WHOLE);
    for number in (0..=REMEMBERED).filter(|number| *number != 1) {
        assert!(shown.goes_on(&name(number), Some(&filter), at(1)), "{number}");
    }
    assert!(!shown.goes_on(&name(1), Some(&filter), at(1)));
    let mut again = Shown::restore(&shown.export().unwrap());
    assert!(shown.export().is_none() && again.export().is_none(), "nothing to write");
    for number in (0..=REMEMBERED).filter(|number| *number != 1) {
        assert!(again.goes_on(&name(number), Some(&filter), at(1)), "{number}");
    }
    assert!(!Shown::restore(b"{").goes_on(&name(0), Some(&filter), at(1)));
}

use kube_wire::list_options::WatchRequest;

use super::WatchAnswer;
use crate::{
    cache::{Cache, Limits},
    cursor::Step,
    event::Change::Added,
    fixture::{pod, pods, rv, short},
    selection::Scope,
};

/// Three pods at versions 2, 3 and 4, all in the history.
fn cache() -> Cache {
    let mut cache = Cache::new(Limits::default());
    cache.replace(vec![], rv(1)).unwrap();
    for (key, version) in [("a/c", 2), ("a/b", 3), ("a/a", 4)] {
        cache.apply(Added, pod(key, "1", version)).unwrap();
    }
    cache
}

/// `RunWatchSemantics` of the API server, through the query's defaults: 4 versions × `sendInitialEvents` × bookmarks.
#[test]
fn watches_begin_as_those_of_the_api_server() {
    let state = ["+a/a@4", "+a/b@3", "+a/c@2"];
    let events = ["+a/c@2", "+a/b@3", "+a/a@4"];
    let nothing: [&str; 0] = [];
    // (resourceVersion, sendInitialEvents, what comes first, whether the end of the state is marked)
    let table = [
        ("", None, &state[..], true),
        ("0", None, &state[..], true),
        ("1", None, &events[..], false),
        ("4", None, &nothing[..], false),
        ("", Some(true), &state[..], true),
        ("0", Some(true), &state[..], true),
        ("1", Some(true), &state[..], true),
        ("4", Some(true), &state[..], true),
        ("", Some(false), &nothing[..], false),
        ("0", Some(false), &nothing[..], false),
        ("1", Some(false), &events[..], false),
        ("4", Some(false), &nothing[..], false),
    ];
    for (version, initial, first, end) in table {
        for bookmarks in [false, true] {
            let initial = initial
                .map(|send| format!("&sendInitialEvents={send}&resourceVersionMatch=NotOlderThan"))
                .unwrap_or_default();
            let query = format!("resourceVersion={version}&allowWatchBookmarks={bookmarks}{initial}");
            let request = WatchRequest::parse(&query, &pods()).unwrap();
            let mut cache = cache();
            let mut reader = cache.watch(&request, Scope::Namespace("a".into())).unwrap();
            cache.apply(Added, pod("a/d", "1", 5)).unwrap();
            cache.apply(Added, pod("b/d", "1", 6)).unwrap();
            let mut expected = first.to_vec();
            if end && bookmarks {
                expected.push("end@4");
            }
            expected.push("+a/d@5");
            let mut told = Vec::new();
            while let Step::Events(deliveries) = reader.next(&cache, 2) {
                told.extend(short(&deliveries));
            }
            assert_eq!(told, expected, "{query}");
        }
    }
}

#[test]
fn what_cannot_be_served_is_said() {
    let mut cache = Cache::new(Limits { history_events: 2, ..Limits::default() });
    let watch = |cache: &Cache, query: &str| {
        let query = format!(
            "{query}&resourceVersionMatch=NotOlderThan&sendInitialEvents={}",
            query != "resourceVersion=2"
        );
        cache.watch(&WatchRequest::parse(&query, &pods()).unwrap(), Scope::Cluster).err()
    };
    assert_eq!(watch(&cache, "resourceVersion=0"), Some(WatchAnswer::NotComplete));
    cache.replace(vec![], rv(1)).unwrap();
    for version in 2..6 {
        cache.apply(Added, pod("a/x", "1", version)).unwrap();
    }
    assert_eq!(
        watch(&cache, "resourceVersion=2"),
        Some(WatchAnswer::Expired { oldest: rv(3), asked: rv(2) })
    );
    assert_eq!(watch(&cache, "resourceVersion=6"), Some(WatchAnswer::Behind { current: rv(5) }));
    assert_eq!(watch(&cache, "resourceVersion=5"), None);
}

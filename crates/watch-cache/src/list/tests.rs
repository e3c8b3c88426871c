use kube_wire::{continue_token, list_options::ListRequest};

use super::ListAnswer;
use crate::{
    cache::{Cache, Limits},
    event::Change::{Added, Deleted, Modified},
    fixture::{pod, pods, rv},
    selection::Scope,
};

/// At 10: `a-b/x`, `a/x`, `a/y`, `b/x`; at 11 `a/y` changes its label to 2, at 12 `a/x` is deleted, at 13 `a/z` is added.
fn cache() -> Cache {
    let mut cache = Cache::new(Limits::default());
    let objects = ["b/x", "a/y", "a/x", "a-b/x"].map(|key| pod(key, "1", 9));
    cache.replace(objects.to_vec(), rv(10)).unwrap();
    cache.apply(Modified, pod("a/y", "2", 11)).unwrap();
    cache.apply(Deleted, pod("a/x", "1", 12)).unwrap();
    cache.apply(Added, pod("a/z", "1", 13)).unwrap();
    cache
}

/// `version: keys [+remaining] [>last]`, or the refusal.
fn list(cache: &Cache, scope: Scope, query: &str) -> String {
    let request = ListRequest::parse(query, &pods()).unwrap();
    match cache.list(&request, scope) {
        ListAnswer::Page(page) => {
            let keys: Vec<_> = page.objects.iter().map(|object| object.key().as_str()).collect();
            let remaining = page.remaining.map(|count| format!(" +{count}")).unwrap_or_default();
            let token = page.continue_token.map(|token| {
                let position = continue_token::decode(&token).unwrap();
                assert_eq!(position.at, Some(page.resource_version));
                format!(" >{}", position.start.trim_end_matches('\0'))
            });
            format!("{}: {}{remaining}{}", page.resource_version, keys.join(" "), token.unwrap_or_default())
        }
        ListAnswer::Behind { current } => format!("behind {current}"),
        ListAnswer::Expired { oldest, asked } => format!("expired {asked} ({oldest})"),
        ListAnswer::NotComplete => "not complete".to_owned(),
    }
}

#[test]
fn lists_are_those_of_the_api_server() {
    let cluster = || Scope::Cluster;
    let a = || Scope::Namespace("a".into());
    let table = [
        (cluster(), "", "13: a-b/x a/y a/z b/x"),
        (a(), "", "13: a/y a/z"),
        (cluster(), "limit=2", "13: a-b/x a/y +2 >a/y"),
        (a(), "limit=1", "13: a/y +1 >y"),
        (cluster(), "limit=4", "13: a-b/x a/y a/z b/x"),
        // The API server takes version 0 from its cache, whole.
        (cluster(), "limit=2&resourceVersion=0", "13: a-b/x a/y a/z b/x"),
        (cluster(), "resourceVersion=11", "13: a-b/x a/y a/z b/x"),
        (cluster(), "resourceVersion=14", "behind 13"),
        (cluster(), "limit=2&resourceVersion=11&resourceVersionMatch=NotOlderThan", "13: a-b/x a/y +2 >a/y"),
        // Without a match a limit makes it exact.
        (cluster(), "limit=2&resourceVersion=11", "11: a-b/x a/x +2 >a/x"),
        (cluster(), "resourceVersion=10&resourceVersionMatch=Exact", "10: a-b/x a/x a/y b/x"),
        (cluster(), "resourceVersion=12&resourceVersionMatch=Exact", "12: a-b/x a/y b/x"),
        (cluster(), "resourceVersion=9&resourceVersionMatch=Exact", "expired 9 (10)"),
        (cluster(), "resourceVersion=14&resourceVersionMatch=Exact", "behind 13"),
        // With a selector the rest is not counted, and a page may be followed by an empty one.
        (cluster(), "labelSelector=app%3D1&limit=1", "13: a-b/x >a-b/x"),
        (cluster(), "labelSelector=app%3D2&limit=1", "13: a/y >a/y"),
        (
            cluster(),
            "labelSelector=app%3D1&resourceVersion=10&limit=9&resourceVersionMatch=Exact",
            "10: a-b/x a/x a/y b/x",
        ),
        (cluster(), "fieldSelector=metadata.name%3Dx", "13: a-b/x b/x"),
    ];
    let cache = cache();
    for (scope, query, answer) in table {
        assert_eq!(list(&cache, scope, query), answer, "{query}");
    }
    assert_eq!(list(&Cache::new(Limits::default()), Scope::Cluster, ""), "not complete");
}

#[test]
fn what_a_list_is_made_of_does_not_change_while_upstream_goes_on() {
    let mut cache = cache();
    for (query, expected) in
        [("limit=2", (13, "a-b/x a/y", Some(2))), ("limit=2&resourceVersion=11", (11, "a-b/x a/x", Some(2)))]
    {
        let request = ListRequest::parse(query, &pods()).unwrap();
        let listed = cache.listed(&request.read).unwrap();
        let next = cache.resource_version().unwrap().get() + 1;
        cache.apply(Modified, pod("a/y", "3", next)).unwrap();
        cache.apply(Deleted, pod("b/x", "1", next + 1)).unwrap();
        cache.apply(Added, pod("b/x", "1", next + 2)).unwrap();
        let page = listed.page(&request, Scope::Cluster);
        let keys: Vec<_> = page.objects.iter().map(|object| object.key().as_str()).collect();
        assert_eq!((page.resource_version.get(), &*keys.join(" "), page.remaining), expected, "{query}");
        let position = continue_token::decode(&page.continue_token.unwrap()).unwrap();
        assert_eq!(position.at, Some(page.resource_version), "it goes on with the same version");
    }
}

#[test]
fn a_token_goes_on_where_its_page_ended() {
    let cache = cache();
    let table = [
        ("a/x", Some(10), "10: a/y b/x"),
        ("a/x", Some(12), "12: a/y b/x"),
        ("a/x", None, "13: a/y a/z b/x"),
        ("a/x", Some(9), "expired 9 (10)"),
        ("a/x", Some(14), "behind 13"),
        ("zz", Some(13), "13: "),
    ];
    for (last, at, answer) in table {
        let token = continue_token::encode(last, at.map(rv));
        assert_eq!(list(&cache, Scope::Cluster, &format!("continue={token}")), answer, "{last} {at:?}");
    }
    let token = continue_token::encode("y", Some(rv(13)));
    assert_eq!(list(&cache, Scope::Namespace("a".into()), &format!("continue={token}&limit=5")), "13: a/z");
}

use std::time::Duration;

use proptest::prelude::*;

use super::{ListRead, ListRequest, WatchRequest, WatchStart, check_export};
use crate::{
    continue_token, resource::GroupVersionResource, resource_version::ResourceVersion,
    selectable_field::SelectableFields, status::Status,
};

fn services() -> SelectableFields {
    SelectableFields::of(&GroupVersionResource::new("", "v1", "services"))
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(number).unwrap()
}

fn list(query: &str) -> Result<ListRequest, Status> {
    ListRequest::parse(query, &services())
}

#[test]
fn nothing_is_exported() {
    for (query, expected) in [
        ("", true),
        ("export=false", true),
        ("export=FALSE", true),
        ("export=0", true),
        ("export=0&export=1", true),
        ("exact=true", true),
        ("export", false),
        ("export=", false),
        ("export=true", false),
        ("export=1", false),
        ("export=no", false),
        ("exact=true&%65xport=t", false),
    ] {
        assert_eq!(check_export(query).is_ok(), expected, "{query:?}");
    }
    let refused = check_export("export=true").unwrap_err();
    let words = "the export parameter, deprecated since v1.14, is no longer supported";
    assert_eq!((refused.code, &*refused.reason, &*refused.message), (400, "BadRequest", words));
}

#[test]
fn a_list_says_which_state_it_shows() {
    let token = |at| continue_token::encode("ns/a", at);
    let rest = |at| ListRead::Continue { at, after: "ns/a\0".to_owned() };
    for (query, read, limit) in [
        (String::new(), ListRead::MostRecent, None),
        ("limit=5".to_owned(), ListRead::MostRecent, Some(5)),
        ("limit=0".to_owned(), ListRead::MostRecent, None),
        ("limit=-5".to_owned(), ListRead::MostRecent, None),
        ("resourceVersion=0&limit=5".to_owned(), ListRead::Any, None),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(), ListRead::Any, None),
        // Zero, but not the text that is of any version whatever the limit.
        ("resourceVersion=00".to_owned(), ListRead::Any, None),
        ("resourceVersion=000&limit=-1".to_owned(), ListRead::Any, None),
        ("resourceVersion=00&resourceVersionMatch=NotOlderThan".to_owned(), ListRead::Any, None),
        ("resourceVersion=00&limit=5".to_owned(), ListRead::MostRecent, Some(5)),
        (
            "resourceVersion=00&limit=5&resourceVersionMatch=NotOlderThan".to_owned(),
            ListRead::MostRecent,
            Some(5),
        ),
        ("resourceVersion=00&resourceVersionMatch=Exact".to_owned(), ListRead::MostRecent, None),
        ("resourceVersion=00&limit=5&resourceVersionMatch=Exact".to_owned(), ListRead::MostRecent, Some(5)),
        ("resourceVersion=7".to_owned(), ListRead::NotOlderThan(version(7)), None),
        ("resourceVersion=7&limit=5".to_owned(), ListRead::Exact(version(7)), Some(5)),
        (
            "resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan".to_owned(),
            ListRead::NotOlderThan(version(7)),
            Some(5),
        ),
        ("resourceVersion=7&resourceVersionMatch=Exact".to_owned(), ListRead::Exact(version(7)), None),
        (format!("limit=5&continue={}", token(Some(version(9)))), rest(Some(version(9))), Some(5)),
        (format!("resourceVersion=0&continue={}", token(None)), rest(None), None),
        // The rest in one piece: the API server's cache counts no limit at version 0.
        (
            format!("limit=1&resourceVersion=0&continue={}", token(Some(version(9)))),
            rest(Some(version(9))),
            None,
        ),
    ] {
        let request = list(&query).unwrap();
        assert_eq!((request.read, request.limit), (read, limit), "{query:?}");
    }
}

#[test]
fn selectors_and_timeout_are_read() {
    let request = list(
        "labelSelector=a%3Db%2C%21c&fieldSelector=spec.type%3DClusterIP&timeoutSeconds=7&shardSelector=x&other=1",
    )
    .unwrap();
    assert_eq!(request.labels.to_string(), "a=b,!c");
    assert_eq!(request.fields.to_string(), "spec.type=ClusterIP");
    assert_eq!(request.timeout, Some(Duration::from_secs(7)));
    assert_eq!(request.shards.as_deref(), Some("x"));
    for (query, timeout) in [
        ("timeoutSeconds=0", None),
        ("timeoutSeconds=-1", Some(Duration::ZERO)),
        ("timeoutSeconds=9223372036854775807", Some(Duration::from_hours(365 * 24))),
        ("", None),
    ] {
        assert_eq!(list(query).unwrap().timeout, timeout, "{query:?}");
    }
}

#[test]
fn a_list_of_one_object_has_no_pages() {
    for (query, read) in [
        ("resourceVersion=5&limit=1", ListRead::NotOlderThan(version(5))),
        ("resourceVersion=5&limit=1&resourceVersionMatch=Exact", ListRead::Exact(version(5))),
        ("resourceVersion=5&resourceVersionMatch=NotOlderThan", ListRead::NotOlderThan(version(5))),
        ("limit=1", ListRead::MostRecent),
    ] {
        let one = list(query).unwrap().of_one(query);
        assert_eq!((one.read, one.limit), (read, None), "{query}");
    }
    let token = continue_token::encode("ns/a", Some(version(5)));
    let rest = list(&format!("limit=1&fieldSelector=metadata.name%3Db&continue={token}")).unwrap();
    assert_eq!(rest.clone().of_one(""), rest, "behind a token it is the rest of a list");
}

#[test]
fn of_one_object_nothing_counts_but_the_version() {
    for (query, read) in [
        ("", ListRead::MostRecent),
        ("resourceVersion=", ListRead::MostRecent),
        ("resourceVersion=0&limit=x", ListRead::Any),
        ("resourceVersion=00", ListRead::Any),
        ("resourceVersion=5&limit=1", ListRead::NotOlderThan(version(5))),
        ("resourceVersion=5&resourceVersionMatch=Exact", ListRead::NotOlderThan(version(5))),
        (
            "continue=x&labelSelector=a%3D%3D%3Db&fieldSelector=%2C%2C&sendInitialEvents=1",
            ListRead::MostRecent,
        ),
    ] {
        assert_eq!(ListRead::of_object(query).unwrap(), read, "{query}");
    }
    for version in ["x", "-1", "+1", "%2B1", "18446744073709551616"] {
        let status = ListRead::of_object(&format!("resourceVersion={version}&limit=1")).unwrap_err();
        assert_eq!((status.code, &*status.reason), (500, ""), "{status}");
    }
}

#[test]
fn a_watch_says_where_it_begins() {
    let initial =
        |at_least, most_recent, end_bookmark| WatchStart::Initial { at_least, most_recent, end_bookmark };
    let some = "resourceVersionMatch=NotOlderThan";
    // Every combination of version, sendInitialEvents and allowWatchBookmarks that is valid.
    for (query, start, bookmarks) in [
        (String::new(), initial(None, true, false), false),
        ("allowWatchBookmarks=true".to_owned(), initial(None, true, true), true),
        ("resourceVersion=0".to_owned(), initial(None, false, false), false),
        ("resourceVersion=0&allowWatchBookmarks=1".to_owned(), initial(None, false, true), true),
        // Zero, but not the text for which the API server says so in the options of today.
        ("resourceVersion=00".to_owned(), initial(None, false, false), false),
        ("resourceVersion=000&allowWatchBookmarks=1".to_owned(), initial(None, false, false), true),
        (
            format!("sendInitialEvents=true&{some}&resourceVersion=00&allowWatchBookmarks=1"),
            initial(None, false, true),
            true,
        ),
        (
            format!("sendInitialEvents=false&{some}&resourceVersion=00"),
            WatchStart::Live { most_recent: false },
            false,
        ),
        ("resourceVersion=7".to_owned(), WatchStart::After(version(7)), false),
        ("resourceVersion=7&allowWatchBookmarks=".to_owned(), WatchStart::After(version(7)), true),
        (format!("sendInitialEvents=true&{some}"), initial(None, true, false), false),
        (format!("sendInitialEvents=true&{some}&allowWatchBookmarks=true"), initial(None, true, true), true),
        (format!("sendInitialEvents=true&{some}&resourceVersion=0"), initial(None, false, false), false),
        (
            format!("sendInitialEvents=true&{some}&resourceVersion=7&allowWatchBookmarks=true"),
            initial(Some(version(7)), false, true),
            true,
        ),
        (format!("sendInitialEvents=false&{some}"), WatchStart::Live { most_recent: true }, false),
        (
            format!("sendInitialEvents=0&{some}&resourceVersion=0"),
            WatchStart::Live { most_recent: false },
            false,
        ),
        (format!("sendInitialEvents=False&{some}&resourceVersion=7"), WatchStart::After(version(7)), false),
    ] {
        let request = WatchRequest::parse(&query, &services()).unwrap();
        assert_eq!((request.start, request.bookmarks), (start, bookmarks), "{query:?}");
    }
}

#[test]
fn mistakes_are_reported_in_the_order_of_the_api_server() {
    // The words stand in the golden vectors; here is which of several mistakes is reported.
    let token = continue_token::encode("a", None);
    for (query, code, words) in [
        ("limit=x&timeoutSeconds=y", 400, "strconv.ParseInt: parsing \"y\": invalid syntax"),
        ("limit=&labelSelector=a b", 400, "strconv.ParseInt: parsing \"\": invalid syntax"),
        ("labelSelector=,&fieldSelector=a", 400, "found ',', expected: !, identifier, or 'end of string'"),
        ("fieldSelector=a&resourceVersionMatch=x", 400, "invalid selector: 'a'; can't understand 'a'"),
        ("resourceVersion=x&fieldSelector=a%3Db", 400, "field label not supported: a"),
        ("fieldSelector=a%3Db&sendInitialEvents=1", 422, "sendInitialEvents is forbidden for list"),
        (&format!("resourceVersion=7&continue={token}"), 400, "is not allowed when using continue"),
        (&format!("resourceVersion=00&continue={token}"), 400, "is not allowed when using continue"),
        (&format!("resourceVersion=x&continue={token}"), 400, "is not allowed when using continue"),
        ("resourceVersion=x&continue=%24", 400, "illegal base64 data at input byte 0"),
    ] {
        let status = list(query).unwrap_err();
        assert_eq!(status.code, code, "{query:?}");
        assert!(status.message.ends_with(words), "{query:?}: {}", status.message);
    }
}

proptest! {
    #[test]
    fn arbitrary_queries_are_read_or_refused(query: String, pairs in "((limit|resourceVersion|continue|sendInitialEvents|resourceVersionMatch)=[0-9a-zN-]{0,3}&){0,4}") {
        for query in [query, pairs] {
            let _ = (list(&query), WatchRequest::parse(&query, &services()));
        }
    }
}

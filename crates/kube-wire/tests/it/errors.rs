//! Every refusal, byte for byte.

use kube_wire::{
    accept::{Answer, check_route},
    continue_token,
    frame::{self, read::WatchEvent},
    list_options::{ListRead, ListRequest, WatchRequest},
    object::Encoding,
    resource::GroupVersionResource,
    resource_version::ResourceVersion,
    selectable_field::SelectableFields,
    status::Status,
};

use crate::golden::{encoding, golden, read_watch};

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(number).unwrap()
}

fn check(name: &str, status: &Status) {
    let golden = golden(name);
    assert_eq!(status.code, golden.code, "{name}: {status}");
    let body = match encoding(name) {
        Encoding::Json => [&status.to_json()[..], b"\n"].concat(),
        Encoding::Protobuf => status.to_protobuf(),
    };
    assert_eq!(String::from_utf8_lossy(&body), String::from_utf8_lossy(&golden.body), "{name}");
    let read = match encoding(name) {
        Encoding::Json => Status::from_json(&golden.body),
        Encoding::Protobuf => Status::from_protobuf(&golden.body),
    };
    assert_eq!(read.as_ref(), Some(status), "{name}");
}

#[test]
fn options_are_refused_as_by_the_api_server() {
    // base64url of `{"v":"meta.k8s.io/v1","rv":1}` and others, as `capture.sh` makes them.
    let no_start = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0";
    let no_version = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJzdGFydCI6ImEifQ";
    let upwards = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi9hIn0";
    let valid = continue_token::encode("a", Some(version(1)));
    for (name, resource, query) in [
        ("error-label-selector", "services", "labelSelector=a%20b".to_owned()),
        ("error-label-selector-key", "services", "labelSelector=-a%3D%3Cb%3E".to_owned()),
        ("error-label-selector-value", "services", "labelSelector=a+in+(-,-b)".to_owned()),
        ("error-label-selector-gt", "services", "labelSelector=a%3Ex".to_owned()),
        ("error-field-selector", "services", "fieldSelector=a".to_owned()),
        ("error-field-label", "services", "fieldSelector=spec.nodeName%3Da".to_owned()),
        ("error-field-label-default", "configmaps", "fieldSelector=a%3Db".to_owned()),
        ("error-field-label-custom", "widgets", "fieldSelector=a%3Db".to_owned()),
        ("error-limit", "services", "limit=x".to_owned()),
        ("error-timeout", "services", "timeoutSeconds=99999999999999999999".to_owned()),
        ("error-list-version", "services", "resourceVersion=x".to_owned()),
        ("error-list-version-negative", "services", "resourceVersion=-1".to_owned()),
        ("error-list-version-range", "services", "resourceVersion=18446744073709551616".to_owned()),
        ("error-list-version-custom", "widgets", "resourceVersion=x".to_owned()),
        ("error-list-match-alone", "services", "resourceVersionMatch=Exact".to_owned()),
        ("error-list-match-zero", "services", "resourceVersionMatch=Exact&resourceVersion=0".to_owned()),
        ("error-list-match-unknown", "services", "resourceVersionMatch=Some&resourceVersion=1".to_owned()),
        (
            "error-list-match-continue",
            "services",
            "resourceVersionMatch=Exact&resourceVersion=1&continue=x".to_owned(),
        ),
        (
            "error-list-everything",
            "services",
            "resourceVersionMatch=Some&continue=x&sendInitialEvents=1".to_owned(),
        ),
        ("error-list-initial-events", "services", "sendInitialEvents=false".to_owned()),
        ("error-continue-base64", "services", "continue=x".to_owned()),
        ("error-continue-json", "services", "continue=e30".to_owned()),
        ("error-continue-brace", "services", "continue=ew".to_owned()),
        ("error-continue-start", "services", format!("continue={no_start}")),
        ("error-continue-version", "services", format!("continue={no_version}")),
        ("error-continue-path", "services", format!("continue={upwards}")),
        ("error-continue-and-version", "services", format!("resourceVersion=1&continue={valid}")),
    ] {
        check(name, &ListRequest::parse(&query, &selectable(resource)).unwrap_err());
    }
    for name in ["error-get-version", "error-get-version-protobuf"] {
        check(name, &ListRead::of_object("resourceVersion=x&limit=y").unwrap_err());
    }
    for (name, resource, query) in [
        ("error-watch-version", "services", "resourceVersion=x"),
        ("error-watch-version-name", "services", "resourceVersion=x&fieldSelector=metadata.name%3Da"),
        ("error-watch-version-custom", "widgets", "resourceVersion=x"),
        ("error-watch-match-alone", "services", "resourceVersionMatch=NotOlderThan&resourceVersion=1"),
        ("error-watch-match-exact", "services", "resourceVersionMatch=Exact&sendInitialEvents=true"),
        ("error-watch-initial-events-alone", "services", "sendInitialEvents=true"),
        (
            "error-watch-match-continue",
            "services",
            "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&continue=x",
        ),
    ] {
        check(name, &WatchRequest::parse(query, &selectable(resource)).unwrap_err());
    }
}

fn selectable(resource: &str) -> SelectableFields {
    match resource {
        "widgets" => SelectableFields::custom([".spec.color"]),
        _ => SelectableFields::of(&GroupVersionResource::new("", "v1", resource)),
    }
}

#[test]
fn states_that_cannot_be_shown_are_refused_as_by_the_api_server() {
    let current = |name: &str| {
        let text = String::from_utf8_lossy(&golden(name).body).into_owned();
        let digits = text.split("current: ").nth(1).unwrap();
        digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
    };
    for name in ["error-list-too-large", "error-list-too-large-protobuf", "error-list-exact-too-large"] {
        check(name, &Status::too_large(version(999_999_999), current(name)));
    }
    let services = GroupVersionResource::new("", "v1", "services");
    check("error-not-found", &Status::not_found(&services, "none"));
    check("error-no-path", &Status::no_such_path());
    check("error-list-exact-gone", &Status::list_expired());
    let expired = golden("error-continue-expired");
    let status = Status::from_json(&expired.body).unwrap();
    let position = continue_token::decode(&status.metadata.continue_token).unwrap();
    assert_eq!((position.at, position.start.as_str()), (None, "a\0"));
    check("error-continue-expired", &Status::continue_expired(status.metadata.continue_token));
    let types = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
    check("error-not-acceptable-custom-protobuf", &Status::not_acceptable(&types));
}

#[test]
fn who_finds_no_route_is_told_as_by_the_api_server() {
    // Indented there, as nobody knows in what form it would be read.
    for (name, answer) in
        [("error-not-acceptable-list", Answer::List), ("error-not-acceptable-watch", Answer::Watch)]
    {
        let golden = golden(name);
        let status = check_route("text/plain", answer).unwrap_err();
        assert_eq!(
            (status.code, Some(&status)),
            (golden.code, Status::from_json(&golden.body).as_ref()),
            "{name}"
        );
    }
}

#[test]
fn errors_within_a_watch_are_written_as_by_the_api_server() {
    for (name, status) in [
        ("error-watch-too-old-custom", None),
        ("error-watch-too-old-protobuf", None),
        ("error-watch-initial-too-large", Some("ResourceVersionTooLarge")),
    ] {
        let [WatchEvent::Error(read)] = &read_watch(name)[..] else {
            panic!("{name}: one error was expected")
        };
        assert_eq!(frame::watch_error(encoding(name), read), golden(name).body, "{name}");
        assert_eq!(read.is_too_large(), status.is_some(), "{name}");
        assert_eq!(read.is_expired(), status.is_none(), "{name}");
        if read.is_expired() {
            let oldest = read.message.rsplit_once('(').unwrap().1.trim_end_matches(')').parse().unwrap();
            assert_eq!(*read, Status::too_old(version(1), oldest), "{name}");
        }
    }
}

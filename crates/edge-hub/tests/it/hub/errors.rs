//! Errors that the hub says itself, without a link: the API server's words, in the encoding in which that says them.

use std::time::Duration;

use kube_wire::{
    continue_token,
    frame::read::{ITEM_MAX, ListReader},
    object::Encoding,
    status::Status,
};
use testkit::client::connection::Endpoint;

use super::site::{JSON, Lines, SERVICES, Site, WIDGETS, get, names, service, version, widget};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// How clients ask, and whether an error comes in protobuf: it is turned into nothing else, so what asks for that accepts no error.
const FORMS: [(&str, bool); 7] = [
    ("application/json", false),
    (PROTOBUF, true),
    ("application/vnd.kubernetes.protobuf,application/json", true),
    ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", false),
    (
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/vnd.kubernetes.protobuf",
        true,
    ),
    (
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        false,
    ),
    ("application/json;as=Table;g=meta.k8s.io;v=v1,application/vnd.kubernetes.protobuf", true),
];

/// Status, content type and body.
async fn said(endpoint: &Endpoint, path: &str, accept: &str) -> (u16, String, Vec<u8>) {
    let mut answer = endpoint.get(path, accept).await.unwrap();
    let body = answer.bytes().await.unwrap().to_vec();
    let content_type = answer.headers["content-type"].to_str().unwrap().to_owned();
    (answer.status.as_u16(), content_type, body)
}

#[tokio::test]
async fn an_error_is_said_in_the_encoding_in_which_the_api_server_says_it() {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "odd", 1)).unwrap();
    site.caught_up(SERVICES, &["odd"]).await;
    let (hub, server) = (site.plain(), site.direct());
    let object = "/api/v1/namespaces/a/services/odd";
    let none = "/api/v1/namespaces/a/services/none";
    for path in [object, none] {
        // The right to read them is learned.
        get(&hub, path).await.unwrap();
    }
    let malformed = |path: &str| format!("{path}?resourceVersion=junk");
    let asked = [
        (malformed(object), 500),
        (malformed(none), 500),
        (none.to_owned(), 404),
        (malformed(SERVICES), 400),
    ];
    let mut told = Vec::new();
    for (path, status) in &asked {
        for (accept, protobuf) in
            FORMS.iter().filter(|(accept, _)| !path.starts_with(SERVICES) || !accept.contains("as=Partial"))
        {
            let (code, content_type, body) = said(&server, path, accept).await;
            assert_eq!((code, content_type == PROTOBUF), (*status, *protobuf), "{path} ({accept})");
            told.push((path, *accept, (code, content_type, body)));
        }
    }
    site.server.cut();
    site.offline().await;
    for (path, accept, (code, content_type, body)) in told {
        let hub = said(&hub, path, accept).await;
        assert_eq!((hub.0, &hub.1), (code, &content_type), "{path} ({accept})");
        let read = if content_type == PROTOBUF { Status::from_protobuf } else { Status::from_json };
        assert!(read(&body).is_some(), "{path} ({accept})");
        assert_eq!(read(&hub.2), read(&body), "{path} ({accept})");
    }
    // As a real API server ends it.
    let (_, _, body) = said(&hub, &asked[0].0, "application/json").await;
    assert_eq!(
        String::from_utf8_lossy(&body),
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"resourceVersion: Invalid value: \
         \\\"junk\\\": strconv.ParseUint: parsing \\\"junk\\\": invalid syntax\",\"code\":500}\n"
    );
}

#[tokio::test]
async fn what_no_route_gives_and_what_nobody_exports_is_refused_with_a_link_and_without() {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "odd", 1)).unwrap();
    site.server.cluster().create("widgets.example.com", widget("w", 1)).unwrap();
    site.caught_up(SERVICES, &["odd"]).await;
    site.caught_up(WIDGETS, &["w"]).await;
    let (hub, server) = (site.plain(), site.direct());
    let object = "/api/v1/namespaces/a/services/odd";
    // The right to read it is learned.
    assert_eq!(get(&hub, object).await.unwrap().0, 200);
    let any = "resourceVersion=0";
    let asked = [
        (format!("{SERVICES}?{any}"), "application/*", 406),
        (format!("{SERVICES}?{any}"), "*", 406),
        (format!("{SERVICES}?{any}"), "text/html", 406),
        (format!("{SERVICES}?{any}"), "text/html, */*;q=0.1", 200),
        (format!("{SERVICES}?watch=1&timeoutSeconds=1"), "application/*", 406),
        (format!("{object}?{any}"), "application/*", 406),
        (format!("{object}?{any}"), "*", 406),
        (format!("{WIDGETS}?{any}"), "application/*", 200),
        (format!("{WIDGETS}?{any}"), "*", 200),
        (format!("{object}?{any}&export=true"), JSON, 400),
        (format!("{object}?{any}&export="), PROTOBUF, 400),
        (format!("{object}?{any}&export=false"), JSON, 200),
        // A list has no such option.
        (format!("{SERVICES}?{any}&export=true"), JSON, 200),
        // In what form it is answered is decided before its options are read.
        (format!("{SERVICES}?resourceVersion=junk"), "application/*", 406),
        (format!("{WIDGETS}?resourceVersion=junk"), JSON, 400),
        (format!("{WIDGETS}?resourceVersion=junk"), PROTOBUF, 406),
        (format!("{WIDGETS}?watch=1&sendInitialEvents=true"), PROTOBUF, 406),
        (format!("{WIDGETS}?fieldSelector=spec.no%3D1"), PROTOBUF, 406),
    ];
    let as_told = async |when: &str| {
        for (path, accept, status) in &asked {
            let said = said(&hub, path, accept).await;
            assert_eq!(said.0, *status, "{when}, {path} ({accept}): {}", String::from_utf8_lossy(&said.2));
        }
    };
    as_told("with a link").await;
    let mut told = Vec::new();
    for (path, accept, status) in &asked {
        let said = said(&server, path, accept).await;
        assert_eq!(said.0, *status, "{path} ({accept})");
        told.push(said);
    }
    let custom = format!("{WIDGETS}/w?export=true");
    assert_eq!(said(&hub, &custom, JSON).await.0, 400, "the API server says it");
    site.server.cut();
    site.offline().await;
    as_told("without one").await;
    for ((path, accept, _), (_, content_type, body)) in
        asked.iter().zip(&told).filter(|(_, told)| told.0 != 200)
    {
        let hub = said(&hub, path, accept).await;
        let read = if content_type == PROTOBUF { Status::from_protobuf } else { Status::from_json };
        assert!(read(body).is_some(), "{path} ({accept})");
        assert_eq!((&hub.1, read(&hub.2)), (content_type, read(body)), "{path} ({accept})");
    }
}

#[tokio::test]
async fn nothing_is_wrong_with_a_selector_of_shards_while_nobody_understands_it() {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "odd", 1)).unwrap();
    site.caught_up(SERVICES, &["odd"]).await;
    site.server.cut();
    site.offline().await;
    let (status, said) =
        get(&site.plain(), &format!("{SERVICES}?resourceVersion=0&shardSelector=x")).await.unwrap();
    assert_eq!((status, said["reason"].as_str()), (503, Some("ServiceUnavailable")), "{said}");
    assert!(said["message"].as_str().unwrap().contains("shardSelector"), "{said}");
}

#[tokio::test]
async fn of_one_object_nothing_is_asked_but_its_version() {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "odd", 1)).unwrap();
    site.caught_up(SERVICES, &["odd"]).await;
    let (hub, server) = (site.plain(), site.direct());
    let object = "/api/v1/namespaces/a/services/odd";
    assert_eq!(get(&hub, object).await.unwrap().0, 200);
    let version = site.server.cluster().revision();
    let queries = [
        "limit=junk&timeoutSeconds=junk".to_owned(),
        "labelSelector=a%3D%3D%3Db&fieldSelector=x%3Dy&sendInitialEvents=true".to_owned(),
        format!("resourceVersionMatch=Junk&resourceVersion={version}&limit=1"),
        format!("resourceVersionMatch=Exact&resourceVersion={version}"),
        "continue=junk&resourceVersion=0".to_owned(),
        "resourceVersionMatch=Exact".to_owned(),
    ];
    let mut told = Vec::new();
    for query in &queries {
        let path = format!("{object}?{query}");
        let said = get(&server, &path).await.unwrap();
        assert_eq!(said.0, 200, "{query}");
        told.push((path, said));
    }
    site.server.cut();
    site.offline().await;
    for (path, said) in told {
        assert_eq!(get(&hub, &path).await.unwrap(), said, "{path}");
    }
}

#[tokio::test]
async fn behind_a_token_is_the_rest_of_a_list_whatever_it_names() {
    let site = Site::started().await;
    for name in ["a", "b", "c"] {
        site.server.cluster().create("services", service("a", name, 1)).unwrap();
    }
    site.caught_up(SERVICES, &["a", "b", "c"]).await;
    let (hub, server) = (site.plain(), site.direct());
    let list = "/api/v1/namespaces/a/services";
    let (_, page) = get(&server, &format!("{list}?limit=1")).await.unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let path = format!("{list}?limit=1&fieldSelector=metadata.name%3Db&continue={token}");
    // There is more to be looked at behind it, from where on a token says.
    let rest = async |endpoint: &Endpoint| {
        let (status, page) = get(endpoint, &path).await.unwrap();
        assert_eq!((status, names(&page)), (200, vec!["b"]));
        let token = page["metadata"]["continue"].as_str().unwrap_or_else(|| panic!("no token: {page}"));
        let position = continue_token::decode(token).unwrap();
        (position.at, position.start)
    };
    let told = rest(&server).await;
    assert_eq!(rest(&hub).await, told, "with a link");
    site.server.cut();
    site.offline().await;
    assert_eq!(rest(&hub).await, told, "without one");
}

/// No event is a list. The API server begins such a watch all the same, and ends it where the first event would stand.
#[tokio::test]
async fn a_watch_in_the_form_of_a_list_is_silent_and_ends_with_the_first_event() {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "odd", 1)).unwrap();
    site.caught_up(SERVICES, &["odd"]).await;
    let hub = site.plain();
    let watch = async |start: &str| {
        let accept = format!("{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
        let answer = hub.get(&format!("{SERVICES}?watch=true&{start}"), &accept).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.headers["content-type"].to_str().unwrap()), (200, JSON));
        Lines::of(answer)
    };
    assert_eq!(watch("resourceVersion=0").await.brief().await, "end", "with a link");
    let (_, list) = get(&hub, &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    let mut later = watch(&format!("resourceVersion={}", version(&list))).await;
    assert!(later.is_silent(Duration::from_millis(300)).await);
    site.server.cluster().create("services", service("a", "even", 2)).unwrap();
    assert_eq!(later.brief().await, "end");
    site.server.cut();
    site.offline().await;
    assert_eq!(watch("resourceVersion=0").await.brief().await, "end", "without one");
}

/// Of a custom resource the hub holds JSON. It makes protobuf of the metadata in it where a client likes that best, as client-go's clients of metadata do.
#[tokio::test]
async fn metadata_of_custom_resources_comes_in_protobuf_from_what_is_held() {
    let site = Site::started().await;
    site.server.cluster().create("widgets.example.com", widget("w", 1)).unwrap();
    site.caught_up(WIDGETS, &["w"]).await;
    let hub = site.plain();
    let object = format!("{WIDGETS}/w");
    // The right to read it is learned.
    get(&hub, &object).await.unwrap();
    let as_ = |kind: &str| {
        let parameters = format!("as={kind};g=meta.k8s.io;v=v1");
        [
            format!("{PROTOBUF};{parameters}"),
            format!("{PROTOBUF};{parameters},{JSON}"),
            format!("{PROTOBUF};{parameters},{JSON};{parameters},{JSON}"),
            format!("{PROTOBUF},{PROTOBUF};{parameters},{JSON}"),
        ]
    };
    let list = format!("{WIDGETS}?resourceVersion=0");
    for when in ["with a link", "without one"] {
        if when == "without one" {
            site.server.cut();
            site.offline().await;
        }
        for accept in as_("PartialObjectMetadataList") {
            let (code, content_type, body) = said(&hub, &list, &accept).await;
            assert_eq!((code, &*content_type), (200, PROTOBUF), "{when}: {accept}");
            let mut reader = ListReader::new(Encoding::Protobuf, ITEM_MAX);
            let mut objects = Vec::new();
            reader.push(&body, &mut objects).unwrap();
            let end = reader.finish().unwrap();
            assert_eq!((&*end.api_version, &*end.kind), ("meta.k8s.io/v1", "PartialObjectMetadataList"));
            let names: Vec<_> = objects.iter().map(|object| object.key().name()).collect();
            assert_eq!(names, ["w"], "{when}: {accept}");
        }
        for accept in as_("PartialObjectMetadata") {
            let (code, content_type, body) =
                said(&hub, &format!("{object}?resourceVersion=0"), &accept).await;
            assert_eq!((code, &*content_type), (200, PROTOBUF), "{when}: {accept}");
            assert!(body.starts_with(b"k8s\0"), "{when}: {accept}");
        }
        // Whole objects there are in JSON only.
        let accept = format!("{PROTOBUF},{JSON}");
        let (code, content_type, _) = said(&hub, &list, &accept).await;
        assert_eq!((code, &*content_type), (200, JSON), "{when}: {accept}");
    }
    let accept = format!("{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}");
    let (code, _, body) = said(&hub, &object, &accept).await;
    let message = Status::from_json(&body).map(|status| status.message);
    assert_eq!((code, message.as_deref()), (500, Some("content is not a list")));
}

//! A hub that starts without a link: what it has, and what it never had.

use std::time::Duration;

use kube_wire::resource_version::ResourceVersion;
use serde_json::json;
use testkit::api_server::{access::User, kind::Kind};

use super::site::{JSON, Lines, SERVICES, Site, WIDGETS, get, names, service, version};

#[tokio::test]
async fn a_restart_without_a_link_answers_everything_that_was_held() {
    let mut site = Site::started().await;
    for (name, n) in [("odd", 1), ("even", 2)] {
        site.server.cluster().create("services", service("a", name, n)).unwrap();
    }
    site.server.cluster().create("services", service("b", "other", 1)).unwrap();
    site.caught_up(SERVICES, &["even", "odd", "other"]).await;
    let hub = site.plain();
    // Each verb is allowed while it can be asked.
    for query in ["", "/odd", "?watch=1&timeoutSeconds=1"] {
        let path = format!("/api/v1/namespaces/a/services{query}");
        assert_eq!(get(&hub, &path).await.unwrap().0, 200, "{query}");
    }
    assert_eq!(get(&hub, &format!("{SERVICES}?watch=1&timeoutSeconds=1")).await.unwrap().0, 200);
    // Allowances are stored every two seconds.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    site.kill();
    site.server.cut();
    site.start();
    site.answers().await;
    let list = async |query: &str| {
        let mut answer = hub.get(&format!("{SERVICES}?{query}"), JSON).await.unwrap();
        let body = answer.bytes().await.unwrap();
        let warned =
            answer.headers.get("warning").is_some_and(|value| value.to_str().unwrap().starts_with("299 "));
        assert_eq!((answer.status.as_u16(), warned), (200, true), "{query}: {:?}", answer.headers);
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()
    };
    assert_eq!(names(&list("").await), ["even", "odd", "other"]);
    assert_eq!(names(&list("resourceVersion=0&labelSelector=n%3Dodd").await), ["odd", "other"]);
    assert_eq!(names(&list("fieldSelector=metadata.namespace%3Db").await), ["other"]);
    let (status, object) = get(&hub, "/api/v1/namespaces/a/services/odd").await.unwrap();
    assert_eq!((status, object["spec"]["selector"]["n"].as_str()), (200, Some("1")));
    assert_eq!(
        get(&hub, "/api/v1/namespaces/a/services/none").await.unwrap().0,
        404,
        "it is known not to be there"
    );

    let initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut stream = Lines::open(&hub, &format!("{SERVICES}?{initial}&labelSelector=n%3Dodd")).await;
    let rv = version(&list("").await);
    assert!(stream.brief().await.starts_with("ADDED odd@"));
    assert!(stream.brief().await.starts_with("ADDED other@"));
    assert_eq!(stream.brief().await, format!("BOOKMARK @{rv} end"));
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={rv}")).await;
    assert!(watch.is_silent(Duration::from_millis(100)).await);
    let old = rv - 1;
    let mut history = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={old}")).await;
    assert_eq!(history.brief().await, format!("ADDED other@{rv}"), "the history survives");

    let created = site.server.cluster().create("services", service("a", "new", 1)).unwrap();
    let expected = format!("ADDED new@{}", created["metadata"]["resourceVersion"].as_str().unwrap());
    site.server.heal();
    for lines in [&mut stream, &mut watch, &mut history] {
        assert_eq!(lines.brief().await, expected);
    }
}

#[tokio::test]
async fn after_a_restart_without_a_link_it_is_said_when_the_last_one_ended_if_that_is_known() {
    let mut site = Site::started().await;
    let hub = site.plain();
    site.server.cluster().create("services", service("a", "one", 1)).unwrap();
    site.caught_up(SERVICES, &["one"]).await;
    // Of the list, and of the status.
    let said = async |site: &Site| {
        let answer = hub.get(SERVICES, JSON).await.unwrap();
        let (_, status) = get(&site.admin(), "/v1/status").await.unwrap();
        let ended = status["link"]["endedBeforeThisStart"].as_str().map(str::to_owned);
        (answer.headers["warning"].to_str().unwrap().to_owned(), ended)
    };
    // Killed without a link, and once more: it ended when it ended.
    let begun = jiff::Timestamp::now();
    site.server.cut();
    site.offline().await;
    let over = jiff::Timestamp::now();
    let blobs = site.file("root/store/blobs");
    let has = |content: Vec<u8>| content.windows(10).any(|part| part == b"link-ended");
    site.until("the disk has it", async || {
        let files = std::fs::read_dir(&blobs).unwrap().flatten().map(|file| file.path());
        let mut whole = files.filter(|file| file.extension().is_some_and(|extension| extension == "blob"));
        whole.any(|file| std::fs::read(file).is_ok_and(has))
    })
    .await;
    for _ in 0..2 {
        site.restart().await;
        let (warning, ended) = said(&site).await;
        let at: jiff::Timestamp = ended.clone().unwrap().parse().unwrap();
        assert!((begun.as_second()..=over.as_second()).contains(&at.as_second()), "{begun} {at} {over}");
        assert!(warning.ends_with(&format!("before this start; the last link ended at {at}\"")), "{warning}");
    }
    // Killed while there is one: nobody knows when that ended, and nobody says so.
    site.server.heal();
    site.until("another link has begun", async || {
        let status = get(&site.admin(), "/v1/status").await;
        status.is_some_and(|(_, status)| {
            status["link"]["up"] == true && status["link"]["endedBeforeThisStart"].is_null()
        })
    })
    .await;
    site.kill();
    site.server.cut();
    site.start();
    site.answers().await;
    let (warning, ended) = said(&site).await;
    assert!(warning.ends_with("stored before this start\"") && ended.is_none(), "{warning}");
}

#[tokio::test]
async fn custom_resources_are_answered_after_a_restart_too_and_stay_shared() {
    let mut site = Site::started().await;
    let hub = site.plain();
    let empty = WIDGETS.replace("/a/", "/b/");
    site.server.cluster().create("widgets.example.com", super::site::widget("w", 1)).unwrap();
    site.caught_up(WIDGETS, &["w"]).await;
    site.caught_up(&empty, &[]).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    site.kill();
    site.server.cut();
    site.start();
    site.answers().await;
    for (path, held) in [(WIDGETS, vec!["w"]), (&*empty, vec![])] {
        let (status, list) = get(&hub, path).await.unwrap();
        assert_eq!((status, list["kind"].as_str()), (200, Some("WidgetList")), "{path}: {list}");
        assert_eq!(names(&list), held);
    }
    let mut watch = Lines::open(&hub, &format!("{WIDGETS}?watch=1&resourceVersion=0")).await;
    assert!(watch.brief().await.starts_with("ADDED w@"));
}

#[tokio::test]
async fn what_was_never_read_is_unavailable_and_not_missing() {
    let mut site = Site::new().await;
    site.server.cut();
    site.start();
    site.answers().await;
    for path in [SERVICES, WIDGETS] {
        for (query, expected) in [
            ("", 503),
            ("?resourceVersion=0", 503),
            ("/x", 503),
            ("?watch=1&resourceVersion=5", 429),
            (
                "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                429,
            ),
        ] {
            let path = if query == "/x" {
                format!("{}/x", path.replace("v1/services", "v1/namespaces/a/services"))
            } else {
                format!("{path}{query}")
            };
            let answer = site.plain().get(&path, JSON).await.unwrap();
            assert_eq!(answer.status.as_u16(), expected, "{path}");
            assert_eq!(answer.headers.contains_key("retry-after"), expected == 429, "{path}");
        }
    }
}

/// What a read of one object brings is handed on and not kept: a list of what happened to be read would be a part that says that it is all.
#[tokio::test]
async fn what_was_read_one_by_one_is_never_a_list() {
    let mut site = Site::started().await;
    let all = [
        ("widgets.example.com", WIDGETS, super::site::widget("w", 1)),
        (
            "configmaps",
            "/api/v1/namespaces/a/configmaps",
            json!({ "metadata": { "namespace": "a", "name": "w" }, "data": { "k": "v" } }),
        ),
        (
            "secrets",
            "/api/v1/namespaces/a/secrets",
            json!({ "metadata": { "namespace": "a", "name": "w" }, "type": "Opaque", "data": { "k": "dg==" } }),
        ),
    ];
    for (id, path, object) in &all {
        site.server.cluster().create(id, object.clone()).unwrap();
        let mut answer = site.plain().get(&format!("{path}/w"), JSON).await.unwrap();
        answer.bytes().await.unwrap();
        let is_handed_on = answer.headers.contains_key("audit-id");
        assert_eq!((answer.status.as_u16(), is_handed_on), (200, true), "{path}");
        let listed = site.server.log().totals(|record| record.path == *path);
        assert_eq!(listed.requests, 0, "{path}: nobody asked for all");
    }
    site.server.cut();
    site.offline().await;
    for restarted in [false, true] {
        if restarted {
            site.restart().await;
        }
        for (_, path, _) in &all {
            for end in ["", "?resourceVersion=0", "?fieldSelector=metadata.name%3Dw", "/w"] {
                let (status, answer) = get(&site.plain(), &format!("{path}{end}")).await.unwrap();
                assert_eq!(status, 503, "{path}{end}, restarted: {restarted}: {answer}");
                assert_eq!(answer["kind"], "Status", "{path}{end}, restarted: {restarted}: {answer}");
            }
        }
    }
}

/// Unlike its Lease it would be worth something later, and the kubelet itself says it again once there is a link.
#[tokio::test]
async fn the_nodes_status_is_refused_without_a_link_and_not_written_later() {
    const STATUS: &str = "/api/v1/nodes/n/status";
    let site = Site::started().await;
    let node = site.server.cluster().create("nodes", json!({ "metadata": { "name": "n" } })).unwrap();
    site.server.cut();
    site.offline().await;
    let request = http::Request::patch(format!("{STATUS}?timeout=10s"))
        .header("content-type", "application/strategic-merge-patch+json")
        .header("accept", JSON)
        .header("user-agent", "kubelet/v1.36");
    let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    let mut answer = site.plain().ask(request, patch.to_string()).await.unwrap();
    let body = answer.bytes().await.unwrap();
    let said: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer.status, 503, "{said}");
    assert_eq!(answer.headers["content-type"], JSON);
    for name in ["retry-after", "warning"] {
        assert!(!answer.headers.contains_key(name), "{name}: {:?}", answer.headers);
    }
    assert_eq!((&said["kind"], &said["reason"]), (&json!("Status"), &json!("ServiceUnavailable")));
    let message = said["message"].as_str().unwrap();
    assert!(message.starts_with("edge-hub: the API server cannot be reached: https://"), "{message}");
    site.server.heal();
    site.linked().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(site.server.cluster().get("nodes", "n"), Some(node));
    assert_eq!(site.server.log().totals(|record| record.path == STATUS).requests, 0);
}

#[tokio::test]
async fn a_resource_with_a_link_that_was_too_short_is_unavailable() {
    let site = Site::started().await;
    for n in 0..20 {
        site.server
            .cluster()
            .create("widgets.example.com", super::site::widget(&format!("w{n}"), n))
            .unwrap();
    }
    // It may be read, and the list never comes to its end.
    assert_eq!(get(&site.plain(), &format!("{WIDGETS}?labelSelector=x")).await.unwrap().0, 200);
    for _ in 0..50 {
        site.server.cut_after_bytes(700);
    }
    let asked = tokio::spawn({
        let hub = site.plain();
        async move { get(&hub, &format!("{WIDGETS}?resourceVersion=0")).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    site.server.cut();
    let answered = asked.await.unwrap();
    assert!(answered.as_ref().is_none_or(|(status, _)| *status == 503), "{answered:?}");
    site.offline().await;
    assert_eq!(get(&site.plain(), &format!("{WIDGETS}?resourceVersion=0")).await.unwrap().0, 503);
}

/// What `kubectl get` accepts.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[tokio::test]
async fn a_table_is_told_again_of_the_very_objects_that_it_was_made_of() {
    let site = Site::started().await;
    for name in ["x", "y"] {
        site.server.cluster().create("services", service("a", name, 1)).unwrap();
    }
    site.caught_up(SERVICES, &["x", "y"]).await;
    let table = async |path: &str, accept: &str| {
        let mut answer = site.plain().get(path, accept).await.unwrap();
        let body = answer.bytes().await.unwrap();
        (answer.status.as_u16(), serde_json::from_slice::<serde_json::Value>(&body).unwrap())
    };
    let (status, online) = table(SERVICES, TABLE).await;
    assert_eq!((status, online["kind"].as_str()), (200, Some("Table")));
    let one = "/api/v1/namespaces/a/services/x";
    assert_eq!(get(&site.plain(), one).await.unwrap().0, 200);
    site.server.cut();
    site.offline().await;
    // It is kept once it has passed, not before it goes out.
    site.until("it is kept", async || table(SERVICES, TABLE).await.1["kind"] == "Table").await;
    let (status, offline) = table(SERVICES, TABLE).await;
    assert_eq!(status, 200);
    assert_eq!(
        (&offline["columnDefinitions"], &offline["rows"]),
        (&online["columnDefinitions"], &online["rows"])
    );
    let (_, row) = table(one, TABLE).await;
    assert_eq!(row["rows"].as_array().unwrap()[..], online["rows"].as_array().unwrap()[..1]);
    let (_, objects) = table(SERVICES, JSON).await;
    assert_eq!(objects["kind"], "ServiceList", "who asks for objects gets objects");
    // What changed since has no row that the API server made.
    site.server.heal();
    site.linked().await;
    site.server.cluster().update("services", &service("a", "x", 2)).unwrap();
    site.until("it is held", async || {
        let (_, held) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
        held["items"][0]["spec"]["selector"]["n"] == "2"
    })
    .await;
    site.server.cut();
    site.offline().await;
    let (status, objects) = table(SERVICES, TABLE).await;
    assert_eq!((status, objects["kind"].as_str()), (200, Some("ServiceList")), "names and ages");
    for (path, accept, is_told) in [(SERVICES, TABLE, true), (one, TABLE, true), (SERVICES, JSON, false)] {
        let answer = site.plain().get(path, accept).await.unwrap();
        let warnings = answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap());
        let why = "299 edge-hub \"no link to the API server: only names and ages are known in this form; -o yaml or -o name shows all that is held\"";
        assert_eq!(warnings.filter(|said| *said == why).count() == 1, is_told, "{path} {accept}");
    }
    assert_eq!(table(SERVICES, "application/json;as=Table;v=v1;g=meta.k8s.io").await.0, 406);
}

/// With a link a table is the API server's: until the hub knows that it is gone.
#[tokio::test]
async fn a_read_that_was_handed_on_when_the_link_went_is_answered_from_what_is_held() {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "x", 1)).unwrap();
    site.caught_up(SERVICES, &["x"]).await;
    let kind = async |accept: &str| {
        let mut answer = site.plain().get(SERVICES, accept).await.unwrap();
        let body = answer.bytes().await.unwrap();
        let body = serde_json::from_slice::<serde_json::Value>(&body).unwrap();
        (answer.status.as_u16(), body["kind"].as_str().unwrap().to_owned())
    };
    assert_eq!(kind(TABLE).await, (200, "Table".to_owned()));
    // It is kept once it has passed.
    tokio::time::sleep(Duration::from_secs(2)).await;
    site.server.black_hole();
    assert_eq!(kind(TABLE).await, (200, "Table".to_owned()));
    site.server.heal();
    site.linked().await;
    site.server.cut();
    // There is no moment at which it is not answered.
    for _ in 0..50 {
        assert_eq!(kind(TABLE).await, (200, "Table".to_owned()));
    }
}

#[tokio::test]
async fn what_only_the_api_server_can_tell_is_refused_so_that_clients_know_what_to_do() {
    let site = Site::started().await;
    let hub = site.plain();
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    site.server.cut();
    site.offline().await;
    let (_, list) = get(&hub, &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    let ahead = ResourceVersion::new(version(&list) + 100);
    let token = kube_wire::continue_token::encode("a/s", ahead);
    let (status, refused) = get(&hub, &format!("{SERVICES}?limit=1&continue={token}")).await.unwrap();
    assert_eq!((status, refused["reason"].as_str()), (410, Some("Expired")), "{refused}");
    // It offers to go on with what there is, and that works.
    let offered = refused["metadata"]["continue"].as_str().unwrap();
    let (status, rest) = get(&hub, &format!("{SERVICES}?limit=1&continue={offered}")).await.unwrap();
    assert_eq!((status, names(&rest).is_empty()), (200, true), "{rest}");
    let (status, refused) = get(&hub, &format!("{WIDGETS}?fieldSelector=spec.color%3Dred")).await.unwrap();
    assert_eq!(status, 503, "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("selectable fields") && message.contains("spec.color"), "{message}");
    let (status, _) = get(&hub, &format!("{SERVICES}?fieldSelector=spec.color%3Dred")).await.unwrap();
    assert_eq!(status, 400, "of what is built in all fields are known");
}

/// An answer to whoever takes that, with or without gzip: status, whether it is compressed, its warning, its body.
async fn ask(site: &Site, path: &str, accept: &str, gzip: bool) -> (u16, bool, Option<String>, Vec<u8>) {
    let mut request = http::Request::get(path).header("accept", accept);
    if gzip {
        request = request.header("accept-encoding", "gzip");
    }
    let mut answer = site.plain().ask(request, Vec::new()).await.unwrap();
    let text = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let (coding, warning) = (text("content-encoding"), text("warning"));
    let body = answer.bytes().await.unwrap().to_vec();
    (answer.status.as_u16(), coding.as_deref() == Some("gzip"), warning, body)
}

#[tokio::test]
async fn what_the_api_server_compresses_is_kept_plain() {
    let site = Site::started().await;
    let path = "/openapi/v3/apis/large";
    let document = serde_json::json!({ "paths": { "/x": "large ".repeat(40_000) } });
    site.server.cluster().set_document(path, &document);
    let labels: serde_json::Map<String, serde_json::Value> =
        (0..60).map(|n| (format!("label-{n}"), "a value of some length".into())).collect();
    for n in 0..60 {
        let mut object = service("a", &format!("s{n}"), 1);
        object["metadata"]["labels"] = labels.clone().into();
        site.server.cluster().create("services", object).unwrap();
    }
    site.until("all is held", async || {
        let (_, list) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
        names(&list).len() == 60
    })
    .await;
    for (path, accept) in [(path, JSON), (SERVICES, TABLE)] {
        let (status, is_compressed, warning, _) = ask(&site, path, accept, true).await;
        assert_eq!((status, is_compressed, warning), (200, true, None), "{path}");
    }
    site.server.cut();
    site.offline().await;
    let (status, is_compressed, warning, body) = ask(&site, path, JSON, true).await;
    assert_eq!((status, is_compressed), (200, false));
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&body).unwrap(), document);
    assert!(warning.unwrap().starts_with("299 edge-hub \"no link"), "it is said how old it is");
    // It is kept once its reader is known.
    site.until("the table is kept", async || {
        let (_, _, _, body) = ask(&site, SERVICES, TABLE, true).await;
        let table: serde_json::Value = serde_json::from_slice(&body).unwrap();
        table["kind"] == "Table" && table["rows"].as_array().unwrap().len() == 60
    })
    .await;
}

#[tokio::test]
async fn a_node_that_was_never_asked_says_which_resources_there_are() {
    let mut site = Site::new().await;
    site.start_inside(|config| config.lifetimes.before_openapi = Duration::from_millis(500)).await;
    site.linked().await;
    let asked = |path: &str| {
        site.server.log().totals(|record| record.path == path && !record.user.is_empty()).requests
    };
    site.until("all is asked for", async || {
        [("/api", 2), ("/apis", 1), ("/version", 1), ("/readyz", 1), ("/openapi/v3", 1)]
            .iter()
            .all(|(path, times)| asked(path) >= *times)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // A new link asks nothing again within the hour.
    let before = asked("/apis");
    site.server.cut();
    site.offline().await;
    site.server.heal();
    site.linked().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(site.server.log().totals(|record| record.path == "/apis").requests, before);
    site.server.cut();
    site.stop().await;
    site.start();
    site.answers().await;
    let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
        application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    for (path, accept, kind) in [
        ("/api", kubectl, "APIGroupDiscoveryList"),
        ("/apis", kubectl, "APIGroupDiscoveryList"),
        ("/apis", "application/json, */*", "APIGroupList"),
        ("/api", "*/*", "APIVersions"),
    ] {
        let (status, _, warning, body) = ask(&site, path, accept, true).await;
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        assert_eq!((status, body["kind"].as_str()), (200, Some(kind)), "{path} {accept}");
        let warning = warning.unwrap();
        assert!(warning.contains("no link to the API server: discovery answered from"), "{path}: {warning}");
    }
    for path in ["/version", "/openapi/v3"] {
        let request = http::Request::get(path).header("accept", "application/json, */*");
        let answer = site.plain().ask(request, Vec::new()).await.unwrap();
        let kept = answer.headers.get("cache-control").and_then(|value| value.to_str().ok());
        assert_eq!(
            (answer.status.as_u16(), kept),
            (200, Some("no-store")),
            "{path}: with its warning, for ever"
        );
    }
    is_healthy_without_a_link(&site, &["", "?timeout=32s"]).await;
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    assert_eq!(ask(&site, "/version", protobuf, false).await.0, 503, "in a form that it does not take");
}

/// `kubectl` looks a resource up before it asks for objects, and finds one that is newer than the link.
#[tokio::test]
async fn what_has_come_into_use_since_is_found_without_a_link() {
    let site = Site::started().await;
    let names = async |group: &str| {
        let (status, _, _, body) = ask(&site, "/apis", JSON, false).await;
        status == 200 && String::from_utf8_lossy(&body).contains(&format!("\"{group}\""))
    };
    let asked = || site.server.log().totals(|record| record.path == "/apis" && !record.user.is_empty());
    // That comes after it.
    let versions = || site.server.log().totals(|record| record.path == "/version" && !record.user.is_empty());
    site.until("it has asked what there is", async || versions().requests > 0).await;
    let kind = Kind::built_in("shops.example.com", "v1", "tills", "Till", true);
    site.server.cluster().define(kind);
    let tills = "/apis/shops.example.com/v1/tills";
    site.caught_up(tills, &[]).await;
    let before = asked().requests;
    site.until("it has asked once more", async || asked().requests > before).await;
    // That it goes on to ask would be a waste. This API server does not know the short form, so it is asked twice each time.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(asked().requests, before + 2);
    site.server.cut();
    site.offline().await;
    assert!(names("shops.example.com").await);
    assert!(!names("none.example.com").await);
    assert_eq!(get(&site.plain(), tills).await.unwrap().0, 200);
}

/// What `kubectl get --raw` accepts, and what a probe does.
const PROBES: [&str; 2] = ["application/json, */*", "*/*"];

/// Health is told as it was, and it is said that there is no link.
async fn is_healthy_without_a_link(site: &Site, ends: &[&str]) {
    for path in ["/healthz", "/livez", "/readyz"] {
        for (end, accept) in ends.iter().flat_map(|end| PROBES.map(|accept| (end, accept))) {
            let (status, _, warning, body) = ask(site, &format!("{path}{end}"), accept, true).await;
            assert_eq!((status, &*body), (200, &b"ok"[..]), "{path}{end} {accept}");
            assert!(warning.is_some_and(|warning| warning.contains("no link")), "{path}{end}");
        }
    }
}

#[tokio::test]
async fn health_that_a_client_asked_for_is_told_in_a_cut_and_after_a_restart() {
    let mut site = Site::started().await;
    let asked = ["?verbose", "?timeout=32s"];
    for path in ["/healthz", "/livez", "/readyz"] {
        for (end, accept) in asked.iter().flat_map(|end| PROBES.map(|accept| (end, accept))) {
            let (status, _, warning, body) = ask(&site, &format!("{path}{end}"), accept, true).await;
            assert_eq!((status, &*body, warning), (200, &b"ok"[..], None), "{path}{end} {accept}");
        }
    }
    site.server.cut();
    site.offline().await;
    is_healthy_without_a_link(&site, &asked).await;
    site.until("all is on the disk", async || documents(&site, "\nok") == 3 * asked.len() * PROBES.len())
        .await;
    site.restart().await;
    is_healthy_without_a_link(&site, &asked).await;
}

/// Files of documents in the hub's store that contain that. Each begins with its name; that of their index is `documents`.
fn documents(site: &Site, text: &str) -> usize {
    let mut folders = vec![site.file("root/store")];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
                continue;
            }
            // Not there before it has its name, which a hub that is killed never gives it.
            if entry.path().extension().is_some_and(|extension| extension == "new") {
                continue;
            }
            // One that is being replaced is gone under its old name.
            let file = std::fs::read(entry.path()).unwrap_or_default();
            let name = file.windows(9).find(|part| part.starts_with(b"document"));
            let contains = file.windows(text.len()).any(|part| part == text.as_bytes());
            count += usize::from(name == Some(b"document-") && contains);
        }
    }
    count
}

#[tokio::test]
async fn who_asks_for_documents_in_ever_other_words_does_not_fill_the_disk() {
    let site = Site::started().await;
    // What the hub itself asks for, nine documents, comes beside.
    site.until("the hub has asked", async || documents(&site, "\n") > 0).await;
    let client = site.secure(None).with_token("pod");
    site.server.cluster().access().add_token("pod", User::service_account("a", "pod"));
    for n in 0..40 {
        assert_eq!(get(&client, &format!("/version?x={n}")).await.unwrap().0, 200);
        let other = client.get("/version", &format!("application/json;x={n},*/*")).await.unwrap();
        assert_eq!(other.status, 200);
    }
    site.server.cut();
    site.offline().await;
    // All that passed is on the disk, or was let go: once nothing more is written.
    assert_eq!(get(&site.plain(), "/version?x=never").await.unwrap().0, 200);
    let (mut before, mut now) = (0, documents(&site, "\n"));
    while now != before {
        tokio::time::sleep(Duration::from_secs(1)).await;
        (before, now) = (now, documents(&site, "\n"));
    }
    assert!((8..=9 + 8).contains(&now), "{now} forms are kept");
}

/// Nothing of just that name was stored: the wider stream had it.
#[tokio::test]
async fn a_part_of_what_was_held_is_answered_after_a_restart() {
    let mut site = Site::started().await;
    let hub = site.plain();
    let all = "/apis/example.com/v1/widgets";
    site.server.cluster().create("widgets.example.com", super::site::widget("w", 1)).unwrap();
    site.caught_up(all, &["w"]).await;
    site.caught_up(WIDGETS, &["w"]).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    site.kill();
    site.server.cut();
    site.start();
    site.answers().await;
    let (status, one) = get(&hub, &format!("{WIDGETS}/w")).await.unwrap();
    assert_eq!((status, one["metadata"]["name"].as_str()), (200, Some("w")));
    let part = format!("{WIDGETS}?labelSelector=n%3Dodd");
    for path in [&part, WIDGETS, all, WIDGETS] {
        let (status, list) = get(&hub, path).await.unwrap();
        assert_eq!((status, names(&list)), (200, vec!["w"]), "{path}");
    }
    let mut watch = Lines::open(&hub, &format!("{part}&watch=1&resourceVersion=0")).await;
    assert!(watch.brief().await.starts_with("ADDED w@"));
}

/// Each was allowed all of it; who comes second must not depend on who came first.
#[tokio::test]
async fn a_part_is_answered_to_each_who_was_allowed_all_of_it() {
    let (mut site, issuer) = super::security::Issuer::with_site().await;
    let all = "/apis/example.com/v1/widgets";
    site.server.cluster().create("widgets.example.com", super::site::widget("w", 1)).unwrap();
    let tokens = ["one", "two", "three"].map(|name| issuer.token(&site, name, 3600));
    site.server
        .cluster()
        .access()
        .set_authorizer(|asked| !asked.user.name.ends_with(":three") || asked.namespace == "a");
    site.start();
    site.linked().await;
    let hub = |token: &str| site.plain().with_token(token);
    for token in &tokens[..2] {
        site.until("it may read all of it", async || {
            get(&hub(token), all).await.is_some_and(|(status, _)| status == 200)
        })
        .await;
    }
    assert_eq!(get(&hub(&tokens[2]), all).await.unwrap().0, 403);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    site.kill();
    site.server.cut();
    site.start();
    site.answers().await;
    let hub = |token: &str| site.plain().with_token(token);
    for token in [&tokens[0], &tokens[1], &tokens[0]] {
        let (status, list) = get(&hub(token), WIDGETS).await.unwrap();
        assert_eq!((status, names(&list)), (200, vec!["w"]), "{list}");
    }
    assert_eq!(get(&hub(&tokens[2]), WIDGETS).await.unwrap().0, 503, "it was allowed nothing before");
}

//! First lists that break off, servers that refuse, and pages that a server loses.

use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};

use super::site::{JSON, Lines, SERVICES, SOON, Site, WIDGETS, get, names, service, widget};
use testkit::{api_server::RequestRecord, client::connection::Endpoint};

/// The most that a page of the hub's own lists holds.
const PAGE: usize = 2000;

fn fill(site: &Site, count: usize) {
    for number in 0..count {
        site.server.cluster().create("widgets.example.com", widget(&format!("w{number:05}"), 1)).unwrap();
    }
}

/// Waits for the end, and has the hub connect anew after each answer of that path: over a link that stays it waits longer after each that broke off.
async fn over_new_links<T>(site: &Site, path: &str, end: impl Future<Output = T>) -> T {
    let resets = async {
        let mut seen = 0;
        loop {
            let requests = site.server.log().requests();
            let ended =
                requests.iter().filter(|request| request.path == path && request.ended.is_some()).count();
            if ended > seen {
                seen = ended;
                site.server.reset_connections();
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        end = end => end,
        () = resets => unreachable!("it goes on for ever"),
    }
}

#[tokio::test]
async fn a_first_list_that_breaks_off_at_every_kilobyte_is_never_shown_in_part() {
    let site = Site::started().await;
    fill(&site, 80);
    let mut whole = site.direct().get(WIDGETS, JSON).await.unwrap();
    let bytes = whole.bytes().await.unwrap().len();
    // The subscription is there and cannot list before all breaks are known.
    site.server.cluster().access().set_authorizer(|asked| asked.resource != "widgets" || asked.path == "x");
    let cuts = (0..bytes / 1024).map(|kilobytes| kilobytes as u64 * 1024);
    let count = cuts.clone().count();
    site.server.cluster().access().set_authorizer(|_| true);
    // The review comes before the list: it must pass.
    let warm = get(&site.plain(), &format!("{WIDGETS}/none")).await.unwrap();
    assert_eq!(warm.0, 404);
    let _ = get(&site.plain(), &format!("{WIDGETS}?resourceVersion=0&labelSelector=none")).await.unwrap();
    site.server.log().clear();
    cuts.for_each(|cut| site.server.cut_after_bytes(cut));
    let asked = async {
        loop {
            // Whoever is handed on while an answer breaks off sees it break off, and nothing else.
            if let Some((200, list)) = get(&site.plain(), &format!("{WIDGETS}?resourceVersion=0")).await {
                return list;
            }
        }
    };
    let list = timeout(SOON, over_new_links(&site, WIDGETS, asked)).await.unwrap();
    assert_eq!(names(&list).len(), 80, "of a list that broke off");
    let broken =
        site.server.log().requests().iter().filter(|request| request.body_bytes < bytes as u64).count();
    assert!(broken >= count, "{broken} of {count} broke off");
}

/// A kubelet that is told of no pods, or of some, kills the others: from the hub's start on its list breaks off, at every kilobyte.
#[tokio::test]
async fn the_kubelet_s_first_list_of_pods_is_never_empty_nor_in_part() {
    const PODS: &str = "/api/v1/pods";
    let mut site = Site::new().await;
    for number in 0..120 {
        let node = if number % 3 == 0 { "other" } else { "n" };
        let metadata = json!({ "namespace": "a", "name": format!("p{number:03}") });
        let pod = json!({ "metadata": metadata, "spec": { "nodeName": node } });
        site.server.cluster().create("pods", pod).unwrap();
    }
    let path = format!("{PODS}?fieldSelector=spec.nodeName%3Dn");
    let mut whole = site.direct().get(&path, "application/vnd.kubernetes.protobuf").await.unwrap();
    let bytes = whole.bytes().await.unwrap().len() as u64;
    site.server.log().clear();
    // What the hub asks for besides breaks off as well, so each of them several times.
    for cut in (0..12).flat_map(|_| (0..bytes / 1024).map(|kilobytes| kilobytes * 1024)) {
        site.server.cut_after_bytes(cut);
    }
    site.start();
    let asked = async {
        loop {
            match get(&site.plain(), &format!("{path}&resourceVersion=0")).await {
                Some((200, list)) => return list,
                // Whoever is handed on while an answer breaks off sees it break off, and nothing else.
                None => {}
                Some((status, said)) => assert!([429, 503].contains(&status), "{status} {said}"),
            }
        }
    };
    let list = timeout(SOON, over_new_links(&site, PODS, asked)).await.unwrap();
    assert_eq!(names(&list).len(), 80, "of a list that broke off");
    let broken = site.server.log().requests().into_iter().filter(|request| {
        request.path == PODS && request.query.contains("spec.nodeName") && request.body_bytes < bytes
    });
    let broken = broken.count();
    assert!(broken >= 3, "{broken} broke off");
}

/// The link stays, and what is asked for is half as much after each answer that broke off, later and later: an API server ends one that takes a minute, and a
/// thin line would never carry the page. After one that came soon it is twice as much.
#[tokio::test]
async fn pages_that_arrived_are_not_asked_for_again_and_those_that_broke_off_in_parts() {
    let site = Site::started().await;
    fill(&site, PAGE + 600);
    // Of the answers that are not the page, none is so long.
    let allowed =
        get(&site.plain(), &format!("{WIDGETS}?resourceVersion=0&labelSelector=none")).await.unwrap();
    assert_eq!(allowed.0, 200);
    site.server.log().clear();
    let asking = tokio::spawn({
        let hub = site.plain();
        async move { get(&hub, &format!("{WIDGETS}?resourceVersion=0")).await }
    });
    let pages = || {
        let of = |record: &RequestRecord| {
            record.path == WIDGETS && record.query.contains("limit=") && !record.query.ends_with("limit=1")
        };
        site.server.log().requests().into_iter().filter(of).collect::<Vec<_>>()
    };
    // The first page whole, the second broken several times.
    site.until("the first page is there", async || !pages().is_empty()).await;
    for cut in [5000, 1024, 100] {
        site.server.cut_after_bytes_of("continue=", cut);
    }
    let (status, list) = asking.await.unwrap().unwrap();
    assert_eq!((status, names(&list).len()), (200, PAGE + 600));
    let pages = pages();
    let (first, rest): (Vec<_>, Vec<_>) = pages.iter().partition(|page| !page.query.contains("continue="));
    assert_eq!(first.len(), 1, "the first page is asked for again: {pages:#?}");
    let of = |page: &&RequestRecord| {
        let limit = page.query.split('&').find_map(|part| part.strip_prefix("limit="));
        limit.unwrap().parse::<usize>().unwrap()
    };
    let limits: Vec<_> = rest.iter().map(of).collect();
    let expected = [PAGE, PAGE / 2, PAGE / 4, PAGE / 8, PAGE / 4];
    assert_eq!(limits, expected);
    let waited: Vec<_> = rest[..4].windows(2).map(|pair| pair[1].started - pair[0].started).collect();
    assert!(waited[1] >= Duration::from_millis(500) && waited[2] >= Duration::from_secs(1), "{waited:?}");
}

#[tokio::test]
async fn what_the_server_refuses_clients_hear_in_its_words() {
    let site = Site::started().await;
    fill(&site, 1);
    for code in [429, 500, 503] {
        // For the review and what is handed on; the server says that it is ready, or it would be left.
        site.server.fail("/api", code);
        let path = format!("{WIDGETS}?resourceVersion=0&labelSelector=code!={code}");
        let mut answer = site.plain().get(&path, JSON).await.unwrap();
        let body = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
        // Whether they may read it is not known: they shall ask again.
        assert_eq!(
            (answer.status.as_u16(), answer.headers.contains_key("retry-after")),
            (429, true),
            "{body}"
        );
        assert!(body.contains(&format!("the API server answered {code}")), "{body}");
        let request = http::Request::post(WIDGETS).header("content-type", JSON).header("accept", JSON);
        let mut answer = site.plain().ask(request, widget("new", 1).to_string()).await.unwrap();
        let body = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
        assert_eq!(answer.status.as_u16(), code, "{body}");
        assert!(body.contains("a failure that a test asked for"), "{body}");
        assert_eq!(answer.headers.contains_key("retry-after"), code == 429, "{code}");
        site.server.heal();
        site.until("the list is there", async || {
            get(&site.plain(), &path)
                .await
                .is_some_and(|(status, list)| status == 200 && names(&list).len() == 1)
        })
        .await;
    }
    let (status, _) =
        get(&site.plain(), "/apis/example.com/v1/namespaces/a/gadgets?resourceVersion=0").await.unwrap();
    assert_eq!(status, 404, "no such resource");
    site.server.cluster().access().set_authorizer(|asked| asked.namespace != "secret");
    let denied = "/apis/example.com/v1/namespaces/secret/widgets?resourceVersion=0";
    let (status, body) = get(&site.plain(), denied).await.unwrap();
    assert_eq!((status, &body["reason"]), (403, &json!("Forbidden")), "{body}");
}

#[tokio::test]
async fn a_definition_that_goes_ends_its_watches_and_lists_and_may_come_again() {
    let site = Site::started().await;
    fill(&site, 1);
    let hub = site.plain();
    let (status, list) = get(&hub, &format!("{WIDGETS}?resourceVersion=0")).await.unwrap();
    assert_eq!((status, names(&list).len()), (200, 1));
    let from = super::site::version(&list);
    let mut watch = Lines::open(&hub, &format!("{WIDGETS}?watch=1&resourceVersion={from}")).await;
    // An event shows that the hub reads its own watch; until then it may be told by a list that the definition is gone.
    let seen = json!({ "metadata": { "labels": { "seen": "yes" } } });
    site.server.cluster().merge_patch("widgets.example.com", "a/w00000", &seen).unwrap();
    assert!(watch.brief().await.starts_with("MODIFIED w00000@"));
    site.server
        .cluster()
        .delete("customresourcedefinitions.apiextensions.k8s.io", "widgets.example.com")
        .unwrap();
    assert!(watch.brief().await.starts_with("DELETED w00000@"));
    assert_eq!(watch.brief().await, "end", "the watch of a resource that is no more");
    site.until("the list is gone", async || {
        matches!(get(&hub, &format!("{WIDGETS}?resourceVersion=0")).await, Some((404, _)))
    })
    .await;
    let crd = super::site::widget_kind().crd();
    site.server.cluster().create("customresourcedefinitions.apiextensions.k8s.io", crd).unwrap();
    fill(&site, 2);
    sleep(Duration::from_millis(100)).await;
    site.caught_up(WIDGETS, &["w00000", "w00001"]).await;
    let (status, _) = get(&hub, &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!(status, 200, "others are as they were");
}

#[tokio::test]
async fn a_version_that_another_resource_came_to_is_there_for_lists_and_watches() {
    let site = Site::started().await;
    fill(&site, 1);
    site.caught_up(WIDGETS, &["w00000"]).await;
    // Of this the hub is told nothing: it is about a resource that it does not watch.
    let created = site.server.cluster().create("configmaps", config_map("unrelated")).unwrap();
    let rv = created["metadata"]["resourceVersion"].as_str().unwrap();
    let at_least = format!("resourceVersion={rv}&resourceVersionMatch=NotOlderThan");
    let (status, list) = get(&site.plain(), &format!("{WIDGETS}?{at_least}")).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["w00000"]));
    let initial = format!("watch=1&sendInitialEvents=true&allowWatchBookmarks=true&{at_least}");
    let mut watch = Lines::open(&site.plain(), &format!("{WIDGETS}?{initial}")).await;
    assert!(watch.brief().await.starts_with("ADDED w00000@"));
    assert_eq!(watch.brief().await, format!("BOOKMARK @{rv} end"));
}

fn config_map(name: &str) -> serde_json::Value {
    json!({ "metadata": { "namespace": "a", "name": name }, "data": {} })
}

#[tokio::test]
async fn a_definition_that_went_during_a_cut_is_withdrawn_from_the_disk() {
    let mut site = Site::started().await;
    fill(&site, 1);
    site.caught_up(WIDGETS, &["w00000"]).await;
    site.server.cut();
    site.offline().await;
    site.server
        .cluster()
        .delete("customresourcedefinitions.apiextensions.k8s.io", "widgets.example.com")
        .unwrap();
    let list = format!("{WIDGETS}?resourceVersion=0");
    assert_eq!(get(&site.plain(), &list).await.unwrap().0, 200, "nobody can know yet");
    site.server.heal();
    site.until("the list is gone", async || matches!(get(&site.plain(), &list).await, Some((404, _)))).await;
    // What a server that has just started does not know is not gone: it is asked for some seconds.
    sleep(Duration::from_secs(10)).await;
    site.server.cut();
    site.offline().await;
    assert_eq!(get(&site.plain(), &list).await.unwrap().0, 503);
    site.restart().await;
    assert_eq!(get(&site.plain(), &list).await.unwrap().0, 503, "nor is it on the disk");
}

/// Whatever is held of it.
#[tokio::test]
async fn to_head_there_is_no_answer_as_at_the_api_server() {
    let site = Site::started().await;
    site.caught_up(SERVICES, &[]).await;
    for path in
        [SERVICES, &format!("{SERVICES}?watch=1&resourceVersion=0"), "/api/v1/namespaces/a/services/s"]
    {
        for (what, endpoint) in [("the API server", site.direct()), ("the hub", site.plain())] {
            let answer = endpoint.ask(http::Request::head(path), String::new()).await.unwrap();
            assert_eq!(answer.status, 405, "{what}: {path}");
        }
    }
}

#[tokio::test]
async fn a_list_that_a_selector_narrows_to_a_namespace_has_all_its_pages() {
    let site = Site::started().await;
    // By their keys some stand before the namespace's own name, and some behind it.
    let all = ["a-0", "a-1", "z-0", "z-1"];
    for name in all {
        site.server.cluster().create("services", service("m", name, 1)).unwrap();
    }
    site.server.cluster().create("services", service("n", "other", 1)).unwrap();
    site.caught_up(SERVICES, &["a-0", "a-1", "z-0", "z-1", "other"]).await;
    let (hub, server) = (site.plain(), site.direct());
    let narrowed = format!("{SERVICES}?limit=1&fieldSelector=metadata.namespace%3Dm");
    let walked = async |first: &Endpoint, then: &Endpoint| {
        let mut found = Vec::new();
        let (mut from, mut token) = (first, String::new());
        while found.len() < 10 {
            let (status, page) = get(from, &format!("{narrowed}&continue={token}")).await.unwrap();
            assert_eq!(status, 200, "{page}");
            found.extend(names(&page).into_iter().map(str::to_owned));
            let Some(next) = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) else {
                break;
            };
            (from, token) = (then, next.to_owned());
        }
        found
    };
    // As a real API server does: the second page counts from all namespaces.
    assert_eq!(walked(&server, &server).await, ["a-0", "a-0", "a-1", "z-0", "z-1"]);
    assert_eq!(walked(&hub, &hub).await, all);
    assert_eq!(walked(&server, &hub).await, all, "which gave the first page is all the same");
    site.server.cut();
    site.offline().await;
    assert_eq!(walked(&hub, &hub).await, all, "without a link");
}

//! An etcd that was restored from a backup: versions come again, and the hub must not go on with what it knew.

use std::time::Duration;

use testkit::api_server::{RequestRecord, access::User};

use super::meanwhile::Meanwhile;
use super::site::{Lines, SERVICES, Site, WIDGETS, get, names, service, version, widget, widget_kind};

const WIDGET_ID: &str = "widgets.example.com";
const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

async fn restored(meanwhile: Meanwhile) {
    let mut site = Site::started().await;
    let cluster = site.server.cluster().clone();
    cluster.create("services", service("a", "old", 1)).unwrap();
    let backup = cluster.revision();
    for n in 0..20 {
        cluster.create("services", service("a", &format!("lost-{n}"), n)).unwrap();
    }
    let hub = site.plain();
    let list = format!("{SERVICES}?resourceVersion=0");
    site.until("all is there", async || {
        get(&hub, &list).await.is_some_and(|(status, list)| status == 200 && names(&list).len() == 21)
    })
    .await;
    let seen = version(&get(&hub, &list).await.unwrap().1);
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={seen}")).await;
    meanwhile.begin(&mut site).await;
    site.server.restore(backup);
    cluster.create("services", service("a", "new", 1)).unwrap();
    meanwhile.end(&mut site);
    site.until("the restored state is listed", async || {
        get(&hub, &list).await.is_some_and(|(_, list)| names(&list) == ["new", "old"])
    })
    .await;
    if meanwhile != Meanwhile::Killed {
        assert_eq!(watch.brief().await, "ERROR 410", "{meanwhile:?}");
    }
    // Who comes back with a version that is in the future now is told so, and not left waiting.
    let mut stale = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={seen}")).await;
    assert!(["ERROR 410", "ERROR 504"].contains(&stale.brief().await.as_str()), "{meanwhile:?}");
    let (status, answer) =
        get(&hub, &format!("{SERVICES}?resourceVersion={seen}&resourceVersionMatch=NotOlderThan"))
            .await
            .unwrap();
    assert_eq!(status, 504, "{answer}");
    let fresh = version(&get(&hub, &list).await.unwrap().1);
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={fresh}")).await;
    cluster.create("services", service("a", "newer", 1)).unwrap();
    assert!(watch.brief().await.starts_with("ADDED newer@"));
    // The store begins anew as well.
    tokio::time::sleep(Duration::from_millis(50)).await;
    site.kill();
    site.start();
    site.caught_up(SERVICES, &["new", "newer", "old"]).await;
}

/// What tells that upstream was restored, though it has passed the hub's version since.
async fn passed(history: impl FnOnce(&Site), restored: impl FnOnce(&Site), expected: &[&str]) {
    let site = Site::started().await;
    let cluster = site.server.cluster().clone();
    for name in ["a", "b"] {
        cluster.create("services", service("a", name, 1)).unwrap();
    }
    let backup = cluster.revision();
    history(&site);
    let hub = site.plain();
    let list = format!("{SERVICES}?resourceVersion=0");
    site.until("all is there", async || {
        get(&hub, &list)
            .await
            .is_some_and(|(status, list)| status == 200 && version(&list) == cluster.revision())
    })
    .await;
    let seen = version(&get(&hub, &list).await.unwrap().1);
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={seen}")).await;
    site.server.cut();
    site.offline().await;
    site.server.restore(backup);
    restored(&site);
    // Of other resources.
    while cluster.revision() <= seen + 5 {
        cluster.create(WIDGET_ID, widget(&format!("w{}", cluster.revision()), 1)).unwrap();
    }
    site.server.heal();
    site.until("the watch runs", async || site.upstream_watches(SERVICES) == 1).await;
    at_version(&site, SERVICES, seen, expected).await;
    site.until("the restored state is listed", async || {
        get(&hub, &list).await.is_some_and(|(_, list)| names(&list) == expected && version(&list) > seen)
    })
    .await;
    // Nothing of what was made since was shown beside what is no longer there.
    assert_eq!(watch.brief().await, "ERROR 410");
}

#[tokio::test]
async fn a_restore_that_passed_our_version_is_noticed_by_an_object_that_is_older_again() {
    let change = |site: &Site| {
        site.server.cluster().update("services", &service("a", "a", 2)).unwrap();
    };
    passed(change, |_| {}, &["a", "b"]).await;
}

#[tokio::test]
async fn a_restore_that_passed_our_version_is_noticed_by_the_number_of_objects() {
    let delete = |site: &Site| {
        site.server.cluster().delete("services", "a/a").unwrap();
    };
    passed(delete, |_| {}, &["a", "b"]).await;
}

/// Of a resource in which one object changes all the time nothing tells: the hub has passed all of its versions, and there are as many. Another of
/// the same etcd tells.
#[tokio::test]
async fn a_restore_that_one_resource_shows_holds_for_custom_resources_that_do_not() {
    let site = Site::started().await;
    let cluster = site.server.cluster().clone();
    for name in ["busy", "changed"] {
        cluster.create(WIDGET_ID, widget(name, 1)).unwrap();
    }
    cluster.create("services", service("a", "a", 1)).unwrap();
    let backup = cluster.revision();
    cluster.update(WIDGET_ID, &widget("changed", 2)).unwrap();
    cluster.update("services", &service("a", "a", 2)).unwrap();
    cluster.update(WIDGET_ID, &widget("busy", 2)).unwrap();
    let (hub, seen) = (site.plain(), cluster.revision());
    let n_of = |list: &serde_json::Value| {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["spec"]["n"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let list = format!("{WIDGETS}?resourceVersion=0");
    for path in [SERVICES, WIDGETS] {
        site.until("all is there", async || {
            let answer = get(&hub, &format!("{path}?resourceVersion=0")).await;
            answer.is_some_and(|(status, _)| status == 200) && site.upstream_watches(path) == 1
        })
        .await;
    }
    assert_eq!(n_of(&get(&hub, &list).await.unwrap().1), [2, 2]);
    let mut watch = Lines::open(&hub, &format!("{WIDGETS}?watch=1&resourceVersion={seen}")).await;
    site.server.cut();
    site.offline().await;
    site.server.restore(backup);
    for n in 3.. {
        if cluster.revision() > seen {
            break;
        }
        cluster.update(WIDGET_ID, &widget("busy", n)).unwrap();
    }
    site.server.heal();
    site.until("the restored state is shown", async || {
        get(&hub, &list).await.is_some_and(|(status, list)| status == 200 && n_of(&list)[1] == 1)
    })
    .await;
    let ended = loop {
        let told = watch.brief().await;
        if !told.starts_with("MODIFIED busy@") {
            break told;
        }
    };
    assert_eq!(ended, "ERROR 410");
}

#[tokio::test]
async fn a_restore_is_noticed_while_connected() {
    restored(Meanwhile::Connected).await;
}

#[tokio::test]
async fn a_restore_is_noticed_after_a_cut() {
    restored(Meanwhile::Cut).await;
}

#[tokio::test]
async fn a_restore_is_noticed_after_a_restart_of_the_hub() {
    restored(Meanwhile::Killed).await;
}

/// A client waits at a version that it has seen elsewhere, to which nothing has brought the hub. That the cluster had come there is remembered: from below
/// it would show the client nothing until then.
#[tokio::test]
async fn a_restore_is_noticed_by_a_version_that_only_a_client_has_seen() {
    let site = Site::started().await;
    let cluster = site.server.cluster().clone();
    cluster.create("services", service("a", "a", 1)).unwrap();
    site.caught_up(SERVICES, &["a"]).await;
    let backup = cluster.revision();
    for name in ["x", "y"] {
        cluster.create(WIDGET_ID, widget(name, 1)).unwrap();
    }
    let seen = cluster.revision();
    let versions_told = || {
        let asked = site.server.log().requests();
        let is_told = |asked: &&RequestRecord| asked.query == "limit=1" && asked.ended.is_some();
        asked.iter().filter(|asked| asked.path == SERVICES).filter(is_told).count()
    };
    let before = versions_told();
    let hub = site.plain();
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={seen}")).await;
    site.until("the API server says whether it has come there", async || versions_told() > before).await;
    // The answer is on its way.
    tokio::time::sleep(Duration::from_millis(200)).await;
    site.server.cut();
    site.offline().await;
    site.server.restore(backup);
    cluster.create(WIDGET_ID, widget("z", 1)).unwrap();
    assert!(backup < cluster.revision() && cluster.revision() < seen);
    site.server.heal();
    assert_eq!(watch.brief().await, "ERROR 410");
}

/// What a read brings back from the disk is not shown before the API server was asked about it.
#[tokio::test]
async fn a_restore_is_noticed_before_a_stream_from_the_disk_answers() {
    let mut site = Site::started().await;
    let cluster = site.server.cluster().clone();
    for name in ["a", "b"] {
        cluster.create(WIDGET_ID, widget(name, 1)).unwrap();
    }
    let backup = cluster.revision();
    site.caught_up(WIDGETS, &["a", "b"]).await;
    cluster.delete(WIDGET_ID, "a/a").unwrap();
    site.caught_up(WIDGETS, &["b"]).await;
    let seen = cluster.revision();
    site.kill();
    site.server.restore(backup);
    while cluster.revision() <= seen {
        cluster.create("services", service("a", &format!("s{}", cluster.revision()), 1)).unwrap();
    }
    site.start();
    site.linked().await;
    at_version(&site, WIDGETS, seen, &["a", "b"]).await;
}

/// Who has seen a version is to ask again while there is a doubt, and then has what was restored: nothing else before.
async fn at_version(site: &Site, path: &str, seen: u64, expected: &[&str]) {
    let (hub, path) =
        (site.plain(), format!("{path}?resourceVersion={seen}&resourceVersionMatch=NotOlderThan"));
    site.until("what was restored is answered", async || match get(&hub, &path).await.unwrap() {
        (429, _) => false,
        (status, answer) => {
            assert_eq!((status, names(&answer)), (200, expected.to_vec()));
            true
        }
    })
    .await;
}

/// A stream that waits on the disk for its reader, and holds as much as was restored, cannot tell. Another is listed at a lower version than it
/// had: that tells for both, though it was withdrawn with the definition, or never held.
async fn on_the_disk(is_withdrawn_before: bool) {
    let mut site = Site::started().await;
    let cluster = site.server.cluster().clone();
    cluster.access().add_token("t", User::service_account("a", "t"));
    let (hub, theirs) = (site.plain(), site.secure(None).with_token("t"));
    let list = format!("{WIDGETS}?resourceVersion=0");
    // Users who come after the node are answered from its stream.
    for (endpoint, streams) in [(&theirs, 1), (&hub, 2)] {
        site.until("its stream runs", async || {
            get(endpoint, &list).await;
            site.upstream_watches(WIDGETS) == streams
        })
        .await;
    }
    let backup = cluster.revision();
    cluster.create(WIDGET_ID, widget("lost", 1)).unwrap();
    cluster.delete(WIDGET_ID, "a/lost").unwrap();
    let seen = cluster.revision();
    for endpoint in [&hub, &theirs] {
        site.until("all is told", async || {
            get(endpoint, &list).await.is_some_and(|(_, list)| version(&list) == seen)
        })
        .await;
    }
    cluster.delete(CRDS, WIDGET_ID).unwrap();
    let restart = async |site: &mut Site| {
        site.kill();
        site.start();
        site.linked().await;
    };
    restart(&mut site).await;
    site.until("there is no such resource", async || {
        get(&hub, &list).await.is_some_and(|(code, _)| code == 404)
    })
    .await;
    if is_withdrawn_before {
        site.until("the node's stream is withdrawn", async || site.last_log().contains("withdrawn")).await;
        // It is told of before the disk has let go of it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        restart(&mut site).await;
    }
    // To a backup that has the definition.
    cluster.create(CRDS, widget_kind().crd()).unwrap();
    site.server.restore(backup);
    site.until("the node's stream runs", async || {
        get(&hub, &list).await.is_some_and(|(code, _)| code == 200) && site.upstream_watches(WIDGETS) == 1
    })
    .await;
    cluster.create(WIDGET_ID, widget("new", 1)).unwrap();
    cluster.delete(WIDGET_ID, "a/new").unwrap();
    assert_eq!(cluster.revision(), seen, "as far as before, and as empty");
    let mut watch = Lines::open(&theirs, &format!("{WIDGETS}?watch=1&resourceVersion={backup}")).await;
    cluster.create(WIDGET_ID, widget("newer", 1)).unwrap();
    let told = watch.brief().await;
    assert!(told == "ERROR 410" || told.starts_with("ADDED new@"), "{told}");
    site.until("it holds as well", async || {
        get(&theirs, &list).await.is_some_and(|(_, list)| names(&list) == ["newer"])
    })
    .await;
}

#[tokio::test]
async fn a_restore_that_shows_in_a_stream_that_was_withdrawn_holds_for_those_on_the_disk() {
    on_the_disk(false).await;
}

#[tokio::test]
async fn a_restore_that_shows_in_a_first_list_holds_for_those_on_the_disk() {
    on_the_disk(true).await;
}

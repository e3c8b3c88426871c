//! An etcd that was restored from a backup: versions come again, and the hub must not go on with what it knew.

use std::time::Duration;

use super::site::{Lines, SERVICES, Site, get, names, service, version};

/// What happens to the hub's link while the server is restored.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Meanwhile {
    Connected,
    Cut,
    Killed,
}

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
    match meanwhile {
        Meanwhile::Connected => {}
        Meanwhile::Cut => {
            site.server.cut();
            site.offline().await;
        }
        Meanwhile::Killed => site.kill(),
    }
    site.server.restore(backup);
    cluster.create("services", service("a", "new", 1)).unwrap();
    match meanwhile {
        Meanwhile::Connected => {}
        Meanwhile::Cut => site.server.heal(),
        Meanwhile::Killed => site.start(),
    }
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

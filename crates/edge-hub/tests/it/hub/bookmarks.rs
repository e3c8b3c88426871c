//! What a watch that nothing happens to is told before it ends, over real sockets.

use std::time::Duration;

use tokio::time::Instant;

use super::site::{Lines, SERVICES, Site, WIDGETS, get, service, version, widget};

/// What a loaded machine may add to a time that is promised.
const SLACK: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_short_watch_is_told_how_far_it_has_come_before_it_ends() {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    // Of a later version, and nothing to this watch.
    site.server.cluster().create("widgets.example.com", widget("w", 1)).unwrap();
    told(&site, "with a link").await;
    site.server.cut();
    site.offline().await;
    told(&site, "without").await;
}

async fn told(site: &Site, link: &str) {
    let hub = site.plain();
    let (status, list) = get(&hub, &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!(status, 200);
    let held = version(&list);
    let path = format!("{SERVICES}?watch=1&resourceVersion={held}&timeoutSeconds=4");
    let asks = async {
        let began = Instant::now();
        let mut watch = Lines::open(&hub, &format!("{path}&allowWatchBookmarks=true")).await;
        let bookmark = (watch.brief().await, began.elapsed());
        (bookmark, (watch.brief().await, began.elapsed()))
    };
    let does_not = async { Lines::open(&hub, &path).await.brief().await };
    let ((bookmark, end), silent) = tokio::join!(asks, does_not);
    assert_eq!(bookmark.0, format!("BOOKMARK @{held}"), "{link}");
    assert_eq!((&*end.0, &*silent), ("end", "end"), "{link}");
    // Timers are a millisecond coarse.
    for ((_, took), at) in [(bookmark, 2), (end, 4)] {
        let at = Duration::from_secs(at);
        assert!(took + Duration::from_millis(50) >= at && took < at + SLACK, "{link}: {took:?} for {at:?}");
    }
}

/// One whose client reads slower than it is told never waits for anything, and ends all the same.
#[tokio::test]
async fn a_watch_whose_client_is_always_behind_ends_in_time() {
    const OBJECTS: usize = 400;
    let site = Site::started().await;
    // More than all sockets on the way hold.
    let long = "x".repeat(100 << 10);
    for number in 0..OBJECTS {
        let mut widget = widget(&format!("w{number:03}"), 1);
        widget["spec"]["long"] = long.clone().into();
        site.server.cluster().create("widgets.example.com", widget).unwrap();
    }
    site.until("all is held", async || {
        let listed = get(&site.plain(), &format!("{WIDGETS}?resourceVersion=0")).await;
        listed
            .is_some_and(|(status, list)| status == 200 && list["items"].as_array().unwrap().len() == OBJECTS)
    })
    .await;
    let mut watch =
        Lines::open(&site.plain(), &format!("{WIDGETS}?watch=1&resourceVersion=0&timeoutSeconds=2")).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut told = 0;
    while let Some(event) = watch.next().await {
        assert_eq!(event["type"], "ADDED");
        told += 1;
    }
    assert!(told > 0 && told < OBJECTS, "{told}");
}

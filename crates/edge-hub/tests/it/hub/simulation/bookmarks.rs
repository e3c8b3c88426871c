//! Bookmarks on a clock that stands still: one a minute, and one two seconds before the end, with a link and without.

use std::time::Duration;

use testkit::{
    api_server::Cluster,
    client::{brief, connection::Endpoint},
    memory::Port,
};
use tokio::{
    runtime::Builder,
    time::{Instant, sleep, timeout},
};

use super::{
    super::site::{Lines, SERVICES, get, service, version},
    parts::{Hub, Servers, folder},
};

/// When the watch ends, in seconds after its beginning.
const LASTS: u64 = 190;

/// When it is told how far it has come.
const BOOKMARKS: [u64; 4] = [60, 120, 180, LASTS - 2];

/// What the machine may add: the clock moves while nobody has anything to do, and hardly else.
const SLACK: Duration = Duration::from_secs(1);

#[test]
fn a_watch_is_told_each_minute_how_far_it_has_come() {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (cluster, root, port) = (Cluster::default(), folder(), Port::default());
        let servers = Servers::start(&cluster);
        cluster.create("services", service("a", "s", 1)).unwrap();
        let hub = Hub::start(root.path(), &servers, &port).await;
        let endpoint = Endpoint::within(port.clone());
        while !matches!(get(&endpoint, &format!("{SERVICES}?resourceVersion=0")).await, Some((200, _))) {
            sleep(Duration::from_millis(250)).await;
        }
        told(&endpoint).await;
        for server in &servers.all {
            server.cut();
        }
        while !matches!(get(&endpoint, "/api/v1/nodes").await, Some((503, _))) {
            sleep(Duration::from_millis(250)).await;
        }
        told(&endpoint).await;
        hub.kill().await;
    });
}

async fn told(endpoint: &Endpoint) {
    let (status, list) = get(endpoint, &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!(status, 200);
    let held = version(&list);
    let path = format!("{SERVICES}?watch=1&resourceVersion={held}&timeoutSeconds={LASTS}");
    let began = Instant::now();
    let mut watch = Lines::open(endpoint, &format!("{path}&allowWatchBookmarks=true")).await;
    for at in BOOKMARKS.map(Duration::from_secs) {
        let next = timeout(2 * Duration::from_secs(LASTS), watch.next()).await.expect("an event");
        let took = began.elapsed();
        assert_eq!(next.map(|event| brief(&event)), Some(format!("BOOKMARK @{held}")), "after {took:?}");
        assert!(took >= at && took < at + SLACK, "{took:?} for {at:?}");
    }
    assert_eq!(watch.next().await, None);
    assert!(began.elapsed() >= Duration::from_secs(LASTS));
    // Who did not ask for them gets none.
    let mut watch = Lines::open(endpoint, &path).await;
    assert_eq!(watch.next().await, None);
}

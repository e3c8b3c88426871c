//! What the node reads for itself answers its users as well: each that may read it, and nobody else.

use std::time::Duration;

use testkit::{api_server::access::User, client::connection::Endpoint};
use tokio::time::sleep;

use super::{
    security::Issuer,
    site::{Lines, Site, WIDGETS, get, names, version, widget},
};

/// In all namespaces.
const ALL: &str = "/apis/example.com/v1/widgets";
const DEFINED: &str = "widgets.example.com";

fn of(site: &Site, name: &str) -> Endpoint {
    site.secure(None).with_token(name)
}

async fn with_users(names: &[&str]) -> Site {
    let site = Site::started().await;
    add_users(&site, names);
    site
}

fn add_users(site: &Site, names: &[&str]) {
    site.server.cluster().create(DEFINED, widget("w", 1)).unwrap();
    for name in names {
        site.server.cluster().access().add_token(name, User::service_account("a", name));
    }
}

/// Lists as an informer does, and watches from there.
async fn inform(endpoint: &Endpoint) -> Lines {
    let (status, list) = get(endpoint, &format!("{WIDGETS}?resourceVersion=0")).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["w"]));
    Lines::open(endpoint, &format!("{WIDGETS}?watch=1&resourceVersion={}", version(&list))).await
}

/// The node lists it, and its stream is whole from now on.
async fn node_reads(site: &Site, path: &str) {
    site.caught_up(path, &["w"]).await;
    site.until("the node's stream is whole", async || site.upstream_watches(path) == 1).await;
}

/// Whole lists that the hub made upstream, and the watches that it has open there.
fn upstream(site: &Site) -> (usize, usize) {
    let lists =
        site.server.log().totals(|record| record.path == WIDGETS && record.query.contains("limit=2000"));
    (lists.requests, site.upstream_watches(WIDGETS))
}

#[tokio::test]
async fn the_node_and_its_users_cost_one_stream() {
    let site = with_users(&["o1", "o2"]).await;
    node_reads(&site, WIDGETS).await;
    let mut watches = vec![inform(&site.plain()).await];
    for name in ["o1", "o2"] {
        watches.push(inform(&of(&site, name)).await);
        assert_eq!(get(&of(&site, name), &format!("{WIDGETS}/w?resourceVersion=0")).await.unwrap().0, 200);
    }
    assert_eq!(upstream(&site), (1, 1));
    site.server.cluster().create(DEFINED, widget("x", 1)).unwrap();
    let at = site.server.cluster().revision();
    for watch in &mut watches {
        assert_eq!(watch.brief().await, format!("ADDED x@{at}"));
    }
    assert_eq!(upstream(&site), (1, 1));
}

#[tokio::test]
async fn a_version_that_the_node_does_not_reach_back_to_is_no_reason_for_another_stream() {
    let site = with_users(&["o1"]).await;
    let before = site.server.cluster().revision();
    site.server.cluster().create(DEFINED, widget("x", 1)).unwrap();
    site.server.cluster().delete(DEFINED, "a/x").unwrap();
    node_reads(&site, WIDGETS).await;
    let mut watch =
        Lines::open(&of(&site, "o1"), &format!("{WIDGETS}?watch=1&resourceVersion={before}")).await;
    assert_eq!(watch.brief().await, "ERROR 410");
    assert_eq!(upstream(&site), (1, 1));
}

#[tokio::test]
async fn whoever_may_not_read_it_gets_nothing_of_what_the_node_reads() {
    let (mut site, issuer) = Issuer::with_site().await;
    site.start();
    site.linked().await;
    site.server.cluster().create(DEFINED, widget("w", 1)).unwrap();
    let [alice, eve, late] = ["alice", "eve", "late"].map(|name| issuer.token(&site, name, 3600));
    let access = site.server.cluster().access();
    access.set_authorizer(|asked| asked.resource != "widgets" || !asked.user.name.ends_with(":eve"));
    node_reads(&site, WIDGETS).await;
    let reads = [
        format!("{WIDGETS}?resourceVersion=0"),
        format!("{WIDGETS}?watch=1&resourceVersion=0&timeoutSeconds=1"),
        format!("{WIDGETS}/w?resourceVersion=0"),
        format!("{WIDGETS}?labelSelector=x%3Dy&resourceVersion=0"),
    ];
    let nothing = async |site: &Site, token: &str, expected: &[u16]| {
        for read in &reads {
            let mut answer = of(site, token).get(read, "application/json").await.unwrap();
            let body = answer.bytes().await.unwrap();
            assert!(expected.contains(&answer.status.as_u16()), "{read}: {}", answer.status);
            assert!(!String::from_utf8_lossy(&body).contains("\"n\""), "{read}");
        }
    };
    drop(inform(&of(&site, &alice)).await);
    nothing(&site, &eve, &[403]).await;
    assert_eq!(upstream(&site), (1, 1));
    // Allowances and keys are stored.
    sleep(Duration::from_millis(2500)).await;
    site.server.cut();
    site.offline().await;
    for restarted in [false, true] {
        if restarted {
            site.restart().await;
        }
        let (status, list) = get(&of(&site, &alice), &reads[0]).await.unwrap();
        assert_eq!((status, names(&list)), (200, vec!["w"]), "restarted: {restarted}");
        assert_eq!(get(&of(&site, &alice), &reads[2]).await.unwrap().0, 200);
        for token in [&eve, &late] {
            nothing(&site, token, &[403, 429, 503]).await;
        }
    }
}

#[tokio::test]
async fn who_is_revoked_is_told_no_more_of_what_the_node_reads() {
    let mut site = Site::new().await;
    site.start_suspicious(Duration::from_millis(300)).await;
    add_users(&site, &["o1", "o2"]);
    node_reads(&site, WIDGETS).await;
    let mut watches =
        [inform(&of(&site, "o1")).await, inform(&of(&site, "o2")).await, inform(&site.plain()).await];
    assert_eq!(upstream(&site).1, 1);
    site.server.cluster().access().set_authorizer(|asked| !asked.user.name.ends_with(":o1"));
    assert_eq!(watches[0].brief().await, "end");
    site.server.cluster().create(DEFINED, widget("x", 1)).unwrap();
    let at = site.server.cluster().revision();
    for watch in &mut watches[1..] {
        assert_eq!(watch.brief().await, format!("ADDED x@{at}"));
    }
}

/// That the API server gives the node the stream says as much; a review each time would cost the link more than the stream does.
#[tokio::test]
async fn a_watch_of_the_node_is_reviewed_again_only_where_its_stream_does_not_run() {
    let mut site = Site::new().await;
    site.start_suspicious(Duration::from_millis(300)).await;
    add_users(&site, &["o1"]);
    let mut watch = inform(&site.plain()).await;
    site.until("the node's stream runs", async || upstream(&site).1 == 1).await;
    let reviews = || site.server.log().totals(|record| record.path.ends_with("accessreviews")).requests;
    let before = reviews();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(reviews(), before);
    assert!(watch.is_silent(Duration::from_millis(10)).await);
    // Its right is gone: when the stream is asked for anew it is refused, and with it the watch ends.
    site.server.cluster().access().set_authorizer(|asked| asked.resource != "widgets");
    site.server.cut();
    site.server.heal();
    assert_eq!(watch.brief().await, "end");
}

/// The users' stream goes as soon as nobody uses it: who lists, or watches on from a version that the node's has, is answered from that.
#[tokio::test]
async fn users_who_were_there_before_the_node_come_to_what_it_reads() {
    let mut site = Site::new().await;
    add_users(&site, &["o1"]);
    site.start_inside(|config| config.lifetimes.idle = Duration::from_secs(2)).await;
    site.linked().await;
    let mut early = inform(&of(&site, "o1")).await;
    site.until("the users' stream runs", async || upstream(&site).1 == 1).await;
    site.caught_up(WIDGETS, &["w"]).await;
    site.until("the node's runs as well", async || upstream(&site).1 == 2).await;
    let mut node = inform(&site.plain()).await;
    assert_eq!(upstream(&site).1, 2);
    site.server.cluster().create(DEFINED, widget("x", 1)).unwrap();
    let at = site.server.cluster().revision();
    for watch in [&mut early, &mut node] {
        assert_eq!(watch.brief().await, format!("ADDED x@{at}"));
    }
    drop(early);
    let mut again = Lines::open(&of(&site, "o1"), &format!("{WIDGETS}?watch=1&resourceVersion={at}")).await;
    site.until("the users' stream has ended", async || upstream(&site).1 == 1).await;
    site.server.cluster().create(DEFINED, widget("y", 1)).unwrap();
    let at = site.server.cluster().revision();
    for watch in [&mut again, &mut node] {
        assert_eq!(watch.brief().await, format!("ADDED y@{at}"));
    }
}

/// Whoever was allowed a part reads that part of the whole that the disk has, and no more.
#[tokio::test]
async fn a_part_of_what_the_node_read_is_there_after_a_restart_without_a_link() {
    let (mut site, issuer) = Issuer::with_site().await;
    site.start();
    site.linked().await;
    site.server.cluster().create(DEFINED, widget("w", 1)).unwrap();
    let [alice, late] = ["alice", "late"].map(|name| issuer.token(&site, name, 3600));
    node_reads(&site, ALL).await;
    let part = format!("{WIDGETS}?resourceVersion=0");
    assert_eq!(get(&of(&site, &alice), &part).await.unwrap().0, 200);
    assert_eq!(site.upstream_watches(WIDGETS), 0, "it is a part of what the node reads");
    // Allowances and keys are stored.
    sleep(Duration::from_millis(2500)).await;
    site.kill();
    site.server.cut();
    site.start();
    site.answers().await;
    let (status, list) = get(&of(&site, &alice), &part).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["w"]), "{list}");
    for (token, path) in [(&alice, ALL), (&late, WIDGETS)] {
        let (status, _) = get(&of(&site, token), &format!("{path}?resourceVersion=0")).await.unwrap();
        assert!([403, 429, 503].contains(&status), "{path}: {status}");
    }
}

//! A certificate that has expired keeps no link; one that was renewed in time costs no stream.

use std::time::{Duration, SystemTime};

use testkit::api_server::access::User;
use tokio::task::JoinSet;
use tunnel::{identity::PeerVerifier as _, identity::SubjectVerifier, links::table::LinkStatus};

use crate::world::{GATEWAY_NAME, Hub, SOON, World, ask, echo, eventually, install, links};

/// How long streams may go on once the certificate has expired.
const DRAIN: Duration = Duration::from_secs(1);

/// A gateway `c1` and an agent `a1` that are linked, one of which has a certificate that lives for two seconds; on a machine that is too
/// busy for that, for longer. And when it is over.
async fn pair(world: &World, short: &str) -> (Hub, Hub, SystemTime) {
    for life in [2, 8, 30] {
        let (mut cloud, mut edge) = (world.hub("c1", true), world.hub("a1", false));
        let user = User::new(&format!("isthmus:edge-hub:{short}"), &["isthmus:edge-hubs"]);
        let names: &[&str] = if short == "c1" { &[GATEWAY_NAME] } else { &[] };
        let leaf = world.authority.peer_for(&user, names, Duration::from_secs(life)).unwrap();
        let of = if short == "c1" { &cloud } else { &edge };
        of.credentials.install(&leaf.certificate_pem, &leaf.key_pem, world.authority.pem()).unwrap();
        let verifier = SubjectVerifier::new("isthmus:edge-hubs", "isthmus:edge-hub:");
        let expires = verifier.identify(&leaf.certificate).unwrap().expires;
        let address = cloud.listen().await;
        edge.desired.send_replace(links("c1", address, edge.credentials.generation()));
        edge.dial();
        while cloud.table.snapshot().len() < 4 || edge.table.snapshot().len() < 4 {
            if SystemTime::now() + Duration::from_secs(1) >= expires {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if cloud.table.snapshot().len() == 4 && SystemTime::now() < expires {
            return (cloud, edge, expires);
        }
    }
    panic!("no links within the life of a certificate");
}

fn world() -> World {
    let mut world = World::new();
    world.limits.drain = DRAIN;
    world
}

/// Waits until long after what has expired would have been cut.
async fn long_after(expires: SystemTime) {
    let until = expires + DRAIN * 3;
    tokio::time::sleep(until.duration_since(SystemTime::now()).unwrap_or_default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_ends_with_the_certificate_of_who_dialled() {
    let (world, mut tasks) = (world(), JoinSet::new());
    let (cloud, edge, expires) = pair(&world, "a1").await;
    let port = echo(&mut tasks).await;
    let mut live = cloud.connect(&format!("a1:{port}")).await.unwrap();
    let mut up = edge.connect(&format!("c1:{port}")).await.unwrap();
    let cut = async {
        while ask(&mut live, b"x").await.is_ok() || ask(&mut up, b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, cut).await.expect("the streams of who has no certificate go on");
    assert!(SystemTime::now() > expires, "cut too early");
    cloud.links(0).await;
    edge.links(0).await;
    // It dials again, and is refused.
    eventually("refusals", || cloud.stats.snapshot().links_failed >= 4).await;
    assert!(cloud.table.snapshot().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_ends_with_the_certificate_of_its_gateway() {
    let world = world();
    let (cloud, edge, expires) = pair(&world, "c1").await;
    eventually("no links", || edge.table.snapshot().is_empty() && cloud.table.snapshot().is_empty()).await;
    assert!(SystemTime::now() > expires, "cut too early");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_outlives_the_certificate_that_its_node_has_renewed() {
    let (world, mut tasks) = (world(), JoinSet::new());
    let (cloud, edge, expires) = pair(&world, "a1").await;
    let port = echo(&mut tasks).await;
    let mut live = cloud.connect(&format!("a1:{port}")).await.unwrap();
    let mut up = edge.connect(&format!("c1:{port}")).await.unwrap();
    edge.renew_links(install(&world.authority, &edge.credentials, "a1", false));
    long_after(expires).await;
    ask(&mut live, b"after").await.unwrap();
    ask(&mut up, b"after").await.unwrap();
    // The old links go with them.
    drop((live, up));
    cloud.links(4).await;
    edge.links(4).await;
}

/// Whoever dialled finds out by dialling again, before it is too late, and no stream fails in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_outlives_the_certificate_that_its_gateway_has_renewed() {
    let (world, mut tasks) = (world(), JoinSet::new());
    let (cloud, edge, expires) = pair(&world, "c1").await;
    install(&world.authority, &cloud.credentials, "c1", true);
    let port = echo(&mut tasks).await;
    let mut live = cloud.connect(&format!("a1:{port}")).await.unwrap();
    let mut up = edge.connect(&format!("c1:{port}")).await.unwrap();
    while SystemTime::now() < expires + DRAIN * 3 {
        let mut new = edge.connect(&format!("c1:{port}")).await.unwrap();
        ask(&mut new, b"new").await.unwrap();
        let mut new = cloud.connect(&format!("a1:{port}")).await.unwrap();
        ask(&mut new, b"new").await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ask(&mut live, b"after").await.unwrap();
    ask(&mut up, b"after").await.unwrap();
    drop((live, up));
    edge.links(4).await;
    let takes_streams = |link: &LinkStatus| !link.draining;
    assert!(edge.table.snapshot().iter().all(takes_streams));
    assert_eq!(edge.stats.snapshot().links_failed, 0);
}

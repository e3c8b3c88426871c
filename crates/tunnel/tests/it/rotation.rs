//! New certificates, addresses and gateways touch only what changed.

use std::time::Duration;

use testkit::wan::{Wan, Weather};
use tokio::task::JoinSet;
use tunnel::{dial::Proxy, protocol::Class, route::Direction};

use crate::world::{SOON, World, ask, authority, echo, eventually, install, leaf, links, only};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_cuts_no_stream() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge) = world.pair().await;
    let port = echo(&mut tasks).await;
    let mut live = cloud.connect(&format!("a1:{port}")).await.unwrap();
    ask(&mut live, b"before").await.unwrap();
    // Both ends get new ones; the edge makes its links anew.
    install(&world.authority, &cloud.credentials, "c1", true);
    let generation = install(&world.authority, &edge.credentials, "a1", false);
    assert_eq!(generation, 2);
    edge.renew_links(generation);
    eventually("new links beside the old", || edge.stats.snapshot().links_registered == 8).await;
    // Idle links go; the one with the stream stays until the stream ends.
    cloud.links(5).await;
    ask(&mut live, b"after").await.unwrap();
    let mut next = cloud.connect(&format!("a1:{port}")).await.unwrap();
    ask(&mut next, b"over the new link").await.unwrap();
    drop(live);
    cloud.links(4).await;
    ask(&mut next, b"still").await.unwrap();
    let failed = edge.stats.snapshot().links_failed;
    assert_eq!(failed, 0);
}

/// The deadline of a drain is for a process that ends, and not for what is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_outlives_a_drain_but_when_its_process_ends() {
    for (ends, name) in [(true, "agent"), (false, "gateway")] {
        let (mut world, mut tasks) = (World::new(), JoinSet::new());
        world.limits.drain = Duration::from_secs(4);
        let (cloud, edge) = world.pair().await;
        let port = echo(&mut tasks).await;
        let mut down = cloud.connect(&format!("a1:{port}")).await.unwrap();
        let mut up = edge.connect(&format!("c1:{port}")).await.unwrap();
        ask(&mut down, b"before").await.unwrap();
        ask(&mut up, b"before").await.unwrap();
        let generation = install(&world.authority, &edge.credentials, "a1", false);
        edge.renew_links(generation);
        eventually("the old links retire", || edge.stats.snapshot().links_registered == 8).await;
        cloud.links(6).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        ask(&mut down, b"after").await.unwrap();
        ask(&mut up, b"after").await.unwrap();
        if ends { &edge } else { &cloud }.shutdown.cancel();
        // A while is left.
        ask(&mut down, b"soon").await.unwrap();
        ask(&mut up, b"soon").await.unwrap();
        let cut = async {
            while ask(&mut down, b"x").await.is_ok() || ask(&mut up, b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SOON, cut).await.expect(name);
    }
}

/// Links that end with their last stream are not counted as those of a peer.
#[tokio::test(flavor = "multi_thread")]
async fn links_that_drain_leave_room_for_others() {
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.links_of_a_peer = 2;
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let mut edge = world.hub("a1", false);
    let port = echo(&mut tasks).await;
    let wanted = |generation| only(links("c1", address, generation), Direction::Reverse, Class::Interactive);
    edge.desired.send_replace(wanted(1));
    edge.dial();
    let mut streams = Vec::new();
    for number in 1..=5 {
        eventually("the newest link is the only one that takes streams", || {
            let links = cloud.table.snapshot();
            links.len() == number && links.iter().filter(|link| !link.draining).count() == 1
        })
        .await;
        streams.push(cloud.connect(&format!("a1:{port}")).await.unwrap());
        let generation = install(&world.authority, &edge.credentials, "a1", false);
        edge.desired.send_replace(wanted(generation));
    }
    for stream in &mut streams {
        ask(stream, b"all of them").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_address_is_used_before_the_old_is_left() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let mut cloud = world.hub("c1", true);
    let direct = cloud.listen().await;
    let wan = Wan::start(direct, 5, Weather::CLEAR).await.unwrap();
    let mut edge = world.hub("a1", false);
    let wanted = |address| only(links("c1", address, 1), Direction::Reverse, Class::Interactive);
    edge.desired.send_replace(wanted(direct));
    edge.dial();
    cloud.links(1).await;
    let port = echo(&mut tasks).await;
    let mut live = cloud.connect(&format!("a1:{port}")).await.unwrap();
    ask(&mut live, b"before").await.unwrap();
    // An address where nobody is: the link that works stays.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    edge.desired.send_replace(wanted(nobody));
    eventually("attempts", || edge.stats.snapshot().links_failed >= 2).await;
    assert_eq!(cloud.table.snapshot().len(), 1);
    assert!(!edge.table.snapshot()[0].draining);
    edge.desired.send_replace(wanted(wan.address()));
    eventually("the new link, and the old with its stream", || {
        cloud.table.snapshot().len() == 2 && edge.table.snapshot().iter().any(|link| link.draining)
    })
    .await;
    ask(&mut live, b"after").await.unwrap();
    drop(live);
    cloud.links(1).await;
    let mut next = cloud.connect(&format!("a1:{port}")).await.unwrap();
    ask(&mut next, b"new").await.unwrap();
    assert_eq!(wan.accepted(), 1);
}

/// Whoever is not who they should be: no link, and nothing about them in the table.
#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_gets_a_link() {
    let world = World::new();
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    // An ordinary node; a node that nobody knows; a cloud node that would be reached like an edge.
    for node in ["a2", "stranger", "c2"] {
        let mut edge = world.hub(node, false);
        edge.desired.send_replace(only(links("c1", address, 1), Direction::Reverse, Class::Bulk));
        edge.dial();
        eventually("a refusal", || edge.stats.snapshot().links_failed >= 1).await;
        assert!(edge.table.snapshot().is_empty(), "{node}");
    }
    let mut edge = world.hub("a2", false);
    edge.desired.send_replace(only(links("c1", address, 1), Direction::Forward, Class::Bulk));
    edge.dial();
    eventually("a refusal", || edge.stats.snapshot().links_failed >= 1).await;
    // Another authority's certificate, in either role.
    let other = authority();
    let mut edge = world.hub("a1", false);
    let foreign = leaf(&other, "a1", false);
    edge.credentials.install(&foreign.certificate_pem, &foreign.key_pem, world.authority.pem()).unwrap();
    edge.desired.send_replace(links("c1", address, 2));
    edge.dial();
    eventually("a refusal", || edge.stats.snapshot().links_failed >= 4).await;
    let mut edge = world.hub("a1", false);
    let own = leaf(&world.authority, "a1", false);
    edge.credentials.install(&own.certificate_pem, &own.key_pem, other.pem()).unwrap();
    edge.desired.send_replace(links("c1", address, 2));
    edge.dial();
    eventually("a refusal", || edge.stats.snapshot().links_failed >= 4).await;
    // A node's certificate, which is none of a gateway's.
    let mut false_gateway = world.hub("c1", false);
    let address = false_gateway.listen().await;
    let mut edge = world.hub("a1", false);
    edge.desired.send_replace(links("c1", address, 1));
    edge.dial();
    eventually("a refusal", || edge.stats.snapshot().links_failed >= 4).await;
    assert!(edge.table.snapshot().is_empty());
    assert!(cloud.table.snapshot().is_empty());
    assert_eq!(cloud.stats.snapshot().links_registered, 0);
}

/// One address for two gateways, as behind a load balancer: each gets its link.
#[tokio::test(flavor = "multi_thread")]
async fn gateways_behind_one_address_each_get_a_link() {
    use tokio::io::copy_bidirectional;
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (mut c1, mut c2) = (world.hub("c1", true), world.hub("c2", true));
    let backends = [c1.listen().await, c2.listen().await];
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let balancer = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut clients = JoinSet::new();
        // In turn.
        for turn in 0.. {
            let Ok((mut client, _)) = listener.accept().await else { break };
            let backend = backends[turn % 2];
            clients.spawn(async move {
                let mut server = tokio::net::TcpStream::connect(backend).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let mut edge = world.hub("solo", false);
    let mut wanted = links("c1", balancer, 1);
    wanted.extend(links("c2", balancer, 1));
    edge.desired.send_replace(wanted);
    edge.dial();
    edge.links(8).await;
    c1.links(4).await;
    c2.links(4).await;
}

/// The only way out is an HTTP proxy that asks for a password.
#[tokio::test(flavor = "multi_thread")]
async fn through_a_proxy() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let mut cloud = world.hub("c1", true);
    let gateway = cloud.listen().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut clients = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            clients.spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                assert!(head.starts_with("CONNECT gateway.invalid:443 HTTP/1.1\r\n"), "{head}");
                if !head.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n") {
                    let _ = client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
                    return;
                }
                // The proxy resolves the name.
                let mut server = tokio::net::TcpStream::connect(gateway).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n").await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let wanted: std::collections::BTreeSet<_> = links("c1", gateway, 1)
        .into_iter()
        .map(|mut key| {
            key.address = "gateway.invalid:443".into();
            key
        })
        .collect();
    let mut edge = world.hub("a1", false);
    for (proxy, works) in [
        (Proxy::new(proxy.to_string()), false),
        (Proxy::new(proxy.to_string()).with_password("user", "pass"), true),
    ] {
        let agent = tunnel::agent::Agent { proxy: Some(proxy), ..edge.agent() };
        let before = edge.stats.snapshot().links_failed;
        edge.desired.send_replace(wanted.clone());
        let end = tokio_util::sync::CancellationToken::new();
        edge.spawn(agent.run(edge.desired.subscribe(), end.clone()));
        if works {
            cloud.links(4).await;
        } else {
            eventually("refusals", || edge.stats.snapshot().links_failed >= before + 4).await;
            assert!(cloud.table.snapshot().is_empty());
            end.cancel();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_left_out_for_who_is_excepted_and_within_the_pool() {
    let world = World::new();
    let mut cloud = world.hub("c1", true);
    let gateway = cloud.listen().await;
    let mut endpoint = world.hub("a1", true);
    let near = endpoint.listen().await;
    // Nobody listens there: whatever is dialled through it fails.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut edge = world.hub("solo", false);
    let agent =
        tunnel::agent::Agent { proxy: Some(Proxy::new(&nobody).except("127.0.0.0/8")), ..edge.agent() };
    edge.desired.send_replace(links("c1", gateway, 1));
    edge.spawn(agent.run(edge.desired.subscribe(), edge.shutdown.clone()));
    cloud.links(4).await;
    let mut ordinary = world.hub("a2", false);
    let agent = tunnel::agent::Agent { proxy: Some(Proxy::new(nobody)), ..ordinary.agent() };
    let wanted = links("a1", near, 1).into_iter().filter(|key| key.direction == Direction::Forward).collect();
    ordinary.desired.send_replace(wanted);
    ordinary.spawn(agent.run(ordinary.desired.subscribe(), ordinary.shutdown.clone()));
    endpoint.links(2).await;
}

/// Wanted, not wanted, wanted again: the link that drains is not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_mind_makes_a_new_link() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let mut cloud = world.hub("c1", true);
    let wanted = only(links("c1", cloud.listen().await, 1), Direction::Reverse, Class::Interactive);
    let mut edge = world.hub("a1", false);
    edge.desired.send_replace(wanted.clone());
    edge.dial();
    cloud.links(1).await;
    let port = echo(&mut tasks).await;
    let mut live = cloud.connect(&format!("a1:{port}")).await.unwrap();
    ask(&mut live, b"before").await.unwrap();
    edge.desired.send_replace([].into());
    eventually("the link drains", || edge.table.snapshot()[0].draining).await;
    edge.desired.send_replace(wanted);
    cloud.links(2).await;
    ask(&mut live, b"after").await.unwrap();
    let mut next = cloud.connect(&format!("a1:{port}")).await.unwrap();
    ask(&mut next, b"over the new link").await.unwrap();
    drop(live);
    cloud.links(1).await;
    ask(&mut next, b"still").await.unwrap();
}

//! Gateways that are not reached because of the HTTP proxy on the way: it is the proxy that is told of.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
    task::JoinSet,
};
use tunnel::{agent::Agent, dial::Proxy};

use crate::world::{World, eventually, links};

/// What is told of a gateway that is dialled through this proxy, whose user and password nobody learns.
async fn is_told(proxy: &str, expected: &str) {
    let mut world = World::new();
    world.limits.handshake = Duration::from_secs(2);
    let mut edge = world.hub("a1", false);
    let agent = Agent { proxy: Some(Proxy::new(proxy).with_password("somebody", "secret")), ..edge.agent() };
    // Nobody is there, and nobody finds out.
    edge.desired.send_replace(links("c1", SocketAddr::from(([192, 0, 2, 1], 10262)), 1));
    edge.spawn(agent.run(edge.desired.subscribe(), edge.shutdown.clone()));
    let begins = format!("no link to c1 at 192.0.2.1:10262: by the proxy http://{proxy}: {expected}");
    eventually(&begins, || edge.table.unreached().iter().any(|line| line.starts_with(&begins))).await;
    let told = edge.table.unreached();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(!told[0].contains("somebody") && !told[0].contains("secret"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_does_not_lead_there_is_told_of() {
    // Nobody else gets its port, and nobody listens there.
    let gone = TcpSocket::new_v4().unwrap();
    gone.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let nobody = gone.local_addr().unwrap().to_string();
    let [silent, refusing] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0"));
    let (silent, refusing) = (silent.await.unwrap(), refusing.await.unwrap());
    let [mute, unwilling] = [&silent, &refusing].map(|listener| listener.local_addr().unwrap().to_string());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut client, _)) = refusing.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = client.read_u8().await else { break };
                head.push(byte);
            }
            let _ = client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
        }
    });
    is_told(&nobody, "connecting: ").await;
    is_told(&unwilling, "the proxy answered 502").await;
    is_told(&mute, "the proxy did not answer in time").await;
    is_told("proxy.invalid:3128", "looking up the name: ").await;
    drop((gone, silent));
}

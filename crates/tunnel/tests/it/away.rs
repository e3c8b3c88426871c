//! Somebody on the way says that there is no gateway: how soon one that is there again has all its links.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tunnel::{agent::Agent, backoff, dial::Proxy};

use crate::world::{World, eventually, links};

/// What the proxy does with those who come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It leads to the gateway.
    Open,
    /// 502 for who asks, RST for who has come before.
    BadGateway,
    /// It takes connections, and ends them, as a balancer does that has nobody behind it.
    HungUp,
    /// Nobody listens: RST.
    Refused,
}

/// A proxy, which counts who comes.
struct Front {
    address: SocketAddr,
    gateway: SocketAddr,
    came: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Front {
    async fn new(gateway: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut front = Self { address, gateway, came: Arc::default(), tasks: JoinSet::new() };
        front.serve(listener, Way::Open);
        front
    }

    /// From here on it does that. Connections of before break.
    async fn becomes(&mut self, way: Way) {
        self.tasks.shutdown().await;
        if way != Way::Refused {
            let listener = TcpListener::bind(self.address).await.unwrap();
            self.serve(listener, way);
        }
    }

    fn serve(&mut self, listener: TcpListener, way: Way) {
        let (gateway, came) = (self.gateway, self.came.clone());
        self.tasks.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                came.fetch_add(1, Ordering::Relaxed);
                clients.spawn(async move { drop(answer(client, gateway, way).await) });
            }
        });
    }
}

async fn answer(mut client: TcpStream, gateway: SocketAddr, way: Way) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    if way == Way::BadGateway {
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
    }
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    if way == Way::HungUp {
        return Ok(());
    }
    let mut server = TcpStream::connect(gateway).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// The bounds of use, twenty times as fast: the gateway is away for long enough that waits after refusals would have grown to twenty times
/// what is waited here.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_there_again_has_its_links_soon() {
    const AWAY: Duration = Duration::from_secs(6);
    const SOON: Duration = Duration::from_secs(2);
    let limits = backoff::Limits {
        first: Duration::from_millis(25),
        away: Duration::from_millis(400),
        longest: Duration::from_secs(30),
        ..backoff::Limits::default()
    };
    for way in [Way::BadGateway, Way::HungUp, Way::Refused] {
        let world = World::new();
        let mut cloud = world.hub("c1", true);
        let mut front = Front::new(cloud.listen().await).await;
        let mut edge = world.hub("a1", false);
        let proxy = Some(Proxy::new(front.address.to_string()));
        let agent = Agent { proxy, backoff: limits, ..edge.agent() };
        edge.desired.send_replace(links("c1", front.gateway, 1));
        edge.spawn(agent.run(edge.desired.subscribe(), edge.shutdown.clone()));
        edge.links(4).await;

        front.becomes(way).await;
        edge.links(0).await;
        let came = front.came.load(Ordering::Relaxed);
        tokio::time::sleep(AWAY).await;
        // Four links, each after at least half of the longest wait but for the first few.
        let came = front.came.load(Ordering::Relaxed) - came;
        assert!(came <= 4 * (6 + 30), "{way:?}: {came} connections in {AWAY:?}");
        let failed = edge.stats.snapshot().links_failed;
        front.becomes(Way::Open).await;
        let began = Instant::now();
        eventually("all links", || edge.table.snapshot().len() == 4).await;
        let took = began.elapsed();
        assert!(took <= SOON, "{way:?}: all links after {took:?}, {failed} attempts failed before");
        cloud.links(4).await;
    }
}

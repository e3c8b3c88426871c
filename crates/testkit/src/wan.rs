//! A bad link between two real sockets: delay, jitter, loss, thin bandwidth, one-way silence, and a NAT that forgets.
//!
//! It relays TCP and is no packet filter, so a lost packet is what TCP makes of it: all that follows waits for a
//! retransmission. Which chunk is lost, and by how much each is late, is decided by the seed, the connection's number, the
//! direction and the bytes that came before alone; so runs are repeatable.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use crate::random::SplitMix64;

/// The segment by which loss is counted.
const SEGMENT: usize = 1460;

/// How long a lost segment holds back what follows: a retransmission after duplicate acknowledgements costs a round trip, but
/// never less than this.
const STALL_MIN: Duration = Duration::from_millis(10);

/// How the link is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weather {
    /// From one end to the other.
    pub delay: Duration,
    /// By how much a chunk may be later than that. Order is kept.
    pub jitter: Duration,
    /// Segments lost of a million.
    pub loss_per_million: u32,
    /// Bytes a second in each direction of each connection; `None` is as many as there are.
    pub bandwidth: Option<u64>,
    /// Nothing goes towards the server any more, and nobody is told.
    pub silent_up: bool,
    /// Nothing goes towards the client any more, and nobody is told.
    pub silent_down: bool,
}

impl Weather {
    /// A perfect link.
    pub const CLEAR: Self = Self {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        loss_per_million: 0,
        bandwidth: None,
        silent_up: false,
        silent_down: false,
    };

    /// One that delays by this much in each direction.
    pub const fn delayed(delay: Duration) -> Self {
        Self { delay, ..Self::CLEAR }
    }
}

/// Towards which end bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Towards {
    Server,
    Client,
}

/// The link. Ends with all its connections when it is dropped.
pub struct Wan {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    // Connections with a number up to this one are forgotten: neither end hears of the other again.
    forgotten: watch::Sender<u64>,
    accepted: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    _tasks: JoinSet<()>,
}

impl Wan {
    /// Listens on a port of the loopback address for connections to `server`.
    pub async fn start(server: SocketAddr, seed: u64, weather: Weather) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let weather = watch::Sender::new(weather);
        let forgotten = watch::Sender::new(0);
        let (accepted, bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let world = (weather.clone(), forgotten.clone(), accepted.clone(), connections.clone());
        let counted = bytes.clone();
        tasks.spawn(async move {
            let (weather, forgotten, accepted, connections) = world;
            let mut relays = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let number = accepted.fetch_add(1, Ordering::SeqCst) + 1;
                let way = Way {
                    seed,
                    number,
                    weather: weather.subscribe(),
                    forgotten: forgotten.subscribe(),
                    bytes: counted.clone(),
                };
                let handle = relays.spawn(connection(client, server, way));
                connections.lock().push(handle);
                while relays.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, weather, forgotten, accepted, bytes, connections, _tasks: tasks })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the link from now on.
    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// A NAT that forgets, or gives new ports: connections there are go silent in both directions for ever, new ones work.
    pub fn rebind(&self) {
        self.forgotten.send_replace(self.accepted.load(Ordering::SeqCst));
    }

    /// Breaks all connections; both ends are told.
    pub fn cut(&self) {
        self.connections.lock().drain(..).for_each(|connection| connection.abort());
    }

    /// How many connections there have been.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    /// How many bytes came in at either end.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

/// What becomes of the chunks of one direction of a connection. Pure: no clock.
#[derive(Debug)]
struct Dice {
    random: SplitMix64,
}

impl Dice {
    fn new(seed: u64, connection: u64, towards: Towards) -> Self {
        let seed = seed ^ connection.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let random = match towards {
            Towards::Server => SplitMix64(seed),
            Towards::Client => SplitMix64(seed ^ u64::MAX),
        };
        Self { random }
    }

    /// How much later than it leaves the next chunk of so many bytes comes to the other end.
    fn lateness(&mut self, length: usize, weather: &Weather) -> Duration {
        let mut late = weather.delay + weather.jitter.mul_f64(self.random.fraction());
        for _ in 0..length.div_ceil(SEGMENT) {
            if self.random.below(1_000_000) < weather.loss_per_million {
                late += (weather.delay * 2).max(STALL_MIN);
            }
        }
        late
    }
}

#[derive(Clone)]
struct Way {
    seed: u64,
    number: u64,
    weather: watch::Receiver<Weather>,
    forgotten: watch::Receiver<u64>,
    bytes: Arc<AtomicU64>,
}

async fn connection(client: TcpStream, server: SocketAddr, way: Way) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    for end in [&client, &server] {
        // A relay adds no delay of its own.
        let _ = end.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let down = way.clone();
    let mut halves = JoinSet::new();
    halves.spawn(half(from_client, to_server, way, Towards::Server));
    halves.spawn(half(from_server, to_client, down, Towards::Client));
    while halves.join_next().await.is_some() {}
}

/// Reads at once and writes when it is time; `None` is the end.
async fn half(mut from: tcp::OwnedReadHalf, to: tcp::OwnedWriteHalf, way: Way, towards: Towards) {
    // As much as a long fat link holds.
    let (queue, chunks) = mpsc::channel::<(Instant, Option<Vec<u8>>)>(1024);
    let mut writer = JoinSet::new();
    writer.spawn(write(chunks, to, way.clone(), towards));
    let mut dice = Dice::new(way.seed, way.number, towards);
    let mut free_at = Instant::now();
    let mut last = Instant::now();
    loop {
        let mut buffer = vec![0; 16 * 1024];
        let Ok(read) = from.read(&mut buffer).await else { break };
        buffer.truncate(read);
        way.bytes.fetch_add(read as u64, Ordering::SeqCst);
        let weather = *way.weather.borrow();
        let now = Instant::now();
        free_at = free_at.max(now);
        if let Some(bandwidth) = weather.bandwidth {
            free_at += Duration::from_nanos(read as u64 * 1_000_000_000 / bandwidth.max(1));
        }
        // What follows a lost segment waits for it.
        last = last.max(free_at + dice.lateness(read, &weather));
        // A thin link takes no more than it can carry soon: the sender has to wait as it would.
        if free_at > now + Duration::from_millis(500) {
            sleep_until(free_at - Duration::from_millis(500)).await;
        }
        let chunk = (read > 0).then_some(buffer);
        let end = chunk.is_none();
        if queue.send((last, chunk)).await.is_err() || end {
            break;
        }
    }
    drop(queue);
    while writer.join_next().await.is_some() {}
}

async fn write(
    mut chunks: mpsc::Receiver<(Instant, Option<Vec<u8>>)>,
    mut to: tcp::OwnedWriteHalf,
    way: Way,
    towards: Towards,
) {
    while let Some((due, chunk)) = chunks.recv().await {
        sleep_until(due).await;
        let weather = *way.weather.borrow();
        let silent = match towards {
            Towards::Server => weather.silent_up,
            Towards::Client => weather.silent_down,
        };
        if silent || *way.forgotten.borrow() >= way.number {
            // Not even an end is heard. TCP would go on trying for a quarter of an hour.
            return std::future::pending().await;
        }
        let written = match &chunk {
            Some(chunk) => to.write_all(chunk).await,
            None => to.shutdown().await,
        };
        if written.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                clients.spawn(async move {
                    let (mut from, mut to) = client.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        (address, tasks)
    }

    async fn round_trip(client: &mut TcpStream) -> Option<Duration> {
        let began = Instant::now();
        client.write_all(b"x").await.ok()?;
        let answer = tokio::time::timeout(Duration::from_millis(700), client.read_u8()).await;
        answer.ok()?.ok().map(|_| began.elapsed())
    }

    #[tokio::test]
    async fn it_delays_forgets_and_falls_silent() {
        let (server, _tasks) = echo().await;
        let wan = Wan::start(server, 1, Weather::delayed(Duration::from_millis(50))).await.unwrap();
        let mut client = TcpStream::connect(wan.address()).await.unwrap();
        assert!(round_trip(&mut client).await.unwrap() >= Duration::from_millis(100));
        wan.rebind();
        assert_eq!(round_trip(&mut client).await, None);
        let mut next = TcpStream::connect(wan.address()).await.unwrap();
        assert!(round_trip(&mut next).await.is_some());
        wan.set(Weather { silent_down: true, ..Weather::CLEAR });
        assert_eq!(round_trip(&mut next).await, None);
        assert_eq!(wan.accepted(), 2);
        // Each way; into silence; each way over the new connection; each way, and the answer is not delivered.
        assert_eq!(wan.bytes(), 7);
    }

    #[tokio::test]
    async fn a_cut_is_heard() {
        let (server, _tasks) = echo().await;
        let wan = Wan::start(server, 1, Weather::CLEAR).await.unwrap();
        let mut client = TcpStream::connect(wan.address()).await.unwrap();
        assert!(round_trip(&mut client).await.is_some());
        wan.cut();
        let mut rest = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(5), client.read_to_end(&mut rest)).await;
        assert!(matches!(end, Ok(Ok(0) | Err(_))));
    }

    /// The seed, which connection it is and the direction decide, and nothing else; one figure of the weather does not move the dice of
    /// another.
    #[test]
    fn a_seed_gives_the_same_again() {
        let (delay, jitter) = (Duration::from_millis(20), Duration::from_millis(5));
        let lossy = Weather { jitter, loss_per_million: 100_000, ..Weather::delayed(delay) };
        let lateness = |seed, connection, towards, weather: &Weather| -> Vec<Duration> {
            let mut dice = Dice::new(seed, connection, towards);
            [1, 100, SEGMENT, SEGMENT + 1, 16 * 1024, 0]
                .repeat(20)
                .into_iter()
                .map(|length| dice.lateness(length, weather))
                .collect()
        };
        let first = lateness(7, 1, Towards::Server, &lossy);
        assert_eq!(first, lateness(7, 1, Towards::Server, &lossy));
        for (seed, connection, towards) in
            [(8, 1, Towards::Server), (7, 2, Towards::Server), (7, 1, Towards::Client)]
        {
            assert_ne!(first, lateness(seed, connection, towards, &lossy), "{seed} {connection} {towards:?}");
        }
        // A chunk is later by whole retransmissions than it is without loss.
        let whole = lateness(7, 1, Towards::Server, &Weather { loss_per_million: 0, ..lossy });
        let stalls: Vec<u128> = first
            .iter()
            .zip(&whole)
            .map(|(with, without)| with.saturating_sub(*without).as_micros())
            .collect();
        assert!(stalls.iter().all(|stall| stall % 40_000 == 0), "{stalls:?}");
        assert!(stalls.contains(&0) && stalls.iter().any(|stall| *stall > 0), "{stalls:?}");
        assert!(whole.iter().all(|late| (delay..delay + jitter).contains(late)), "{whole:?}");
    }
}

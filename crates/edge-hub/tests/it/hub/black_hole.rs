//! What an API server that is not there any more, and says nothing of it, takes to be noticed: five seconds, whatever was asked and when.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use edge_hub::{
    metrics::LinkBytes,
    upstream::{Connector, Credential, Link, LinkState, Timing, TlsMaterial, Upstream},
};
use http::{HeaderValue, Request};
use parking_lot::Mutex;
use socket2::{SockFilter, SockRef};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::site::{ROUNDS, SERVICES, SOON, Site, is_twice_within, twice_within};

const PROMISED: Duration = Duration::from_secs(5);

/// What a loaded machine may add to that once or twice; see [`twice_within`].
const SLACK: Duration = Duration::from_secs(1);

/// A path to a server that can lose all packets: its own end acknowledges nothing then, nor lets connections come about.
struct Path {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    near: Arc<Mutex<Vec<Arc<TcpStream>>>>,
    whole: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Path {
    async fn to(server: SocketAddr) -> Self {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let (near, whole) = (Arc::<Mutex<Vec<_>>>::default(), watch::Sender::new(true));
        let mut tasks = JoinSet::new();
        let (accepting, all, state) = (listener.clone(), near.clone(), whole.subscribe());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = accepting.accept().await {
                let stream = Arc::new(stream);
                all.lock().push(stream.clone());
                let far = Arc::new(TcpStream::connect(server).await.unwrap());
                connections.spawn(copy(stream.clone(), far.clone(), state.clone()));
                connections.spawn(copy(far, stream, state.clone()));
            }
        });
        Self { address, listener, near, whole, _tasks: tasks }
    }

    /// From now on the kernel takes none of the packets that come here, and nothing is sent.
    fn lose_all(&self) {
        let nothing = [SockFilter::new(0x06, 0, 0, 0)];
        self.whole.send_replace(false);
        SockRef::from(&*self.listener).attach_filter(&nothing).unwrap();
        for stream in &*self.near.lock() {
            SockRef::from(&**stream).attach_filter(&nothing).unwrap();
        }
    }
}

async fn copy(from: Arc<TcpStream>, to: Arc<TcpStream>, mut whole: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        from.readable().await.unwrap();
        if whole.wait_for(|whole| *whole).await.is_err() {
            return;
        }
        match from.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                let mut rest = &buffer[..length];
                while !rest.is_empty() {
                    to.writable().await.unwrap();
                    match to.try_write(rest) {
                        Ok(written) => rest = &rest[written..],
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        // Who went on trying would keep a processor, and the runtime from its end.
                        Err(_) => return,
                    }
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Hole {
    PacketsVanish,
    ServerStandsStill,
}

/// When something is asked, in milliseconds from the moment that the hole is there.
#[derive(Clone, Copy, Debug)]
struct Asked {
    by: Option<&'static str>,
    at: u64,
}

const NODE: Option<&str> = None;
const TOKEN: Option<&str> = Some("Bearer node");

struct Linked {
    site: Site,
    path: Path,
    upstream: Upstream,
    _tasks: JoinSet<()>,
}

/// A link over such a path, with a watch open, as a hub has one. It is `idle` if nobody has asked for a while.
async fn linked(idle: bool) -> Linked {
    let site = Site::new().await;
    let path = Path::to(site.server.address()).await;
    let file = |name: &str| site.file(name);
    let material = TlsMaterial::read(&file("ca.crt"), &file("node.crt"), &file("node.key")).unwrap();
    let mut timing = Timing::default();
    if idle {
        timing.asked_within = Duration::ZERO;
    }
    let connector = Arc::new(Connector::new(material, timing, Arc::new(LinkBytes::default())));
    let (link, upstream) = Link::new(vec![format!("https://{}", path.address).parse().unwrap()], connector);
    let mut tasks = JoinSet::new();
    tasks.spawn(link.run(CancellationToken::new()));
    let mut state = upstream.state();
    timeout(SOON, state.wait_for(|state| matches!(state, LinkState::Up(_)))).await.unwrap().unwrap();
    Linked { site, path, upstream, _tasks: tasks }
}

fn ask(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// How long it takes until there is no link, and until whoever asked is told.
async fn noticed(hole: Hole, idle: bool, asked: Option<Asked>) -> (Duration, Duration) {
    let linked = linked(idle).await;
    let upstream = &linked.upstream;
    let watch = ask(&format!("{SERVICES}?watch=1&resourceVersion=1"));
    let watch = upstream.send(&Credential::Node, watch).await.unwrap();
    // Idle is what was heard with nobody asking any more: the answer to the next PING.
    sleep(if idle { Duration::from_millis(2100) } else { Duration::from_millis(100) }).await;
    match hole {
        Hole::PacketsVanish => linked.path.lose_all(),
        Hole::ServerStandsStill => linked.site.server.black_hole(),
    }
    let began = Instant::now();
    let told = async {
        let Some(Asked { by, at }) = asked else { return Duration::ZERO };
        sleep(Duration::from_millis(at)).await;
        let credential = by.map_or(Credential::Node, |by| Credential::Bearer(HeaderValue::from_static(by)));
        let since = Instant::now();
        assert!(upstream.send(&credential, ask("/version")).await.is_err(), "{hole:?}: an answer");
        since.elapsed()
    };
    let mut state = upstream.state();
    let down = async {
        state.wait_for(|state| matches!(state, LinkState::Down { .. })).await.unwrap();
        began.elapsed()
    };
    let measured = timeout(SOON, async { tokio::join!(down, told) }).await;
    drop(watch);
    measured.unwrap_or_else(|_| panic!("{hole:?}, idle {idle}, {asked:?}: not noticed"))
}

/// The sums of ADR 17, one by one; all at once, since most of it is waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_is_noticed_in_five_seconds_whatever_was_asked_and_when() {
    use Hole::{PacketsVanish, ServerStandsStill};
    let at = |by, at| Some(Asked { by, at });
    let cases = [
        (PacketsVanish, true, None),
        (PacketsVanish, true, at(NODE, 0)),
        (PacketsVanish, true, at(NODE, 1500)),
        (PacketsVanish, true, at(NODE, 2700)),
        (PacketsVanish, true, at(TOKEN, 2700)),
        (PacketsVanish, false, None),
        (PacketsVanish, false, at(NODE, 1500)),
        (PacketsVanish, false, at(TOKEN, 2700)),
        (ServerStandsStill, false, None),
        (ServerStandsStill, false, at(NODE, 2700)),
        (ServerStandsStill, false, at(TOKEN, 1000)),
        (ServerStandsStill, true, at(NODE, 0)),
        (ServerStandsStill, true, at(TOKEN, 1000)),
    ];
    // Round by round: while sites are made nobody's timers are on time, and a link takes that for a machine that stood still itself.
    let mut took = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        let mut measured = JoinSet::new();
        for (at, (hole, idle, asked)) in cases.into_iter().enumerate() {
            if !is_twice_within(PROMISED, &took[at]) {
                measured.spawn(async move { (at, noticed(hole, idle, asked).await) });
            }
        }
        while let Some(case) = measured.join_next().await {
            let (at, (down, told)) = case.unwrap();
            let (hole, idle, asked) = cases[at];
            println!("{hole:?}, idle {idle}, {asked:?}: noticed after {down:?}, told after {told:?}");
            let bound = PROMISED + SLACK;
            assert!(down < bound && told < bound, "{hole:?}, idle {idle}, {asked:?}: {down:?}, {told:?}");
            took[at].push(down.max(told));
        }
    }
    for ((hole, idle, asked), took) in cases.into_iter().zip(took) {
        assert!(is_twice_within(PROMISED, &took), "{hole:?}, idle {idle}, {asked:?}: {took:?}");
    }
}

/// What is sent and not acknowledged is no sign of life, however much it is.
#[tokio::test]
async fn an_upload_into_a_black_hole_is_noticed_as_soon() {
    twice_within(PROMISED, async || {
        let linked = linked(false).await;
        linked.path.lose_all();
        let began = Instant::now();
        let upload = Request::post(SERVICES).body(Body::from(vec![b'x'; 800_000])).unwrap();
        assert!(linked.upstream.send(&Credential::Node, upload).await.is_err(), "an answer");
        let told = began.elapsed();
        assert!(told < PROMISED + SLACK, "told after {told:?}");
        told
    })
    .await;
}

/// The one that is left: nobody asks, so nobody is told anything wrong.
#[tokio::test]
async fn an_idle_link_to_a_server_that_stands_still_is_asked_seldom() {
    let linked = linked(true).await;
    sleep(Duration::from_millis(2500)).await;
    linked.site.server.black_hole();
    sleep(PROMISED).await;
    assert!(linked.upstream.is_up());
}

/// A PING each two seconds would be what a metered link pays for; only what is asked makes it worth that.
#[tokio::test]
async fn a_link_that_nobody_uses_is_silent() {
    let site = Site::new().await;
    let path = Path::to(site.server.address()).await;
    let file = |name: &str| site.file(name);
    let material = TlsMaterial::read(&file("ca.crt"), &file("node.crt"), &file("node.key")).unwrap();
    let short = Duration::from_millis(100);
    let timing = Timing { ping_after_asked: short, asked_within: 10 * short, ..Timing::default() };
    let bytes = Arc::new(LinkBytes::default());
    let connector = Arc::new(Connector::new(material, timing, bytes.clone()));
    let (link, upstream) = Link::new(vec![format!("https://{}", path.address).parse().unwrap()], connector);
    let mut tasks = JoinSet::new();
    tasks.spawn(link.run(CancellationToken::new()));
    let mut state = upstream.state();
    timeout(SOON, state.wait_for(|state| matches!(state, LinkState::Up(_)))).await.unwrap().unwrap();
    upstream.send(&Credential::Node, ask("/version")).await.unwrap();
    let passed = || bytes.read().iter().sum::<u64>();
    let before = passed();
    sleep(5 * short).await;
    let asked = passed() - before;
    assert!((2 * 78..=6 * 78).contains(&asked), "{asked} bytes while somebody asks");
    sleep(10 * short).await;
    let before = passed();
    sleep(10 * short).await;
    assert_eq!(passed() - before, 0, "and none afterwards");
}

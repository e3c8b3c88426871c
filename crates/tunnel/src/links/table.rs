//! The links that are up: what streams are opened over, and what is told of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use h2::client::SendRequest;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    allowance::Allowances,
    candidates::{Candidate, order},
    crowd::{Crowd, Seat},
    doorway::Source,
    last_use::LastUse,
    links::{load::Load, of_peers::OfPeers, stream_limit::StreamLimit, unreached::Unreached},
    protocol::Class,
    route::{Direction, Step},
    socket::Traffic,
};

/// A link that is up.
#[derive(Debug)]
pub struct Link {
    pub(super) id: u64,
    /// The node at the other end.
    pub peer: String,
    /// Who asks over it.
    pub direction: Direction,
    /// For which traffic.
    pub class: Class,
    since: Instant,
    pub(crate) traffic: Arc<Traffic>,
    // Microseconds; 0 is not known.
    round_trip: AtomicU64,
    load: Mutex<Load>,
    // For good, and for now.
    draining: AtomicBool,
    suspended: AtomicBool,
    silent: AtomicBool,
    pub(super) limit: StreamLimit,
    // For clients that nobody vouches for.
    unvouched: Crowd,
    asker: Option<SendRequest<Bytes>>,
    expires: SystemTime,
}

/// What is told of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkStatus {
    /// The node at the other end.
    pub peer: String,
    /// Who asks over it.
    pub direction: Direction,
    /// Whether it is this node that asks.
    pub asking: bool,
    /// For which traffic.
    pub class: Class,
    /// How long it has been up.
    pub up: Duration,
    /// The last round trip.
    pub round_trip: Option<Duration>,
    /// Streams open.
    pub streams: usize,
    /// Whether it takes no new ones.
    pub draining: bool,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// How many of a link's streams clients may have that nobody vouches for: all but an eighth, 128 of 1,024, on each link, so of all those to a
/// peer. That is for others, who are few (API servers, and who has a certificate), whatever the rest do.
fn unvouched_max(streams: usize) -> usize {
    streams - streams.div_ceil(8)
}

/// What is needed to add a link.
pub(crate) struct NewLink {
    pub(crate) peer: String,
    pub(crate) direction: Direction,
    pub(crate) class: Class,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) streams_max: usize,
    pub(crate) asker: Option<SendRequest<Bytes>>,
    /// When the certificate that the peer showed is no longer valid.
    pub(crate) expires: SystemTime,
}

/// All links of a node.
#[derive(Debug)]
pub struct LinkTable {
    links: Mutex<OfPeers>,
    next: AtomicU64,
    changes: watch::Sender<u64>,
    wanted: watch::Sender<u64>,
    passed: Mutex<Passed>,
    // Who fell silent over a link over which this node asked, and when.
    silent: Mutex<BTreeMap<String, Instant>>,
    unreached: Unreached,
    /// What they may hold.
    pub(crate) allowances: Allowances,
}

/// For how long it is told of a peer that it fell silent: until everybody has noticed it who had a link to it, and has told.
const SILENT_FOR: Duration = Duration::from_secs(10);

/// What passed over links: those that may still carry something, and the sum of those that are gone.
#[derive(Debug, Default)]
struct Passed {
    counted: Vec<Arc<Traffic>>,
    received: u64,
    sent: u64,
}

impl Passed {
    fn fold(&mut self) {
        let (mut received, mut sent) = (0, 0);
        self.counted.retain(|traffic| {
            let gone = Arc::strong_count(traffic) == 1;
            if gone {
                received += traffic.received();
                sent += traffic.sent();
            }
            !gone
        });
        self.received += received;
        self.sent += sent;
    }
}

impl Default for LinkTable {
    fn default() -> Self {
        Self {
            links: Mutex::default(),
            next: AtomicU64::new(1),
            changes: watch::Sender::new(0),
            wanted: watch::Sender::new(0),
            passed: Mutex::default(),
            silent: Mutex::default(),
            unreached: Unreached::default(),
            allowances: Allowances::default(),
        }
    }
}

impl LinkTable {
    /// Adds a link for as long as what is returned is held.
    pub(crate) fn add(self: &Arc<Self>, new: NewLink) -> Registration {
        let NewLink { peer, direction, class, traffic, streams_max, asker, expires } = new;
        {
            let mut passed = self.passed.lock();
            passed.fold();
            passed.counted.push(traffic.clone());
        }
        let now = Instant::now();
        let link = Arc::new(Link {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            peer,
            direction,
            class,
            since: now,
            traffic,
            round_trip: AtomicU64::new(0),
            load: Mutex::new(Load::new(now)),
            draining: AtomicBool::new(false),
            suspended: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            limit: StreamLimit::new(streams_max),
            unvouched: Crowd::new(unvouched_max(streams_max)),
            asker,
            expires,
        });
        self.links.lock().insert(link.clone());
        if link.asker.is_some() {
            self.silent.lock().remove(&link.peer);
        }
        self.changes.send_modify(|changes| *changes += 1);
        Registration { table: self.clone(), link }
    }

    /// The links to ask for a stream of `class`, the best first, of the peers of this step.
    pub(crate) fn candidates(&self, step: &Step, class: Class) -> Vec<Arc<Link>> {
        let (links, now) = (self.links.lock(), Instant::now());
        let of_step = |link: &&Arc<Link>| link.asker.is_some() && link.direction == step.direction;
        let of_peers = step.peers.iter().flat_map(|peer| links.of(peer)).filter(of_step);
        let mut of_peers: BTreeMap<u64, &Arc<Link>> = of_peers.map(|link| (link.id, link)).collect();
        let candidates: Vec<_> = of_peers.values().map(|link| link.candidate(now)).collect();
        order(class, &candidates).into_iter().filter_map(|id| of_peers.remove(&id).cloned()).collect()
    }

    /// How many links this peer has that take new streams. One that drains goes with its last stream, and another has its place.
    pub fn count(&self, peer: &str) -> usize {
        self.links.lock().of(peer).filter(|link| !link.is_closed_to_new()).count()
    }

    /// When the last of the certificates expires that this peer showed for the links that it has.
    pub(crate) fn expiry(&self, peer: &str) -> Option<SystemTime> {
        self.links.lock().of(peer).map(|link| link.expires).max()
    }

    /// The nodes to which there is a link over which this node asks.
    pub fn connected(&self) -> BTreeSet<String> {
        let links = self.links.lock();
        links.all().filter(|link| link.asker.is_some()).map(|link| link.peer.clone()).collect()
    }

    /// The nodes that have no link any more over which this node asked, and lost one within the last seconds because they answered no
    /// more: they did not end, nor did anything on the way say that it did.
    pub fn silent(&self) -> BTreeSet<String> {
        let connected = self.connected();
        let mut silent = self.silent.lock();
        silent.retain(|_, since| since.elapsed() < SILENT_FOR);
        silent.keys().filter(|peer| !connected.contains(*peer)).cloned().collect()
    }

    /// Those that are dialled in vain.
    pub(crate) fn dialled(&self) -> &Unreached {
        &self.unreached
    }

    /// The gateways that this node has dialled in vain, each with its address and why.
    pub fn unreached(&self) -> Vec<String> {
        self.unreached.all()
    }

    /// All links.
    pub fn snapshot(&self) -> Vec<LinkStatus> {
        self.links.lock().all().map(|link| link.status()).collect()
    }

    /// Tells that links came or went.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Tells that somebody wanted a link where there was none.
    pub fn wanted(&self) -> watch::Receiver<u64> {
        self.wanted.subscribe()
    }

    pub(crate) fn want(&self) {
        self.wanted.send_modify(|wanted| *wanted += 1);
    }

    /// Bytes received and sent over all links there ever were.
    pub fn passed(&self) -> (u64, u64) {
        let mut passed = self.passed.lock();
        passed.fold();
        let sum = |read: fn(&Traffic) -> u64| passed.counted.iter().map(|traffic| read(traffic)).sum::<u64>();
        (passed.received + sum(Traffic::received), passed.sent + sum(Traffic::sent))
    }
}

impl Link {
    /// A handle to open a stream.
    pub(crate) fn asker(&self) -> Option<SendRequest<Bytes>> {
        self.asker.clone()
    }

    pub(crate) fn set_round_trip(&self, round_trip: Duration) {
        let micros = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
        self.round_trip.store(micros.max(1), Ordering::Relaxed);
        // Told of at each PING's answer: so the load is of the last seconds, though nobody asks for a stream.
        self.load(Instant::now());
    }

    /// The places of clients that nobody vouches for, as many as there are now.
    pub(super) fn unvouched(&self) -> &Crowd {
        self.unvouched.set_places(unvouched_max(self.streams_max()));
        &self.unvouched
    }

    /// Whether a client that nobody vouches for has a place with nobody's going.
    pub(crate) fn has_unvouched_room(&self) -> bool {
        self.unvouched().has_room()
    }

    /// A place for a stream of a client that nobody vouches for, if need be that of a source that has more.
    pub(crate) fn unvouched_place(&self, source: Source, used: Arc<LastUse>) -> Option<Seat> {
        self.unvouched().enter(source, CancellationToken::new(), used)
    }

    fn load(&self, now: Instant) -> u64 {
        let total = self.traffic.received().saturating_add(self.traffic.sent());
        self.load.lock().at(now, total)
    }

    pub(crate) fn set_draining(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// The link ends because the peer answers no more.
    pub(crate) fn set_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_suspended(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::SeqCst);
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::SeqCst)
    }

    /// Whether it takes no new streams: this node does not want any, or the peer has said so.
    pub(crate) fn is_closed_to_new(&self) -> bool {
        let mut now = Context::from_waker(Waker::noop());
        let ended =
            |asker: &SendRequest<Bytes>| matches!(asker.clone().poll_ready(&mut now), Poll::Ready(Err(_)));
        self.draining.load(Ordering::SeqCst) || self.is_suspended() || self.asker.as_ref().is_some_and(ended)
    }

    /// The last one, if there was any.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        match self.round_trip.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    fn candidate(&self, now: Instant) -> Candidate<'_> {
        let streams = self.traffic.streams();
        Candidate {
            link: self.id,
            peer: &self.peer,
            class: self.class,
            streams,
            round_trip: self.round_trip(),
            load: self.load(now),
            closed_to_new: self.is_closed_to_new() || streams >= self.streams_max(),
        }
    }

    fn status(&self) -> LinkStatus {
        LinkStatus {
            peer: self.peer.clone(),
            direction: self.direction,
            asking: self.asker.is_some(),
            class: self.class,
            up: self.since.elapsed(),
            round_trip: self.round_trip(),
            streams: self.traffic.streams(),
            draining: self.is_closed_to_new(),
            received: self.traffic.received(),
            sent: self.traffic.sent(),
        }
    }
}

/// A link's place in the table.
#[derive(Debug)]
pub(crate) struct Registration {
    table: Arc<LinkTable>,
    pub(crate) link: Arc<Link>,
}

impl Registration {
    /// Takes the link out, so that nobody opens streams over it; its streams go on.
    fn remove(&self) {
        let asks = |link: &Arc<Link>| link.asker.is_some();
        let mut links = self.table.links.lock();
        links.remove(&self.link);
        // Before others see that it is out: who sees that it is gone sees why. Another link to the peer says that it lives.
        if asks(&self.link)
            && self.link.silent.load(Ordering::Relaxed)
            && !links.of(&self.link.peer).any(asks)
        {
            self.table.silent.lock().insert(self.link.peer.clone(), Instant::now());
        }
        drop(links);
        self.table.changes.send_modify(|changes| *changes += 1);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.remove();
    }
}

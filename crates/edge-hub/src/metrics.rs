//! What the hub counts: counters that its parts add to, and figures that are looked up when Prometheus asks. No label takes a value
//! from a request: verbs, outcomes and reasons are enums, resources those of subscriptions, and not more than some.

mod collector;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

pub use self::collector::HubCollector;

/// The counters of the hub. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Meters {
    requests: Family<RequestLabels, Counter>,
    held_bytes: Counter,
    expired_watches: Counter,
    encoded_events: Counter,
    resyncs: Family<ResyncLabels, Counter>,
    reviews: Family<ReviewLabels, Counter>,
    link: Arc<LinkBytes>,
}

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Verb {
    /// One object.
    Get,
    /// Many.
    List,
    /// Changes.
    Watch,
    /// To change something.
    Write,
    /// Anything else: documents, `exec`, `proxy`.
    Other,
}

impl From<kube_wire::request::Verb> for Verb {
    fn from(verb: kube_wire::request::Verb) -> Self {
        use kube_wire::request::Verb as Asked;
        match verb {
            Asked::Get => Self::Get,
            Asked::List => Self::List,
            Asked::Watch => Self::Watch,
            Asked::Create | Asked::Update | Asked::Patch | Asked::Delete | Asked::DeleteCollection => {
                Self::Write
            }
            Asked::Other => Self::Other,
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    /// Answered from what is held.
    Held,
    /// Handed on to the API server, whatever that answered.
    HandedOn,
    /// Refused by the hub itself.
    Refused,
}

/// Why a subscription was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Resync {
    /// Nothing was held before.
    First,
    /// The API server no longer had the changes since the version that is held.
    Expired,
    /// What came could not be read.
    Unreadable,
    /// What was held could not be what the API server had.
    Diverged,
    /// The API server is of a later release, which may show the same objects otherwise.
    Upgraded,
}

/// What an access review said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Review {
    /// Yes.
    Allowed,
    /// No.
    Denied,
    /// There was no answer.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: Verb,
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResyncLabels {
    reason: Resync,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    outcome: Review,
}

/// Bytes over the link, TLS included.
#[derive(Debug, Default)]
pub struct LinkBytes {
    sent: AtomicU64,
    received: AtomicU64,
}

impl LinkBytes {
    /// So many went to the API server.
    pub fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
    }

    /// So many came from it.
    pub fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    /// Sent and received so far.
    pub fn read(&self) -> [u64; 2] {
        [self.sent.load(Relaxed), self.received.load(Relaxed)]
    }
}

impl Meters {
    /// Makes the counters and registers them; names get the registry's prefix.
    pub fn register(registry: &mut Registry) -> Self {
        let Self { requests, held_bytes, expired_watches, encoded_events, resyncs, reviews, link } =
            Self::default();
        registry.register("hub_requests", "Requests by verb and by what became of them", requests.clone());
        registry.register("hub_held_bytes", "Bytes of answers from what is held", held_bytes.clone());
        registry.register(
            "hub_watches_expired",
            "Watches that ended because their version was too old",
            expired_watches.clone(),
        );
        registry.register(
            "hub_events_encoded",
            "Events of watches that were encoded: each once for all that are told it alike",
            encoded_events.clone(),
        );
        registry.register("hub_resyncs", "Whole lists fetched, and why", resyncs.clone());
        registry.register("hub_reviews", "Access reviews and their outcomes", reviews.clone());
        Self { requests, held_bytes, expired_watches, encoded_events, resyncs, reviews, link }
    }

    /// A request was dealt with.
    pub fn request(&self, verb: Verb, outcome: Outcome) {
        self.requests.get_or_create(&RequestLabels { verb, outcome }).inc();
    }

    /// So many bytes of an answer were held.
    pub fn held(&self, bytes: usize) {
        self.held_bytes.inc_by(bytes as u64);
    }

    /// A watch ended since its version was too old.
    pub fn watch_expired(&self) {
        self.expired_watches.inc();
    }

    /// An event was encoded: by the first who is told it, or for one watcher alone.
    pub fn event_encoded(&self) {
        self.encoded_events.inc();
    }

    /// A subscription was listed.
    pub fn resync(&self, reason: Resync) {
        self.resyncs.get_or_create(&ResyncLabels { reason }).inc();
    }

    /// An access review ended.
    pub fn review(&self, outcome: Review) {
        self.reviews.get_or_create(&ReviewLabels { outcome }).inc();
    }

    /// What goes over the link.
    pub fn link(&self) -> &Arc<LinkBytes> {
        &self.link
    }
}

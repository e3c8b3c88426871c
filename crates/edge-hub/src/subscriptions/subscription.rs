//! One subscription: its cache, how far it is, and who waits for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use kube_wire::{
    frame::{EventType, Form},
    object::Object,
    resource_version::ResourceVersion,
    status::Status,
    transcode::{self, TranscodeError},
};
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use watch_cache::Cache;

use super::{
    as_json::AsJson,
    carriers::{Carrier, Carriers},
    catching_up::CatchingUp,
    key::Key,
    stored::Stored,
    traffic::Traffic,
    written_events::WrittenEvents,
};
use crate::{freshness::Age, upstream::Source};

/// For how long a list is as good as a watch, while there is a link: the watch after it is on its way.
const SETTLING: Duration = Duration::from_secs(2);

/// How the upstream side of a subscription is.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// There is no link, or the first list is on its way.
    Syncing,
    /// The upstream watch runs.
    Watching,
    /// The watch was cut and will go on from where it was.
    Interrupted,
    /// The API server refuses: no such resource, or not allowed. It is asked again from time to time.
    Refused(Box<Status>),
}

impl Progress {
    /// Whether the API server refuses, for whatever reason.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether the API server says that there is no such resource, that its owner may not read it, or that a field which it is selected by is selectable
    /// no more (400): what is held is then nobody's to see while it can be asked.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Refused(status) if [400, 403, 404].contains(&status.code))
    }

    /// Whether the API server does not take the credential.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code == 401)
    }

    /// Whether the API server says that there is no such resource.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code == 404)
    }
}

/// When a list was begun, which is the time that it is of, and when it was whole.
#[derive(Debug, Clone, Copy)]
struct Listed {
    began: Instant,
    ended: Instant,
}

/// A subscription, shared by its reflector and all its readers.
pub struct Subscription {
    key: Key,
    /// Whether built-in kinds travel as protobuf here.
    protobuf: bool,
    cache: RwLock<Cache>,
    /// Counts the writer's calls, so that readers that wait notice each.
    changes: watch::Sender<u64>,
    pub(super) progress: watch::Sender<Progress>,
    proved: Mutex<Option<Instant>>,
    /// What the store has of it.
    stored: Mutex<Stored>,
    /// Its list, if nothing has failed since.
    listed: Mutex<Option<Listed>>,
    /// The connection that the upstream watch comes over, while it runs.
    source: Mutex<Option<Source>>,
    used: Mutex<Instant>,
    /// The kind of the objects; of custom resources known once a list or the store told it.
    kind: Mutex<Option<Arc<str>>>,
    /// What watchers were told last, written once for all of them.
    written: Mutex<WrittenEvents>,
    as_json: Mutex<AsJson>,
    traffic: Traffic,
    /// With whose credential it goes upstream.
    pub(super) carriers: Mutex<Carriers>,
    /// Tells of a credential that was not there when all others were refused, and of readers that have passed by.
    pub(super) carried: Notify,
    /// Whether readers were given by the API server what the hub, which had been told that there is no such resource, does not hold.
    pub(super) passed_by: AtomicBool,
    /// Whether all of it is held: as the cache says it, for those who must not wait for its writer.
    is_whole: AtomicBool,
    /// What it holds, in bytes, for the same.
    bytes: AtomicUsize,
    /// Whether something says that what is held is not what the API server has, and nothing has taken that back.
    doubted: AtomicBool,
    /// What it has yet to be told.
    pub(super) catching_up: CatchingUp,
    /// When a list or a watch was last begun.
    pub(super) went_on: Mutex<Option<Instant>>,
    /// Ends the reflector and every reader.
    closed: CancellationToken,
}

impl Subscription {
    /// A subscription whose cache holds what the store had, or nothing.
    pub fn new(
        key: Key,
        protobuf: bool,
        cache: Cache,
        carrier: &Carrier,
        closed: CancellationToken,
    ) -> Arc<Self> {
        let kind = transcode::kind_of(&key.resource).map(Arc::from);
        let (is_whole, bytes) = (cache.is_complete(), cache.bytes());
        let stored = Mutex::new(Stored::new(cache.resource_version()));
        Arc::new(Self {
            key,
            protobuf,
            cache: RwLock::new(cache),
            changes: watch::Sender::new(0),
            progress: watch::Sender::new(Progress::Syncing),
            proved: Mutex::new(None),
            stored,
            listed: Mutex::new(None),
            source: Mutex::new(None),
            used: Mutex::new(Instant::now()),
            kind: Mutex::new(kind),
            written: Mutex::default(),
            as_json: Mutex::default(),
            traffic: Traffic::default(),
            carriers: Mutex::new(Carriers::new(carrier)),
            carried: Notify::new(),
            passed_by: AtomicBool::new(false),
            is_whole: AtomicBool::new(is_whole),
            bytes: AtomicUsize::new(bytes),
            doubted: AtomicBool::new(false),
            catching_up: CatchingUp::default(),
            went_on: Mutex::default(),
            closed,
        })
    }

    /// What it is about.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Whether its objects are held as protobuf.
    pub fn is_protobuf(&self) -> bool {
        self.protobuf
    }

    /// What the store has of it; changed by who keeps it, under the lock of what is held.
    pub fn stored(&self) -> &Mutex<Stored> {
        &self.stored
    }

    /// The kind of its objects, if it is known.
    pub fn kind(&self) -> Option<Arc<str>> {
        self.kind.lock().clone()
    }

    /// A list, or the store, said of which kind the objects are.
    pub fn set_kind(&self, kind: &str) {
        *self.kind.lock() = Some(kind.into());
    }

    /// An event as watchers of one form are told of it; `write` is called by the first of them.
    pub fn written<E>(
        &self,
        object: &Arc<Object>,
        event: EventType,
        form: Form,
        write: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        if self.watchers() < 2 {
            return write();
        }
        if let Some(text) = self.written.lock().find(object, event, form) {
            return Ok(text);
        }
        let text = write()?;
        self.written.lock().keep(object, event, form, &text);
        Ok(text)
    }

    /// Whether all that is held, and all that is known to have happened since `from`, can be told as JSON.
    pub fn is_told_as_json(&self, from: Option<ResourceVersion>) -> Result<(), Option<TranscodeError>> {
        if !self.protobuf {
            return Ok(());
        }
        let known = self.as_json.lock().known();
        let Some(snapshot) = self.read(Cache::snapshot) else { return Ok(()) };
        // Without the lock: others ask meanwhile.
        let found = known.look(&self.key.resource, &snapshot);
        let told = found.told();
        let mut as_json = self.as_json.lock();
        as_json.learn(found);
        told.map_err(Some)?;
        if from.is_none_or(|from| as_json.from(from)) { Ok(()) } else { Err(None) }
    }

    /// The event of this version could not be told as JSON.
    pub fn untold_as_json(&self, version: ResourceVersion) {
        self.as_json.lock().untold(version);
    }

    /// Reads the cache; short, and without waiting for anything else.
    pub fn read<T>(&self, read: impl FnOnce(&Cache) -> T) -> T {
        read(&self.cache.read())
    }

    /// Changes the cache and wakes all readers.
    pub fn write<T>(&self, write: impl FnOnce(&mut Cache) -> T) -> T {
        let result = self.write_quietly(write);
        self.wake();
        result
    }

    /// Changes the cache: who looks sees it, and who waits is told by [`Subscription::wake`].
    pub fn write_quietly<T>(&self, write: impl FnOnce(&mut Cache) -> T) -> T {
        let mut cache = self.cache.write();
        let result = write(&mut cache);
        self.is_whole.store(cache.is_complete(), Relaxed);
        self.bytes.store(cache.bytes(), Relaxed);
        result
    }

    /// Whether all of it is held, without waiting for anybody.
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Relaxed)
    }

    /// Whether what is held has namespaces; all of a resource do, or none. `None` if nothing says so.
    pub fn in_namespaces(&self) -> Option<bool> {
        let held = self.read(Cache::snapshot)?;
        // Nothing else is ever listed in one.
        if !self.key.namespace.is_empty() {
            return Some(true);
        }
        held.iter().next().map(|object| !object.key().namespace().is_empty())
    }

    /// How many bytes it holds, objects and history, without waiting for anybody.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Wakes all readers that wait for a change.
    pub fn wake(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Tells of each change of the cache.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// How the upstream side is, and how that changes.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Says whether there is a reason to think that what is held is not what the API server has, as after a restore of its etcd.
    pub fn doubt(&self, doubted: bool) {
        self.doubted.store(doubted, Relaxed);
    }

    /// Whether there is such a reason.
    pub fn is_doubted(&self) -> bool {
        self.doubted.load(Relaxed)
    }

    /// Upstream gave a sign of life, which says nothing of what is held while that is of the time before.
    pub fn prove(&self) {
        if !self.is_untold() {
            *self.proved.lock() = Some(Instant::now());
        }
    }

    /// Everything was listed, and is what upstream had when that was begun: what was known of the objects before is not known of these.
    pub fn became_whole(&self, began: Instant) {
        *self.as_json.lock() = AsJson::default();
        *self.listed.lock() = Some(Listed { began, ended: Instant::now() });
        self.doubt(false);
        *self.proved.lock() = Some(began);
        self.is_there();
        self.list_is_held();
    }

    /// When the list was begun that what is held goes back to, if nothing has failed since.
    pub fn listed(&self) -> Option<Instant> {
        self.listed.lock().map(|listed| listed.began)
    }

    /// What upstream told has ended: what it has since is not known.
    pub fn was_cut(&self) {
        *self.listed.lock() = None;
    }

    /// Says over which connection the upstream watch comes; `None` when it has ended.
    pub fn set_source(&self, source: Option<Source>) {
        *self.source.lock() = source;
    }

    /// The connection of the upstream watch broke: what is held is of its last sign of life, which came after all that it had told before.
    pub fn was_lost(&self) {
        if let Some(heard) = self.heard_ago().and_then(|ago| Instant::now().checked_sub(ago)) {
            let mut proved = self.proved.lock();
            *proved = Some(proved.map_or(heard, |at| at.max(heard)));
        }
    }

    /// How long ago the upstream watch's connection gave a sign of life, if that says something of what is held.
    fn heard_ago(&self) -> Option<Duration> {
        let counts = !self.is_doubted() && !self.is_untold();
        self.source().filter(|_| counts).map(|source| source.heard_ago())
    }

    /// The connection that the upstream watch comes over.
    pub fn source(&self) -> Option<Source> {
        self.source.lock().clone()
    }

    /// How fresh what is held is; `up`: whether there is a link. A watch is as old as the last sign of life over its own connection.
    pub fn age(&self, up: bool) -> Age {
        let own = self.proved.lock().map_or(Duration::MAX, |at| at.elapsed());
        let is_settling = self.listed.lock().is_some_and(|listed| listed.ended.elapsed() < SETTLING);
        let goes_on = is_settling || *self.progress.borrow() == Progress::Watching;
        let watching = up && goes_on && !self.is_doubted();
        let heard = self.heard_ago().filter(|_| goes_on);
        Age { watching, proved: heard.map_or(own, |heard| heard.min(own)) }
    }

    /// Somebody asked for it.
    pub fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// How long nobody has asked, watchers included.
    pub fn idle(&self) -> Duration {
        if self.changes.receiver_count() > 0 { Duration::ZERO } else { self.used.lock().elapsed() }
    }

    /// How many watchers it has.
    pub fn watchers(&self) -> usize {
        self.changes.receiver_count()
    }

    /// The version up to which everything is held; `None` while the first list is not whole.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.cache.read().resource_version()
    }

    /// What went through it.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Ends it: the upstream stream is closed, and readers' streams end.
    pub fn close(&self) {
        self.closed.cancel();
    }

    /// Cancelled when the subscription ends, or the hub does.
    pub fn closed(&self) -> &CancellationToken {
        &self.closed
    }
}

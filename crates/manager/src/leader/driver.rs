//! Runs a [`Candidate`] against the API server: sends what it asks for, each request in a time limit of its own, and
//! publishes the leadership. Decides nothing itself.

use std::{net::SocketAddr, pin::Pin, time::Duration};

use futures::future::BoxFuture;
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{PostParams, WatchEvent, WatchParams},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    candidate::{Candidate, Inquiry, Step},
    clock::{Clock, Moment},
    inquiry,
    leadership::{Leadership, Publisher},
    lease::Loss,
    metrics::{Metrics, Request, Transition},
    timing::Timing,
};

/// Who is not prepared to lead leaves a free Lease to others for so long: they see it free when we do, and need one request.
const HANDICAP: Duration = Duration::from_secs(1);

/// What an election needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Who this process is: a pod's name and a random suffix, so that no earlier process had it.
    pub identity: String,
    /// The durations.
    pub timing: Timing,
    /// Whom the Lease shall belong to, so that it is deleted with its owner.
    pub owner: Option<OwnerReference>,
    /// Where this process listens, and no other does, from before it stands for election until it leads no more. If it is refused there
    /// and does not renew, it counts as gone, and is followed before the Lease expires.
    pub at: Option<SocketAddr>,
}

/// Why an election ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The leadership is over. The process has to exit: what it began as the leader may be unfinished.
    #[error("lost the leadership: {0}")]
    Lost(#[source] Loss),
}

/// This process's part in the election.
pub struct Election {
    api: Api<Lease>,
    candidate: Candidate,
    name: String,
    timing: Timing,
    clock: Clock,
    leadership: Publisher,
    metrics: Metrics,
    changes: Changes,
    /// Whether it would lead well; always, if nobody says.
    prepared: Option<watch::Receiver<bool>>,
    /// Counts ends of connections to the holder.
    doubts: Option<watch::Receiver<u64>>,
    /// Returns when nobody listens at an address.
    ask: fn(SocketAddr) -> BoxFuture<'static, ()>,
    /// About whom it is asking.
    asking: Option<(Inquiry, BoxFuture<'static, ()>)>,
}

/// The Lease's changes as they happen, which a standby follows and a leader does not: it trusts only what it reads and
/// writes.
enum Changes {
    /// A read has shown where to begin.
    Due,
    Open(Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Lease>>> + Send>>),
    /// Ended; the next read, at most a retry period away, makes it due.
    Ended,
}

impl Election {
    /// An election that has not begun, and where it will publish. `client` must not retry by itself, and `clock` is
    /// [`Clock::boot`] but in tests.
    pub fn new(
        client: Client,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
    ) -> (Self, watch::Receiver<Option<Leadership>>) {
        let Settings { namespace, name, identity, timing, owner, at } = settings;
        let leadership = Publisher::new(clock.clone());
        let receiver = leadership.subscribe();
        let election = Self {
            api: Api::namespaced(client, &namespace),
            candidate: Candidate::new(identity, namespace, name.clone(), timing, owner).listening(at),
            name,
            timing,
            clock,
            leadership,
            metrics,
            changes: Changes::Ended,
            prepared: None,
            doubts: None,
            ask: inquiry::nobody_listens,
            asking: None,
        };
        (election, receiver)
    }

    /// Until `prepared` it lets others go first who stand for election, too.
    #[must_use]
    pub fn deferring_until(mut self, prepared: watch::Receiver<bool>) -> Self {
        self.prepared = Some(prepared);
        self
    }

    /// Whenever `doubts` changes, as a connection to the holder ended, it asks for the holder at once, while that can still be asked for:
    /// an address may go soon after its process.
    #[must_use]
    pub fn doubting(mut self, doubts: watch::Receiver<u64>) -> Self {
        self.doubts = Some(doubts);
        self
    }

    /// Stands for election, leads, and ends with [`Error::Lost`] when the leadership is over.
    ///
    /// `stop` ends it in order: cancel it when nothing acts as the leader any more, and the Lease is released so that a
    /// standby takes over at once.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Error> {
        while !stop.is_cancelled() {
            let is_prepared = self.prepared.as_ref().is_none_or(|prepared| *prepared.borrow());
            self.candidate.set_handicap(if is_prepared { Duration::ZERO } else { HANDICAP });
            let now = self.clock.now();
            match self.candidate.step(now, Timestamp::now()) {
                Step::Read => self.read(now).await,
                Step::Write(lease) => self.write(*lease, now).await,
                Step::Wait(until) => {
                    self.inquire(now);
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(until.since(now)) => {}
                        () = becomes(&mut self.prepared), if !is_prepared => {}
                        () = changes(&mut self.doubts) => self.candidate.doubted(self.clock.now()),
                        inquiry = answered(&mut self.asking) => {
                            info!(holder = self.candidate.holder(), at = %inquiry.at, "nobody listens where the leader did");
                            self.candidate.gone(&inquiry);
                        }
                        event = next_change(&self.api, &self.name, &self.candidate, &mut self.changes) => self.changed(event),
                    }
                }
                Step::Lost(loss) => {
                    self.leadership.withdraw();
                    self.metrics.transition(Transition::Lost);
                    warn!(%loss, "lost the leadership");
                    return Err(Error::Lost(loss));
                }
            }
        }
        self.release().await;
        Ok(())
    }

    /// Asks for whom the candidate wants to be asked for, and for nobody else.
    fn inquire(&mut self, now: Moment) {
        let wanted = self.candidate.inquiry(now);
        let is_asked =
            |wanted: &Inquiry| self.asking.as_ref().is_some_and(|(under_way, _)| under_way.is_same(wanted));
        match wanted {
            Some(wanted) if is_asked(&wanted) => {}
            wanted => self.asking = wanted.map(|inquiry| (inquiry.clone(), (self.ask)(inquiry.at))),
        }
    }

    async fn read(&mut self, sent: Moment) {
        match limited(self.limit(sent), self.api.get_opt(&self.name)).await {
            Ok(lease) => {
                let before = self.candidate.holder().map(ToOwned::to_owned);
                self.candidate.seen(lease, self.clock.now());
                if matches!(self.changes, Changes::Ended) {
                    self.changes = Changes::Due;
                }
                if self.candidate.holder() != before.as_deref() {
                    debug!(holder = self.candidate.holder(), "the lease's holder");
                }
            }
            Err(error) => {
                warn!(%error, "cannot read the lease");
                self.metrics.failure(Request::Read);
                self.candidate.failed(sent);
            }
        }
    }

    async fn write(&mut self, lease: Lease, sent: Moment) {
        let leading = self.candidate.held().is_some();
        match limited(self.limit(sent), store(&self.api, &lease)).await {
            Ok(stored) => {
                self.changes = Changes::Ended;
                self.candidate.written(stored, sent, self.clock.now());
                if !leading {
                    info!("acquired the leadership");
                    self.metrics.transition(Transition::Acquired);
                }
                match self.candidate.held() {
                    Some(held) => self.leadership.lead_until(held.expires_at),
                    None => self.leadership.withdraw(),
                }
            }
            Err(RequestError::Api(error)) if lost_race(&error, &lease) => {
                debug!(%error, "somebody else wrote the lease");
                self.candidate.refused();
            }
            Err(error) => {
                warn!(%error, "cannot write the lease");
                self.metrics.failure(Request::Write);
                self.candidate.failed(sent);
                let forbidden =
                    matches!(&error, RequestError::Api(kube::Error::Api(status)) if status.is_forbidden());
                if forbidden && self.candidate.disown() {
                    warn!("the lease is written without its owner from here on");
                }
            }
        }
    }

    fn changed(&mut self, event: Option<kube::Result<WatchEvent<Lease>>>) {
        let now = self.clock.now();
        match event {
            Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                self.candidate.seen(Some(lease), now);
            }
            Some(Ok(WatchEvent::Deleted(_))) => self.candidate.seen(None, now),
            Some(Ok(WatchEvent::Bookmark(_))) => {}
            Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => {
                debug!("the watch of the lease ended");
                self.changes = Changes::Ended;
            }
        }
    }

    async fn release(&mut self) {
        // First of all nobody in this process may believe in the leadership any more.
        self.leadership.withdraw();
        let now = self.clock.now();
        let limit = self.limit(now);
        let Some(lease) = self.candidate.release(now, Timestamp::now()) else { return };
        self.metrics.transition(Transition::Released);
        match limited(limit, store(&self.api, &lease)).await {
            Ok(_) => info!("released the leadership"),
            Err(error) => warn!(%error, "cannot release the lease: a standby takes over when it expires"),
        }
    }

    /// How long a request that is sent at `sent` may take: its own limit, and no longer than the leadership lasts.
    fn limit(&self, sent: Moment) -> Duration {
        let limit = self.timing.request_timeout();
        self.candidate.held().map_or(limit, |held| limit.min(held.expires_at.since(sent)))
    }
}

async fn limited<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    let answer = tokio::time::timeout(limit, request).await;
    answer.map_err(|_| RequestError::Timeout(limit))?.map_err(RequestError::Api)
}

#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("{0}")]
    Api(#[source] kube::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// Creates the Lease, or replaces the very version it names.
async fn store(api: &Api<Lease>, lease: &Lease) -> kube::Result<Lease> {
    let params = PostParams { field_manager: Some("isthmus-manager".to_owned()), ..PostParams::default() };
    match (&lease.metadata.resource_version, &lease.metadata.name) {
        (Some(_), Some(name)) => api.replace(name, &params, lease).await,
        _ => api.create(&params, lease).await,
    }
}

/// Whether a write failed because the Lease is not what it was, rather than because of a fault. Not found means so
/// only for a Lease that was there; at a creation it is the namespace that is missing.
fn lost_race(error: &kube::Error, lease: &Lease) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let existed = lease.metadata.resource_version.is_some();
    status.is_conflict() || status.is_already_exists() || (existed && status.is_not_found())
}

/// Returns when it is prepared; never if nobody can say so any more.
async fn becomes(prepared: &mut Option<watch::Receiver<bool>>) {
    if let Some(prepared) = prepared
        && prepared.wait_for(|prepared| *prepared).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Returns when the count changes; never if nobody counts.
async fn changes(count: &mut Option<watch::Receiver<u64>>) {
    if let Some(count) = count
        && count.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// The inquiry under way, once its holder is found to be gone.
async fn answered(asking: &mut Option<(Inquiry, BoxFuture<'static, ()>)>) -> Inquiry {
    let Some((_, answer)) = asking else { return std::future::pending().await };
    answer.await;
    match asking.take() {
        Some((inquiry, _)) => inquiry,
        None => std::future::pending().await,
    }
}

/// The next change of the Lease, while a standby follows them; `None`: they ended.
async fn next_change(
    api: &Api<Lease>,
    name: &str,
    candidate: &Candidate,
    changes: &mut Changes,
) -> Option<kube::Result<WatchEvent<Lease>>> {
    if candidate.held().is_some() {
        return std::future::pending().await;
    }
    if matches!(changes, Changes::Due) {
        let (api, params) = (api.clone(), WatchParams::default().fields(&format!("metadata.name={name}")));
        let version = candidate.resource_version().unwrap_or("0").to_owned();
        let open = async move { api.watch(&params, &version).await };
        *changes = Changes::Open(Box::pin(futures::stream::once(open).try_flatten()));
    }
    match changes {
        Changes::Open(stream) => stream.next().await,
        Changes::Due | Changes::Ended => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "driver/tests.rs"]
mod tests;

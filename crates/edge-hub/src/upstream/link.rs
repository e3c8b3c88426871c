//! Keeps one API server connected, and says whether it is.
//!
//! Servers are tried in their order, from the one that worked last, or from the next if that fell silent or answered nothing at all: one
//! that stands still may take connections all the same, as a load balancer does whose servers are gone. The pause between rounds grows and is
//! jittered. A server that is gone, black-holed, ill or says good-bye is replaced by the next that answers; the streams over it end with it. A line of the
//! hub's own that was cut looks the same, so it may come back to another server. One that does not know the hub's certificate is asked more and more
//! seldom whether it does by now, and there is no link until then.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use http::StatusCode;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Endpoint, Upstream,
    connector::{ConnectError, Connector, Showing},
    lane::Lane,
    servers::{ServerState, Servers},
    session::{Driver, Errand, Session},
};

/// After how long it is tried again to connect with a new certificate, while the connection before still works.
const LATE: Duration = Duration::from_secs(2);

/// The longest pause between attempts while no server knows the hub's certificate: each costs a handshake, and a new certificate is tried at once.
const UNKNOWN: Duration = Duration::from_secs(30);

/// Whether there is an API server to talk to.
#[derive(Debug, Clone)]
pub enum LinkState {
    /// Connected.
    Up(Arc<Session>),
    /// Not connected.
    Down {
        /// Since when.
        since: Instant,
        /// Why the last attempt failed.
        reason: String,
    },
}

/// The task that keeps the link.
pub struct Link {
    endpoints: Vec<Endpoint>,
    connector: Arc<Connector>,
    showing: Showing,
    state: watch::Sender<LinkState>,
    servers: Servers,
    /// Those that were left because they answered with errors, or did not know the hub's certificate.
    ill: BTreeSet<usize>,
    renew: Arc<Notify>,
    drivers: mpsc::UnboundedSender<Driver>,
    incoming: mpsc::UnboundedReceiver<Driver>,
}

impl Link {
    /// A link to the first of `endpoints` that answers, not connected yet.
    pub fn new(endpoints: Vec<Endpoint>, connector: Arc<Connector>) -> (Self, Upstream) {
        let reason = "the first connection is being made".to_owned();
        let (state, receiver) = watch::channel(LinkState::Down { since: Instant::now(), reason });
        let renew = Arc::new(Notify::new());
        let (drivers, incoming) = mpsc::unbounded_channel();
        let servers = Servers::new(&endpoints);
        let upstream = Upstream { state: receiver, servers: servers.clone(), renew: renew.clone() };
        let (showing, ill) = (Showing::Certificate, BTreeSet::new());
        (Self { endpoints, connector, showing, state, servers, ill, renew, drivers, incoming }, upstream)
    }

    /// The same for who has no certificate: what goes over it as [`super::Credential::Node`] is nobody's.
    pub fn without_certificate(endpoints: Vec<Endpoint>, connector: Arc<Connector>) -> (Self, Upstream) {
        let (link, upstream) = Self::new(endpoints, connector);
        (Self { showing: Showing::Nothing, ..link }, upstream)
    }

    /// Keeps the link until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut connections = JoinSet::new();
        let connector = self.connector.clone();
        let mut first = 0;
        let mut unanswered = Unanswered::default();
        loop {
            let connected = tokio::select! {
                () = shutdown.cancelled() => return,
                connected = self.connect(first) => connected,
            };
            let (index, mut session, driver) = connected;
            first = index;
            self.servers.note(index, ServerState::Connected);
            info!(server = %session.endpoint(), "connected to the API server");
            self.state.send_replace(LinkState::Up(session.clone()));
            let mut alive = connections.spawn(driver);
            let mut late = false;
            let reason = loop {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    Some(driver) = self.incoming.recv() => { connections.spawn(driver); }
                    () = self.renew.notified() => {
                        // Asked by a request that failed; a spurious wake-up must not cost the connection.
                        if session.is_closing() { break "the API server closed the connection"; }
                    }
                    () = outdated(&connector, late), if self.showing == Showing::Certificate => {
                        if !connector.has_certificate() { break "the certificate may no longer be used"; }
                        let renewed = self.connect_to(session.endpoint().clone()).await;
                        late = renewed.is_err();
                        match renewed {
                            Ok((renewed, driver)) => {
                                info!(server = %session.endpoint(), "connected with the new certificate");
                                // Streams over the connection before go on; it ends with the last of them.
                                session = renewed;
                                alive = connections.spawn(driver);
                                self.state.send_replace(LinkState::Up(session.clone()));
                            }
                            Err(error) => warn!(%error, "no connection with the new certificate yet"),
                        }
                    }
                    Some(ended) = connections.join_next_with_id() => {
                        let id = match &ended { Ok((id, ())) => *id, Err(error) => error.id() };
                        if id == alive.id() { break "the connection to the API server ended"; }
                    }
                }
            };
            let (silent, unknown) = (session.fell_silent(), self.is_unknown_to(&session));
            let answered = session.has_answered() && !unknown;
            let reason = match session.illness() {
                Some(reason) => {
                    self.ill.insert(index);
                    reason
                }
                None if silent => "the API server says nothing".to_owned(),
                None if unknown => ConnectError::Unknown.to_string(),
                None => reason.to_owned(),
            };
            warn!(server = %session.endpoint(), reason, "the link is down");
            self.servers.note(index, ServerState::Failed(reason.clone()));
            self.state.send_replace(LinkState::Down { since: Instant::now(), reason });
            if silent || !answered {
                first = (index + 1) % self.endpoints.len();
            }
            if let Some(rounds) = unanswered.rounds(answered, self.endpoints.len()) {
                let (shortest, longest) = connector.timing().backoff;
                let pause = shortest.saturating_mul(1_u32.checked_shl(rounds).unwrap_or(0) >> 1).min(longest);
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = sleep(jittered(pause)) => {}
                    // One that was refused shows only after the handshake.
                    () = connector.replaced(), if self.showing == Showing::Certificate => {}
                }
            }
            // Only now: whoever was answered 401 as the connection ended may have noted it after that.
            if self.is_unknown_to(&session) {
                self.ill.insert(index);
            }
        }
    }

    /// Tries servers until one answers.
    async fn connect(&mut self, first: usize) -> (usize, Arc<Session>, Driver) {
        let (mut pause, longest) = self.connector.timing().backoff;
        let mut is_told = false;
        loop {
            let mut unknown = true;
            for offset in 0..self.endpoints.len() {
                let index = (first + offset) % self.endpoints.len();
                match self.connect_well(index).await {
                    Ok((session, driver)) => return (index, session, driver),
                    Err(error) => {
                        unknown &= matches!(error, ConnectError::Unknown);
                        self.servers.note(index, ServerState::Failed(error.to_string()));
                        let reason = format!("{}: {error}", self.endpoints[index]);
                        if is_told {
                            debug!(%reason, "cannot connect");
                        } else {
                            warn!(%reason, "cannot connect to the API server, and goes on trying");
                        }
                        self.state.send_modify(|state| {
                            if let LinkState::Down { reason: last, .. } = state {
                                *last = reason;
                            }
                        });
                    }
                }
            }
            is_told = true;
            tokio::select! {
                () = sleep(jittered(pause)) => {}
                () = self.connector.replaced(), if self.showing == Showing::Certificate => {}
            }
            pause = (pause * 2).min(if unknown { longest.max(UNKNOWN) } else { longest });
        }
    }

    /// Whether that server does not know the certificate that the link is there to show.
    fn is_unknown_to(&self, session: &Session) -> bool {
        self.showing == Showing::Certificate && session.refuses_certificate()
    }

    /// Connects to the server of that number, which must say first that it is ready, and so that it knows the certificate, if it was left.
    async fn connect_well(&mut self, index: usize) -> Result<(Arc<Session>, Driver), ConnectError> {
        let (session, mut driver) = self.connect_to(self.endpoints[index].clone()).await?;
        if self.ill.contains(&index) {
            let mut asked = pin!(session.readiness());
            let (ready, ended) = tokio::select! {
                ready = &mut asked => (ready, false),
                // What was answered before that is to be had still.
                () = &mut driver => (asked.await, true),
            };
            let status = ready.map_err(ConnectError::Ill)?;
            if status == StatusCode::UNAUTHORIZED && self.showing == Showing::Certificate {
                return Err(ConnectError::Unknown);
            }
            if ended {
                return Err(ConnectError::Ill("the connection ended".to_owned()));
            }
            self.ill.remove(&index);
        }
        Ok((session, driver))
    }

    async fn connect_to(&self, endpoint: Endpoint) -> Result<(Arc<Session>, Driver), ConnectError> {
        let (lane, driver) = Lane::open(&self.connector, &endpoint, self.showing, Errand::Own).await?;
        let session = Session::new(endpoint, self.connector.clone(), lane, self.drivers.clone());
        Ok((Arc::new(session), driver))
    }
}

/// How many connections in a row ended before anything was answered over them.
#[derive(Debug, Default)]
struct Unanswered(usize);

impl Unanswered {
    /// Counts one that ended. If nothing was answered over it: in how many whole rounds over all servers that is so by now.
    fn rounds(&mut self, answered: bool, servers: usize) -> Option<u32> {
        self.0 = if answered { 0 } else { self.0 + 1 };
        // Later pauses are all the longest.
        (!answered).then(|| u32::try_from(self.0 / servers.max(1)).unwrap_or(u32::MAX).min(16))
    }
}

/// Returns when the connection is to be made anew with another certificate: when there is one, or that is overdue.
async fn outdated(connector: &Connector, late: bool) {
    if late { sleep(LATE).await } else { connector.replaced().await }
}

/// Between a half and the whole of `pause`, so that the hubs of a site do not come back in one moment.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.subsec_nanos());
    pause.mul_f64(0.5 + 0.5 * f64::from(nanos % 1000) / 1000.0)
}

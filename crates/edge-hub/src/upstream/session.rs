//! One connected API server: a connection with the hub's certificate, two without for callers with a token, and further ones when
//! these are full. Of the two one carries what the hub asks with a caller's token, reviews and streams that are shared, and the other what
//! is handed on: how slowly that is read, and how much it is, holds up nothing that others wait for.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::body::Body;
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use hyper::body::Incoming;
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::{Instant, sleep, timeout},
};
use tracing::debug;

use super::{
    Credential, Endpoint, USER_AGENT, UpstreamError,
    answer::Answer,
    connector::{ConnectError, Connector, Showing},
    cut::Cut,
    illness::{BELIEVED, Illness},
    known::Known,
    lane::{Lane, SendError},
};

/// How often a request that was not sent is sent over another connection.
const RESENDS: u32 = 2;

/// How long a server may take to say that it is ready. One whose etcd is gone waits for that first.
const READINESS: Duration = Duration::from_secs(3);

/// A connection's driver: ends when the connection does.
pub(super) type Driver = futures::future::BoxFuture<'static, ()>;

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    /// The hub's own, with whosever credential: what it is answered it reads.
    Own,
    /// A caller's, who reads the answer.
    HandedOn,
}

type Lanes = Arc<Mutex<Vec<Arc<Lane>>>>;

/// A connected API server. Dropping it lets what is under way end.
pub struct Session {
    endpoint: Endpoint,
    connector: Arc<Connector>,
    /// The connection that is the link: the link is down when it ends.
    first: Arc<Lane>,
    /// Made when the first is full.
    more: Lanes,
    /// Made when the hub first asks something with a caller's token.
    bearer: Lanes,
    /// Made when something is first handed on with a token.
    handed_on: Lanes,
    connected: Instant,
    /// Whether any request was answered.
    answered: AtomicBool,
    known: Known,
    illness: Illness,
    /// Where drivers of further connections go: the link's task owns them.
    drivers: mpsc::UnboundedSender<Driver>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Session").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(
        endpoint: Endpoint,
        connector: Arc<Connector>,
        first: Arc<Lane>,
        drivers: mpsc::UnboundedSender<Driver>,
    ) -> Self {
        let [more, bearer, handed_on] = [(); 3].map(|()| Lanes::default());
        Self {
            endpoint,
            connector,
            first,
            more,
            bearer,
            handed_on,
            connected: Instant::now(),
            answered: AtomicBool::new(false),
            known: Known::default(),
            illness: Illness::default(),
            drivers,
        }
    }

    /// Which API server this is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// When it was connected.
    pub fn connected(&self) -> Instant {
        self.connected
    }

    /// Whether it has answered anything: a server may let itself be connected to and say nothing more.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }

    /// Whether it does not know the hub's certificate: to all that was asked with that it has answered 401.
    pub(super) fn refuses_certificate(&self) -> bool {
        self.known.is_refused()
    }

    /// Whether no further request can be sent: the server said good-bye or the link broke.
    pub(super) fn is_closing(&self) -> bool {
        self.first.is_closed()
    }

    /// Whether the link ended because the server said nothing any more.
    pub(super) fn fell_silent(&self) -> bool {
        self.first.fell_silent()
    }

    /// Why the link ended though the server was there: it answered nothing but errors.
    pub(super) fn illness(&self) -> Option<String> {
        self.illness.reason()
    }

    /// What the server answers to the question whether it is ready, unless it is not; why not, else. That somebody may not ask is no sign of illness.
    pub(super) async fn readiness(&self) -> Result<StatusCode, String> {
        let asked = async {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = Uri::from_static("/readyz");
            request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
            self.address(&mut request, &Credential::Node)?;
            *request.version_mut() = Version::HTTP_2;
            match self.first.send(request).await {
                Ok(answer) => Ok(answer.status()),
                Err(SendError::Unsent(_, error) | SendError::Failed(error)) => Err(error),
            }
        };
        match timeout(READINESS, asked).await {
            Ok(Ok(status)) if status.is_server_error() => Err(format!("/readyz is answered {status}")),
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(format!("/readyz: {error}")),
            Err(_) => Err(format!("/readyz is not answered within {READINESS:?}")),
        }
    }

    /// Takes note of how a request was answered. A server that is ill is left, with all that is under way there: a watch on it would tell nothing.
    fn note(self: &Arc<Self>, status: StatusCode) {
        if !self.illness.suspects(status) {
            return;
        }
        let session = Arc::downgrade(self);
        self.drive(Box::pin(async move {
            let Some(suspected) = session.upgrade() else { return };
            if let Err(reason) = suspected.readiness().await {
                suspected.illness.ill(format!("the API server answers with errors, and {reason}"));
                // Who waits for another connection, and so has the list, does so no longer than there is a link.
                suspected.first.give_up();
                for lanes in [&suspected.more, &suspected.bearer, &suspected.handed_on] {
                    lanes.lock().await.iter().for_each(|lane| lane.give_up());
                }
                return;
            }
            drop(suspected);
            sleep(BELIEVED).await;
            if let Some(session) = session.upgrade() {
                session.illness.well();
            }
        }));
    }

    pub(super) async fn send(
        self: &Arc<Self>,
        credential: &Credential,
        errand: Errand,
        mut request: Request<Body>,
    ) -> Result<Response<Answer>, UpstreamError> {
        let showing = self.address(&mut request, credential)?;
        *request.version_mut() = Version::HTTP_2;
        // Whichever connection it goes over: the first is the one that says whether there is a link.
        let _waiting = self.connector.asking().begin();
        let mut again = RESENDS;
        loop {
            let lane = match self.lane(showing, errand).await {
                Ok(lane) => lane,
                Err(error) => return Err(self.suspect(error)),
            };
            let is_first = Arc::ptr_eq(&lane, &self.first);
            match lane.send(request).await {
                Ok(answer) => {
                    self.known.answered(showing, answer.status());
                    self.answered.store(true, Relaxed);
                    self.note(answer.status());
                    return Ok(answer);
                }
                // A connection that said good-bye is not taken again.
                Err(SendError::Unsent(unsent, _)) if !is_first && again > 0 => {
                    again -= 1;
                    request = *unsent;
                }
                Err(SendError::Unsent(_, error) | SendError::Failed(error)) if is_first => return Err(error),
                Err(SendError::Unsent(_, error) | SendError::Failed(error)) => {
                    return Err(self.suspect(error));
                }
            }
        }
    }

    /// What became of another connection may have become of the link; nobody waits to find out.
    fn suspect(&self, error: UpstreamError) -> UpstreamError {
        let first = self.first.clone();
        self.drive(Box::pin(async move {
            first.is_alive().await;
        }));
        error
    }

    /// What another connection comes to, if the link does not end before it: that is noticed sooner. Boxed, since requests hardly ever
    /// wait for one.
    async fn while_linked<T>(
        &self,
        connecting: Pin<Box<impl Future<Output = Result<T, ConnectError>>>>,
    ) -> Result<T, UpstreamError> {
        tokio::select! {
            connected = connecting => connected.map_err(|error| UpstreamError::Broken(Box::new(error))),
            () = self.first.ended() => Err(UpstreamError::Broken("the link ended".into())),
        }
    }

    /// A connection that takes another request.
    async fn lane(self: &Arc<Self>, showing: Showing, errand: Errand) -> Result<Arc<Lane>, UpstreamError> {
        let lanes = match (showing, errand) {
            (Showing::Certificate, _) if self.first.has_room() || self.first.is_closed() => {
                return Ok(self.first.clone());
            }
            (Showing::Certificate, _) => &self.more,
            (Showing::Nothing, Errand::Own) => &self.bearer,
            (Showing::Nothing, Errand::HandedOn) => &self.handed_on,
        };
        let ended = || UpstreamError::Broken("the link ended".into());
        let mut lanes = tokio::select! {
            lanes = lanes.clone().lock_owned() => lanes,
            () = self.first.ended() => return Err(ended()),
        };
        if let Some(lane) = with_room(&mut lanes) {
            return Ok(lane);
        }
        // Nobody drives what is handed to a link that has ended, before the next.
        if self.first.has_ended() {
            return Err(ended());
        }
        // It is made though whoever wants it waits no longer: over a long way a review has not the time for it and for its answer. Others wait meanwhile, and
        // make none of their own.
        let (session, (made, lane)) = (self.clone(), oneshot::channel());
        self.drive(Box::pin(async move {
            let opening = Box::pin(Lane::open(&session.connector, &session.endpoint, showing, errand));
            let opened = session.while_linked(opening).await.map(|(lane, driver)| {
                session.drive(driver);
                lanes.push(lane.clone());
                lane
            });
            drop(lanes);
            let _ = made.send(opened);
        }));
        tokio::select! {
            opened = lane => opened.map_err(|_| ended())?,
            () = self.first.ended() => Err(ended()),
        }
    }

    pub(super) async fn send_upgrade(
        &self,
        credential: &Credential,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let showing = self.address(&mut request, credential)?;
        *request.version_mut() = Version::HTTP_11;
        let waiting = self.connector.asking().begin();
        let (mut sender, connection) =
            self.while_linked(Box::pin(self.connector.http1(&self.endpoint, showing))).await?;
        drop(waiting);
        self.drive(Box::pin(async move {
            if let Err(error) = connection.with_upgrades().await {
                debug!(%error, "upgraded connection");
            }
        }));
        sender.try_send_request(request).await.map_err(|mut error| {
            let unsent = error.take_message().is_some();
            let cut = Cut::of(&error.into_error());
            if unsent { UpstreamError::Broken(Box::new(cut)) } else { cut.under_way() }
        })
    }

    /// Gives a request its authority, and exactly the credential that it goes with.
    fn address(
        &self,
        request: &mut Request<Body>,
        credential: &Credential,
    ) -> Result<Showing, UpstreamError> {
        let authority = self.endpoint.authority();
        let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let uri = Uri::builder()
            .scheme("https")
            .authority(authority.as_str())
            .path_and_query(path)
            .build()
            .map_err(|error| UpstreamError::Broken(Box::new(error)))?;
        let host =
            HeaderValue::from_str(&authority).map_err(|error| UpstreamError::Broken(Box::new(error)))?;
        *request.uri_mut() = uri;
        request.headers_mut().insert(header::HOST, host);
        request.headers_mut().remove(header::AUTHORIZATION);
        match credential {
            Credential::Node => Ok(Showing::Certificate),
            Credential::Bearer(value) => {
                let mut value = value.clone();
                value.set_sensitive(true);
                request.headers_mut().insert(header::AUTHORIZATION, value);
                Ok(Showing::Nothing)
            }
        }
    }

    fn drive(&self, driver: Driver) {
        // The link's task is gone only when the process ends; then the connection ends with it.
        let _ = self.drivers.send(driver);
    }
}

/// One that takes another request at once. Those that are closed are forgotten.
fn with_room(lanes: &mut Vec<Arc<Lane>>) -> Option<Arc<Lane>> {
    lanes.retain(|lane| !lane.is_closed());
    lanes.iter().find(|lane| lane.has_room()).cloned()
}

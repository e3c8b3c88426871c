//! One connected API server: a connection with the hub's certificate, and one without for callers with a token.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::body::Body;
use http::{HeaderValue, Request, Response, Version, header};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};
use tracing::debug;

use super::{Credential, Endpoint, UpstreamError, connector::Connector, connector::Showing};

/// A connection's driver: ends when the connection does.
pub(super) type Driver = futures::future::BoxFuture<'static, ()>;

/// A connected API server. Dropping it lets what is under way end.
pub struct Session {
    endpoint: Endpoint,
    connector: Arc<Connector>,
    node: SendRequest<Body>,
    /// Made when the first caller with a token comes.
    bearer: Mutex<Option<SendRequest<Body>>>,
    closing: AtomicBool,
    connected: Instant,
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
        node: SendRequest<Body>,
        drivers: mpsc::UnboundedSender<Driver>,
    ) -> Self {
        Self {
            endpoint,
            connector,
            node,
            bearer: Mutex::new(None),
            closing: AtomicBool::new(false),
            connected: Instant::now(),
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

    /// Whether no further request can be sent: the server said good-bye or the link broke.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed) || self.node.is_closed()
    }

    pub(super) async fn send(
        &self,
        credential: &Credential,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.address(&mut request, credential)?;
        *request.version_mut() = Version::HTTP_2;
        let mut sender = match credential {
            Credential::Node => self.node.clone(),
            Credential::Bearer(_) => self.bearer().await?,
        };
        // Not ready means that the connection takes no more requests: this one was not sent, and nothing was lost.
        if let Err(error) = sender.ready().await {
            self.closed(credential).await;
            return Err(UpstreamError::Broken(Box::new(error)));
        }
        sender.send_request(request).await.map_err(|error| UpstreamError::Broken(Box::new(error)))
    }

    pub(super) async fn send_upgrade(
        &self,
        credential: &Credential,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let showing = self.address(&mut request, credential)?;
        *request.version_mut() = Version::HTTP_11;
        let (mut sender, connection) = self
            .connector
            .http1(&self.endpoint, showing)
            .await
            .map_err(|error| UpstreamError::Broken(Box::new(error)))?;
        self.drive(Box::pin(async move {
            if let Err(error) = connection.with_upgrades().await {
                debug!(%error, "upgraded connection");
            }
        }));
        sender.send_request(request).await.map_err(|error| UpstreamError::Broken(Box::new(error)))
    }

    /// Gives a request its authority, and exactly the credential that it goes with.
    fn address(
        &self,
        request: &mut Request<Body>,
        credential: &Credential,
    ) -> Result<Showing, UpstreamError> {
        let authority = self.endpoint.authority();
        let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let uri = http::Uri::builder()
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

    async fn bearer(&self) -> Result<SendRequest<Body>, UpstreamError> {
        let mut slot = self.bearer.lock().await;
        if let Some(sender) = slot.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let (sender, connection) = self
            .connector
            .http2(&self.endpoint, Showing::Nothing)
            .await
            .map_err(|error| UpstreamError::Broken(Box::new(error)))?;
        self.drive(Box::pin(async move {
            if let Err(error) = connection.await {
                debug!(%error, "connection of callers with a token");
            }
        }));
        *slot = Some(sender.clone());
        Ok(sender)
    }

    async fn closed(&self, credential: &Credential) {
        match credential {
            Credential::Node => self.closing.store(true, Ordering::Relaxed),
            Credential::Bearer(_) => *self.bearer.lock().await = None,
        }
    }

    fn drive(&self, driver: Driver) {
        // The link's task is gone only when the process ends; then the connection ends with it.
        let _ = self.drivers.send(driver);
    }
}

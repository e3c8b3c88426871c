//! Who calls: what an authenticator is told of a request, and whom it finds.
//!
//! [`DelegatingAuthenticator`] finds callers as the API server's extensions do: by the request headers of a front proxy, by client certificate, by
//! bearer token. What it trusts is [`Trust`], which [`extension_config::follow`] keeps as the cluster says.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use axum::{extract::connect_info::Connected, serve::IncomingStream};
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use rustls::{ServerConnection, pki_types::CertificateDer};
use tls::{full_records::FullRecordsListener, listener::TlsListener};

mod chain;
pub mod client_certificates;
mod delegating;
pub mod extension_config;
mod request_header;
mod trust;

pub use delegating::{DelegatingAuthenticator, TokenReviewer};
pub use trust::{MalformedTrust, Trust};

/// Whoever was recognised belongs to this group.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Somebody who was recognised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The name: `system:kube-controller-manager`, `alice`.
    pub name: String,
    /// What tells this user from an earlier one of the same name.
    pub uid: String,
    /// What the user belongs to.
    pub groups: Vec<String>,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Who shows no credential.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// The user as one of those who were recognised.
    #[must_use]
    pub(crate) fn authenticated(mut self) -> Self {
        let known = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if self.name != ANONYMOUS && !self.groups.iter().any(known) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// A header's value as text. API servers write names and groups as UTF-8, whichever letters they have; what is no text says nothing.
pub fn header_text(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

/// Nobody was recognised, although a credential was shown, or it could not be looked at. Either is answered 401, as the API server does.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// The credential is not one.
    #[error("{0}")]
    Refused(String),
    /// There was nobody to ask.
    #[error("cannot find out who calls")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Finds out who calls. Must not log credentials.
pub trait Authenticator: Send + Sync + 'static {
    /// Who calls, by the connection's client certificate and the request's headers; `None` if no credential was shown that it knows.
    fn authenticate<'a>(
        &'a self,
        peer: &'a Peer,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Option<User>, AuthenticationError>>;

    /// Takes credentials and claims of identity away, so that nothing behind can take them for true: `Authorization`, and the headers of front proxies.
    fn strip(&self, headers: &mut HeaderMap) {
        headers.remove(header::AUTHORIZATION);
        let claims: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
        for name in claims {
            headers.remove(name);
        }
    }
}

/// The other end of a connection: connection info for `axum::serve` over a [`TlsListener`].
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// Its address; `None` in tests without a socket.
    pub address: Option<SocketAddr>,
    /// The chain of certificates that it showed, its own first. It holds the key of the first; nothing else was verified yet.
    pub certificates: Arc<[CertificateDer<'static>]>,
}

impl Peer {
    fn of(connection: &ServerConnection, address: SocketAddr) -> Self {
        let certificates = connection.peer_certificates().unwrap_or_default();
        let certificates = certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Self { address: Some(address), certificates }
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        Self::of(stream.io().get_ref().1, *stream.remote_addr())
    }
}

impl Connected<IncomingStream<'_, FullRecordsListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, FullRecordsListener>) -> Self {
        Self::of(stream.io().connection(), *stream.remote_addr())
    }
}

//! The gateway's side: accepts connections, finds out who they are, and holds links with those that may have them.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use rustls_pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    admission::{Admission, NotAdmitted},
    connector::Connector,
    credentials::Credentials,
    identity::{Identity, IdentityError, PeerVerifier},
    link::{LinkError, Peer, Terms, answer, ask},
    links::table::LinkTable,
    protocol::{ALPN_FORWARD, ALPN_REVERSE, Class},
    route::Direction,
    serve,
    socket::tune_link,
    view::{Domain, View},
};

/// What a gateway is made of.
#[derive(Clone)]
pub struct Gateway {
    /// Opens the streams that peers ask for; has the view.
    pub connector: Arc<Connector>,
    /// Where links are entered.
    pub table: Arc<LinkTable>,
    /// What is presented to those who dial.
    pub credentials: Arc<Credentials>,
    /// Tells who they are.
    pub verifier: Arc<dyn PeerVerifier>,
    /// Tells whether they may.
    pub admission: Arc<dyn Admission>,
    /// The newest view, for those who are no longer admitted.
    pub view: watch::Receiver<Arc<View>>,
    /// Which run of the process this is.
    pub instance: Arc<str>,
}

/// Why a connection became no link.
#[derive(Debug, thiserror::Error)]
enum AcceptError {
    #[error("no credentials yet")]
    NoCredentials,
    #[error("the TLS handshake")]
    Handshake(#[source] io::Error),
    #[error("the TLS handshake was not done in time")]
    HandshakeTimeout,
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{0}: {1}")]
    NotAdmitted(String, NotAdmitted),
    #[error("{0} has too many links")]
    TooManyLinks(String),
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl Gateway {
    /// Accepts links until `shutdown`; then takes no more, and lets streams of those there are go on for as long as a drain
    /// may last.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let pending = Arc::new(Semaphore::new(self.connector.limits().pending));
        let mut tasks = JoinSet::new();
        loop {
            // Those beyond wait in the kernel's queue.
            let permit = tokio::select! {
                permit = pending.clone().acquire_owned() => permit,
                () = shutdown.cancelled() => break,
            };
            let Ok(permit) = permit else { break };
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((connection, address)) => {
                        let (gateway, drain) = (self.clone(), shutdown.child_token());
                        tasks.spawn(async move { gateway.connection(connection, address, permit, drain).await });
                    }
                    Err(error) => {
                        warn!(%error, "cannot accept links");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                () = shutdown.cancelled() => break,
            }
            while tasks.try_join_next().is_some() {}
        }
        drop(listener);
        while tasks.join_next().await.is_some() {}
    }

    async fn connection(
        &self,
        connection: TcpStream,
        address: SocketAddr,
        permit: OwnedSemaphorePermit,
        drain: CancellationToken,
    ) {
        tune_link(&connection);
        let mut permit = Some(permit);
        let mut registered = false;
        let result = self
            .link(connection, drain, || {
                registered = true;
                permit.take();
            })
            .await;
        match result {
            Ok(()) => debug!(%address, "link ended"),
            Err(error) if registered => {
                let error = &error as &dyn std::error::Error;
                info!(%address, error, "link broke");
            }
            Err(error) => {
                self.connector.stats().link_failed();
                let error = &error as &dyn std::error::Error;
                warn!(%address, error, "no link");
            }
        }
    }

    async fn link(
        &self,
        connection: TcpStream,
        drain: CancellationToken,
        registered: impl FnOnce(),
    ) -> Result<(), AcceptError> {
        let limits = *self.connector.limits();
        let acceptor = TlsAcceptor::from(self.credentials.server().ok_or(AcceptError::NoCredentials)?);
        let connection = timeout(limits.handshake, acceptor.accept(connection))
            .await
            .map_err(|_| AcceptError::HandshakeTimeout)?
            .map_err(AcceptError::Handshake)?;
        let (identity, direction) = self.introduce(&connection)?;
        let terms = Terms {
            instance: self.instance.clone(),
            limits,
            table: self.table.clone(),
            stats: self.connector.stats().clone(),
        };
        let admitted = self.admission.admit(&identity, direction, &self.connector.view());
        let domain = match admitted {
            Ok(domain) => domain,
            Err(error) => {
                // Over a reverse link it is this end that speaks; the close says enough there.
                if direction == Direction::Forward {
                    let _ = Box::pin(answer::reject(connection, &terms, "not_admitted")).await;
                }
                return Err(AcceptError::NotAdmitted(identity.node, error));
            }
        };
        if self.table.count(&identity.node) >= limits.links_of_a_peer {
            return Err(AcceptError::TooManyLinks(identity.node));
        }
        let peer = Peer {
            node: identity.node.clone(),
            domain: domain.clone(),
            direction,
            class: Class::Interactive,
        };
        let admitted = domain.clone();
        let revoked = self.revocation(&identity, direction, &admitted);
        let end = drain.clone();
        let link = async {
            match direction {
                Direction::Reverse => Box::pin(ask::run(connection, peer, &terms, drain, registered)).await,
                Direction::Forward => {
                    let (connector, node) = (self.connector.clone(), Arc::from(identity.node.as_str()));
                    let handle = move |asked| {
                        serve::stream(connector.clone(), Arc::clone(&node), domain.clone(), asked)
                    };
                    Box::pin(answer::run(connection, peer, &terms, drain, registered, handle)).await
                }
            }
        };
        let mut link = Box::pin(link);
        let result = tokio::select! {
            result = &mut link => result,
            removed = revoked => {
                info!(node = identity.node, removed, "a link is no longer admitted");
                // A node that is gone has no rights left; one that lost an election finishes what it does.
                if removed { return Ok(()); }
                end.cancel();
                link.await
            }
        };
        Ok(result?)
    }

    fn introduce(&self, connection: &TlsStream<TcpStream>) -> Result<(Identity, Direction), AcceptError> {
        let (_, session) = connection.get_ref();
        let leaf: Option<&CertificateDer<'_>> = session.peer_certificates().and_then(<[_]>::first);
        let identity = self.verifier.identify(leaf.ok_or(IdentityError::Missing)?)?;
        let direction = match session.alpn_protocol() {
            Some(ALPN_REVERSE) => Direction::Reverse,
            Some(ALPN_FORWARD) => Direction::Forward,
            // rustls refuses other names; a client without any is none of ours.
            Some(_) | None => return Err(LinkError::Closed.into()),
        };
        Ok((identity, direction))
    }

    /// Ends when a peer is no longer admitted for the domain; gives whether the node is gone.
    async fn revocation(&self, identity: &Identity, direction: Direction, domain: &Domain) -> bool {
        let mut view = self.view.clone();
        loop {
            if view.changed().await.is_err() {
                return std::future::pending().await;
            }
            let newest = view.borrow_and_update().clone();
            match self.admission.admit(identity, direction, &newest) {
                Ok(admitted) if admitted == *domain => {}
                Ok(_) | Err(NotAdmitted::NotAnEndpoint) => return false,
                Err(NotAdmitted::UnknownNode) => return true,
            }
        }
    }
}

//! The gateway's side: accepts connections, finds out who they are, and holds links with those that may have them.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustls_pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::{debug, field::display, info, warn};

use crate::{
    admission::{Admission, NotAdmitted},
    audit::Unknown,
    connector::Connector,
    credentials::Credentials,
    doorway::{Doorway, Place, Source},
    ending::Ending,
    expiry,
    identity::{Identity, IdentityError, PeerVerifier},
    link::{LinkError, Peer, Terms, answer},
    links::table::LinkTable,
    protocol::{ALPN_FORWARD, ALPN_REVERSE, Class},
    read_ahead::ReadAhead,
    route::Direction,
    serve,
    socket::{speaks, tune_link},
    stats::Listener,
    strangers::Strangers,
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
    #[error("nothing was said in time")]
    Silent,
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

impl AcceptError {
    /// In a word what one failed at who has not shown who it is; anybody can do that as often as it likes.
    fn of_stranger(&self) -> Option<&'static str> {
        match self {
            Self::NoCredentials => Some("no_credentials"),
            Self::Silent => Some("silent"),
            Self::Handshake(_) => Some("handshake"),
            Self::HandshakeTimeout => Some("handshake_timeout"),
            Self::Identity(_) => Some("identity"),
            Self::NotAdmitted(..) | Self::TooManyLinks(_) | Self::Link(_) => None,
        }
    }

    /// The same of one that has shown which node it is, and as whom its lines are counted: who has the key of one must not fill the log, nor keep what
    /// there is to say of another out of it.
    fn of_known(&self, address: IpAddr) -> Option<(&'static str, Source)> {
        let node = |name: &String| Source::of_domain(&Domain::Solo(name.clone()));
        match self {
            Self::NotAdmitted(name, _) => Some(("not_admitted", node(name))),
            Self::TooManyLinks(name) => Some(("too_many_links", node(name))),
            Self::Link(_) => Some(("link", address.into())),
            Self::NoCredentials
            | Self::Silent
            | Self::Handshake(_)
            | Self::HandshakeTimeout
            | Self::Identity(_) => None,
        }
    }
}

/// Whether there is a line for one more connection from this address that became no link.
fn may_tell(error: &AcceptError, address: IpAddr, strangers: &Strangers, known: &Unknown) -> bool {
    match error.of_known(address) {
        // Streams that peers' strangers were refused are counted for "links", and take none of these lines.
        Some((kind, source)) => known.may_tell("accept", kind, source),
        None => error.of_stranger().is_none_or(|kind| strangers.may_tell(kind)),
    }
}

impl Gateway {
    /// Accepts links until `ending` retires; then takes no more, and those there are take no new streams. Those that are open go
    /// on: once it is shut down, for as long as a drain may last.
    pub async fn serve(self, listener: TcpListener, ending: Ending) {
        let limits = self.connector.limits();
        // Whoever says nothing does not keep those that speak from shaking hands.
        let (waiting, shaking) = (Doorway::new(limits.waiting), Arc::new(Doorway::new(limits.pending)));
        let mut tasks = JoinSet::new();
        let strangers = Arc::<Strangers>::default();
        let (tell, retired) = (strangers.clone(), ending.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = tell.tell() => {}
                () = retired.retired() => {}
            }
        });
        loop {
            // Those beyond wait in the kernel's queue.
            let room = tokio::select! {
                room = waiting.room() => room,
                () = ending.retired() => break,
            };
            let Some(room) = room else { break };
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((connection, address)) => if let Some(place) = waiting.admit(room, address.ip()) {
                        let (gateway, shaking, ending) = (self.clone(), shaking.clone(), ending.child());
                        let strangers = strangers.clone();
                        tasks.spawn(async move {
                            gateway.connection(connection, address, place, &shaking, &strangers, &ending).await;
                        });
                    } else {
                        // Closed at once: one who is honest dials again.
                        self.connector.stats().link_failed();
                        debug!(%address, "too many connections of this source are not registered");
                    },
                    Err(error) => {
                        warn!(%error, "cannot accept links");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                () = ending.retired() => break,
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
        place: Place,
        shaking: &Doorway,
        strangers: &Strangers,
        ending: &Ending,
    ) {
        tune_link(&connection);
        let mut registered = None;
        let result = match self.shake(connection, address.ip(), place, shaking).await {
            Ok(Some((connection, place))) => {
                let registered = |node: &str| {
                    registered = Some(node.to_owned());
                    drop(place);
                };
                self.link(connection, ending, registered).await
            }
            Ok(None) => return self.connector.stats().silent(Listener::Links),
            Err(error) => Err(error),
        };
        match result {
            Ok(()) if let Some(node) = registered => info!(%address, node, "link ended"),
            Ok(()) => debug!(%address, "no link, and nothing wrong"),
            Err(error) if registered.is_some() => {
                let error = &error as &dyn std::error::Error;
                info!(%address, node = registered, error, "link broke");
            }
            Err(error) => {
                self.connector.stats().link_failed();
                let told = may_tell(&error, address.ip(), strangers, self.connector.unknown());
                let error = &error as &dyn std::error::Error;
                if told {
                    warn!(%address, error, "no link");
                } else {
                    debug!(%address, error, "no link");
                }
            }
        }
    }

    /// The TLS handshake, of a connection on which something is said; and its place until it is registered.
    async fn shake(
        &self,
        connection: TcpStream,
        source: IpAddr,
        waiting: Place,
        shaking: &Doorway,
    ) -> Result<Option<(TlsStream<ReadAhead<TcpStream>>, Option<Place>)>, AcceptError> {
        let limits = self.connector.limits();
        let until = Instant::now() + limits.handshake;
        if !timeout(limits.first_byte, speaks(&connection)).await.map_err(|_| AcceptError::Silent)? {
            return Ok(None);
        }
        let in_time = |_| AcceptError::HandshakeTimeout;
        let place = timeout_at(until, shaking.enter(source)).await.map_err(in_time)?;
        drop(waiting);
        let acceptor = TlsAcceptor::from(self.credentials.server().ok_or(AcceptError::NoCredentials)?);
        let shaken = timeout_at(until, acceptor.accept(ReadAhead::new(connection))).await.map_err(in_time)?;
        Ok(Some((shaken.map_err(AcceptError::Handshake)?, place)))
    }

    async fn link(
        &self,
        connection: TlsStream<ReadAhead<TcpStream>>,
        ending: &Ending,
        registered: impl FnOnce(&str),
    ) -> Result<(), AcceptError> {
        let limits = *self.connector.limits();
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
            expires: identity.expires,
        };
        let gone = self.revocation(&identity, direction, domain, ending);
        let expired = expiry::follow(&identity.node, identity.expires, &self.table, ending);
        let asks = direction == Direction::Reverse;
        let registered = || registered(&identity.node);
        let link = serve::link(&self.connector, asks, connection, peer, &terms, ending, registered);
        tokio::select! {
            result = link => Ok(result?),
            () = gone => Ok(()),
            () = expired => Ok(()),
        }
    }

    fn introduce(
        &self,
        connection: &TlsStream<ReadAhead<TcpStream>>,
    ) -> Result<(Identity, Direction), AcceptError> {
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

    /// Follows what a peer may do while it holds a link that it was given as a node of `domain`; ends when its node is gone, which has no rights left.
    /// Only who knows all nodes knows that; elsewhere one that is not named any more may ask for nothing new, and of what it asked for goes on what
    /// is for everyone.
    ///
    /// A node that lost an election, or whose gateway this node no longer is, has the rights that it had: nothing is taken from it by
    /// ending its streams, so they go on; the peer may not have noticed, so its link takes new ones again once it is admitted again. One
    /// that is of another domain keeps its links as well: whoever follows the cluster at another moment would not know why they ended. What it asks
    /// for is judged by what it is by then (rules name domains), and so are its open streams: those that it might not ask for any more have the deadline
    /// of a drain. Those that this node asked for are none of its rights.
    async fn revocation(&self, identity: &Identity, direction: Direction, domain: Domain, ending: &Ending) {
        let (mut view, mut told, mut domain) = (self.view.clone(), false, Some(domain));
        loop {
            if view.changed().await.is_err() {
                return std::future::pending().await;
            }
            let newest = view.borrow_and_update().clone();
            let node = &identity.node;
            let admitted = self.admission.admit(identity, direction, &newest);
            if matches!(admitted, Err(NotAdmitted::UnknownNode)) && !newest.is_partial {
                return info!(node, "a link's node is gone");
            }
            let now = admitted.as_ref().ok().cloned().or_else(|| newest.domain_of(node));
            if now != domain {
                let [was, is] = [&domain, &now].map(|domain| domain.as_ref().map(display));
                info!(node, was, is, "a link's node is of another domain, or named no more");
                domain = now;
                if direction == Direction::Forward {
                    ending.change_rights();
                }
            }
            if admitted.is_ok() {
                if std::mem::take(&mut told) {
                    info!(node, "a link is admitted again");
                }
                ending.resume();
            } else {
                ending.suspend();
                if !std::mem::replace(&mut told, true) {
                    info!(node, "a link is no longer admitted");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_node_fills_the_log_nor_hides_another() {
        let (strangers, known) = (Strangers::default(), Unknown::default());
        let address = IpAddr::from([192, 0, 2, 7]);
        let told = |error: &dyn Fn() -> AcceptError| {
            (0..1000).filter(|_| may_tell(&error(), address, &strangers, &known)).count()
        };
        let not_admitted =
            |node: &'static str| move || AcceptError::NotAdmitted(node.to_owned(), NotAdmitted::UnknownNode);
        assert_eq!(told(&|| AcceptError::TooManyLinks("a1".to_owned())), 1);
        // Behind the same NAT, too.
        assert_eq!([told(&not_admitted("a1")), told(&not_admitted("a2"))], [1, 1]);
        assert_eq!(told(&|| AcceptError::Silent), 5);
        let streams = (0..1000).filter(|uid| known.may_tell("links", "unknown", Source::User(*uid))).count();
        assert!(streams < 1000);
        assert_eq!(told(&not_admitted("a3")), 1, "strangers hide no node");
    }
}

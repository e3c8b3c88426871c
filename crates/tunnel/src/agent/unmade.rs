//! Why a link was not made, and what that says of who is there.

use std::io::{self, ErrorKind};

use crate::{
    backoff::Obstacle,
    dial::{DialError, Proxy},
    identity::IdentityError,
    link::LinkError,
};

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub(super) enum MakeError {
    #[error("no credentials yet")]
    NoCredentials,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the TLS handshake")]
    Handshake(#[source] io::Error),
    #[error("no TLS in time")]
    Timeout,
    /// Through a proxy, whose `host:port` this is: it may be the proxy's fault, and not the gateway's.
    #[error("by the proxy http://{0}")]
    ByProxy(String, #[source] Box<Self>),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{0} answered")]
    OtherNode(String),
    #[error("{0} is no gateway")]
    NoGateway(String),
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl MakeError {
    /// The same, told with the proxy by which it was tried, if there was one.
    pub(super) fn by(self, proxy: Option<&Proxy>) -> Self {
        match proxy {
            Some(proxy) => Self::ByProxy(proxy.address.clone(), Box::new(self)),
            None => self,
        }
    }

    /// What kept it from being made.
    pub(super) fn obstacle(&self) -> Obstacle {
        match self {
            Self::ByProxy(_, error) => error.obstacle(),
            Self::Link(LinkError::Silent) => Obstacle::Silence,
            Self::Dial(error) => error.obstacle(),
            // A balancer that has no gateway behind it takes connections all the same.
            Self::Handshake(error) if is_hung_up(error.kind()) => Obstacle::Absence,
            Self::NoCredentials | Self::Timeout => Obstacle::Absence,
            Self::Handshake(_)
            | Self::Identity(_)
            | Self::OtherNode(_)
            | Self::NoGateway(_)
            | Self::Link(_) => Obstacle::Refusal,
        }
    }
}

/// Whether a connection ended without a word of TLS about it.
fn is_hung_up(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_on_the_way_is_told_and_changes_nothing_else() {
        let proxy = Proxy::new("p:3128").with_password("user", "secret");
        for (error, obstacle) in [
            (MakeError::from(DialError::Connect(ErrorKind::ConnectionRefused.into())), Obstacle::Absence),
            (DialError::Unanswered.into(), Obstacle::Silence),
            (DialError::ProxyRefused(407).into(), Obstacle::Refusal),
            (MakeError::Handshake(ErrorKind::UnexpectedEof.into()), Obstacle::Absence),
            (MakeError::Handshake(ErrorKind::InvalidData.into()), Obstacle::Refusal),
        ] {
            let (plain, straight) = (error.to_string(), error.by(None));
            assert_eq!((straight.to_string(), straight.obstacle()), (plain.clone(), obstacle));
            let by = straight.by(Some(&proxy));
            assert_eq!((by.to_string().as_str(), by.obstacle()), ("by the proxy http://p:3128", obstacle));
            let behind = std::error::Error::source(&by).map(ToString::to_string);
            assert_eq!(behind, Some(plain));
        }
    }
}

//! Who is calling, from credentials only: the kernel's word on a local peer, a verified client certificate, or a token.
//!
//! A `User-Agent` is never a credential. A request that shows nothing is refused, but for local users that the operator let act
//! as the node.

mod certificate;
pub mod jwt;
pub mod known_time;
mod refusals;
pub mod tokens;

use std::{collections::BTreeSet, sync::Arc};

use http::{HeaderMap, HeaderValue, header};
use tls::digest::Sha256Digest;

pub use self::certificate::{certificate_ends, user_of};
use crate::{
    listen::{Origin, Peer},
    upstream::Credential,
};

/// The group of everybody who has shown who they are. The API server adds it as it lets somebody in, and not to what a review of access names.
const AUTHENTICATED: &str = "system:authenticated";

/// A user as Kubernetes knows one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct User {
    /// Such as `system:serviceaccount:kube-system:kube-proxy`.
    pub name: Box<str>,
    /// The groups that the user's credential names; reviews of access need them.
    pub groups: Vec<Box<str>>,
}

/// Who calls.
#[derive(Debug, Clone)]
pub enum Caller {
    /// The node itself: a local user that may act as it, or a peer with the node's own certificate.
    Node,
    /// Whoever holds this token. It is checked by the API server on the way up, and by the hub before it answers by itself.
    Token(Token),
    /// The owner of a client certificate other than the node's. Its requests can be answered here, but not handed on:
    /// the key stays with the client.
    Certificate(Arc<User>),
}

/// A bearer token. Never shown.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token(…)")
    }
}

impl Token {
    /// The token of `Authorization: Bearer …` (RFC 6750, 2.1; the scheme in any case, RFC 9110, 11.1), read as the API server reads it, which is shown
    /// the same header: what stands between the first space and the next, if anything does.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(header::AUTHORIZATION)?;
        let (scheme, token) = parts(value)?;
        let good = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
        good.then(|| Self(value.clone()))
    }

    /// The header that it goes upstream in.
    pub fn credential(&self) -> Credential {
        Credential::Bearer(self.0.clone())
    }

    /// What tells it from others, and from which it cannot be had back.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of(self.expose().as_bytes())
    }

    /// The token without its scheme. Must not be logged.
    pub fn expose(&self) -> &str {
        parts(&self.0).map_or("", |(_, token)| token)
    }
}

/// The scheme and the token of a header.
fn parts(value: &HeaderValue) -> Option<(&str, &str)> {
    let mut parts = value.to_str().ok()?.trim().split(' ');
    Some((parts.next()?, parts.next()?))
}

/// Why a request is refused before anything is looked at (401).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// A local peer whose user may not act as the node.
    #[error("no credentials: send a token, or let the user of this process act as the node (--node-uids)")]
    LocalUser,
    /// A process of a pod that shares the node's network, whatever its user.
    #[error(
        "no credentials: a pod that shares the node's network is not the node: let it send its ServiceAccount's token, or let such pods act as the node (--node-pods=true)"
    )]
    Pod,
    /// The container runtime, which connects for whoever forwards a port of a pod that shares the node's network.
    #[error(
        "no credentials: the container runtime connects for whoever forwards a port of a pod, and is not the node: send a token"
    )]
    Runtime,
    /// A local peer of which nobody can say whether it is a pod's.
    #[error(
        "no credentials: whether this process is the node's or a pod's cannot be seen (cgroup v2 in /sys/fs/cgroup, or CAP_SYS_PTRACE and the node's /proc, would show it): send a token, or let pods act as the node (--node-pods=true)"
    )]
    UnknownProcess,
    /// The same, because too many ask at once (429).
    #[error(
        "too many ask at once, and whose process this is has not been found out yet: ask again, or send a token"
    )]
    Crowded,
    /// A remote peer without a certificate or token.
    #[error("no credentials: send a token or show a client certificate")]
    Nothing,
    /// An `Authorization` header that is no bearer token.
    #[error("the Authorization header holds no bearer token")]
    Scheme,
}

/// Which local users and which certificate stand for the node.
#[derive(Debug, Clone)]
pub struct Authenticator {
    /// Users whose processes act as the node when they send no credentials.
    pub node_uids: BTreeSet<u32>,
    /// Whether pods that share the node's network are such processes, too.
    pub node_pods: bool,
    /// `system:node:<name>`.
    pub node_user: Box<str>,
}

impl Authenticator {
    /// Finds out of a peer what [`Authenticator::caller`] has to know of it, if it will.
    pub async fn look(&self, peer: &Peer, headers: &HeaderMap) {
        if let Peer::Local { uid: Some(uid), process } = peer
            && !self.node_pods
            && self.node_uids.contains(uid)
            && !headers.contains_key(header::AUTHORIZATION)
        {
            process.find().await;
        }
    }

    /// Says who calls. A token wins over what the connection says, as a caller that sends one wants to be its owner.
    pub fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Unauthenticated> {
        if headers.contains_key(header::AUTHORIZATION) {
            return Token::from_headers(headers).map(Caller::Token).ok_or(Unauthenticated::Scheme);
        }
        match peer {
            Peer::Local { uid: Some(uid), process } if self.node_uids.contains(uid) => {
                let origin = if self.node_pods { Some(Origin::Node) } else { process.origin() };
                match origin {
                    Some(Origin::Node) => Ok(Caller::Node),
                    Some(Origin::Pod) => Err(Unauthenticated::Pod),
                    Some(Origin::Runtime) => Err(Unauthenticated::Runtime),
                    None if process.is_crowded() => Err(Unauthenticated::Crowded),
                    None => Err(Unauthenticated::UnknownProcess),
                }
            }
            Peer::Local { .. } => Err(Unauthenticated::LocalUser),
            Peer::Remote { certificate: Some(certificate), .. } => match user_of(certificate) {
                Some(user)
                    if user.name == self.node_user
                        && user.groups.iter().any(|group| &**group == api::names::NODE_GROUP) =>
                {
                    Ok(Caller::Node)
                }
                Some(user) => Ok(Caller::Certificate(Arc::new(user))),
                None => Err(Unauthenticated::Nothing),
            },
            Peer::Remote { certificate: None, .. } => Err(Unauthenticated::Nothing),
        }
    }
}

impl Caller {
    /// The credential that the caller's requests go upstream with; `None` if it cannot be handed on.
    pub fn credential(&self) -> Option<Credential> {
        match self {
            Self::Node => Some(Credential::Node),
            Self::Token(token) => Some(token.credential()),
            Self::Certificate(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::CallerProcess;

    fn headers(authorization: Option<&'static str>) -> HeaderMap {
        authorization
            .map(|value| (header::AUTHORIZATION, HeaderValue::from_static(value)))
            .into_iter()
            .collect()
    }

    #[test]
    fn callers_come_from_credentials() {
        let authenticator = Authenticator {
            node_uids: BTreeSet::from([0]),
            node_pods: false,
            node_user: "system:node:a".into(),
        };
        let local = |uid| Peer::Local { uid, process: CallerProcess::of(Origin::Node) };
        let pod = Peer::Local { uid: Some(0), process: CallerProcess::of(Origin::Pod) };
        let runtime = Peer::Local { uid: Some(0), process: CallerProcess::of(Origin::Runtime) };
        let remote = Peer::Remote { address: ([10, 0, 0, 9], 1).into(), certificate: None };
        let cases = [
            (local(Some(0)), None, "Ok(Node)"),
            (local(Some(1000)), None, "Err(LocalUser)"),
            (local(None), None, "Err(LocalUser)"),
            (pod.clone(), None, "Err(Pod)"),
            (runtime, None, "Err(Runtime)"),
            (pod.clone(), Some("Bearer x"), "Ok(Token(Token(…)))"),
            (local(Some(0)), Some("Bearer x"), "Ok(Token(Token(…)))"),
            (local(Some(0)), Some("Basic eDp5"), "Err(Scheme)"),
            (remote.clone(), None, "Err(Nothing)"),
            (remote.clone(), Some("bearer x"), "Ok(Token(Token(…)))"),
            (remote.clone(), Some("Bearer  x"), "Err(Scheme)"),
            (remote, Some("Bearer "), "Err(Scheme)"),
        ];
        for (peer, authorization, expected) in cases {
            let caller = authenticator.caller(&peer, &headers(authorization));
            assert_eq!(format!("{caller:?}"), expected, "{peer:?} {authorization:?}");
        }
        let trusting = Authenticator { node_pods: true, ..authenticator };
        assert!(matches!(trusting.caller(&pod, &headers(None)), Ok(Caller::Node)));
    }

    #[test]
    fn a_token_is_read_whole_and_never_shown() {
        let token = Token::from_headers(&headers(Some("bearer abc.def more"))).unwrap();
        assert_eq!(token.expose(), "abc.def");
        assert!(!format!("{token:?} {:?}", Caller::Token(token.clone())).contains("abc"));
    }
}

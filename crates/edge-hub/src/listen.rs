//! Where callers come in, and who stands at the other end of each connection.
//!
//! | listener | for whom | who it is |
//! |---|---|---|
//! | Unix socket | agents of this node | the kernel says (`SO_PEERCRED`) |
//! | HTTP on loopback, 10261 | kubelet and agents that only know TCP | the kernel's socket table says which user, its cgroups whether a pod |
//! | HTTPS, 10268 | pods and everyone else | a client certificate, or a token in each request |
//!
//! Nothing here decides what a peer may do.

mod caller_process;
pub(crate) mod chunks;
mod guests;
pub(crate) mod host;
mod http1;
mod lent;
pub mod over_tls;
pub mod plain;
mod pod_cgroup;
mod read_on;
pub mod seats;
mod socket_cgroup;
mod socket_owner;
mod unread;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use rustls_pki_types::CertificateDer;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tunnel::doorway::Source;

pub use self::caller_process::{CallerProcess, Origin};
pub(crate) use self::seats::Seat;

/// How long a client of HTTP/1.1 may take for the head of its next request, over an idle connection too: longer than those of Go keep one.
const HEAD: Duration = Duration::from_mins(2);

/// How many bytes the head of a request over HTTP/1.1 may have; the library's own limit is six times that. Over HTTP/2 it is 16 KiB.
const HEAD_SIZE: usize = 64 << 10;

/// The user who owns the other end of a loopback connection, as the kernel says, and the process.
pub(crate) fn owner_of(stream: &TcpStream, peer: SocketAddr) -> (Option<u32>, CallerProcess) {
    let owner = stream.local_addr().ok().and_then(|own| socket_owner::of(peer, own));
    (owner.map(|owner| owner.uid), CallerProcess::behind(owner.map(|owner| owner.socket)))
}

/// The other end of a connection, as far as the transport knows it.
#[derive(Debug, Clone)]
pub enum Peer {
    /// A process of this node, over the Unix socket or loopback TCP, and the user it runs as.
    Local {
        /// The user's number; `None` where the kernel does not say.
        uid: Option<u32>,
        /// The process itself.
        process: CallerProcess,
    },
    /// A connection with TLS, and the certificate that the client proved to own, if it showed one.
    Remote {
        /// Its address.
        address: SocketAddr,
        /// The leaf, already verified against the cluster's authority.
        certificate: Option<CertificateDer<'static>>,
    },
}

impl Peer {
    /// Who is at the other end of a connection over loopback.
    pub fn over_loopback(stream: &TcpStream, peer: SocketAddr) -> Self {
        let (uid, process) = owner_of(stream, peer);
        Self::Local { uid, process }
    }

    /// Who is at the other end of the Unix socket.
    pub fn over_socket(stream: &UnixStream) -> Self {
        // To be given the node's folder is to be let act as the node.
        let process = CallerProcess::of(Origin::Node);
        Self::Local { uid: stream.peer_cred().ok().map(|credentials| credentials.uid()), process }
    }

    /// Who is at the other end of a connection with TLS.
    pub fn over_tls(stream: &TlsStream<TcpStream>, address: SocketAddr) -> Self {
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).cloned();
        Self::Remote { address, certificate: certificate.map(CertificateDer::into_owned) }
    }

    /// Where it comes from, as long as it is nobody's who is known. All loopback addresses are one, as each program of the node has them.
    fn source(&self) -> Source {
        match self {
            Self::Local { uid, .. } => Source::User(uid.unwrap_or(u32::MAX)),
            Self::Remote { address, .. } => {
                let ip = address.ip().to_canonical();
                if ip.is_loopback() { IpAddr::from(Ipv4Addr::LOCALHOST) } else { ip }.into()
            }
        }
    }
}

//! A link that sees when an event comes to the hub: TLS ends here and begins anew, and what passes is looked at.
//!
//! The API server tells its watchers one after the other, on a busy machine some tens of milliseconds apart; so what the hub takes for
//! an event is not to be had from when another watcher was told.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use testkit::api_server::pki::Authority;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::instrument;
use super::watchers::{Marks, Shared, Told, Watchers};

/// A link that is read until it is dropped.
pub(super) struct Tap {
    address: SocketAddr,
    authority: String,
    seen: Watchers,
}

/// How both ends of it know each other.
#[derive(Clone)]
struct Ends {
    target: String,
    upstream: Arc<ClientConfig>,
    host: ServerName<'static>,
    shown: Arc<ServerConfig>,
}

impl Tap {
    /// A link to the API server `target`, `host:port`, of this authority, as whom the certificate is of.
    pub(super) async fn start(target: String, [authority, certificate, key]: &[String; 3]) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let mut upstream = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
        // What clients of Kubernetes agree on.
        upstream.alpn_protocols = vec![b"h2".to_vec()];
        let host = target.rsplit_once(':').context("the API server's port")?.0.to_owned();
        let authority = Authority::generate("bench")?;
        let own = authority.server(&["127.0.0.1"])?;
        let mut shown =
            ServerConfig::builder().with_no_client_auth().with_single_cert(vec![own.certificate], own.key)?;
        shown.alpn_protocols.clone_from(&upstream.alpn_protocols);
        let ends = Ends {
            host: ServerName::try_from(host)?,
            target,
            upstream: Arc::new(upstream),
            shown: Arc::new(shown),
        };
        let shared = Arc::new(Shared::default());
        let (address, seen) = instrument::run(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            anyhow::Ok((address, Watchers::run(vec![accept(listener, ends, shared.clone())], shared)))
        })
        .await?;
        Ok(Self { address, authority: authority.pem().to_owned(), seen })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whose certificates it shows.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// When each change since the last call was here.
    pub(super) fn seen(&self) -> Told {
        self.seen.events()
    }
}

async fn accept(listener: TcpListener, ends: Ends, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (ends, shared) = (ends.clone(), shared.clone());
        // One that fails is begun anew by the hub.
        connections.spawn(async move { drop(relay(near, ends, shared).await) });
    }
}

async fn relay(near: TcpStream, ends: Ends, shared: Arc<Shared>) -> Result<()> {
    let far = TcpStream::connect(&ends.target).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let near = TlsAcceptor::from(ends.shown).accept(near).await?;
    let far = TlsConnector::from(ends.upstream).connect(ends.host, far).await?;
    let (near_in, near_out) = tokio::io::split(near);
    let (far_in, far_out) = tokio::io::split(far);
    tokio::select! {
        ended = copy(near_in, far_out, None) => ended,
        ended = copy(far_in, near_out, Some(Marks::of_link(shared))) => ended,
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut marks: Option<Marks>,
) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    while let length @ 1.. = from.read(&mut buffer).await? {
        if let Some(marks) = &mut marks {
            marks.read(&buffer[..length]);
        }
        to.write_all(&buffer[..length]).await?;
        to.flush().await?;
    }
    Ok(())
}

//! The certificate and key of this node and whom it trusts: swapped as a whole, without a restart.
//!
//! Links that are up keep what they were made with; each installation has a number, and [`crate::links::plan`] makes links
//! anew that have an older one. Sessions are not resumed: none outlives the trust it began with.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::Resumption,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::sync::watch;

use crate::{
    protocol::{ALPN_FORWARD, ALPN_REVERSE},
    route::Direction,
};

/// Why credentials were not installed. Those before stay.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The certificates are no PEM, or none.
    #[error("the certificate")]
    Certificate,
    /// The key is no PEM. The reason is left out: it might quote the key.
    #[error("the key")]
    Key,
    /// The authorities are no PEM, or none.
    #[error("the authorities")]
    Authorities,
    /// They do not go together.
    #[error("the certificate and the key do not go together")]
    Unusable(#[source] rustls::Error),
    /// The authorities are of no use.
    #[error("the authorities are of no use")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// What connections are made and accepted with; nothing until the first installation.
pub struct Credentials {
    current: ArcSwapOption<Material>,
    generation: watch::Sender<u64>,
}

struct Material {
    reverse: Arc<ClientConfig>,
    forward: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Credentials {
    /// None yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { current: ArcSwapOption::empty(), generation: watch::Sender::new(0) })
    }

    /// Uses these from the next connection on: a chain with the leaf first, its key, and the authorities of peers, all PEM.
    /// Gives the number of the installation.
    pub fn install(&self, chain: &str, key: &str, authorities: &str) -> Result<u64, CredentialsError> {
        let chain = certificates(chain).ok_or(CredentialsError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| CredentialsError::Key)?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(authorities).ok_or(CredentialsError::Authorities)? {
            roots.add(authority).map_err(|_| CredentialsError::Authorities)?;
        }
        let material = Material::new(&chain, &key, &Arc::new(roots))?;
        self.current.store(Some(Arc::new(material)));
        self.generation.send_modify(|generation| *generation += 1);
        Ok(self.generation())
    }

    /// The number of the last installation; 0 is none.
    pub fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Tells of installations.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// For dialling a link.
    pub(crate) fn client(&self, direction: Direction) -> Option<Arc<ClientConfig>> {
        let current = self.current.load();
        let material = current.as_ref()?;
        Some(match direction {
            Direction::Reverse => material.reverse.clone(),
            Direction::Forward => material.forward.clone(),
        })
    }

    /// For accepting links.
    pub(crate) fn server(&self) -> Option<Arc<ServerConfig>> {
        self.current.load().as_ref().map(|material| material.server.clone())
    }
}

impl Material {
    fn new(
        chain: &[CertificateDer<'static>],
        key: &PrivateKeyDer<'static>,
        roots: &Arc<RootCertStore>,
    ) -> Result<Self, CredentialsError> {
        let provider = Arc::new(tls::shorter_keys_first());
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(CredentialsError::Verifier)?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(CredentialsError::Unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.to_vec(), key.clone_key())
            .map_err(CredentialsError::Unusable)?;
        server.alpn_protocols = vec![ALPN_REVERSE.to_vec(), ALPN_FORWARD.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let client = |direction: Direction| {
            let mut client = ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&versions)?
                .with_root_certificates(roots.clone())
                .with_client_auth_cert(chain.to_vec(), key.clone_key())?;
            client.alpn_protocols = vec![direction.alpn().to_vec()];
            client.resumption = Resumption::disabled();
            Ok(Arc::new(client))
        };
        Ok(Self {
            reverse: client(Direction::Reverse).map_err(CredentialsError::Unusable)?,
            forward: client(Direction::Forward).map_err(CredentialsError::Unusable)?,
            server: Arc::new(server),
        })
    }
}

fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    read.ok().filter(|certificates| !certificates.is_empty())
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

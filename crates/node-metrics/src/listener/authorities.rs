//! Whose signature makes a client certificate: the cluster's authority for clients, which changes while connections come in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme};
use tls::certificate::Certificate;
use tls::resolver::ServingCertificate;
use tls::signatures;

/// The authorities that are trusted at the moment; none until the first are installed, and until then no handshake succeeds.
#[derive(Default)]
pub struct ClientAuthorities {
    current: ArcSwapOption<Verifier>,
    /// How often some were installed.
    installed: AtomicU64,
}

struct Verifier {
    within: Arc<dyn ClientCertVerifier>,
    /// Which installation this is of, from 1 on.
    generation: u64,
}

/// The authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// There is none among them.
    #[error("no authority for client certificates")]
    Missing,
    /// One is not one.
    #[error("an authority for client certificates")]
    Unusable(#[source] Error),
    /// They make no verifier.
    #[error("the authorities for client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

impl ClientAuthorities {
    /// Trusts these and no others: from the next handshake on, and on connections that are there from the next report on ([`ClientAuthorities::verify_again`]).
    pub fn install(&self, authorities: &[Certificate]) -> Result<(), AuthorityError> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority.der().clone()).map_err(AuthorityError::Unusable)?;
        }
        if roots.is_empty() {
            return Err(AuthorityError::Missing);
        }
        let provider = Arc::new(ring::default_provider());
        let within = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        let generation = self.installed.fetch_add(1, Ordering::Relaxed) + 1;
        self.current.store(Some(Arc::new(Verifier { within, generation })));
        Ok(())
    }

    /// Verifies a chain that was shown in a handshake, its own certificate first, unless the authorities are those of `generation`, which have done so. Returns of
    /// which they are now.
    pub fn verify_again(
        &self,
        chain: &[CertificateDer<'_>],
        generation: u64,
        now: Timestamp,
    ) -> Result<u64, Error> {
        let current = self.current.load();
        let Some(current) = current.as_deref() else { return Err(none_yet()) };
        if current.generation == generation {
            return Ok(generation);
        }
        let (end_entity, intermediates) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        let since_1970 = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
        let now = UnixTime::since_unix_epoch(since_1970);
        current.within.verify_client_cert(end_entity, intermediates, now)?;
        Ok(current.generation)
    }
}

fn none_yet() -> Error {
    Error::General("no authority yet".to_owned())
}

impl std::fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientAuthorities").field("installed", &self.current.load().is_some()).finish()
    }
}

impl ClientCertVerifier for ClientAuthorities {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Hints could not be lent out of what changes; clients that get none send what they have.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let current = self.current.load_full();
        let Some(verifier) = current else { return Err(none_yet()) };
        verifier.within.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signatures::verify_tls13(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        signatures::schemes()
    }
}

/// A configuration for the listener of reports: TLS 1.3, HTTP/1.1 or 2, a client certificate of one of `authorities`.
pub fn server_config(
    serving: &Arc<ServingCertificate>,
    authorities: Arc<ClientAuthorities>,
) -> Result<ServerConfig, Error> {
    let resolver: Arc<dyn rustls::server::ResolvesServerCert> = Arc::clone(serving) as _;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(authorities)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![node_report::http::PROTOCOL.to_vec(), b"h2".to_vec()];
    // A session that goes on is not checked again: whose authority has gone would be let in.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

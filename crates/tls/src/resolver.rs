//! The certificate being served: swapped as a whole and without a restart. A handshake sees the old one or the new one,
//! never a certificate with another's key.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::certificate::{Certificate, CertificateError};

/// Why a certificate was not installed. The one served before stays.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The certificate cannot be read.
    #[error("the certificate")]
    Certificate(#[source] CertificateError),
    /// The key cannot be read. The reason is left out: it might quote the key.
    #[error("the key is not a private key in PEM")]
    Key,
    /// The key is of no use, or not that of the certificate.
    #[error("the key does not serve the certificate")]
    Unusable(#[source] rustls::Error),
}

/// The certificate that handshakes are answered with; none until the first is installed, and until then handshakes
/// fail.
#[derive(Default)]
pub struct ServingCertificate {
    current: ArcSwapOption<Serving>,
}

struct Serving {
    key: Arc<CertifiedKey>,
    certificate: Certificate,
}

impl ServingCertificate {
    /// Nothing to serve yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Serves this certificate (leaf first, then any intermediates) from the next handshake on, if it can be read and
    /// the key is its own. On an error the one before stays. Gives back what is served now.
    pub fn install(&self, certificate_pem: &str, key_pem: &str) -> Result<Certificate, InstallError> {
        let chain = crate::certificate::bundle(certificate_pem).map_err(InstallError::Certificate)?;
        let certificate =
            chain.first().cloned().ok_or(InstallError::Certificate(CertificateError::Missing))?;
        let chain: Vec<CertificateDer<'static>> =
            chain.iter().map(|certificate| certificate.der().clone()).collect();
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|_| InstallError::Key)?;
        let key =
            CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(InstallError::Unusable)?;
        let serving = Serving { key: Arc::new(key), certificate: certificate.clone() };
        self.current.store(Some(Arc::new(serving)));
        Ok(certificate)
    }

    /// The certificate that is served now.
    pub fn certificate(&self) -> Option<Certificate> {
        self.current.load().as_ref().map(|serving| serving.certificate.clone())
    }

    /// A configuration for servers that answer with this certificate: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, no client
    /// certificates.
    pub fn server_config(self: &Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let resolver: Arc<dyn ResolvesServerCert> = self.clone();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load().as_ref().map(|serving| serving.key.clone())
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fingerprint = self.current.load().as_ref().map(|serving| serving.certificate.fingerprint());
        f.debug_struct("ServingCertificate").field("fingerprint", &fingerprint).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::tests::{authority, leaf};

    #[test]
    fn garbage_is_refused_and_the_old_certificate_stays() {
        let ca = authority();
        let (good, other) = (leaf(&ca, &["a.example"]), leaf(&ca, &["a.example"]));
        let pem = good.certificate.to_pem();
        let serving = ServingCertificate::new();
        assert_eq!(serving.certificate(), None);
        serving.install(&pem, good.key.expose()).unwrap();
        let broken_der = pem::encode(&pem::Pem::new("CERTIFICATE", b"x".as_slice()));
        let cases = [
            ("", good.key.expose(), "the certificate"),
            (broken_der.as_str(), good.key.expose(), "the certificate"),
            (&pem, "", "the key is not a private key in PEM"),
            (
                &pem,
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                "the key does not serve",
            ),
            (&pem, other.key.expose(), "the key does not serve"),
        ];
        for (certificate, key, expected) in cases {
            let error = serving.install(certificate, key).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error} is not {expected}");
            assert_eq!(serving.certificate().as_ref(), Some(&good.certificate));
        }
        serving.install(&other.certificate.to_pem(), other.key.expose()).unwrap();
        assert_eq!(serving.certificate(), Some(other.certificate));
    }
}

//! A client's chain of certificates against one authority, and the names in the certificate.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, UnixTime},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{User, trust::MalformedTrust};

/// Certificates that sign clients' certificates; one of them must stand at the end of a chain.
#[derive(Debug, Clone)]
pub(super) struct Authority(Arc<dyn ClientCertVerifier>);

impl Authority {
    /// The authority of a bundle in PEM.
    pub(super) fn from_pem(text: &str) -> Result<Self, MalformedTrust> {
        let mut roots = RootCertStore::empty();
        for certificate in tls::certificate::bundle(text).map_err(MalformedTrust::Certificate)? {
            roots.add(certificate.der().clone()).map_err(MalformedTrust::Authority)?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        verifier.map(Self).map_err(|error| MalformedTrust::Bundle(error.to_string()))
    }

    /// The names in the first certificate, if this authority signed the chain; an error says why it did not.
    pub(super) fn verify(&self, chain: &[CertificateDer<'static>]) -> Result<Names, String> {
        let (first, rest) = chain.split_first().ok_or("no certificate")?;
        self.0.verify_client_cert(first, rest, UnixTime::now()).map_err(|error| error.to_string())?;
        Names::of(first).ok_or_else(|| "a certificate whose subject cannot be read".to_owned())
    }
}

/// The names in a certificate's subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// `CN`; empty if there is none.
    pub(super) common_name: String,
    /// `O`.
    organizations: Vec<String>,
}

impl Names {
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let subject = parsed.subject();
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().ok().map(str::to_owned)
        };
        // Of several the last counts, as Go has it.
        let common_name = subject.iter_common_name().filter_map(text).last().unwrap_or_default();
        let organizations = subject.iter_organization().filter_map(text).collect();
        Some(Self { common_name, organizations })
    }

    /// The user that the certificate names; `None` without a name.
    pub(super) fn user(self) -> Option<User> {
        let Self { common_name, organizations } = self;
        let user = User { name: common_name, groups: organizations, ..User::default() };
        Some(user).filter(|user| !user.name.is_empty())
    }
}

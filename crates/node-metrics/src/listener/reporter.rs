//! Who is at the other end of a connection: the node that its client certificate is of, read once a connection. That the certificate
//! was signed by the cluster's authority for clients was checked in the handshake, and is again when the authorities have changed since.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::ClientAuthorities;

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Reporter(Option<Arc<Node>>);

#[derive(Debug)]
struct Node {
    name: Arc<str>,
    not_after: i64,
    /// As it was shown, the node's own certificate first.
    chain: Vec<CertificateDer<'static>>,
    /// Which authorities have verified it; 0 after the handshake, in which it may have been those of a moment before.
    verified: AtomicU64,
}

impl Reporter {
    /// The holder of a certificate; nobody, unless it is a node's: `O=system:nodes`, `CN=system:node:<name>`.
    pub fn of_certificate(der: &[u8]) -> Self {
        Self::of_chain(&[CertificateDer::from(der)])
    }

    /// The same of a certificate with those that lead to its authority.
    pub fn of_chain(chain: &[CertificateDer<'_>]) -> Self {
        let parsed = chain.first().and_then(|der| X509Certificate::from_der(der).ok());
        let Some((_, certificate)) = parsed else { return Self(None) };
        let subject = certificate.subject();
        let in_group = subject.iter_organization().any(|group| group.as_str() == Ok(api::names::NODE_GROUP));
        // Of several names the API server takes the last; a certificate that leaves a choice is no node's here.
        let mut names = subject.iter_common_name().map(|name| name.as_str().ok());
        let name = match (names.next(), names.next()) {
            (Some(Some(name)), None) => name.strip_prefix(api::names::NODE_USER_PREFIX),
            _ => None,
        };
        let name = name.filter(|name| in_group && !name.is_empty());
        let not_after = certificate.validity().not_after.timestamp();
        let node = |name: &str| Node {
            name: name.into(),
            not_after,
            chain: chain.iter().map(|der| der.clone().into_owned()).collect(),
            verified: AtomicU64::new(0),
        };
        Self(name.map(|name| Arc::new(node(name))))
    }

    /// The node, while its certificate is valid: connections outlive it.
    pub fn node(&self, now: Timestamp) -> Option<Arc<str>> {
        let node = self.0.as_ref()?;
        (now.as_second() <= node.not_after).then(|| Arc::clone(&node.name))
    }

    /// Whether the certificate is one of these authorities at this moment; connections outlive them, too. That of nobody is not.
    pub fn is_trusted(&self, authorities: &ClientAuthorities, now: Timestamp) -> bool {
        let Some(node) = &self.0 else { return false };
        let verified = authorities.verify_again(&node.chain, node.verified.load(Ordering::Relaxed), now);
        match verified {
            Ok(generation) => {
                node.verified.store(generation, Ordering::Relaxed);
                true
            }
            Err(error) => {
                tracing::debug!(node = &*node.name, %error, "a connection's certificate is not trusted any more");
                false
            }
        }
    }
}

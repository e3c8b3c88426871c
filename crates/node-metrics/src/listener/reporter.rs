//! Who is at the other end of a connection: the node that its client certificate is of, read once a connection. That the certificate
//! was signed by the cluster's authority for clients was checked in the handshake.

use std::sync::Arc;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use jiff::Timestamp;
use tls::listener::TlsListener;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Reporter(Option<Arc<Node>>);

#[derive(Debug)]
struct Node {
    name: Arc<str>,
    not_after: i64,
}

impl Reporter {
    /// The holder of a certificate; nobody, unless it is a node's: `O=system:nodes`, `CN=system:node:<name>`.
    pub fn of_certificate(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Self(None) };
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
        Self(name.map(|name| Arc::new(Node { name: name.into(), not_after })))
    }

    /// The node, while its certificate is valid: connections outlive it.
    pub fn node(&self, now: Timestamp) -> Option<Arc<str>> {
        let node = self.0.as_ref()?;
        (now.as_second() <= node.not_after).then(|| Arc::clone(&node.name))
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Reporter {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        let (_, connection) = stream.io().get_ref();
        let leaf = connection.peer_certificates().and_then(|chain| chain.first());
        leaf.map(|der| Self::of_certificate(der)).unwrap_or_default()
    }
}

//! Who the peer of a connection is: read from its certificate, and from nothing else.
//!
//! The chain has been verified by TLS when a [`PeerVerifier`] sees the leaf. Whether the peer may do something is decided
//! in [`crate::admission`].

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::FromDer;

/// The node that a certificate belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Its name in the cluster.
    pub node: String,
    /// The first moment at which the certificate is no longer valid.
    pub expires: SystemTime,
}

/// Why a verified certificate names no node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The peer gave no certificate.
    #[error("no client certificate")]
    Missing,
    /// It cannot be read.
    #[error("the certificate cannot be read")]
    Malformed,
    /// It is not one of a node's tunnel.
    #[error("the certificate's subject is not one of a node")]
    Subject,
    /// The common name goes on with what is no node name.
    #[error("the certificate's common name ends with no node name")]
    NodeName,
}

/// Reads the identity from a leaf that TLS has verified.
pub trait PeerVerifier: Send + Sync {
    /// The node that `leaf` belongs to.
    fn identify(&self, leaf: &CertificateDer<'_>) -> Result<Identity, IdentityError>;
}

/// Identity from the subject: one organization, and a common name that is a prefix and the node's name.
#[derive(Debug, Clone)]
pub struct SubjectVerifier {
    organization: String,
    prefix: String,
}

impl SubjectVerifier {
    /// Identities whose subject has `organization`, and a common name of `prefix` and the node's name.
    pub fn new(organization: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self { organization: organization.into(), prefix: prefix.into() }
    }
}

impl PeerVerifier for SubjectVerifier {
    fn identify(&self, leaf: &CertificateDer<'_>) -> Result<Identity, IdentityError> {
        let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(leaf)
            .map_err(|_| IdentityError::Malformed)?;
        let subject = parsed.subject();
        let mut organizations =
            subject.iter_organization().map(x509_parser::x509::AttributeTypeAndValue::as_str);
        if !organizations.any(|name| name.ok() == Some(&self.organization)) {
            return Err(IdentityError::Subject);
        }
        // Two common names would let two readers see two nodes.
        let mut names = subject.iter_common_name();
        let (Some(name), None) = (names.next(), names.next()) else { return Err(IdentityError::Subject) };
        let name = name.as_str().map_err(|_| IdentityError::Malformed)?;
        let node = name.strip_prefix(&self.prefix).ok_or(IdentityError::Subject)?;
        if !is_node_name(node) {
            return Err(IdentityError::NodeName);
        }
        // The last second of its validity is a whole one (RFC 5280, 4.1.2.5).
        let seconds = parsed.validity().not_after.timestamp().saturating_add(1);
        let expires =
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        Ok(Identity { node: node.to_owned(), expires })
    }
}

/// Whether `name` is a DNS subdomain as Kubernetes asks of names of nodes (RFC 1123, at most 253 characters).
pub fn is_node_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn leaf(organizations: &[&str], common_names: &[&str]) -> CertificateDer<'static> {
        let mut name = DistinguishedName::new();
        for organization in organizations {
            name.push(DnType::OrganizationName, *organization);
        }
        for common_name in common_names {
            name.push(DnType::CommonName, *common_name);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_subject_names_the_node() {
        let verifier = SubjectVerifier::new("nodes", "node:");
        let check = |organizations: &[&str], names: &[&str]| {
            verifier.identify(&leaf(organizations, names)).map(|identity| identity.node)
        };
        let nodes = ["nodes"];
        assert_eq!(check(&nodes, &["node:node-1.example"]).as_deref(), Ok("node-1.example"));
        assert_eq!(check(&["hubs"], &["node:a"]), Err(IdentityError::Subject));
        assert_eq!(check(&[], &["node:a"]), Err(IdentityError::Subject));
        assert_eq!(check(&nodes, &["user:a"]), Err(IdentityError::Subject));
        assert_eq!(check(&nodes, &[]), Err(IdentityError::Subject));
        for bad in ["node:", "node:A", "node:a/b", "node:a..b"] {
            assert_eq!(check(&nodes, &[bad]), Err(IdentityError::NodeName), "{bad}");
        }
        assert_eq!(verifier.identify(&CertificateDer::from(vec![1, 2, 3])), Err(IdentityError::Malformed));
    }

    #[test]
    fn a_certificate_is_valid_until_the_end_of_its_last_second() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, "nodes");
        params.distinguished_name.push(DnType::CommonName, "node:a");
        let second = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        params.not_after = second(2_000_000_000).into();
        let leaf = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone();
        let identity = SubjectVerifier::new("nodes", "node:").identify(&leaf).unwrap();
        assert_eq!(identity.expires, second(2_000_000_001));
    }
}

//! The user that a client certificate names: its common name, and its organisations as groups.
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates>

use rustls_pki_types::CertificateDer;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::{AUTHENTICATED, User};

/// The user of a certificate that the listener has verified; `None` if it names nobody.
pub fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    // Of several the API server takes one, and another reader another.
    let mut names = subject.iter_common_name();
    let (Some(name), None) = (names.next(), names.next()) else { return None };
    let name = name.as_str().ok()?;
    let organisations = subject.iter_organization().filter_map(|group| group.as_str().ok());
    let others = organisations.filter(|group| *group != AUTHENTICATED);
    let groups = others.chain([AUTHENTICATED]).map(Into::into).collect();
    (!name.is_empty()).then(|| User { name: name.into(), groups })
}

/// Until when a certificate is good, in Unix seconds.
pub fn certificate_ends(certificate: &CertificateDer<'_>) -> Option<u64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    // The last second is a part of it (RFC 5280, 4.1.2.5).
    u64::try_from(parsed.validity().not_after.timestamp().saturating_add(1)).ok()
}

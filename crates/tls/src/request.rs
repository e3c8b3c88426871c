//! Requests for certificates (PKCS #10): made with a key of one's own, and read as data by who decides on them.
//!
//! Reading is strict on purpose: what decides and what signs are different programs, and a text that the two could read
//! differently must not be approved. So one canonical PEM block is read, with plain names. Attributes, and with them all
//! extensions such as subject alternative names, are not looked into: that there are any is enough to refuse.

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use x509_parser::{
    certification_request::X509CertificationRequest,
    oid_registry::{OID_EC_P256, OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME},
    prelude::FromDer,
    public_key::PublicKey,
    x509::X509Version,
};

use crate::{digest::Sha256Digest, secret::SecretPem};

/// The PEM tag of requests (RFC 7468, 7).
const TAG: &str = "CERTIFICATE REQUEST";

/// `organizationName` (2.5.4.10), as rcgen takes the types that it does not know by name.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// The most bytes of a text that are looked at; a request with a P-256 key has well under one kilobyte.
const LARGEST: usize = 16 << 10;

/// Whom a certificate is to name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// `CN`: the user, to Kubernetes.
    pub common_name: String,
    /// `O`: the groups, to Kubernetes.
    pub organizations: Vec<String>,
}

/// A key of which a request asks for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA over P-256.
    EcdsaP256,
    /// Anything else.
    Other,
}

/// A request as data. Its signature was checked: who made it has the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// Whom the certificate is to name.
    pub subject: Subject,
    /// Whether more is asked for than the subject: extensions, such as subject alternative names, or a challenge password.
    pub has_attributes: bool,
    /// The kind of the key.
    pub key: KeyKind,
    /// SHA-256 of the public key (DER, `SubjectPublicKeyInfo`).
    pub key_digest: Sha256Digest,
}

/// Why a request was not made, or not read.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The key cannot be made, read or used. The source never holds the key.
    #[error("the key of the request")]
    Key(#[source] rcgen::Error),
    /// Not one canonical PEM block.
    #[error("the request is not one PEM block {TAG:?}, or more than that")]
    Pem,
    /// A block that is marked as a request and is none.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// A subject that is not made of plain names, one `CN` and any number of `O`.
    #[error("the subject is not one CN and some O: {0}")]
    Subject(&'static str),
    /// The signature is not of the key.
    #[error("the request is not signed with its own key")]
    Signature,
}

/// Makes a key, ECDSA P-256.
pub fn generate_key() -> Result<SecretPem, RequestError> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(RequestError::Key)?;
    Ok(key.serialize_pem().into())
}

/// Makes a request, in PEM, for a certificate that names `subject`, signed with `key`. At most two organizations: what makes
/// it knows no more of the same type.
pub fn make(subject: &Subject, key: &SecretPem) -> Result<String, RequestError> {
    let key = KeyPair::from_pem(key.expose()).map_err(RequestError::Key)?;
    let mut name = DistinguishedName::new();
    for (kind, organization) in [DnType::OrganizationName, DnType::CustomDnType(ORGANIZATION.to_vec())]
        .into_iter()
        .zip(&subject.organizations)
    {
        name.push(kind, organization.as_str());
    }
    if subject.organizations.len() > 2 {
        return Err(RequestError::Subject("more than two O"));
    }
    name.push(DnType::CommonName, subject.common_name.as_str());
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    let request = params.serialize_request(&key).map_err(RequestError::Key)?;
    Ok(block(request.der()))
}

/// The digest that [`CertificateRequest::key_digest`] will have for a request made with `key`.
pub fn key_digest(key: &SecretPem) -> Result<Sha256Digest, RequestError> {
    use rcgen::PublicKeyData as _;
    let key = KeyPair::from_pem(key.expose()).map_err(RequestError::Key)?;
    Ok(Sha256Digest::of(&key.subject_public_key_info()))
}

fn block(der: &[u8]) -> String {
    let block = pem::Pem::new(TAG, der.to_vec());
    pem::encode_config(&block, pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
}

impl CertificateRequest {
    /// Reads a request and checks its signature.
    pub fn from_pem(text: &str) -> Result<Self, RequestError> {
        if text.len() > LARGEST {
            return Err(RequestError::Pem);
        }
        let parsed = pem::parse(text).map_err(|_| RequestError::Pem)?;
        let der = parsed.contents();
        if parsed.tag() != TAG || block(der).trim_end() != text.trim_end() {
            return Err(RequestError::Pem);
        }
        let malformed = |problem: &dyn std::fmt::Display| RequestError::Malformed(problem.to_string());
        let (rest, request) =
            X509CertificationRequest::from_der(der).map_err(|problem| malformed(&problem))?;
        if !rest.is_empty() {
            return Err(malformed(&"bytes after its end"));
        }
        let info = &request.certification_request_info;
        if info.version != X509Version::V1 {
            return Err(malformed(&"its version"));
        }
        let point = matches!(info.subject_pki.parsed(), Ok(PublicKey::EC(_)));
        let curve = info.subject_pki.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
        let key = if point && curve.is_some_and(|curve| curve == OID_EC_P256) {
            KeyKind::EcdsaP256
        } else {
            KeyKind::Other
        };
        request.verify_signature().map_err(|_| RequestError::Signature)?;
        Ok(Self {
            subject: subject(&info.subject)?,
            has_attributes: !info.attributes().is_empty(),
            key,
            key_digest: Sha256Digest::of(info.subject_pki.raw),
        })
    }
}

fn subject(name: &x509_parser::x509::X509Name<'_>) -> Result<Subject, RequestError> {
    let mut common_name = None;
    let mut organizations = Vec::new();
    for part in name.iter_rdn() {
        let mut attributes = part.iter();
        let (Some(attribute), None) = (attributes.next(), attributes.next()) else {
            return Err(RequestError::Subject("several values in one part"));
        };
        let value = attribute.as_str().map_err(|_| RequestError::Subject("a value that is no plain text"))?;
        if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME {
            organizations.push(value.to_owned());
        } else if *attribute.attr_type() == OID_X509_COMMON_NAME {
            if common_name.replace(value.to_owned()).is_some() {
                return Err(RequestError::Subject("two CN"));
            }
        } else {
            return Err(RequestError::Subject("another attribute"));
        }
    }
    let common_name = common_name.ok_or(RequestError::Subject("no CN"))?;
    Ok(Subject { common_name, organizations })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, SanType};

    use super::*;

    fn named(common_name: &str, organizations: &[&str]) -> Subject {
        let organizations = organizations.iter().map(|&name| name.to_owned()).collect();
        Subject { common_name: common_name.to_owned(), organizations }
    }

    fn custom(change: impl FnOnce(&mut CertificateParams), key: &KeyPair) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "a");
        change(&mut params);
        block(params.serialize_request(key).unwrap().der())
    }

    #[test]
    fn what_is_made_is_what_is_read() {
        let key = generate_key().unwrap();
        for subject in
            [named("system:node:a", &["system:nodes", "hubs"]), named("a", &["x"]), named("a", &[])]
        {
            let request = CertificateRequest::from_pem(&make(&subject, &key).unwrap()).unwrap();
            assert_eq!(request.subject, subject);
            assert_eq!((request.key, request.has_attributes), (KeyKind::EcdsaP256, false));
            assert_eq!(request.key_digest, key_digest(&key).unwrap());
        }
        assert!(make(&named("a", &["1", "2", "3"]), &key).is_err());
    }

    #[test]
    fn what_could_be_read_differently_or_asks_for_more_is_refused() {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let good = custom(|_| {}, &key);
        assert!(CertificateRequest::from_pem(&good).is_ok());
        let other = custom(|params| params.distinguished_name.push(DnType::CommonName, "b"), &key);
        let crlf = good.replace('\n', "\r\n");
        for text in [
            "",
            "x",
            &format!("{good}{other}"),
            &format!("before\n{good}"),
            &crlf,
            &good.replace("REQUEST", "X"),
        ] {
            assert!(matches!(CertificateRequest::from_pem(text), Err(RequestError::Pem)), "{text}");
        }
        let san = custom(
            |params| params.subject_alt_names = vec![SanType::DnsName("kubernetes".try_into().unwrap())],
            &key,
        );
        assert!(CertificateRequest::from_pem(&san).unwrap().has_attributes);
        let country = custom(|params| params.distinguished_name.push(DnType::CountryName, "DE"), &key);
        assert!(matches!(CertificateRequest::from_pem(&country), Err(RequestError::Subject(_))));
        let nobody = custom(|params| params.distinguished_name = DistinguishedName::new(), &key);
        assert!(matches!(CertificateRequest::from_pem(&nobody), Err(RequestError::Subject(_))));
        let strong = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        assert_eq!(CertificateRequest::from_pem(&custom(|_| {}, &strong)).unwrap().key, KeyKind::Other);
    }

    #[test]
    fn a_request_with_anothers_key_is_refused() {
        let key = generate_key().unwrap();
        let text = make(&named("a", &["g"]), &key).unwrap();
        let mut der = pem::parse(&text).unwrap().into_contents();
        // The name is signed as well.
        let at = der.windows(3).position(|bytes| bytes == [12, 1, b'a']).unwrap() + 2;
        der[at] = b'b';
        assert!(matches!(CertificateRequest::from_pem(&block(&der)), Err(RequestError::Signature)));
    }

    proptest! {
        #[test]
        fn damage_never_reads_as_something_else(at in 0_usize..400, bit in 0_u32..8) {
            let key = generate_key().unwrap();
            let text = make(&named("a", &["g", "h"]), &key).unwrap();
            let whole = CertificateRequest::from_pem(&text).unwrap();
            let mut der = pem::parse(text).unwrap().into_contents();
            let at = at % der.len();
            der[at] ^= 1 << bit;
            if let Ok(read) = CertificateRequest::from_pem(&block(&der)) {
                prop_assert_eq!(read, whole);
            }
        }
    }
}

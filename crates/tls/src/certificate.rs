//! A certificate as data: what decisions need to know of one, read from PEM or DER of any origin.
//!
//! Parsing never panics. Whether a certificate is trusted is not decided here.

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::{
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer,
    time::ASN1Time,
};

use crate::{digest::Sha256Digest, window::Validity};

/// The PEM tag of certificates (RFC 7468, 5.1).
const TAG: &str = "CERTIFICATE";

/// Why a text is not a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The text is not PEM.
    #[error("malformed PEM")]
    Pem(#[source] pem::PemError),
    /// The PEM holds no certificate.
    #[error("no certificate in the PEM")]
    Missing,
    /// A block is marked as a certificate and is none.
    #[error("malformed certificate: {0}")]
    Malformed(String),
}

/// A parsed certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    der: CertificateDer<'static>,
    validity: Validity,
    dns_names: Vec<String>,
    is_ca: bool,
    fingerprint: Sha256Digest,
    subject_key_id: Option<Vec<u8>>,
    issuer_key_id: Option<Vec<u8>>,
}

impl Certificate {
    /// Reads the first certificate of a PEM text: the leaf, if the text is a chain.
    pub fn from_pem(text: &str) -> Result<Self, CertificateError> {
        bundle(text)?.into_iter().next().ok_or(CertificateError::Missing)
    }

    /// Reads a certificate from its DER.
    pub fn from_der(der: Vec<u8>) -> Result<Self, CertificateError> {
        let malformed = |problem: &dyn std::fmt::Display| CertificateError::Malformed(problem.to_string());
        let (rest, parsed) = x509_parser::certificate::X509Certificate::from_der(&der)
            .map_err(|problem| malformed(&problem))?;
        if !rest.is_empty() {
            return Err(malformed(&"bytes after its end"));
        }
        let validity = Validity {
            not_before: moment(parsed.validity().not_before),
            not_after: moment(parsed.validity().not_after),
        };
        let names = parsed.subject_alternative_name().map_err(|problem| malformed(&problem))?;
        let dns_names = names.map_or_else(Vec::new, |names| {
            let dns = |name: &GeneralName<'_>| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            };
            names.value.general_names.iter().filter_map(dns).collect()
        });
        let mut subject_key_id = None;
        let mut issuer_key_id = None;
        for extension in parsed.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => {
                    subject_key_id = Some(id.0.to_vec());
                }
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    issuer_key_id = id.key_identifier.as_ref().map(|id| id.0.to_vec());
                }
                _ => {}
            }
        }
        let is_ca = parsed.is_ca();
        let fingerprint = Sha256Digest::of(&der);
        Ok(Self { der: der.into(), validity, dns_names, is_ca, fingerprint, subject_key_id, issuer_key_id })
    }

    /// The certificate's bytes.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The certificate as one PEM block.
    pub fn to_pem(&self) -> String {
        let block = pem::Pem::new(TAG, self.der.to_vec());
        pem::encode_config(&block, pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
    }

    /// From when until when it is valid.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// The DNS names it is for.
    pub fn dns_names(&self) -> &[String] {
        &self.dns_names
    }

    /// Whether it may sign certificates.
    pub fn is_ca(&self) -> bool {
        self.is_ca
    }

    /// SHA-256 of the DER: what identifies a certificate here.
    pub fn fingerprint(&self) -> Sha256Digest {
        self.fingerprint
    }

    /// The identifier of its own key, if it says so.
    pub fn subject_key_id(&self) -> Option<&[u8]> {
        self.subject_key_id.as_deref()
    }

    /// The identifier of the key that signed it, if it says so.
    pub fn issuer_key_id(&self) -> Option<&[u8]> {
        self.issuer_key_id.as_deref()
    }

    /// Whether `authority` is a CA whose key made this certificate's signature.
    pub fn is_issued_by(&self, authority: &Self) -> bool {
        // A key identifier is a hint that saves a signature check; the signature is what counts.
        if let (Some(issuer), Some(subject)) = (self.issuer_key_id(), authority.subject_key_id())
            && issuer != subject
        {
            return false;
        }
        let parsed = x509_parser::parse_x509_certificate(&self.der);
        let signer = x509_parser::parse_x509_certificate(&authority.der);
        let (Ok((_, parsed)), Ok((_, signer))) = (parsed, signer) else {
            return false;
        };
        authority.is_ca
            && parsed.issuer() == signer.subject()
            && parsed.verify_signature(Some(signer.public_key())).is_ok()
    }
}

/// The end of the year 9999, which means "does not expire" (RFC 5280, 4.1.2.5), is later than any timestamp: the nearest
/// one stands for it.
fn moment(time: ASN1Time) -> Timestamp {
    let nearest = time.timestamp().clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(nearest).unwrap_or(Timestamp::MAX)
}

/// Reads every certificate of a PEM text: a chain or a CA bundle. Text between blocks is skipped, as PEM says; a text
/// without any certificate is an empty bundle.
pub fn bundle(text: &str) -> Result<Vec<Certificate>, CertificateError> {
    let blocks = pem::parse_many(text).map_err(CertificateError::Pem)?;
    let certificates = blocks.into_iter().filter(|block| block.tag() == TAG);
    certificates.map(|block| Certificate::from_der(block.into_contents())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::issue::tests::{NOW, authority, leaf};

    #[test]
    fn reads_what_was_issued() {
        let ca = authority();
        let issued = leaf(&ca, &["a.example", "b.example"]);
        let certificate = Certificate::from_pem(&issued.certificate.to_pem()).unwrap();
        assert_eq!(certificate, issued.certificate);
        assert_eq!(certificate.dns_names(), ["a.example", "b.example"]);
        assert!(!certificate.is_ca());
        assert!(certificate.validity().contains(NOW));
        assert_eq!(certificate.issuer_key_id(), ca.certificate().subject_key_id());
        assert!(certificate.issuer_key_id().is_some());
        assert!(ca.certificate().is_ca());
    }

    #[test]
    fn knows_its_issuer_by_the_signature() {
        let (ca, other) = (authority(), authority());
        let issued = leaf(&ca, &["a.example"]).certificate;
        assert!(issued.is_issued_by(ca.certificate()));
        assert!(!issued.is_issued_by(other.certificate()));
        assert!(!issued.is_issued_by(&issued));
        // Without key identifiers the names and the signature must tell.
        let mut claimed = other.certificate().clone();
        claimed.subject_key_id = None;
        assert!(!issued.is_issued_by(&claimed));
    }

    #[test]
    fn a_bundle_is_all_of_its_certificates() {
        let (a, b) = (authority(), authority());
        let text = format!("# ours\n{}\n{}", a.certificate().to_pem(), b.certificate().to_pem());
        assert_eq!(bundle(&text).unwrap(), [a.certificate().clone(), b.certificate().clone()]);
        assert_eq!(bundle("").unwrap(), []);
        assert_eq!(bundle("Cg==").unwrap(), []);
    }

    #[test]
    fn refuses_what_is_no_certificate() {
        let block = |tag: &str, bytes: &[u8]| pem::encode(&pem::Pem::new(tag, bytes));
        assert!(matches!(Certificate::from_pem(""), Err(CertificateError::Missing)));
        assert!(matches!(Certificate::from_pem(&block("PRIVATE KEY", b"x")), Err(CertificateError::Missing)));
        assert!(matches!(Certificate::from_pem(&block(TAG, b"x")), Err(CertificateError::Malformed(_))));
        let mut der = authority().certificate().der().to_vec();
        der.push(0);
        assert!(matches!(Certificate::from_der(der), Err(CertificateError::Malformed(_))));
    }

    #[test]
    fn a_certificate_may_be_valid_for_ever() {
        let last = ASN1Time::from_timestamp(253_402_300_799).unwrap();
        assert_eq!(moment(last).as_second(), Timestamp::MAX.as_second());
    }

    proptest! {
        #[test]
        fn damage_is_an_error_or_another_certificate_never_a_panic(at in 0_usize..400, bit in 0_u32..8) {
            let ca = authority();
            let whole = ca.certificate().der().to_vec();
            let mut damaged = whole.clone();
            let at = at % damaged.len();
            damaged[at] ^= 1 << bit;
            if let Ok(certificate) = Certificate::from_der(damaged) {
                prop_assert_ne!(certificate.fingerprint(), ca.certificate().fingerprint());
            }
            prop_assert!(Certificate::from_der(whole[..at].to_vec()).is_err());
        }
    }
}

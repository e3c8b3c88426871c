//! Issues certificates: an authority of our own (ECDSA P-256) and the server certificates it signs.
//!
//! The time comes in as a parameter. Keys come out as [`SecretPem`] and go nowhere else.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use ring::rand::SecureRandom;
use time::OffsetDateTime;
use zeroize::Zeroize;

use crate::{
    certificate::{Certificate, CertificateError},
    secret::SecretPem,
    window::Validity,
};

/// How long before its issue a certificate becomes valid: clients whose clocks are this much behind accept it.
pub const BACKDATE: Duration = Duration::from_mins(5);

/// The longest a server certificate lives.
pub const MAX_LEAF_VALIDITY: Duration = Duration::from_hours(90 * 24);

/// Why no certificate was issued, or an authority not loaded.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The authority's certificate cannot be read.
    #[error("the authority's certificate")]
    Certificate(#[source] CertificateError),
    /// The authority's key cannot be read. The source never holds the key.
    #[error("the authority's key")]
    Key(#[source] rcgen::Error),
    /// The certificate is not a CA's.
    #[error("the certificate is not a CA's")]
    NotAnAuthority,
    /// The key is not that of the certificate.
    #[error("the key does not belong to the certificate")]
    KeyMismatch,
    /// A name is not a DNS name.
    #[error("{0:?} is not a DNS name")]
    Name(String),
    /// No name was given: nobody could verify the certificate.
    #[error("a server certificate needs a DNS name")]
    NoName,
    /// The validity asked for is zero, longer than allowed, or out of the range of dates.
    #[error("a validity of {0:?} is not possible")]
    Validity(Duration),
    /// The authority is not valid now, so what it signs would not verify.
    #[error("the authority is not valid at {0}")]
    AuthorityNotValid(Timestamp),
    /// Signing failed, or there is no randomness to be had.
    #[error("signing")]
    Sign(#[source] rcgen::Error),
}

/// An authority: its certificate and its key. Not `Clone`: the key is held once.
#[derive(Debug)]
pub struct CertificateAuthority {
    certificate: Certificate,
    // Its `Debug` leaves the key out.
    issuer: Issuer<'static, KeyPair>,
}

/// A server certificate with its key.
#[derive(Debug)]
pub struct IssuedLeaf {
    /// The certificate.
    pub certificate: Certificate,
    /// Its key, PKCS #8.
    pub key: SecretPem,
}

impl CertificateAuthority {
    /// Makes a new authority. `name` is for those who read certificates; a random suffix keeps two authorities apart.
    pub fn generate(name: &str, validity: Duration, now: Timestamp) -> Result<Self, IssueError> {
        let (serial, suffix) = random_serial()?;
        let validity = period(validity, now)?;
        let mut params = CertificateParams::default();
        params.not_before = moment(validity.not_before)?;
        params.not_after = moment(validity.not_after)?;
        params.serial_number = Some(serial);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("{name} {suffix}"));
        // It signs leaves only.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = generate_key()?;
        let signed = params.self_signed(&key).map_err(IssueError::Sign)?;
        let certificate = Certificate::from_der(signed.der().to_vec()).map_err(IssueError::Certificate)?;
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// Loads an authority from what [`CertificateAuthority::certificate`] and [`CertificateAuthority::key_pem`] gave,
    /// and checks that the two belong together.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, IssueError> {
        let certificate = Certificate::from_pem(certificate).map_err(IssueError::Certificate)?;
        if !certificate.is_ca() {
            return Err(IssueError::NotAnAuthority);
        }
        let key = KeyPair::from_pem(key).map_err(IssueError::Key)?;
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate.der())
            .map_err(|problem| IssueError::Certificate(CertificateError::Malformed(problem.to_string())))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(IssueError::KeyMismatch);
        }
        let issuer = Issuer::from_ca_cert_der(certificate.der(), key).map_err(IssueError::Key)?;
        Ok(Self { certificate, issuer })
    }

    /// The authority's certificate: what clients are told to trust.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The authority's key, PKCS #8, for storing it.
    pub fn key_pem(&self) -> SecretPem {
        self.issuer.key().serialize_pem().into()
    }

    /// Issues a server certificate for `dns_names` with a key of its own. It never outlives the authority, so it may
    /// live shorter than asked for.
    pub fn issue(
        &self,
        dns_names: &[String],
        validity: Duration,
        now: Timestamp,
    ) -> Result<IssuedLeaf, IssueError> {
        if validity > MAX_LEAF_VALIDITY {
            return Err(IssueError::Validity(validity));
        }
        let authority = self.certificate.validity();
        if !authority.contains(now) {
            return Err(IssueError::AuthorityNotValid(now));
        }
        let Some(first) = dns_names.first() else {
            return Err(IssueError::NoName);
        };
        let validity = period(validity, now)?;
        let mut params = CertificateParams::default();
        params.not_before = moment(validity.not_before.max(authority.not_before))?;
        params.not_after = moment(validity.not_after.min(authority.not_after))?;
        params.serial_number = Some(random_serial()?.0);
        params.distinguished_name = rcgen::DistinguishedName::new();
        // A common name holds 64 characters (RFC 5280, ub-common-name); clients look at the DNS names anyway.
        if first.len() <= 64 {
            params.distinguished_name.push(DnType::CommonName, first.as_str());
        }
        params.subject_alt_names = dns_names.iter().map(|name| dns_name(name)).collect::<Result<_, _>>()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut key = generate_key()?;
        let signed = params.signed_by(&key, &self.issuer).map_err(IssueError::Sign)?;
        let certificate = Certificate::from_der(signed.der().to_vec()).map_err(IssueError::Certificate)?;
        let pem = key.serialize_pem().into();
        key.zeroize();
        Ok(IssuedLeaf { certificate, key: pem })
    }
}

fn generate_key() -> Result<KeyPair, IssueError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(IssueError::Sign)
}

/// 127 random bits (CA/Browser Forum asks for 64), and the first of them as text.
fn random_serial() -> Result<(SerialNumber, String), IssueError> {
    let mut bytes = [0_u8; 16];
    let filled = ring::rand::SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| IssueError::Sign(rcgen::Error::RingUnspecified))?;
    // A serial number is a positive integer, and its encoding must not start with a zero byte.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    let [a, b, c, d, ..] = bytes;
    Ok((SerialNumber::from_slice(&bytes), format!("{a:02x}{b:02x}{c:02x}{d:02x}")))
}

fn period(validity: Duration, now: Timestamp) -> Result<Validity, IssueError> {
    let impossible = || IssueError::Validity(validity);
    let length = SignedDuration::try_from(validity).map_err(|_| impossible())?;
    let backdate = SignedDuration::try_from(BACKDATE).map_err(|_| impossible())?;
    if length.is_zero() {
        return Err(impossible());
    }
    let not_before = now.checked_sub(backdate).map_err(|_| impossible())?;
    let not_after = now.checked_add(length).map_err(|_| impossible())?;
    Ok(Validity { not_before, not_after })
}

fn moment(timestamp: Timestamp) -> Result<OffsetDateTime, IssueError> {
    OffsetDateTime::from_unix_timestamp(timestamp.as_second())
        .map_err(|_| IssueError::Sign(rcgen::Error::Time))
}

fn dns_name(name: &str) -> Result<SanType, IssueError> {
    let invalid = || IssueError::Name(name.to_owned());
    // rcgen takes any ASCII; rustls knows what a DNS name is.
    rustls_pki_types::DnsName::try_from(name).map_err(|_| invalid())?;
    Ok(SanType::DnsName(name.try_into().map_err(|_| invalid())?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const DAY: Duration = Duration::from_hours(24);

    pub(crate) fn authority() -> CertificateAuthority {
        CertificateAuthority::generate("test", 365 * DAY, NOW).unwrap()
    }

    pub(crate) fn leaf(ca: &CertificateAuthority, names: &[&str]) -> IssuedLeaf {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        ca.issue(&names, 30 * DAY, NOW).unwrap()
    }

    #[test]
    fn an_authority_survives_storage() {
        let ca = authority();
        let loaded =
            CertificateAuthority::from_pem(&ca.certificate().to_pem(), ca.key_pem().expose()).unwrap();
        assert_eq!(loaded.certificate(), ca.certificate());
        assert!(leaf(&loaded, &["a.example"]).certificate.is_issued_by(ca.certificate()));
    }

    #[test]
    fn refuses_an_authority_that_is_none() {
        let (ca, other) = (authority(), authority());
        let (certificate, key) = (ca.certificate().to_pem(), ca.key_pem());
        let issued = leaf(&ca, &["a.example"]);
        let load = CertificateAuthority::from_pem;
        assert!(matches!(load(&certificate, other.key_pem().expose()), Err(IssueError::KeyMismatch)));
        let own = load(&issued.certificate.to_pem(), issued.key.expose());
        assert!(matches!(own, Err(IssueError::NotAnAuthority)));
        assert!(matches!(load("", key.expose()), Err(IssueError::Certificate(_))));
        assert!(matches!(load(&certificate, "garbage"), Err(IssueError::Key(_))));
    }

    #[test]
    fn a_leaf_is_backdated_and_ends_with_its_authority() {
        let ca = CertificateAuthority::generate("test", 10 * DAY, NOW).unwrap();
        let seconds = |days: i64| NOW.as_second() + days * 24 * 3600;
        let short = ca.issue(&["a.example".to_owned()], 2 * DAY, NOW).unwrap().certificate.validity();
        assert_eq!(short.not_before.as_second(), NOW.as_second() - 300);
        assert_eq!(short.not_after.as_second(), seconds(2));
        let long = ca.issue(&["a.example".to_owned()], 30 * DAY, NOW).unwrap().certificate.validity();
        assert_eq!(long.not_after.as_second(), seconds(10));
    }

    #[test]
    fn refuses_what_cannot_be_issued() {
        let ca = authority();
        let names = ["a.example".to_owned()];
        let late = NOW.checked_add(SignedDuration::from_hours(24 * 366)).unwrap();
        assert!(matches!(ca.issue(&names, 91 * DAY, NOW), Err(IssueError::Validity(_))));
        assert!(matches!(ca.issue(&names, Duration::ZERO, NOW), Err(IssueError::Validity(_))));
        assert!(matches!(ca.issue(&names, DAY, late), Err(IssueError::AuthorityNotValid(_))));
        assert!(matches!(ca.issue(&[], DAY, NOW), Err(IssueError::NoName)));
        assert!(matches!(ca.issue(&["not a name".to_owned()], DAY, NOW), Err(IssueError::Name(_))));
        assert!(matches!(
            CertificateAuthority::generate("x", Duration::MAX, NOW),
            Err(IssueError::Validity(_))
        ));
    }

    #[test]
    fn keys_are_ecdsa_p_256() {
        use x509_parser::oid_registry::OID_SIG_ECDSA_WITH_SHA256;
        use x509_parser::public_key::PublicKey;

        let ca = authority();
        for certificate in [ca.certificate(), &leaf(&ca, &["a.example"]).certificate] {
            let (_, parsed) = x509_parser::parse_x509_certificate(certificate.der()).unwrap();
            let key = parsed.public_key().parsed().unwrap();
            assert!(matches!(&key, PublicKey::EC(point) if point.key_size() == 256), "{key:?}");
            assert_eq!(parsed.signature_algorithm.algorithm, OID_SIG_ECDSA_WITH_SHA256);
        }
    }

    #[test]
    fn leaves_are_for_servers_and_serials_are_random() {
        let ca = authority();
        let (one, other) = (leaf(&ca, &["a.example"]), leaf(&ca, &["a.example"]));
        let (_, parsed) = x509_parser::parse_x509_certificate(one.certificate.der()).unwrap();
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any);
        let (_, second) = x509_parser::parse_x509_certificate(other.certificate.der()).unwrap();
        assert_ne!(parsed.raw_serial(), second.raw_serial());
        assert_eq!(parsed.raw_serial().len(), 16);
    }

    #[test]
    fn debug_shows_no_key() {
        let ca = authority();
        let issued = leaf(&ca, &["a.example"]);
        let shown = format!("{ca:?} {issued:?}");
        assert!(shown.contains("elided") && shown.contains("redacted"), "{shown}");
        let body = |pem: &str| pem.lines().nth(1).unwrap().to_owned();
        assert!(!shown.contains(&body(ca.key_pem().expose())));
        assert!(!shown.contains(&body(issued.key.expose())));
    }
}

//! Requests for certificates (PKCS #10): made with a key of one's own, and read as data by who decides on them.
//!
//! Reading is strict on purpose: what decides and what signs are different programs, and a text that the two could read
//! differently must not be approved. So one canonical PEM block is read, with plain names. Of attributes, and with them of all
//! extensions, one form is read: DNS names and nothing else, as a server asks for them, byte for byte as they would be written here.

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use x509_parser::{
    certification_request::{X509CertificationRequest, X509CertificationRequestInfo},
    cri_attributes::ParsedCriAttribute,
    extensions::{GeneralName, ParsedExtension},
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
    /// The DNS names that are asked for, in their order, if they and nothing else are asked for beside the subject.
    pub dns_names: Option<Vec<String>>,
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
    make_serving(subject, &[], key)
}

/// As [`make`], for a certificate that has DNS names, too: a server's.
pub fn make_serving(
    subject: &Subject,
    dns_names: &[String],
    key: &SecretPem,
) -> Result<String, RequestError> {
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
    let mut params = CertificateParams::new(dns_names)
        .map_err(|_| RequestError::Subject("a server's name that is no DNS name"))?;
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

/// Whether the bytes of a request in PEM hold that name anywhere, in letters of any case: for requests that ask for more than is read.
pub fn mentions(text: &str, name: &str) -> bool {
    let Ok(parsed) = pem::parse(text) else { return false };
    parsed.contents().windows(name.len().max(1)).any(|bytes| bytes.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether the subject of a request in PEM has that `O`, in whichever part and however the rest is written: for requests that
/// [`CertificateRequest::from_pem`] does not read.
pub fn has_organization(text: &str, organization: &str) -> bool {
    let Ok(parsed) = pem::parse(text) else { return false };
    let Ok((_, request)) = X509CertificationRequest::from_der(parsed.contents()) else { return false };
    let subject = &request.certification_request_info.subject;
    subject.iter_organization().any(|value| value.as_slice() == organization.as_bytes())
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
            dns_names: dns_names(info),
            key,
            key_digest: Sha256Digest::of(info.subject_pki.raw),
        })
    }
}

/// The names of a request whose only attribute asks for one extension, alternative names that are all DNS names.
fn dns_names(info: &X509CertificationRequestInfo<'_>) -> Option<Vec<String>> {
    let [attribute] = info.attributes() else { return None };
    let ParsedCriAttribute::ExtensionRequest(request) = attribute.parsed_attribute() else { return None };
    let [extension] = request.extensions.as_slice() else { return None };
    let ParsedExtension::SubjectAlternativeName(alternatives) = extension.parsed_extension() else {
        return None;
    };
    let names = alternatives.general_names.iter().map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    let names: Vec<String> = names.collect::<Option<_>>()?;
    // The attributes are the last part of what is signed.
    info.raw.ends_with(&asking_for(&names)).then_some(names)
}

/// The attributes of a request for these names (RFC 2986, 4.1; RFC 5280, 4.2.1.6).
fn asking_for(names: &[String]) -> Vec<u8> {
    let names: Vec<u8> = names.iter().flat_map(|name| tlv(0x82, name.as_bytes())).collect();
    let extension = [&[6, 3, 0x55, 0x1d, 0x11][..], &tlv(4, &tlv(0x30, &names))].concat();
    let value = tlv(0x31, &tlv(0x30, &tlv(0x30, &extension)));
    let kind = tlv(6, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14]);
    tlv(0xa0, &tlv(0x30, &[kind, value].concat()))
}

/// DER of `content` under `tag`, shorter than 64 KiB as all that is read here is.
fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let head: &[u8] = match length {
        [0, short @ 0..0x80] => &[tag, short],
        [0, short] => &[tag, 0x81, short],
        [high, low] => &[tag, 0x82, high, low],
    };
    [head, content].concat()
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
    fn a_servers_names_are_in_its_request() {
        let key = generate_key().unwrap();
        let subject = named("system:node:a", &["system:nodes"]);
        let request = make_serving(&subject, &["gateway.example".to_owned(), "a".to_owned()], &key).unwrap();
        let read = CertificateRequest::from_pem(&request).unwrap();
        assert_eq!((read.subject, read.has_attributes), (subject.clone(), true));
        let read = rcgen::CertificateSigningRequestParams::from_pem(&request).unwrap();
        let name = |name: &str| SanType::DnsName(name.try_into().unwrap());
        assert_eq!(read.params.subject_alt_names, [name("gateway.example"), name("a")]);
        assert!(make_serving(&subject, &["ä".to_owned()], &key).is_err());
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

    /// `O=system:nodes` and, in one part, `O=isthmus:edge-hubs+CN=system:node:a`, as OpenSSL makes it.
    const SEVERAL_IN_ONE_PART: &str = include_str!("../tests/requests/several-in-one-part.pem");

    #[test]
    fn an_organization_is_found_also_in_what_is_not_read() {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let two_names = |params: &mut CertificateParams| {
            params.distinguished_name.push(DnType::OrganizationName, "isthmus:edge-hubs");
            params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "b");
        };
        let two_names = custom(two_names, &key);
        for text in [two_names.as_str(), SEVERAL_IN_ONE_PART] {
            assert!(matches!(CertificateRequest::from_pem(text), Err(RequestError::Subject(_))), "{text}");
            for odd in [text.to_owned(), text.replace('\n', "\r\n"), format!("before\n{text}")] {
                assert!(has_organization(&odd, "isthmus:edge-hubs"), "{odd}");
                assert!(!has_organization(&odd, "isthmus:edge-hub"), "{odd}");
                assert!(!has_organization(&odd, "b"), "{odd}");
            }
        }
        assert!(has_organization(SEVERAL_IN_ONE_PART, "system:nodes"));
        assert!(!has_organization(&custom(|_| {}, &key), "a"), "it is the CN");
        assert!(!has_organization("isthmus:edge-hubs", "isthmus:edge-hubs"));
    }

    #[test]
    fn dns_names_are_read_if_nothing_else_is_asked_for() {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
        let read = |change: &dyn Fn(&mut CertificateParams)| {
            CertificateRequest::from_pem(&custom(change, &key)).unwrap().dns_names
        };
        let long = "n".repeat(63);
        for names in [vec!["a"], vec!["gateway.isthmus.internal", "c1"], vec![long.as_str(); 5]] {
            let found =
                read(&|params| params.subject_alt_names = names.iter().map(|name| dns(name)).collect());
            assert_eq!(
                found.as_deref(),
                Some(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()[..])
            );
        }
        assert_eq!(read(&|_| {}), None);
        let with_address = |params: &mut CertificateParams| {
            params.subject_alt_names = vec![dns("a"), SanType::IpAddress("10.0.0.1".parse().unwrap())];
        };
        assert_eq!(read(&with_address), None);
        let text = custom(with_address, &key);
        assert!(mentions(&text, "A") && !mentions(&text, "gate.way") && !mentions("x", "x"));
        assert!(mentions(
            &custom(|params| params.subject_alt_names = vec![dns("Gate.way")], &key),
            "gate.way"
        ));
        let with_usage = |params: &mut CertificateParams| {
            params.subject_alt_names = vec![dns("a")];
            params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        };
        assert_eq!(read(&with_usage), None);
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

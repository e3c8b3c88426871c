//! Certificates of a test: an authority, servers' and clients' certificates of it.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _};
use x509_parser::prelude::FromDer as _;

use super::access::User;

/// A certificate with its key.
pub struct Identity {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
    /// The certificate as PEM.
    pub certificate_pem: String,
    /// Its key as PEM.
    pub key_pem: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self {
            certificate: self.certificate.clone(),
            key: self.key.clone_key(),
            certificate_pem: self.certificate_pem.clone(),
            key_pem: self.key_pem.clone(),
        }
    }
}

/// An authority of a test.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl Authority {
    /// A new authority.
    pub fn generate(name: &str) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let signed = params.self_signed(&key)?;
        Ok(Self { certificate: signed.der().clone(), pem: signed.pem(), issuer: Issuer::new(params, key) })
    }

    /// The authority of a cluster whose key is at hand.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, rcgen::Error> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
        let issuer = Issuer::from_ca_cert_der(&der, KeyPair::from_pem(key)?)?;
        Ok(Self { issuer, certificate: der, pem: certificate.to_owned() })
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Its certificate as PEM: a CA bundle.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A server's certificate for names and addresses.
    pub fn server(&self, names: &[&str]) -> Result<Identity, rcgen::Error> {
        self.issue(named(names)?, vec![ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// A client's certificate: the user's name is its common name, groups are its organisations.
    pub fn client(&self, user: &User) -> Result<Identity, rcgen::Error> {
        self.issue(of_user(CertificateParams::default(), user), vec![ExtendedKeyUsagePurpose::ClientAuth])
    }

    /// The certificate of a user who is a server under these names as well.
    pub fn peer(&self, user: &User, names: &[&str]) -> Result<Identity, rcgen::Error> {
        let usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(of_user(named(names)?, user), usages)
    }

    /// The same, which expires after `life`.
    pub fn peer_for(
        &self,
        user: &User,
        names: &[&str],
        life: std::time::Duration,
    ) -> Result<Identity, rcgen::Error> {
        let usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let mut params = of_user(named(names)?, user);
        params.not_after = (std::time::SystemTime::now() + life).into();
        self.issue(params, usages)
    }

    /// A client's certificate for a request (PEM). Of several organisations only the last is in it.
    pub fn sign(&self, request: &str) -> Result<String, rcgen::Error> {
        let request = rcgen::CertificateSigningRequestParams::from_pem(request)?;
        Ok(request.signed_by(&self.issuer)?.pem())
    }

    /// The same, which is good from now on and expires after `life`.
    pub fn sign_for(&self, request: &str, life: std::time::Duration) -> Result<String, rcgen::Error> {
        let mut request = rcgen::CertificateSigningRequestParams::from_pem(request)?;
        let now = std::time::SystemTime::now();
        request.params.not_before = now.into();
        request.params.not_after = (now + life).into();
        Ok(request.signed_by(&self.issuer)?.pem())
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        usages: Vec<ExtendedKeyUsagePurpose>,
    ) -> Result<Identity, rcgen::Error> {
        params.extended_key_usages = usages;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let signed = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate: signed.der().clone(),
            key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
            certificate_pem: signed.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

fn named(names: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
}

fn of_user(mut params: CertificateParams, user: &User) -> CertificateParams {
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, &user.name);
    for group in &user.groups {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params
}

/// The user a client's certificate is of.
pub(crate) fn user(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<_> =
        subject.iter_organization().filter_map(|group| group.as_str().ok().map(str::to_owned)).collect();
    groups.push("system:authenticated".to_owned());
    Some(User { name, groups })
}

//! What the hub keeps of its identity, in a folder that only it may look into:
//!
//! | file | content |
//! |---|---|
//! | `client.pem` | the certificate and its key, replaced as one |
//! | `next.key` | the key of a request that was not answered yet |
//! | `gateway.pem`, `gateway-next.key` | the same of the certificate that a gateway shows to those who dial it |
//! | `pool-gateway.pem`, `pool-gateway-next.key` | the same of one that nodes of its own pool alone dial |
//! | `ca.crt` | the cluster's authority, where that was found by its digest |

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use tls::{
    certificate::Certificate, digest::Sha256Digest, pem_file, private_file, secret::SecretPem, window::Jitter,
};
use tracing::warn;

use super::{CaPin, IdentityConfig, IdentityError, IdentityKind, plan::Start, purpose::Purpose};
use crate::upstream::{TlsMaterial, TlsMaterialError};

/// The folder.
#[derive(Debug, Clone)]
pub(super) struct Files {
    folder: PathBuf,
    purpose: Purpose,
}

/// A certificate that was checked: it names the hub of this node, and its key is there.
#[derive(Debug, Clone)]
pub(super) struct Own {
    pub(super) certificate: Certificate,
}

impl Own {
    pub(super) fn jitter(&self) -> Jitter {
        Jitter::of(&self.certificate.fingerprint())
    }
}

impl Files {
    pub(super) fn open(folder: &Path, purpose: Purpose) -> Result<Self, IdentityError> {
        let files = Self { folder: folder.to_owned(), purpose };
        private_file::folder(folder).map_err(|source| files.error("", source))?;
        Ok(files)
    }

    fn error(&self, name: &str, source: io::Error) -> IdentityError {
        IdentityError::File { path: self.path(name), source }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What the certificate is for.
    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The file of the own certificate and its key.
    pub(super) fn own_file(&self) -> PathBuf {
        self.path(self.purpose.file())
    }

    /// The file of the authority that was found.
    pub(super) fn authority(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// Whether an authority was found before, and is still the one that is meant.
    pub(super) fn has_authority_of(&self, pins: &[CaPin]) -> bool {
        let pinned = |certificate: &CertificateDer<'_>| pins.iter().any(|pin| pin.is_of(certificate));
        pem_file::certificates(&self.authority()).is_ok_and(|found| found.iter().all(pinned))
    }

    pub(super) fn put_authority(&self, pem: &str) -> Result<(), IdentityError> {
        let put = private_file::write(&self.authority(), pem.as_bytes());
        put.map_err(|source| self.error("ca.crt", source))
    }

    /// The own certificate, if there is one that can be used, whether or not it is still valid.
    pub(super) fn own(&self, node: &str) -> Option<Own> {
        let path = self.own_file();
        if !path.exists() {
            return None;
        }
        let usable = pem_file::certificates(&path).map_err(|error| error.to_string()).and_then(|chain| {
            let leaf = chain.first().ok_or("no certificate")?;
            self.check(leaf, node)
        });
        match usable {
            Ok(certificate) => Some(Own { certificate }),
            Err(problem) => {
                warn!(path = %path.display(), problem, "the hub's own certificate cannot be used");
                None
            }
        }
    }

    /// What to show with the own certificate.
    pub(super) fn material(&self, ca: &Path) -> Result<TlsMaterial, TlsMaterialError> {
        let path = self.own_file();
        TlsMaterial::read(ca, &path, &path)
    }

    /// Whether a certificate is that of this node's hub, for this purpose.
    fn check(&self, der: &CertificateDer<'_>, node: &str) -> Result<Certificate, String> {
        let certificate = Certificate::from_der(der.to_vec()).map_err(|error| error.to_string())?;
        self.purpose.check(&certificate, node)?;
        Ok(certificate)
    }

    /// What the hub begins with.
    pub(super) fn start(&self, config: &IdentityConfig) -> Start {
        let given = config.given.0.exists();
        if config.kind == IdentityKind::Kubelet {
            return Start::Given;
        }
        match self.own(&config.node) {
            Some(own) if Timestamp::now() <= own.certificate.validity().not_after => Start::Own,
            _ if given => Start::Given,
            Some(own) => Start::Nothing(expired(&own.certificate)),
            None => Start::Nothing("the hub has no certificate yet".to_owned()),
        }
    }

    /// The key of the request that is under way; a new one if none is.
    pub(super) fn next_key(&self) -> Result<SecretPem, String> {
        let path = self.path(self.purpose.next_key_file());
        if let Ok(text) = fs::read_to_string(&path) {
            let key = SecretPem::from(text);
            if tls::request::key_digest(&key).is_ok() {
                return Ok(key);
            }
            warn!(path = %path.display(), "not a key: another is made");
        }
        let key = tls::request::generate_key().map_err(|error| error.to_string())?;
        private_file::write(&path, key.expose().as_bytes())
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(key)
    }

    /// Forgets the key of a request that came to nothing.
    pub(super) fn drop_next_key(&self) -> Result<(), String> {
        let path = self.path(self.purpose.next_key_file());
        private_file::remove(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Forgets the certificate and its key, and those of a request, if there are any: who has no right to what it says must not keep it. Says whether
    /// there was one.
    pub(super) fn forget(&self) -> Result<bool, String> {
        let path = self.own_file();
        let was = path.exists();
        private_file::remove(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        self.drop_next_key()?;
        Ok(was)
    }

    /// Keeps a certificate that was issued for the next key: both at once, or neither.
    pub(super) fn keep(&self, node: &str, chain: &str, key: &SecretPem) -> Result<Own, String> {
        let certificate = Certificate::from_pem(chain).map_err(|error| error.to_string())?;
        let certificate = self.check(certificate.der(), node)?;
        if public_key(&certificate) != tls::request::key_digest(key).ok() {
            return Err("the certificate that was issued is of another key".to_owned());
        }
        let path = self.own_file();
        let both = zeroizing(chain, key);
        private_file::write(&path, both.as_bytes())
            .map_err(|error| format!("{}: {error}", path.display()))?;
        self.drop_next_key()?;
        Ok(Own { certificate })
    }
}

fn zeroizing(chain: &str, key: &SecretPem) -> zeroize::Zeroizing<String> {
    let separator = if chain.ends_with('\n') { "" } else { "\n" };
    zeroize::Zeroizing::new(format!("{chain}{separator}{}", key.expose()))
}

/// The message for a certificate that is no longer valid.
pub(super) fn expired(certificate: &Certificate) -> String {
    format!("the hub's certificate expired at {}", certificate.validity().not_after)
}

fn public_key(certificate: &Certificate) -> Option<Sha256Digest> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate.der()).ok()?;
    Some(Sha256Digest::of(parsed.public_key().raw))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use testkit::api_server::{access::User, pki::Authority};

    use super::*;

    fn issued(authority: &Authority, name: &str) -> (String, SecretPem) {
        let identity = authority.client(&User::new(name, &["system:nodes"])).unwrap();
        (identity.certificate_pem, identity.key_pem.into())
    }

    #[test]
    fn a_certificate_is_kept_with_its_key_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(&folder.path().join("pki"), Purpose::Client).unwrap();
        let authority = Authority::generate("a").unwrap();
        let ca = folder.path().join("ca.crt");
        fs::write(&ca, authority.pem()).unwrap();
        assert!(files.own("n").is_none() && files.material(&ca).is_err());
        let (chain, key) = issued(&authority, "system:node:n");
        let (others, other_key) = issued(&authority, "system:node:m");
        assert!(files.keep("n", &others, &other_key).unwrap_err().contains("system:node:m"));
        assert!(files.keep("n", &chain, &other_key).unwrap_err().contains("another key"));
        assert!(files.keep("n", "garbage", &key).is_err());
        assert!(files.own("n").is_none());
        files.keep("n", &chain, &key).unwrap();
        assert!(files.own("n").is_some() && files.own("m").is_none());
        assert!(files.material(&ca).is_ok());
        let mode = fs::metadata(files.path("client.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(files.path("client.pem"), "half").unwrap();
        assert!(files.own("n").is_none());
    }

    #[test]
    fn what_a_node_has_no_right_to_is_forgotten_with_all_keys_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let [gateway, pool, client] = [Purpose::Gateway, Purpose::PoolGateway, Purpose::Client]
            .map(|purpose| Files::open(folder.path(), purpose).unwrap());
        for files in [&gateway, &pool, &client] {
            fs::write(files.own_file(), "a certificate and its key").unwrap();
            files.next_key().unwrap();
        }
        assert!(gateway.forget().unwrap());
        assert!(!gateway.own_file().exists() && !gateway.path("gateway-next.key").exists());
        for files in [&pool, &client] {
            assert!(files.own_file().exists() && files.path(files.purpose.next_key_file()).exists());
        }
        assert!(!gateway.forget().unwrap());
    }

    #[test]
    fn a_request_that_is_under_way_keeps_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path(), Purpose::Client).unwrap();
        let first = files.next_key().unwrap();
        assert_eq!(files.next_key().unwrap().expose(), first.expose());
        assert_eq!(fs::metadata(files.path("next.key")).unwrap().permissions().mode() & 0o777, 0o600);
        files.drop_next_key().unwrap();
        assert_ne!(files.next_key().unwrap().expose(), first.expose());
        fs::write(files.path("next.key"), "half").unwrap();
        assert!(tls::request::key_digest(&files.next_key().unwrap()).is_ok());
    }
}

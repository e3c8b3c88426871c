//! The hub's own files and listeners that guard something: the folder, the key of the store, the socket, the HTTPS listener.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::Arc,
};

use ring::rand::{SecureRandom, SystemRandom};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::net::UnixListener;

/// Why the HTTPS listener cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Which one.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// A file does not hold what it should. What it holds instead is left out: it may be a key.
    #[error("{0} holds no {1} in PEM")]
    Missing(String, &'static str),
    /// The certificate, the key and the authorities do not work together.
    #[error("{0}")]
    Unusable(#[from] rustls::Error),
    /// The authorities cannot verify clients.
    #[error("{0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// A folder that only its owner may look into.
pub(super) fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// The key that private objects are sealed with: made at the first start, and kept beside the store.
pub(super) fn storage_key(path: &Path) -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    match OpenOptions::new().read(true).open(path) {
        Ok(mut file) => {
            file.read_exact(&mut key)?;
            Ok(key)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            SystemRandom::new()
                .fill(&mut key)
                .map_err(|_| io::Error::other("the system has no randomness"))?;
            // Whole or not at all: half a key would lock the store for ever.
            let half = path.with_extension("new");
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&half)?;
            file.write_all(&key)?;
            file.sync_all()?;
            fs::rename(&half, path)?;
            if let Some(folder) = path.parent() {
                fs::File::open(folder)?.sync_all()?;
            }
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

/// The socket; one that an earlier process left is removed. The store's lock says that no other hub uses it.
pub(super) fn socket(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // Who connects is known by the kernel's word; the folder keeps all but its owner out.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// TLS that verifies a client's certificate if it shows one; whoever shows none must send a token.
pub(super) fn server_config(
    certificate: &Path,
    key: &Path,
    authorities: &Path,
) -> Result<ServerConfig, SecureError> {
    let chain = certificates(certificate)?;
    let key_der = PrivateKeyDer::from_pem_slice(&read(key)?)
        .map_err(|_| SecureError::Missing(key.display().to_string(), "private key"))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(authorities)?);
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build()?;
    let mut config =
        ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key_der)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<u8>, SecureError> {
    fs::read(path).map_err(|source| SecureError::Read { path: path.display().to_string(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecureError> {
    let text = read(path)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect();
    if chain.is_empty() {
        return Err(SecureError::Missing(path.display().to_string(), "certificate"));
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("storage.key");
        let first = storage_key(&path).unwrap();
        assert_ne!(first, [0; 32]);
        assert_eq!(storage_key(&path).unwrap(), first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, b"short").unwrap();
        assert!(storage_key(&path).is_err(), "a damaged key is not replaced: what it sealed would be lost");
    }
}

//! The hub's own files and listeners that guard something: the key of the store, the socket, the HTTPS listener.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use ring::rand::{SecureRandom, SystemRandom};
use rustls::{ServerConfig, server::WebPkiClientVerifier};
use tls::{
    pem_file::{self, PemFileError},
    private_file,
};
use tokio::net::UnixListener;

use crate::filters::PodAccess;

/// Why the HTTPS listener cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] PemFileError),
    /// The certificate, the key and the authorities do not work together.
    #[error("{0}")]
    Unusable(#[from] rustls::Error),
    /// The authorities cannot verify clients.
    #[error("{0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// What is wrong with a key that is cut short, and what helps. With another key what the old one sealed can be neither read nor replaced.
pub(crate) const SHORT_KEY: &str = "it is cut short, a key has 32 bytes: put back the whole one, or remove it and the folder store beside it: what is held there is lost, and fetched again by a link";

/// The key that private objects are sealed with: made at the first start, and kept beside the store.
pub(super) fn storage_key(path: &Path) -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    match File::open(path) {
        Ok(mut file) => {
            file.read_exact(&mut key).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), SHORT_KEY),
                _ => error,
            })?;
            Ok(key)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            SystemRandom::new()
                .fill(&mut key)
                .map_err(|_| io::Error::other("the system has no randomness"))?;
            // Whole or not at all: half a key would lock the store for ever.
            private_file::write(path, &key)?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

/// The socket; one that an earlier process left is removed. The store's lock says that no other hub uses it.
pub(crate) fn socket(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // Who connects is known by the kernel's word; the folder keeps all but its owner out.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Whether pods reach the HTTPS listener of that address, certificate and key, and where.
pub(super) fn pod_access(
    listener: Option<&(SocketAddr, PathBuf, PathBuf)>,
) -> Result<PodAccess, SecureError> {
    let Some((address, certificate, _)) = listener else { return Ok(PodAccess::Off) };
    let own = pem_file::certificates(certificate)?.into_iter().next();
    Ok(PodAccess::of(own.map(|own| (*address, own))))
}

/// TLS that verifies a client's certificate if it shows one; whoever shows none must send a token.
pub(super) fn server_config(
    certificate: &Path,
    key: &Path,
    authorities: &Path,
) -> Result<ServerConfig, SecureError> {
    let roots = Arc::new(pem_file::roots(authorities)?);
    let verifier = WebPkiClientVerifier::builder(roots).allow_unauthenticated().build()?;
    let mut config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(pem_file::certificates(certificate)?, pem_file::key(key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::app::StartError;

    #[test]
    fn the_key_is_made_once_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("storage.key");
        let first = storage_key(&path).unwrap();
        assert_ne!(first, [0; 32]);
        assert_eq!(storage_key(&path).unwrap(), first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, b"short").unwrap();
        let error =
            storage_key(&path).expect_err("a damaged key is not replaced: what it sealed would be lost");
        let told = StartError::Folder { path: path.clone(), source: error }.to_string();
        assert!(told.contains(&*path.to_string_lossy()) && told.contains("remove it"), "{told}");
        assert_eq!(fs::read(&path).unwrap(), b"short");
    }
}

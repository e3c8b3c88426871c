//! The hub's own files and listeners that guard something: the socket, the HTTPS listener.

use std::{
    fs::{self, Permissions},
    io,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{ServerConfig, server::WebPkiClientVerifier};
use tls::pem_file::{self, PemFileError};
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

//! Certificates and keys in files. Errors name the file and never show what is in it: it may be a key.

use std::{fs, io, path::Path};

use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PemFileError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which one.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It does not hold what it should.
    #[error("{path} holds no {what} in PEM")]
    Missing {
        /// Which one.
        path: String,
        /// What it should hold.
        what: &'static str,
    },
}

/// All certificates of a file; at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemFileError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(path)?).filter_map(Result::ok).collect();
    if chain.is_empty() { Err(missing(path, "certificate")) } else { Ok(chain) }
}

/// The first private key of a file.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, PemFileError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|_| missing(path, "private key"))
}

/// The authorities of a file; at least one that can be used.
pub fn roots(path: &Path) -> Result<RootCertStore, PemFileError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(path)?);
    if added == 0 { Err(missing(path, "certificate")) } else { Ok(roots) }
}

fn read(path: &Path) -> Result<Vec<u8>, PemFileError> {
    fs::read(path).map_err(|source| PemFileError::Read { path: path.display().to_string(), source })
}

fn missing(path: &Path, what: &'static str) -> PemFileError {
    PemFileError::Missing { path: path.display().to_string(), what }
}

//! The files of a certificate that is in use: for others who show the same.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use super::{Identity, files::Files};

/// Where a certificate that is in use is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The authorities of peers.
    pub authority: PathBuf,
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key; often the same file.
    pub key: PathBuf,
}

/// A certificate, its key and the authorities, all PEM.
#[derive(PartialEq, Eq)]
pub struct ShownPem {
    /// The authorities of peers.
    pub authority: String,
    /// The certificate, maybe with the key behind it.
    pub certificate: Zeroizing<String>,
    /// The key.
    pub key: Zeroizing<String>,
}

impl Shown {
    pub(super) fn own(files: &Files, authority: &Path) -> Self {
        Self { authority: authority.to_owned(), certificate: files.own_file(), key: files.own_file() }
    }

    pub(super) fn given(identity: &Identity) -> Self {
        let (certificate, key) = identity.config.given.clone();
        Self { authority: identity.ca.clone(), certificate, key }
    }

    /// Reads them. What was just put there by somebody else may be half written: try again then.
    pub fn read(&self) -> io::Result<ShownPem> {
        let Self { authority, certificate, key } = self;
        Ok(ShownPem {
            authority: fs::read_to_string(authority)?,
            certificate: fs::read_to_string(certificate)?.into(),
            key: fs::read_to_string(key)?.into(),
        })
    }
}

impl std::fmt::Debug for ShownPem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ShownPem(…)")
    }
}

//! Who the hub is to the API server: the certificate it shows, where that comes from, and the next one in time.
//!
//! ```text
//!  token + CA pin ─► discover (once: the authority) ─┐
//!  the kubelet's certificate ────────────────────────┼─► keep (a task): plan (pure) ─► ask: CSR ─► approved, signed ─► files
//!  the hub's own, from the files ────────────────────┘                                                     └─► Connector::replace
//! ```
//! The hub goes upstream as its node (`system:node:<name>`, `system:nodes`), because what the kubelet asks of it goes on with its
//! certificate; the group `isthmus:edge-hubs` beside it tells it from the kubelet. The manager approves its requests.

mod ask;
mod cluster_info;
mod discover;
mod files;
mod hangup;
mod keep;
mod meters;
mod pin;
mod plan;
mod purpose;
mod serving;
mod shown;
mod signing_request;
mod token;
mod unusable;
mod view;

use std::{path::PathBuf, time::Duration};

use tls::pem_file;
use tokio_util::sync::CancellationToken;

pub use self::keep::Keeper;
pub use self::meters::IdentityMeters;
pub use self::pin::{CaPin, CaPinError};
pub use self::serving::{Serving, ServingCertificates};
pub use self::shown::{Shown, ShownPem};
pub use self::token::{BootstrapToken, TokenError};
pub use self::unusable::{AUTHORITIES, KUBELETS, UnusableFile};
pub use self::view::{IdentityState, IdentityView, Report};
use self::{files::Files, plan::Start, purpose::Purpose};
use crate::upstream::{Endpoint, TlsMaterial, TlsMaterialError};

/// Where the hub's certificate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum IdentityKind {
    /// The kubelet's own, or another that is given by its files; followed when they change.
    Kubelet,
    /// Its own: the hub makes a key and asks for a certificate, with the kubelet's or with a bootstrap token, and renews it.
    Own,
}

/// What is known of the hub's identity from its arguments.
#[derive(Debug, Clone)]
pub struct IdentityConfig {
    /// Which of the two.
    pub kind: IdentityKind,
    /// Name of the node.
    pub node: String,
    /// Folder of the hub's own key and certificate.
    pub folder: PathBuf,
    /// Authorities that are trusted, if no pins are given.
    pub ca: PathBuf,
    /// The certificate of others to begin with, and its key.
    pub given: (PathBuf, PathBuf),
    /// A file with a bootstrap token.
    pub token: Option<PathBuf>,
    /// Digests of the cluster's authority, by which it is recognised.
    pub pins: Vec<CaPin>,
    /// How long a certificate is asked for.
    pub validity: Duration,
}

/// Why the hub has no identity to start with.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Certificates of files cannot be used.
    #[error(transparent)]
    Material(#[from] TlsMaterialError),
    /// A folder or a file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// Told to end before the cluster's authority was found.
    #[error("ended before the cluster's authority was found")]
    Ended,
}

/// An identity that was opened: files are read, and the authority is known.
#[derive(Debug)]
pub struct Identity {
    config: IdentityConfig,
    files: Files,
    ca: PathBuf,
    start: Start,
}

impl IdentityConfig {
    /// Checks what can be checked without the network: files that must be there.
    pub fn check(&self) -> Result<(), UnusableFile> {
        if !self.pins.is_empty() {
            return Ok(());
        }
        pem_file::roots(&self.ca).map_err(|error| UnusableFile::new("--ca-file", &self.ca, error))?;
        if self.kind == IdentityKind::Own {
            return Ok(());
        }
        let (certificate, key) = &self.given;
        pem_file::certificates(certificate)
            .map_err(|error| UnusableFile::new("--client-cert-file", certificate, error))?;
        let of_key = if key == certificate {
            "--client-key-file, without which the key is in the file of --client-cert-file"
        } else {
            "--client-key-file"
        };
        pem_file::key(key).map_err(|error| UnusableFile::new(of_key, key, error))?;
        TlsMaterial::read(&self.ca, certificate, key)
            .map_err(|error| UnusableFile::new("--client-cert-file", certificate, error))?;
        Ok(())
    }

    /// Reads what there is. If the authority is only known by its digest, it is fetched: until it was found once, there is
    /// nobody to talk to.
    pub async fn open(
        self,
        endpoints: &[Endpoint],
        shutdown: &CancellationToken,
    ) -> Result<Identity, IdentityError> {
        let files = Files::open(&self.folder, Purpose::Client)?;
        let ca = if self.pins.is_empty() { self.ca.clone() } else { files.authority() };
        if !self.pins.is_empty() && !files.has_authority_of(&self.pins) {
            let token = self.token.as_deref().and_then(|path| BootstrapToken::read(path).ok());
            tokio::select! {
                () = shutdown.cancelled() => return Err(IdentityError::Ended),
                found = Box::pin(discover::discover(endpoints, &self.pins, token.as_ref())) => files.put_authority(&found)?,
            }
        }
        let start = files.start(&self);
        Ok(Identity { config: self, files, ca, start })
    }
}

impl Identity {
    /// What the first connection shows.
    pub fn material(&self) -> Result<TlsMaterial, IdentityError> {
        Ok(match &self.start {
            Start::Own => self.files.material(&self.ca)?,
            Start::Given => TlsMaterial::read(&self.ca, &self.config.given.0, &self.config.given.1)?,
            Start::Nothing(reason) => TlsMaterial::without_certificate(&self.ca, reason)?,
        })
    }

    /// The certificates that this node may show as a gateway, not asked for yet.
    pub fn serving(&self) -> Result<ServingCertificates, IdentityError> {
        ServingCertificates::new(self)
    }

    /// The file of the authorities.
    pub fn authority(&self) -> PathBuf {
        self.ca.clone()
    }
}

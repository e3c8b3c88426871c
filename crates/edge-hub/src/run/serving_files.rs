//! The files of the HTTPS listener, read again when they change: who issues certificates writes them anew before they end, and pods that are sent to
//! the hub must find one that they trust. Connections that are open stay.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tls::digest::Sha256Digest;
use tokio::{sync::watch, task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::secure::{self, SecureError};
use crate::filters::PodAccess;

/// How often it is looked whether they changed.
const LOOK: Duration = Duration::from_secs(10);

/// Where the listener is, and its files.
#[derive(Debug, Clone)]
pub(super) struct ServingFiles {
    /// The address, the certificate and its key.
    listener: (SocketAddr, PathBuf, PathBuf),
    authorities: PathBuf,
    /// What they held when the listener was made.
    first: Option<[Sha256Digest; 3]>,
}

/// What the files held, and what follows from it.
struct Read {
    digests: [Sha256Digest; 3],
    config: Result<(ServerConfig, PodAccess), SecureError>,
}

impl ServingFiles {
    pub(super) fn new(listener: &(SocketAddr, PathBuf, PathBuf), authorities: &Path) -> Self {
        let mut files = Self { listener: listener.clone(), authorities: authorities.to_owned(), first: None };
        files.first = files.digests().ok();
        files
    }

    /// What the listener answers with now.
    pub(super) fn config(&self) -> Result<ServerConfig, SecureError> {
        let (_, certificate, key) = &self.listener;
        secure::server_config(certificate, key, &self.authorities)
    }

    fn digests(&self) -> io::Result<[Sha256Digest; 3]> {
        let (_, certificate, key) = &self.listener;
        let digest = |path: &PathBuf| fs::read(path).map(|content| Sha256Digest::of(&content));
        Ok([digest(certificate)?, digest(key)?, digest(&self.authorities)?])
    }

    /// Reads them, if they are other than `before`.
    fn read(&self, before: Option<&[Sha256Digest; 3]>) -> io::Result<Option<Read>> {
        let digests = self.digests()?;
        if before == Some(&digests) {
            return Ok(None);
        }
        let config = self.config().and_then(|config| Ok((config, secure::pod_access(Some(&self.listener))?)));
        Ok(Some(Read { digests, config }))
    }

    /// Puts in force what they say, until `shutdown`. Files that do not fit one another, as while they are written, change nothing.
    pub(super) async fn follow(
        self,
        config: Arc<ArcSwap<ServerConfig>>,
        access: watch::Sender<PodAccess>,
        shutdown: CancellationToken,
    ) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.keep(&config, &access) => {}
        }
    }

    async fn keep(self, config: &ArcSwap<ServerConfig>, access: &watch::Sender<PodAccess>) {
        let mut seen = self.first;
        let mut complaint = String::new();
        loop {
            sleep(LOOK).await;
            let (files, before) = (self.clone(), seen);
            let Ok(read) = spawn_blocking(move || files.read(before.as_ref())).await else { return };
            let problem = match read {
                Ok(None) => continue,
                Ok(Some(Read { digests, config: Ok((new, reached)) })) => {
                    config.store(Arc::new(new));
                    access.send_if_modified(|access| {
                        let is_other = *access != reached;
                        *access = reached;
                        is_other
                    });
                    info!(certificate = %self.listener.1.display(), "the HTTPS proxy has new files");
                    seen = Some(digests);
                    complaint.clear();
                    continue;
                }
                Ok(Some(Read { digests: _, config: Err(error) })) => error.to_string(),
                Err(error) => error.to_string(),
            };
            if complaint != problem {
                warn!(
                    problem,
                    "--serving-cert-file, --serving-key-file, --ca-file: what the HTTPS proxy has stays"
                );
                complaint = problem;
            }
        }
    }
}

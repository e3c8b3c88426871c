//! Certificates: whom the listener of reports trusts, and by what replicas know one another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::config::AuthInfo;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use node_metrics::listener::ClientAuthorities;
use parking_lot::RwLock;
use tls::certificate::bundle;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::Host;

const KUBE_SYSTEM: &str = "kube-system";
const AUTHENTICATION: &str = "extension-apiserver-authentication";
const CLIENT_CA: &str = "client-ca-file";

/// Keeps the authorities of client certificates as the cluster says. Never ends.
pub(super) async fn follow_client_authorities(client: Client, authorities: Arc<ClientAuthorities>) {
    let api: Api<ConfigMap> = Api::namespaced(client, KUBE_SYSTEM);
    let by_name = watcher::Config::default().fields(&format!("metadata.name={AUTHENTICATION}"));
    let mut maps = std::pin::pin!(watcher(api, by_name).backoff(crate::watches::backoff()).applied_objects());
    while let Some(map) = maps.next().await {
        let text = match map {
            Ok(map) => map.data.and_then(|mut data| data.remove(CLIENT_CA)).unwrap_or_default(),
            Err(error) => {
                warn!(%error, "cannot watch whose client certificates to trust");
                continue;
            }
        };
        match bundle(&text) {
            Ok(certificates) => match authorities.install(&certificates) {
                Ok(()) => {
                    info!(count = certificates.len(), "takes reports with certificates of these authorities");
                }
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    warn!(error, "all stays as it was");
                }
            },
            Err(error) => {
                warn!(%error, "the authority of client certificates cannot be read; all stays as it was");
            }
        }
    }
}

/// The certificate that all replicas serve, with what it is verified by.
#[derive(Debug)]
pub(super) struct Identity {
    pem: RwLock<BTreeMap<&'static str, String>>,
    changes: watch::Sender<u64>,
}

impl Default for Identity {
    fn default() -> Self {
        Self { pem: RwLock::default(), changes: watch::Sender::new(0) }
    }
}

/// Why a leader cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("there is no certificate yet")]
    Missing,
    #[error("the leader's address: {0}")]
    Address(#[from] http::uri::InvalidUri),
    #[error("the authorities: {0}")]
    Authorities(#[from] tls::certificate::CertificateError),
    #[error("the client: {0}")]
    Client(#[from] kube::Error),
}

const CA: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

impl Identity {
    /// Counts certificates.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Who signs what replicas serve, in PEM.
    pub(super) fn authorities(&self) -> String {
        self.pem.read().get(CA).cloned().unwrap_or_default()
    }

    /// A client for the replica at `address`, which shows this certificate and accepts one for `server_name` alone.
    pub(super) fn client(
        &self,
        address: &str,
        server_name: &str,
        connect: Duration,
    ) -> Result<Client, ClientError> {
        let pem = self.pem.read().clone();
        let (Some(ca), Some(certificate), Some(key)) = (pem.get(CA), pem.get(CERTIFICATE), pem.get(KEY))
        else {
            return Err(ClientError::Missing);
        };
        let mut config = kube::Config::new(format!("https://{address}").parse()?);
        let authorities = bundle(ca)?;
        config.root_cert = Some(authorities.iter().map(|authority| authority.der().to_vec()).collect());
        config.tls_server_name = Some(server_name.to_owned());
        config.connect_timeout = Some(connect);
        config.read_timeout = None;
        config.default_retry = false;
        config.auth_info = AuthInfo {
            client_certificate_data: Some(STANDARD.encode(certificate)),
            client_key_data: Some(STANDARD.encode(key).into()),
            ..AuthInfo::default()
        };
        Ok(Client::try_from(config)?)
    }
}

/// Keeps the identity as the Secret has it. Never ends.
pub(super) async fn follow_own_identity(host: Arc<Host>) {
    let name = &host.config.serving_secret;
    let api: Api<Secret> = Api::namespaced(host.client.clone(), &host.config.namespace);
    let by_name = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut secrets =
        std::pin::pin!(watcher(api, by_name).backoff(crate::watches::backoff()).applied_objects());
    while let Some(secret) = secrets.next().await {
        let data = match secret {
            Ok(secret) => secret.data.unwrap_or_default(),
            Err(error) => {
                warn!(%error, "cannot watch the serving Secret");
                continue;
            }
        };
        let text =
            |key: &str| Some(String::from_utf8(data.get(key)?.0.clone()).ok()?).filter(|t| !t.is_empty());
        let pem: BTreeMap<&'static str, String> =
            [CA, CERTIFICATE, KEY].into_iter().filter_map(|key| Some((key, text(key)?))).collect();
        match pem.get(CA).map(|ca| bundle(ca)) {
            Some(Ok(authorities)) => host.replicas.trust(authorities),
            Some(Err(error)) => warn!(%error, "the authorities of the serving Secret cannot be read"),
            None => debug!("the serving Secret is empty"),
        }
        if *host.identity.pem.read() != pem {
            *host.identity.pem.write() = pem;
            host.identity.changes.send_modify(|count| *count += 1);
        }
    }
}

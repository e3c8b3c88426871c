//! Every replica's part: serves what the serving Secret holds, as soon as it changes.

use std::{sync::Arc, time::Duration};

use daemon::ready::Handle;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use tls::{digest::Sha256Digest, resolver::ServingCertificate};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{CertificateMetrics, Config, chain, observe::StoredSecret, plan::SERVING};

/// How often the Secret is read even if the watch is silent: a watch over a dead connection is silent for minutes, and
/// a rotation counts on every replica to be late by no more than the settle time.
const POLL_FRACTION: u32 = 4;

/// Reads of the Secret that take longer are given up.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Watches the serving Secret by its name and installs what it holds.
#[derive(Debug)]
pub struct ServingSecretWatch {
    serving: Arc<ServingCertificate>,
    ready: Handle,
    metrics: CertificateMetrics,
    /// What was tried last, so that the same garbage is reported once.
    tried: Option<Sha256Digest>,
}

impl ServingSecretWatch {
    /// Will install into `serving`; `ready` becomes ready with the first certificate.
    pub fn new(serving: Arc<ServingCertificate>, ready: Handle, metrics: CertificateMetrics) -> Self {
        ready.not_ready("no certificate yet");
        Self { serving, ready, metrics, tried: None }
    }

    /// Watches until `shutdown`.
    pub async fn run(mut self, client: Client, config: Arc<Config>, shutdown: CancellationToken) {
        let api: Api<Secret> = Api::namespaced(client, &config.namespace);
        let name = config.serving_secret.as_str();
        let by_name = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = std::pin::pin!(watcher(api.clone(), by_name).backoff(crate::watches::backoff()));
        let mut poll = interval((config.settle / POLL_FRACTION).max(Duration::from_secs(1)));
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(event) = events.next() => match event {
                    Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret)) => self.take(&secret.into()),
                    Ok(watcher::Event::Delete(_)) => warn!(name, "the serving Secret is gone; serving what there was"),
                    Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                    Err(error) => warn!(name, error = chain(&error), "watch failed; trying again"),
                },
                _ = poll.tick() => match timeout(READ_TIMEOUT, api.get_opt(name)).await {
                    Ok(Ok(Some(secret))) => self.take(&secret.into()),
                    Ok(Ok(None)) => debug!(name, "the serving Secret does not exist"),
                    Ok(Err(error)) => debug!(name, error = chain(&error), "cannot read the serving Secret"),
                    Err(_) => debug!(name, "no answer to a read of the serving Secret"),
                },
            }
        }
    }

    fn take(&mut self, secret: &StoredSecret) {
        let (certificate, key) = SERVING;
        let (Some(certificate), Some(key)) = (secret.text(certificate), secret.text(key)) else {
            return;
        };
        let content = Sha256Digest::of(format!("{certificate}\n{key}").as_bytes());
        if self.tried.replace(content) == Some(content) {
            return;
        }
        match self.serving.install(certificate, key) {
            Ok(installed) => {
                info!(fingerprint = %installed.fingerprint(), until = %installed.validity().not_after, "serving a new certificate");
                self.metrics.serving(&installed);
                self.ready.ready();
            }
            Err(error) => warn!(
                error = chain(&error),
                "the serving Secret holds no usable certificate; keeping the old one"
            ),
        }
    }
}

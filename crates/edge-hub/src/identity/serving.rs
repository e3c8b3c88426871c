//! The certificates that gateways show to those who dial them: asked for with the node's own, kept on disk, renewed in time.
//! One is asked for while the node is such a gateway and not before.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use tls::digest::Sha256Digest;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{
    Identity, IdentityConfig, IdentityError,
    ask::{self, AskError},
    files::{Files, Own},
    hangup::Hangup,
    plan::{self, Situation, Step},
    purpose::Purpose,
    shown::Shown,
};
use crate::upstream::{Upstream, jittered};

/// How long to wait after a failure: first and longest.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(5));

/// How long to wait for a link before it is said that there is none.
const CONNECT: Duration = Duration::from_secs(15);

/// The certificates that a node may have to show to those who dial it, not asked for yet. They have different names, and so files of their own.
#[derive(Debug, Clone)]
pub struct ServingCertificates {
    /// Of an endpoint of an exposed Gateway.
    pub exposed: Serving,
    /// Of one that nodes of its own pool alone dial.
    pub of_pool: Serving,
}

/// Keeps the serving certificate of a gateway. Clones share it.
#[derive(Debug, Clone)]
pub struct Serving {
    config: Arc<IdentityConfig>,
    files: Files,
    authority: std::path::PathBuf,
    shown: watch::Sender<Option<Shown>>,
    problem: Arc<Mutex<Option<String>>>,
}

impl ServingCertificates {
    pub(super) fn new(identity: &Identity) -> Result<Self, IdentityError> {
        Ok(Self {
            exposed: Serving::new(identity, Purpose::Gateway)?,
            of_pool: Serving::new(identity, Purpose::PoolGateway)?,
        })
    }
}

impl Serving {
    fn new(identity: &Identity, purpose: Purpose) -> Result<Self, IdentityError> {
        Ok(Self {
            config: Arc::new(identity.config.clone()),
            files: Files::open(&identity.config.folder, purpose)?,
            authority: identity.ca.clone(),
            shown: watch::Sender::new(None),
            problem: Arc::default(),
        })
    }

    /// The files of the certificate, anew at each change.
    pub fn shown(&self) -> watch::Receiver<Option<Shown>> {
        self.shown.subscribe()
    }

    /// What went wrong last, until it goes right.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// Forgets the certificate and its key: the node may not show it any more.
    pub fn forget(&self) {
        self.shown.send_replace(None);
        match self.files.forget() {
            Ok(true) => {
                let path = self.files.own_file();
                info!(path = %path.display(), "a certificate that this node has no right to is removed");
            }
            Ok(false) => {}
            Err(reason) => warn!(reason, "a certificate that this node has no right to is still there"),
        }
    }

    /// Keeps the certificate for as long as this is polled.
    pub async fn keep(&self, upstream: &Upstream) {
        let mut pause = BACKOFF.0;
        let mut forced = false;
        // The hub cannot start without it; then it is renewed in time all the same.
        let mut hangup = Hangup::listen().unwrap_or_default();
        let mut used: Option<Sha256Digest> = None;
        loop {
            let own = self.files.own(&self.config.node);
            let now = Timestamp::now();
            if let Some(own) = own.as_ref().filter(|own| now <= own.certificate.validity().not_after) {
                self.take(own, &mut used);
            }
            let situation = Situation {
                own: own.as_ref().map(|own| (own.certificate.validity(), own.jitter())),
                // It is asked for with the certificate that the link shows.
                given: true,
                token: false,
                forced,
            };
            match plan::next(situation, now) {
                Step::Rest(rest) => {
                    *self.problem.lock() = None;
                    forced = rest_or_hangup(&mut hangup, rest).await;
                    continue;
                }
                // There is always the link's certificate to ask with.
                Step::Ask(_) | Step::Stuck { .. } => {}
            }
            if let Err(reason) = upstream.connected(CONNECT).await {
                *self.problem.lock() = Some(reason);
                // It has waited already, unless the link ended for good.
                forced |= rest_or_hangup(&mut hangup, BACKOFF.0).await;
                continue;
            }
            match Box::pin(ask::with_certificate(&self.config, &self.files, upstream)).await {
                Ok(own) => {
                    (pause, forced) = (BACKOFF.0, false);
                    info!(not_after = %own.certificate.validity().not_after, "the gateway has a new certificate");
                }
                Err(AskError { failure: _, reason }) => {
                    warn!(reason, retry = ?pause, "the gateway has no new certificate");
                    *self.problem.lock() = Some(reason);
                    if rest_or_hangup(&mut hangup, jittered(pause)).await {
                        // Who asks by hand has mended something.
                        (pause, forced) = (BACKOFF.0, true);
                    } else {
                        pause = (pause * 2).min(BACKOFF.1);
                    }
                }
            }
        }
    }

    fn take(&self, own: &Own, used: &mut Option<Sha256Digest>) {
        let found = Some(own.certificate.fingerprint());
        if *used != found {
            *used = found;
            self.shown.send_replace(Some(Shown::own(&self.files, &self.authority)));
        }
    }
}

/// Rests so long, or until somebody asks for a new certificate: then it says so.
async fn rest_or_hangup(hangup: &mut Hangup, rest: Duration) -> bool {
    let heard = hangup.rest(rest).await;
    if heard {
        info!("SIGHUP: asking for a new certificate of the gateway");
    }
    heard
}

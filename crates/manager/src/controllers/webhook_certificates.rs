//! Keeps the webhook's certificate: an authority of our own, the certificate that replicas serve, and the `caBundle`s
//! that make the API server trust it. Renews all of them in time, on demand, and repairs what others change.
//!
//! Run by the leader only. Two Secrets hold the state; the chart creates them empty, because there is no permission to
//! create any. Only their names below `data` are ours:
//!
//! | Secret | key | content |
//! |---|---|---|
//! | authorities | `ca.crt`, `ca.key` | the authority that issues |
//! | | `next.crt`, `next.key` | the one that will issue once everyone trusts it; only during a rotation |
//! | | `retired.crt` | certificates of authorities that issue no more and are still trusted; no keys |
//! | serving | `tls.crt`, `tls.key` | the certificate that every replica serves |
//! | | `ca.crt` | what to verify it with, for other clients than the API server |
//!
//! The key of an authority never enters the serving Secret. To force a rotation, set the annotation [`ROTATE`] of the
//! Secret of authorities to any new value.
//!
//! Each turn is `observe → plan → apply` and makes at most one write (a bundle: one for each configuration), which is
//! conditional on the version observed. [`tls::rotation`] says why that is safe, with two leaders at once too.

mod apply;
mod metrics;
mod observe;
mod plan;
mod serving_secret;
#[cfg(test)]
mod tests;
mod triggers;

use std::{sync::Arc, time::Duration};

use api::annotations::{ROTATE, ROTATED};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::{Client, runtime::events::Reporter};
use tls::rotation::{Action, Moment, Sightings};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use self::{metrics::CertificateMetrics, serving_secret::ServingSecretWatch};
use super::told_events::ToldEvents;

/// Who writes, in managed fields and events.
const FIELD_MANAGER: &str = "isthmus-webhook-certificates";

/// How long an authority lives. It is renewed before two thirds of it, so any leaf of at most 90 days fits in the rest.
const AUTHORITY_VALIDITY: Duration = Duration::from_hours(365 * 24);

/// The shortest life of a certificate that leaves time to renew it.
const MIN_LEAF_VALIDITY: Duration = Duration::from_hours(1);

/// No turn takes longer: a call that hangs is given up, and the next turn looks at what became of it.
const TURN_TIMEOUT: Duration = Duration::from_secs(15);

/// How long to wait after a failure: first and longest. Doubles in between.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// How long to let changes gather before looking at them: someone else who writes the same bundles, again and again,
/// must not make two busy loops of it.
const GATHER: Duration = Duration::from_secs(1);

/// What to keep certificates for.
#[derive(Debug, Clone)]
pub struct Config {
    /// The namespace of both Secrets.
    pub namespace: String,
    /// The Secret of authorities.
    pub ca_secret: String,
    /// The Secret of the certificate that is served.
    pub serving_secret: String,
    /// The names that the API server (and Prometheus) reach the replicas by: `<service>.<namespace>.svc` and others.
    pub dns_names: Vec<String>,
    /// `MutatingWebhookConfiguration`s whose every webhook is ours.
    pub mutating_configurations: Vec<String>,
    /// `ValidatingWebhookConfiguration`s whose every webhook is ours.
    pub validating_configurations: Vec<String>,
    /// `APIService`s that are ours.
    pub api_services: Vec<String>,
    /// How long a certificate lives: an hour to 90 days.
    pub leaf_validity: Duration,
    /// How late the API server may read a configuration, and a replica the serving Secret. A rotation waits for it twice.
    pub settle: Duration,
}

/// Why a [`Config`] cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Nobody could verify a certificate without a name.
    #[error("no DNS name for the webhook's certificate")]
    NoName,
    /// Too short to renew, or longer than allowed.
    #[error("a certificate's validity must be between 1 hour and 90 days, not {0:?}")]
    LeafValidity(Duration),
}

impl Config {
    /// Checks what types cannot. To be called before anything starts.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.dns_names.is_empty() {
            return Err(ConfigError::NoName);
        }
        if !(MIN_LEAF_VALIDITY..=tls::issue::MAX_LEAF_VALIDITY).contains(&self.leaf_validity) {
            return Err(ConfigError::LeafValidity(self.leaf_validity));
        }
        Ok(())
    }
}

/// Why a turn failed. The next one looks anew.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error("observe")]
    Observe(#[source] observe::ObserveError),
    #[error("apply")]
    Apply(#[source] apply::ApplyError),
    #[error("no answer for {TURN_TIMEOUT:?}")]
    Timeout,
}

/// What came of a turn.
enum Turn {
    /// Something was written: the next turn may follow at once.
    Wrote,
    /// Nothing is to be done for so long.
    Rest(Duration),
    /// Leadership was lost before the write.
    NotLeading,
}

/// The controller: what it needs, for as long as one leadership lasts.
struct Controller<L> {
    client: Client,
    config: Arc<Config>,
    metrics: CertificateMetrics,
    events: ToldEvents,
    leading: L,
    // Both belong to one leadership: see `tls::rotation`.
    began: Instant,
    seen: Sightings,
}

/// Keeps certificates until `shutdown`, or until `leading` says no; that is asked before every write. `heartbeat` is
/// called in every turn, at least every five minutes.
pub async fn run(
    client: Client,
    config: Arc<Config>,
    metrics: CertificateMetrics,
    leading: impl Fn() -> bool + Send,
    heartbeat: impl Fn() + Send,
    shutdown: CancellationToken,
) {
    let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
    let changes = triggers::changes(&client, &config);
    let controller = Controller {
        events: ToldEvents::new(client.clone(), reporter),
        client,
        config,
        metrics,
        leading,
        began: Instant::now(),
        seen: Sightings::default(),
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = controller.turns(changes, heartbeat) => {}
    }
}

impl<L: Fn() -> bool> Controller<L> {
    async fn turns(mut self, changes: impl Stream<Item = ()>, heartbeat: impl Fn()) {
        let mut changes = std::pin::pin!(changes);
        let mut backoff = BACKOFF.0;
        loop {
            heartbeat();
            let turn = timeout(TURN_TIMEOUT, self.turn()).await.unwrap_or(Err(TurnError::Timeout));
            match turn {
                Ok(Turn::Wrote) => backoff = BACKOFF.0,
                Ok(Turn::NotLeading) => return,
                Ok(Turn::Rest(rest)) => {
                    backoff = BACKOFF.0;
                    // Whether a change or the time wakes it is all the same: it looks at everything.
                    let rested_until = Instant::now() + rest;
                    if timeout(rest, changes.next()).await.is_ok() {
                        tokio::time::sleep_until(rested_until.min(Instant::now() + GATHER)).await;
                    }
                }
                Err(error) => {
                    self.metrics.failed();
                    if error.is_race() {
                        debug!(error = chain(&error), "something changed meanwhile; looking again");
                    } else {
                        warn!(error = chain(&error), retry = ?backoff, "cannot keep the webhook's certificates");
                    }
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF.1);
                }
            }
        }
    }

    async fn turn(&mut self) -> Result<Turn, TurnError> {
        let observed = observe::observe(&self.client, &self.config).await.map_err(TurnError::Observe)?;
        let now = Moment { wall: Timestamp::now(), monotonic: self.began.elapsed() };
        let state = plan::interpret(&observed, &self.config.dns_names);
        for problem in &state.problems {
            warn!(%problem, "what is stored cannot be used and will be replaced");
        }
        if let Some(current) = &state.current {
            self.metrics.authority(current.certificate());
        }
        self.seen.record(&state.stored, now.monotonic);
        let action = tls::rotation::plan(&state.stored, &self.seen, self.config.settle, now);
        if let Action::Wait { at_most, rest } = action {
            debug!(?at_most, ?rest, "nothing to do");
            return Ok(Turn::Rest(at_most));
        }
        if !(self.leading)() {
            return Ok(Turn::NotLeading);
        }
        let applied = apply::apply(&self.client, &self.config, &observed, &state, &action, now.wall).await;
        applied.map_err(TurnError::Apply)?;
        info!(?action, "webhook certificates changed");
        self.metrics.did(&action);
        if let Some(event) = apply::event(&action) {
            // It is for people; what it tells of has happened whether they hear of it or not.
            if let Err(error) = self.events.publish(&event, &observed.authorities.reference()).await {
                debug!(error = chain(&error), "cannot publish an event");
            }
        }
        Ok(Turn::Wrote)
    }
}

impl TurnError {
    /// Whether another writer came first, which is as it should be.
    fn is_race(&self) -> bool {
        matches!(self, Self::Apply(error) if error.is_race())
    }
}

/// An error with its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

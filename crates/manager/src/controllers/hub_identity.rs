//! Approves the certificates of the nodes' hubs and gateways, and denies those that are asked for by somebody else.
//!
//! ```text
//! watch CertificateSigningRequests of two signers ─► observe (the node, live; rival requests) ─► plan (pure) ─► apply
//! ```
//! Run by the leader only. A request concerns it if its subject has the group of hubs; or if it claims
//! the name of gateways; all others are left alone. What is decided stands in the request's conditions: there is no other state.
//!
//! A hub goes upstream as its node, so whoever gets such a certificate is that node. Three may ask: the node itself, by its
//! kubelet's certificate or its hub's (and only while its Node is there: deleting a Node ends its renewals); a bootstrap token,
//! for a node of which there is no Node yet; and a token that an operator named in the Node's annotation, once.

mod apply;
mod gateway;
pub(crate) mod metrics;
mod observe;
mod plan;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::{
    apply::ApplyError,
    metrics::HubIdentityMetrics,
    observe::{Purpose, Request},
    plan::Decision,
};
use super::told_events::ToldEvents;
use crate::{leader::LeadershipGuard, watches};

/// No decision takes longer: a call that hangs is given up, and tried again.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long to wait after a failure: first and longest. Who asks waits for the answer, and an outage of the API server that is over
/// must not go on here.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(8));

/// Why nothing was decided. It is tried again.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error("observe: {0}")]
    Observe(#[source] kube::Error),
    #[error("apply: {0}")]
    Apply(#[from] ApplyError),
    #[error("no answer within {DEADLINE:?}")]
    Deadline,
}

/// The controller.
pub(crate) struct Controller {
    pub(crate) client: Client,
    pub(crate) leadership: LeadershipGuard,
    pub(crate) events: ToldEvents,
    pub(crate) metrics: HubIdentityMetrics,
    /// Whether gateways get certificates, too.
    pub(crate) gateways: bool,
}

impl Controller {
    /// Decides on requests until `end`.
    pub(crate) async fn run(self, end: CancellationToken) {
        tokio::select! {
            () = end.cancelled() => {}
            () = self.follow(Purpose::Hub) => {}
            () = self.follow(Purpose::Gateway), if self.gateways => {}
        }
    }

    async fn follow(&self, purpose: Purpose) {
        let api = Api::<CertificateSigningRequest>::all(self.client.clone());
        let config = watcher::Config::default().fields(&purpose.selector());
        let mut events = std::pin::pin!(watcher(api, config).backoff(watches::backoff()));
        let mut open = BTreeMap::new();
        let mut pause = BACKOFF.0;
        let mut again = Instant::now();
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(watcher::Event::Apply(request) | watcher::Event::InitApply(request))) => {
                        let name = request.name_any();
                        match Request::read(purpose, &request) {
                            Some(request) => { open.insert(name, request); }
                            None => { open.remove(&name); }
                        }
                        again = again.min(Instant::now());
                    }
                    Some(Ok(watcher::Event::Delete(request))) => { open.remove(&request.name_any()); }
                    Some(Ok(watcher::Event::Init)) => open.clear(),
                    Some(Ok(watcher::Event::InitDone)) => debug!(open = open.len(), "listed requests for certificates"),
                    Some(Err(error)) => warn!(%error, "the watch of requests for certificates failed; it is tried again"),
                    None => return,
                },
                () = sleep_until(again), if !open.is_empty() => {
                    if self.decide_all(&mut open).await {
                        pause = BACKOFF.0;
                    } else {
                        pause = (pause * 2).min(BACKOFF.1);
                    }
                    again = Instant::now() + pause;
                }
            }
        }
    }

    /// Decides on all of `open`; what failed stays there.
    async fn decide_all(&self, open: &mut BTreeMap<String, Request>) -> bool {
        let mut failed = BTreeMap::new();
        for (name, request) in std::mem::take(open) {
            let decided = timeout(DEADLINE, self.decide(&request)).await.unwrap_or(Err(TurnError::Deadline));
            match decided {
                Ok(()) => {}
                // Somebody changed or removed it: the watch tells.
                Err(error) if error.is_race() => debug!(name, %error, "the request changed meanwhile"),
                Err(error) => {
                    self.metrics.failed();
                    warn!(name, %error, "no decision on a certificate; it is tried again");
                    failed.insert(name, request);
                }
            }
        }
        *open = failed;
        open.is_empty()
    }

    async fn decide(&self, request: &Request) -> Result<(), TurnError> {
        let Some(node) = plan::node(request) else { return Ok(()) };
        let observed = observe::observe(&self.client, request, node).await.map_err(TurnError::Observe)?;
        let decision = plan::decide(request, node, &observed);
        apply::apply(&self.client, &self.leadership, request, node, &observed, decision).await?;
        match decision {
            Decision::Approve(_) => {
                info!(request = request.name, node, by = request.username, purpose = ?request.purpose, "approved a certificate");
            }
            Decision::Deny(reason) => {
                warn!(request = request.name, node, by = request.username, %reason, purpose = ?request.purpose, "denied a certificate");
            }
        }
        self.metrics.decided(decision);
        // It is for people; what it tells of has happened whether they hear of it or not.
        if let Err(error) = self.events.publish(&apply::event(decision), &request.reference()).await {
            debug!(%error, "cannot publish an event");
        }
        Ok(())
    }
}

impl TurnError {
    /// Whether another writer came first, which is as it should be.
    fn is_race(&self) -> bool {
        matches!(self, Self::Apply(error) if error.is_race())
    }
}

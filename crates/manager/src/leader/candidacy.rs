//! Terms of office: what a process does that goes on when it has lost its leadership, and stands for election anew.
//!
//! Nothing of a term outlives it: what leads is dropped with it, whatever it was waiting for, and each term has a guard of its own. So the
//! process need not end. The identity is the same in all its terms: of a leadership that it lost it knows that it is over.

use std::future::Future;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::clock::Clock;
use super::driver::{Election, Settings};
use super::leadership::LeadershipGuard;
use super::metrics::Metrics;

/// How long what leads may take to end.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// How a process stands for election.
#[derive(Clone)]
pub struct Candidacy {
    /// It must not retry by itself.
    pub client: Client,
    /// The Lease, and who this is.
    pub settings: Settings,
    /// [`Clock::boot`] but in tests.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Metrics,
}

impl Candidacy {
    /// Stands for election once, and runs `lead` if this process wins. Returns when that leadership is lost, `lead` having been dropped; or
    /// after `end`, when `lead` is to end by itself, and the Lease is given away.
    pub async fn term<F: Future<Output = ()>>(
        &self,
        lead: impl FnOnce(LeadershipGuard) -> F,
        end: &CancellationToken,
    ) {
        let Self { client, settings, clock, metrics } = self;
        let lease = settings.name.as_str();
        let (election, leadership) =
            Election::new(client.clone(), settings.clone(), clock.clone(), metrics.clone());
        let guard = LeadershipGuard::from(leadership);
        let release = CancellationToken::new();
        // A task of its own: renewals do not wait for what leads.
        let mut candidate = JoinSet::new();
        candidate.spawn(election.run(release.clone()));
        // Owned, so that it is gone before the Lease is given away: also what it was in the middle of.
        let mut leading = Box::pin(async {
            tokio::select! {
                elected = async { guard.clone().elected().await } => match elected {
                    Ok(_) => info!(lease, "leading"),
                    // The election ended, which ends the term.
                    Err(_) => std::future::pending().await,
                },
                () = end.cancelled() => return,
            }
            lead(guard).await;
        });
        tokio::select! {
            biased;
            Some(ended) = candidate.join_next() => {
                match ended {
                    Ok(Err(error)) => warn!(lease, %error, "leads no more, and stands for election again"),
                    Ok(Ok(())) => {}
                    Err(error) => {
                        error!(lease, %error, "the election died; another one begins");
                        // What died at once would do so for ever.
                        tokio::time::sleep(settings.timing.retry_period()).await;
                    }
                }
                return;
            }
            () = &mut leading => {}
            () = end.cancelled() => {
                if tokio::time::timeout(LAST_WRITES, leading).await.is_err() {
                    warn!(lease, within = ?LAST_WRITES, "what leads did not end in time; it is cut off");
                }
            }
        }
        release.cancel();
        let _ = candidate.join_next().await;
    }
}

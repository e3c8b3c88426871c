//! What every request of the hub shares.

use std::{sync::Arc, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    alike::Alike,
    authenticate::{
        Authenticator, Caller, User,
        tokens::{TokenError, Tokens, offline},
    },
    authorize::{Attributes, Authorizer, Decision, Subject},
    cloud_config::places::Place,
    definitions::Definitions,
    filters::Filters,
    identity::Report,
    last_link::LastLink,
    metrics::Meters,
    node_metric::Said,
    offline::{documents::Documents, tables::Tables},
    own_writes::OwnWrites,
    queue::Queue,
    run::{Lifetimes, Sharing},
    storage::Storage,
    subscriptions::{Carrier, Owner, Subscriptions},
    tasks::Tasks,
    tunnel_roles::State,
    upstream::{Credential, LinkState, Upstream},
};

/// Under which name it is stored who was shown what.
pub(crate) const SHOWN: &str = "shown";

/// How long anybody waits until that is stored.
const STORED: Duration = Duration::from_secs(1);

/// How many may wait for that; it is stored by housekeeping, too.
const STORING: usize = 4096;

/// The parts of a running hub.
pub struct Hub {
    /// The way to the API server.
    pub upstream: Upstream,
    /// When the link before this start ended.
    pub last_link: LastLink,
    /// How the hub's own identity is.
    pub identity: Report,
    /// How the reports of node metrics are.
    pub node_metric: Said,
    /// Who calls.
    pub authenticator: Authenticator,
    /// Whose token it is.
    pub tokens: Tokens,
    /// Why the cluster's keys could not be read when they were last asked for; `None` if they could, or were not asked for yet.
    pub unread_keys: ArcSwapOption<UnreadKeys>,
    /// Who may read.
    pub authorizer: Authorizer,
    /// What looks the same to all who may read it.
    pub alike: Alike,
    /// By which fields custom resources are selected, and whether they have namespaces.
    pub definitions: Definitions,
    /// What is held.
    pub subscriptions: Subscriptions,
    /// Discovery and the like.
    pub documents: Documents,
    /// What the API server made of objects for people.
    pub tables: Tables,
    /// What is shared, and how fresh it must be.
    pub sharing: ArcSwap<Sharing>,
    /// What says so, but for flags.
    pub configured_by: ArcSwap<Vec<Place>>,
    /// How long things are kept or believed.
    pub lifetimes: Lifetimes,
    /// What clients are shown of it.
    pub filters: Filters,
    /// What is kept on disk.
    pub storage: Storage,
    /// What is counted.
    pub meters: Meters,
    /// What outlives a request.
    pub tasks: Tasks,
    /// The tunnel, if it is on.
    pub tunnel: Option<Arc<State>>,
    /// What was written through the hub a moment ago.
    pub own_writes: OwnWrites,
    /// Who has it stored who was shown what: one at a time, for which no thread of the others waits.
    pub(crate) storing: Queue,
}

/// The cluster's keys, with which tokens are checked while there is no link, cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadKeys {
    /// Why.
    pub reason: String,
    /// Whether there are keys that were read before, which count on.
    pub earlier: bool,
}

/// A caller whose name is known.
#[derive(Debug, Clone)]
pub struct Named {
    /// For reviews of access.
    pub subject: Subject,
    /// Who it is: whose subscriptions it reads, where they are not for all.
    pub owner: Owner,
}

impl Named {
    /// The caller as one who may carry what it reads, if it has a credential for that.
    pub fn carrier(&self, credential: Option<Credential>) -> Option<Carrier> {
        Some(Carrier { user: self.owner.clone(), credential: credential? })
    }
}

impl Hub {
    /// A queue for [`Hub::shown_is_stored`].
    pub(crate) fn storing() -> Queue {
        Queue::new(1, STORING)
    }

    /// Has it stored who was shown what, until the disk has it. A disk that stands still holds nobody up for long.
    pub(crate) async fn shown_is_stored(self: &Arc<Self>) {
        let hub = self.clone();
        // What it does not take in time it takes later, or with the next turn.
        let _ = self.storing.take_turn_within(STORED, move || hub.store_shown()).await;
    }

    /// Stores who was shown what, if that is other than when it was last stored. Waits for the disk.
    pub fn store_shown(&self) {
        self.storage.exclusively(|storage| {
            if let Some(shown) = self.filters.export() {
                storage.keep_blob(SHOWN, &shown);
            }
        });
    }

    /// The name behind a caller's credential.
    pub async fn name(&self, caller: &Caller) -> Result<Named, TokenError> {
        Ok(match caller {
            Caller::Node => Named {
                subject: Subject::Node { name: self.authenticator.node_user.clone() },
                owner: Owner::Node,
            },
            Caller::Certificate(user) => {
                Named { subject: Subject::Certificate(user.clone()), owner: owner(user) }
            }
            Caller::Token(token) => {
                let user = self.tokens.user(token).await?;
                let owner = owner(&user);
                Named { subject: Subject::Token { user, token: token.clone() }, owner }
            }
        })
    }

    /// Whether `subject` may read what `attributes` say. A token that is found not to be good is not taken any more.
    pub async fn may(&self, subject: &Subject, attributes: &Attributes) -> Decision {
        let decision = self.authorizer.decide(subject, attributes).await;
        if let (Decision::Unauthorized(_), Subject::Token { token, .. }) = (&decision, subject) {
            self.tokens.refuse(token);
        }
        decision
    }

    /// Keeps the cluster's keys, with which tokens are checked while there is no link.
    pub async fn learn_keys(self: Arc<Self>, shutdown: CancellationToken) {
        let stored = self.storage.blob(KEYS_BLOB).and_then(|blob| serde_json::from_slice(&blob).ok());
        let mut earlier = stored.is_some();
        if let Some(stored) = stored {
            self.tokens.set_offline(stored);
        }
        let keep = async {
            let mut link = self.upstream.state();
            loop {
                let _ = link.wait_for(|state| matches!(state, LinkState::Up(_))).await;
                let pause = match offline::ask(&self.upstream).await {
                    Ok(found) => {
                        earlier = true;
                        self.unread_keys.store(None);
                        let found = self.tokens.set_offline(found);
                        let stored = serde_json::to_vec(&*found).unwrap_or_default();
                        if self.storage.blob(KEYS_BLOB).as_deref() != Some(&stored) {
                            self.storage.keep_blob(KEYS_BLOB, &stored);
                        }
                        KEYS
                    }
                    Err(error) => {
                        let without = if earlier {
                            "tokens are checked with those of before"
                        } else {
                            "no token can be checked"
                        };
                        warn!(%error, "the cluster's keys cannot be read: without a link {without}");
                        self.unread_keys
                            .store(Some(Arc::new(UnreadKeys { reason: error.to_string(), earlier })));
                        KEYS / 60
                    }
                };
                tokio::select! {
                    () = sleep(pause) => {}
                    () = self.tokens.learns() => {}
                }
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = keep => {}
        }
    }
}

/// How often the cluster's keys are looked up.
const KEYS: Duration = Duration::from_hours(1);

/// Where the keys are kept.
const KEYS_BLOB: &str = "token-keys";

fn owner(user: &Arc<User>) -> Owner {
    Owner::User(user.name.clone())
}

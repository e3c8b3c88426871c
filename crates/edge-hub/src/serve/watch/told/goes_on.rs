//! Whether a watcher still may read what it is told.

use tokio::time::Instant;
use tracing::debug;

use super::Watch;
use crate::{
    authorize::{Decision, Subject},
    subscriptions::{Owner, Progress},
};

impl Watch {
    /// Whether the watcher still may read this. That its token has expired is known without a link, too.
    pub(super) async fn may_go_on(&mut self) -> bool {
        self.review = Instant::now() + self.hub.lifetimes.review;
        if !self.hub.sharing.load().keeps(&self.subscription.key().resource) {
            debug!(key = %self.subscription.key(), "a watch ends: the API server is to answer from now on");
            return false;
        }
        if let Subject::Token { token, .. } = &self.subject
            && self.hub.tokens.has_expired(token)
        {
            debug!(key = %self.subscription.key(), "a watch ends: its token has expired");
            return false;
        }
        let decision = if self.is_given_to_the_node() {
            Decision::Allowed
        } else {
            self.hub.may(&self.subject, &self.attributes).await
        };
        if decision == Decision::Allowed {
            self.subscription.offer(&self.carrier);
        }
        let goes_on = self.undecided.goes_on(&decision, self.hub.lifetimes.allowed, Instant::now());
        if !goes_on {
            debug!(key = %self.subscription.key(), ?decision, "a watch ends: access was revoked, or cannot be asked");
        }
        goes_on
    }

    /// Whether its user gets the same in its own name once the API server does not take the node's credential any more.
    pub(super) fn has_another_stream(&self) -> bool {
        let key = self.subscription.key();
        key.owner == Owner::Node
            && !matches!(self.subject, Subject::Node { .. })
            && !self.hub.sharing.load().pools(&key.resource)
    }

    /// Whether the API server gives the node all of this just now, and the node is who watches: to ask for its rights as well would cost the link,
    /// and say what is seen.
    fn is_given_to_the_node(&self) -> bool {
        matches!(self.subject, Subject::Node { .. })
            && self.subscription.key().owner == Owner::Node
            && *self.progress.borrow() == Progress::Watching
    }
}

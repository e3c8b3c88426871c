//! What happened before the upstream watch was open, during a cut or while a list was on its way: when it has told all of that, what is held is what there is now.
//!
//! However alive the connection is, over a thin line that takes its time. It is known by what is held: it has come to the version that the
//! server was at when the watch was open. That may be of a write to another resource, of which nothing is told. So it is known, too, by a
//! silence, if the server answers after it.

use std::time::Duration;

use futures::{FutureExt as _, future::BoxFuture};
use kube_wire::resource_version::ResourceVersion;
use tokio::{task::yield_now, time::sleep};

use super::epoch;
use crate::{
    subscriptions::Subscription,
    upstream::{Credential, Source, Upstream},
};

/// A server that has more to tell is not silent for so long.
pub(super) const SILENT: Duration = Duration::from_secs(3);

/// What a watch that goes on has yet to tell of the time before, if anything.
pub(super) struct Missed<'a> {
    upstream: &'a Upstream,
    subscription: &'a Subscription,
    credential: &'a Credential,
    /// The version that the server was at, if it said so.
    at: Option<ResourceVersion>,
    /// The connection that the watch comes over.
    source: Source,
    /// Made when there is something to wait for.
    silence: Option<BoxFuture<'a, ()>>,
    /// Whether there was a silence, and nothing came since.
    was_silent: bool,
}

impl<'a> Missed<'a> {
    /// Of a watch that is open, and not read yet.
    pub(super) fn new(
        upstream: &'a Upstream,
        subscription: &'a Subscription,
        credential: &'a Credential,
        at: Option<ResourceVersion>,
        source: Source,
    ) -> Self {
        Self { upstream, subscription, credential, at, source, silence: None, was_silent: false }
    }

    /// Something came, and is applied unless it is held back.
    pub(super) fn came(&mut self) {
        (self.silence, self.was_silent) = (None, false);
        if self.subscription.is_untold() && self.at.is_some_and(|at| self.subscription.version() >= Some(at))
        {
            self.subscription.caught_up();
        }
    }

    /// Comes to pass when nothing has come for so long that nothing is missing. To be waited for after what may come at the same time.
    pub(super) async fn is_told(&mut self) {
        if !self.was_silent {
            let (upstream, subscription, credential) = (self.upstream, self.subscription, self.credential);
            let source = self.source.clone();
            let begin = || silence(upstream, subscription, credential, source).boxed();
            self.silence.get_or_insert_with(begin).await;
            (self.silence, self.was_silent) = (None, true);
        }
        // It may be the link that was silent: what came before the answer is taken first.
        yield_now().await;
    }
}

/// Waits until the server was silent for a while and answers then. The watch may come over another connection than the answer.
async fn silence(upstream: &Upstream, subscription: &Subscription, credential: &Credential, source: Source) {
    loop {
        sleep(SILENT).await;
        let answer = epoch::most_recent(upstream, subscription, credential).await;
        source.prove(SILENT).await;
        if answer.is_some() && source.heard_ago() < SILENT {
            return;
        }
    }
}

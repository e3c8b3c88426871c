//! What a request waits for: that its subscription is whole, or has come to a version; and what is said if it does not come there.

use std::time::Duration;

use kube_wire::{resource_version::ResourceVersion, status::Status};
use tokio::time::timeout;

use super::TOO_LARGE;
use crate::{hub::Hub, subscriptions::Subscription};

/// How long a request waits for the first list of its subscription.
const FIRST_LIST: Duration = Duration::from_secs(30);

/// Waits until the subscription holds everything. `Ok(false)`: it will not soon, and there is a link to hand the request on over.
pub(super) async fn complete(hub: &Hub, subscription: &Subscription) -> Result<bool, Box<Status>> {
    if subscription.progress().borrow().is_gone() && hub.upstream.is_up() {
        return Ok(false);
    }
    if subscription.version().is_some() {
        return Ok(true);
    }
    let mut changes = subscription.changes();
    let mut progress = subscription.progress();
    let mut link = hub.upstream.state();
    let waiting = async {
        loop {
            if subscription.version().is_some() {
                return Ok(true);
            }
            if progress.borrow_and_update().is_refused() {
                return Ok(false);
            }
            if !hub.upstream.is_up() {
                return Err(Box::new(Status::service_unavailable(
                    "edge-hub: no link to the API server, and this was never read whole while there was one",
                )));
            }
            tokio::select! {
                _ = changes.changed() => {}
                _ = progress.changed() => {}
                _ = link.changed() => {}
                () = subscription.closed().cancelled() => return Ok(false),
            }
        }
    };
    timeout(FIRST_LIST, waiting).await.unwrap_or_else(|_| Err(Box::new(Status::not_ready(1))))
}

/// Waits, for no longer than the API server does, until the subscription has come to `version`.
pub(super) async fn reached(subscription: &Subscription, version: ResourceVersion) -> bool {
    let mut changes = subscription.changes();
    let waiting = async {
        while subscription.version().is_none_or(|current| current < version) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    timeout(TOO_LARGE, waiting).await.is_ok()
}

/// What is held may be of a time that the API server is no longer in, as after a restore of its etcd: that is found out within seconds.
pub(super) fn doubted() -> Status {
    let message =
        "edge-hub: what is held may not be what the API server has, and is being compared with it; ask again";
    Status::too_many_requests(message, 1)
}

/// What happened during a cut is on its way, over a line on which that takes its time.
pub(super) fn catching_up() -> Status {
    let message =
        "edge-hub: what the API server has to tell after a cut has not all come over the link yet; ask again";
    Status::too_many_requests(message, 5)
}

/// What is held has not come to the version that a reader knows of. While the upstream watch runs that is said as the API server does. A reflector that
/// hears it lists the most recent state, whatever it knew before; else that would be older than what it has been told, so it is to keep what it has,
/// and to ask again.
pub(super) fn beyond(hub: &Hub, subscription: &Subscription, asked: ResourceVersion) -> Status {
    let held = subscription.version();
    if subscription.age(hub.upstream.is_up()).watching {
        return Status::too_large(asked, held);
    }
    let held = held.map_or(0, ResourceVersion::get);
    let message = format!(
        "edge-hub: the API server is not watched now, and what is held is of resource version {held}, before {asked}, which was asked for: it is older than what is known to who asks"
    );
    Status::too_many_requests(message, 5)
}

//! Discovery names what is on the node. Clients look a resource up there before they ask for its objects: one whose definition is newer than what is
//! kept would be held, and not found without a link.

use std::{collections::BTreeMap, time::Duration};

use kube_wire::resource::GroupVersionResource;
use tokio::time::{Instant, sleep};

use super::{super::documents::naming, AGGREGATED, fetch};
use crate::hub::Hub;

/// How often it is looked for resources that have come into use.
const LOOK: Duration = Duration::from_secs(2);

/// How long after one that discovery did not name it is asked once more, four times as long each time: an API server serves a new definition before it
/// names it, and some resources it never names.
const AGAIN: Duration = Duration::from_secs(4);

/// When discovery is asked for again because of a resource that it does not name; none if it does.
type Due = Option<(Instant, Duration)>;

/// Asks for discovery where what is kept does not name a resource that is in use, as long as there is a link.
pub(super) async fn keep(hub: &Hub) {
    let mut all = BTreeMap::<GroupVersionResource, Due>::new();
    loop {
        sleep(LOOK).await;
        let used = hub.subscriptions.resources();
        // What comes into use once more may be of another definition.
        all.retain(|resource, _| used.contains(resource));
        let now = Instant::now();
        for resource in used {
            let due = all.entry(resource.clone()).or_insert(Some((now, AGAIN)));
            let Some((at, pause)) = *due else { continue };
            if at > now {
                continue;
            }
            // Another may have been the reason to ask a moment ago.
            let mut is_named = hub.documents.names(&resource);
            if !is_named {
                fetch(hub, naming(&resource), AGGREGATED).await;
                is_named = hub.documents.names(&resource);
            }
            *due = (!is_named).then(|| (Instant::now() + pause, pause.saturating_mul(4)));
        }
    }
}

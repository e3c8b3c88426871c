//! Discovery names what is on the node. Clients look a resource up there before they ask for its objects: one whose definition is newer than what is
//! kept would be held, and not found without a link.

use std::{collections::BTreeMap, time::Duration};

use kube_wire::resource::GroupVersionResource;
use tokio::{
    sync::mpsc::UnboundedSender,
    time::{Instant, sleep},
};

use super::{super::documents::naming, AGGREGATED, fetch, openapi};
use crate::hub::Hub;

/// How often it is looked for resources that have come into use.
const LOOK: Duration = Duration::from_secs(2);

/// How long after one that discovery did not name it is asked once more, four times as long each time: an API server serves a new definition before it
/// names it, and some resources it never names.
const AGAIN: Duration = Duration::from_secs(4);

/// When discovery is asked for again because of a resource that it does not name; none if it does.
type Due = Option<(Instant, Duration)>;

/// Asks for discovery where what is kept does not name a resource that is in use, as long as there is a link. Of one that is named then the document of
/// `OpenAPI` is to be renewed: its path is said to `came`.
pub(super) async fn keep(hub: &Hub, came: &UnboundedSender<String>) {
    let mut all = BTreeMap::<GroupVersionResource, Due>::new();
    loop {
        sleep(LOOK).await;
        let used = hub.subscriptions.resources();
        // What comes into use once more may be of another definition.
        all.retain(|resource, _| used.contains(resource));
        let now = Instant::now();
        // Before any is asked for: with the answer others may be named that were not, either.
        let mut unnamed = Vec::new();
        for resource in used {
            let due = all.entry(resource.clone()).or_insert(Some((now, AGAIN)));
            let Some((at, pause)) = *due else { continue };
            if at > now {
                continue;
            }
            let is_first = pause == AGAIN;
            if is_first && hub.documents.names(&resource) {
                *due = None;
            } else {
                unnamed.push((resource, pause));
            }
        }
        for (resource, pause) in unnamed {
            // Another may have been the reason to ask a moment ago.
            let mut is_named = hub.documents.names(&resource);
            if !is_named {
                fetch(hub, naming(&resource), AGGREGATED).await;
                is_named = hub.documents.names(&resource);
            }
            if is_named {
                // Whoever hears of it is there as long as this is.
                let _ = came.send(openapi::path(&resource));
            }
            let due = (!is_named).then(|| (Instant::now() + pause, pause.saturating_mul(4)));
            all.insert(resource, due);
        }
    }
}

//! When a hub has noticed that the cluster was restored: each of its streams has.

use serde_json::Value;
use testkit::{
    client::connection::Endpoint,
    history::{Scope, State, check_converged, key},
};
use tokio::time::{Instant, sleep};

use super::{
    super::{
        history_clients::{self, AWAY_OF_ANOTHER, AWAY_OF_THE_NODE},
        site::JSON,
    },
    rights::TOKEN,
    world::{LOOK, SOON, World},
};

impl World {
    /// Waits until the hub itself lists what the cluster has, at a version that the cluster has: what it hands on shows nothing. In each scope, as a
    /// stream that was behind what was undone has nothing to notice, and another one of that resource has.
    pub(super) async fn noticed(&self) {
        let (hub, deadline) = (self.endpoint(), Instant::now() + SOON);
        let of_node = history_clients::lists().chain(history_clients::lists_away(&AWAY_OF_THE_NODE));
        for (id, scope, path) in of_node {
            loop {
                // At first, too: by then what was on its way before the restore has come.
                sleep(LOOK).await;
                let listed = held(&hub, &path).await;
                if listed.as_ref().is_some_and(|list| self.is_current(id, &scope, list)) {
                    break;
                }
                assert!(Instant::now() < deadline, "the restore is not noticed: {listed:?}");
            }
        }
        // Of the second identity what the hub holds, if it may be shown that.
        let another = hub.with_token(TOKEN);
        for (id, scope, path) in history_clients::lists_away(&AWAY_OF_ANOTHER) {
            while let Some(listed) = held(&another, &path).await {
                if self.is_current(id, &scope, &listed) {
                    break;
                }
                assert!(Instant::now() < deadline, "the restore is not noticed of users: {listed:?}");
                sleep(LOOK).await;
            }
        }
    }

    fn is_current(&self, id: &str, scope: &Scope, list: &Value) -> bool {
        let Some(items) = list["items"].as_array() else { return false };
        let state: State = items.iter().map(|item| (key(item), item.clone())).collect();
        let version = list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
        version.is_some_and(|version| version <= self.cluster.revision())
            && check_converged(&self.cluster.history(id), scope, &state).is_ok()
    }
}

/// A list that the hub answers by itself; nothing else.
pub(super) async fn held(hub: &Endpoint, path: &str) -> Option<Value> {
    let mut answer = hub.get(path, JSON).await.ok()?;
    let is_held = answer.status == 200 && !answer.headers.contains_key("audit-id");
    let body = answer.bytes().await.ok()?;
    serde_json::from_slice(&body).ok().filter(|_| is_held)
}

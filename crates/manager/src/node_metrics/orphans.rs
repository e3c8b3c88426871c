//! Objects without a Node. A new leader's watch of Nodes may lag behind the copy that it took over: an object goes only when the API server
//! says that there is no such Node.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use node_metrics::store::Store;
use tracing::{debug, info, warn};

use super::{Host, turn};

/// How often it is looked for them.
const TURN: Duration = Duration::from_secs(1);

/// How many Nodes are asked for in a turn.
const AT_ONCE: usize = 20;

/// A request that takes longer is given up.
const CALL: Duration = Duration::from_secs(5);

/// Takes away what has no Node, while this replica leads. Never ends.
pub(super) async fn clear(host: Arc<Host>) {
    let nodes: Api<Node> = Api::all(host.client.clone());
    let mut turns = turn::Turns::of(AT_ONCE);
    loop {
        tokio::time::sleep(TURN).await;
        if !host.source.is_leading() {
            continue;
        }
        let orphans = host.source.read(Store::orphans).into_iter().map(|name| (name, ())).collect();
        for (name, ()) in turns.next(orphans) {
            match tokio::time::timeout(CALL, nodes.get_metadata_opt(&name)).await {
                Ok(Ok(None)) => {
                    info!(node = &*name, "there is no such Node any more");
                    host.source.change(|store, now| store.no_node(now, &name));
                }
                Ok(Ok(Some(_))) => debug!(node = &*name, "the watch of Nodes does not tell of it yet"),
                Ok(Err(error)) => warn!(%error, node = &*name, "cannot look for a Node"),
                Err(_) => warn!(node = &*name, "cannot look for a Node: no answer"),
            }
        }
    }
}

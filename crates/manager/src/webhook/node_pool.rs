//! `NodePool`s at their deletion: which nodes a pool has, and what the plan says then.

pub mod plan;

use std::error::Error;
use std::time::Duration;

use api::labels::NODE_POOL;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::timeout;

use super::Unanswered;
use super::review::{Answer, Operation, Request};
use plan::{PoolNodes, can_have_nodes, plan};

/// How long the list of nodes may take; the API server waits 3 s for the webhook.
const DEADLINE: Duration = Duration::from_secs(2);

/// How many nodes are listed at most: enough to say how many there are in all but huge pools.
const LIMIT: u32 = 500;

/// What went wrong with listing nodes.
pub type NodesError = Box<dyn Error + Send + Sync>;

/// Who knows for certain which nodes a pool has.
pub trait Nodes: Send + Sync {
    /// The nodes of `pool` as they are now.
    fn of_pool<'a>(&'a self, pool: &'a str) -> BoxFuture<'a, Result<PoolNodes, NodesError>>;
}

impl Nodes for Client {
    fn of_pool<'a>(&'a self, pool: &'a str) -> BoxFuture<'a, Result<PoolNodes, NodesError>> {
        async move {
            let params = ListParams::default().labels(&format!("{NODE_POOL}={pool}")).limit(LIMIT);
            let list = Api::<Node>::all(self.clone()).list_metadata(&params).await?;
            let more = list.metadata.continue_.is_some_and(|token| !token.is_empty());
            Ok(PoolNodes { names: list.items.iter().map(ResourceExt::name_any).collect(), more })
        }
        .boxed()
    }
}

/// Answers for the `NodePool` in `request`.
pub(super) async fn answer(request: &Request, nodes: &dyn Nodes) -> Result<Answer, Unanswered> {
    let pool = request.name();
    if request.operation != Operation::Delete || !can_have_nodes(pool) {
        return Ok(Answer::allow());
    }
    let nodes = timeout(DEADLINE, nodes.of_pool(pool))
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", DEADLINE.as_secs()).into()))
        .map_err(|source| Unanswered::Nodes { pool: pool.to_owned(), source })?;
    Ok(match plan(pool, &nodes) {
        None => Answer::allow(),
        Some(refusal) => Answer::Refuse { message: refusal.to_string() },
    })
}

//! Pods at their creation: which pool a pod wants, what is known of it, and what the plan says then.
//!
//! Pools are looked up in an index. Only for a pod that names its node itself is that node asked for at the API server.

mod binding;
mod exclusion;
mod host_network;
pub mod plan;
mod raw;

use api::NetworkMode;
use tokio::time::{Instant, timeout_at};

use super::Unanswered;
use super::nodes::{DEADLINE, Nodes, late};
use super::review::{Answer, Operation, Request};
use crate::pools::{PoolView, Pools};
use plan::{Decision, NamedNode, PoolNetwork, desired_pool, named_node, plan};

/// Answers for the pod in `request`.
pub(super) async fn answer(
    request: &Request,
    pools: &Pools,
    nodes: &dyn Nodes,
) -> Result<Answer, Unanswered> {
    if request.operation != Operation::Create {
        return Ok(Answer::allow());
    }
    // One time for all questions.
    let until = Instant::now() + DEADLINE;
    let network = match desired_pool(&request.object) {
        Ok(Some(pool)) => network(pool, pools).await?,
        // The plan refuses what is malformed.
        Ok(None) | Err(_) => PoolNetwork::Unknown,
    };
    let node = match named_node(&request.object) {
        Ok(Some(name)) if network == PoolNetwork::Host => Some(node(name, nodes, until).await?),
        _ => None,
    };
    Ok(match plan(&request.object, network, node.as_ref()) {
        Decision::Admit { patch, warnings } => Answer::Allow { patch, warnings },
        Decision::Refuse(refusal) => Answer::Refuse { message: refusal.to_string() },
    })
}

async fn network(pool: &str, pools: &Pools) -> Result<PoolNetwork, Unanswered> {
    Ok(match pools.find(pool).await? {
        Some(PoolView::Network(NetworkMode::HostNetwork)) => PoolNetwork::Host,
        Some(PoolView::Network(NetworkMode::ContainerNetwork)) => PoolNetwork::Container,
        None => PoolNetwork::Unknown,
        Some(PoolView::Unreadable(error)) => {
            return Err(Unanswered::UnreadablePool { pool: pool.to_owned(), error });
        }
    })
}

async fn node(name: &str, nodes: &dyn Nodes, until: Instant) -> Result<NamedNode, Unanswered> {
    timeout_at(until, nodes.membership(name))
        .await
        .unwrap_or_else(|_| Err(late()))
        .map_err(|source| Unanswered::Node { node: name.to_owned(), source })
}

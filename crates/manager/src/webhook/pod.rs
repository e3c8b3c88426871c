//! Pods at their creation: which pool a pod wants, what is known of it, and what the plan says then.

mod binding;
mod exclusion;
mod host_network;
pub mod plan;
mod raw;

use api::NetworkMode;

use super::Unanswered;
use super::review::{Answer, Operation, Request};
use crate::pools::{PoolView, Pools};
use plan::{Decision, PoolNetwork, desired_pool, plan};

/// Answers for the pod in `request`.
pub(super) async fn answer(request: &Request, pools: &Pools) -> Result<Answer, Unanswered> {
    if request.operation != Operation::Create {
        return Ok(Answer::allow());
    }
    let network = match desired_pool(&request.object) {
        Ok(Some(pool)) => network(pool, pools).await?,
        // The plan refuses what is malformed.
        Ok(None) | Err(_) => PoolNetwork::Unknown,
    };
    Ok(match plan(&request.object, network) {
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

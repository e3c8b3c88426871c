//! `NodePool`s at their deletion: which nodes a pool has, and what the plan says then.

pub mod plan;

use tokio::time::timeout;

use super::Unanswered;
use super::nodes::{DEADLINE, Nodes, late};
use super::review::{Answer, Operation, Request};
use plan::{can_have_nodes, plan};

/// Answers for the `NodePool` in `request`.
pub(super) async fn answer(request: &Request, nodes: &dyn Nodes) -> Result<Answer, Unanswered> {
    let pool = request.name();
    if request.operation != Operation::Delete || !can_have_nodes(pool) {
        return Ok(Answer::allow());
    }
    let nodes = timeout(DEADLINE, nodes.of_pool(pool))
        .await
        .unwrap_or_else(|_| Err(late()))
        .map_err(|source| Unanswered::Nodes { pool: pool.to_owned(), source })?;
    Ok(match plan(pool, &nodes) {
        None => Answer::allow(),
        Some(refusal) => Answer::Refuse { message: refusal.to_string() },
    })
}

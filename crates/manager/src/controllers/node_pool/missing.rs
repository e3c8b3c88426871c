//! What is told of the nodes of a pool that is not there to say it in a condition: events on the nodes themselves.

use std::collections::BTreeMap;

use api::labels;

use super::Context;
use super::node_events::{self, NodeEvent};
use super::observe::Observed;
use super::plan::Plan;

/// What is to be told of nodes, by their names.
fn troubles<'a>(observed: &'a Observed, plan: &'a Plan) -> BTreeMap<&'a str, NodeEvent> {
    let trouble = |reason, action, message| NodeEvent { reason, action, message, occasion: String::new() };
    let mut troubles = BTreeMap::new();
    for node in &observed.waiting {
        let message = format!(
            "label {} names {pool}, and there is no NodePool {pool}: until it is made the node is in no pool; \
             kubectl get nodepools shows those there are",
            labels::NODE_POOL,
            pool = observed.name,
        );
        troubles.insert(node.as_str(), trouble("NodePoolMissing", "Join", message));
    }
    for (node, error) in &plan.refused {
        troubles.insert(node, trouble("NotReleased", "Release", error.to_string()));
    }
    troubles
}

/// Tells of the nodes that name the pool, and of those that it cannot let go, once for each change.
pub(crate) async fn tell(context: &Context, observed: &Observed, plan: &Plan) {
    let troubles = troubles(observed, plan);
    context.progress.forget_told(&observed.name, |node| troubles.contains_key(node));
    for (node, trouble) in troubles {
        if let Some(times) = context.progress.is_news(node, &observed.name, &trouble.message) {
            node_events::publish(context, node, trouble, times).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::controllers::node_pool::Progress;
    use crate::controllers::node_pool::plan::{NodeError, Remedy};
    use crate::nodes::NodeView;

    #[test]
    fn who_waits_for_a_pool_or_cannot_leave_one_is_told() {
        let leaver = |name: &str| Arc::new(NodeView { name: name.to_owned(), ..NodeView::default() });
        let observed = Observed {
            name: "shop".to_owned(),
            leavers: vec![leaver("left"), leaver("kept"), leaver("both")],
            waiting: vec!["waits".to_owned(), "both".to_owned()],
            ..Observed::default()
        };
        let mut plan = Plan::default();
        for node in ["kept", "both"] {
            let error = NodeError::UnreadableRecord {
                node: node.to_owned(),
                reason: "cut off".to_owned(),
                remedy: Remedy::ByHand,
            };
            plan.refused.push((node.to_owned(), error));
        }
        let told: Vec<_> =
            troubles(&observed, &plan).into_iter().map(|(node, trouble)| (node, trouble.reason)).collect();
        let expected = [("both", "NotReleased"), ("kept", "NotReleased"), ("waits", "NodePoolMissing")];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_mistake_that_is_made_again_is_told_again() {
        let progress = Progress::default();
        assert_eq!(progress.is_news("n1", "shop", "missing"), Some(1));
        assert_eq!(progress.is_news("n1", "shop", "missing"), None);
        progress.forget_told("shop", |node| node == "n1");
        progress.forget_told("other", |_| false);
        assert_eq!(progress.is_news("n1", "shop", "missing"), None, "it goes on");
        progress.forget_told("shop", |_| false);
        assert_eq!(progress.is_news("n1", "shop", "missing"), Some(2), "it ended in between");
        assert_eq!(progress.is_news("n1", "shop", "other"), Some(1), "something else");
    }
}

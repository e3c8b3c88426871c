//! What is told of the nodes of a pool that is not there to say it in a condition: events on the nodes themselves.

use std::collections::BTreeMap;

use api::labels;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};
use tracing::warn;

use super::Context;
use super::observe::Observed;
use super::plan::Plan;

/// What is told of a node.
#[derive(Debug, PartialEq)]
struct Trouble {
    reason: &'static str,
    action: &'static str,
    message: String,
}

/// What is to be told of nodes, by their names.
fn troubles<'a>(observed: &'a Observed, plan: &'a Plan) -> BTreeMap<&'a str, Trouble> {
    let mut troubles = BTreeMap::new();
    for node in &observed.waiting {
        let message = format!(
            "label {} names {pool}, and there is no NodePool {pool}: until it is made the node is in no pool; \
             kubectl get nodepools shows those there are",
            labels::NODE_POOL,
            pool = observed.name,
        );
        let trouble = Trouble { reason: "NodePoolMissing", action: "Join", message };
        troubles.insert(node.as_str(), trouble);
    }
    for (node, error) in &plan.refused {
        let trouble = Trouble { reason: "NotReleased", action: "Release", message: error.to_string() };
        troubles.insert(node, trouble);
    }
    troubles
}

/// Tells of the nodes that name the pool, and of those that it cannot let go, once for each change.
pub(crate) async fn tell(context: &Context, observed: &Observed, plan: &Plan) {
    // A recorder keeps each event whole for minutes, to count its repeats: of thousands of nodes that is megabytes, and what is
    // no news is not told again anyway.
    let recorder = Recorder::new(context.client.clone(), context.reporter.clone());
    let troubles = troubles(observed, plan);
    context.progress.forget_told(&observed.name, |node| troubles.contains_key(node));
    for (node, Trouble { reason, action, message }) in troubles {
        if !context.progress.is_news(node, &observed.name, &message) {
            continue;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(message.chars().take(1000).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            // As kubelets tell of their nodes, so that `kubectl describe node` shows it.
            uid: Some(node.to_owned()),
            ..ObjectReference::default()
        };
        if let Err(error) = recorder.publish(&event, &about).await {
            warn!(node, %error, "event could not be published");
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
        assert!(progress.is_news("n1", "shop", "missing"));
        assert!(!progress.is_news("n1", "shop", "missing"));
        progress.forget_told("shop", |node| node == "n1");
        progress.forget_told("other", |_| false);
        assert!(!progress.is_news("n1", "shop", "missing"), "it goes on");
        progress.forget_told("shop", |_| false);
        assert!(progress.is_news("n1", "shop", "missing"), "it ended in between");
    }
}

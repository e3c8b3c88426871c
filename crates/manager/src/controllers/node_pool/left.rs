//! What is told of a node that is in a host-network pool no more: the node itself is as it was set up for the pool, and nobody in the cluster
//! can change that.

use api::labels;

use super::Context;
use super::apply::Applied;
use super::node_events::{self, NodeEvent};
use super::plan::{NodePatch, Plan};

/// Tells of the nodes from which the labels of a host-network pool were taken.
pub(super) async fn tell(context: &Context, plan: &Plan, applied: &Applied) {
    for patch in plan.nodes.iter().filter(|patch| applied.written.contains(&patch.node)) {
        if let Some(event) = event(patch) {
            node_events::publish(context, &patch.node, event, 1).await;
        }
    }
}

/// The event, if the patch takes the node out of host-network pools.
fn event(patch: &NodePatch) -> Option<NodeEvent> {
    let goes = |(key, _): &(&str, &str)| patch.labels.get(*key) == Some(&None);
    labels::HOST_NETWORK_NODE.iter().any(goes).then(|| NodeEvent {
        reason: "LeftHostNetwork",
        action: "Leave",
        message: "the node is in a host-network pool no more, and pods with a network of their own may come: if it was set up for one, give it \
                  back its CNI configuration (edge-hub hostnet disable, on the node) and see that its CNI agent and kube-proxy run; take \
                  the pool's labels out of its kubelet's --node-labels"
            .to_owned(),
        // It may leave again.
        occasion: patch.resource_version.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::node_pool::ownership::Changes;

    #[test]
    fn only_who_loses_the_labels_has_left() {
        let patch = |labels: Changes| NodePatch {
            node: "n1".to_owned(),
            resource_version: "7".to_owned(),
            labels,
            annotations: Changes::new(),
            taints: None,
            taint_changes: Changes::new(),
        };
        let label = |value: Option<&str>| {
            Changes::from([(labels::HOST_NETWORK.to_owned(), value.map(str::to_owned))])
        };
        assert_eq!(event(&patch(label(Some("true")))), None, "it joins");
        assert_eq!(event(&patch(Changes::from([("zone".to_owned(), None)]))), None);
        let told = event(&patch(label(None))).unwrap();
        assert!(
            told.message.len() <= 1000 && told.message.contains("edge-hub hostnet disable"),
            "{}",
            told.message
        );
    }
}

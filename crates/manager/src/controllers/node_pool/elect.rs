//! Pure: which nodes lead a pool.
//!
//! A survivor stays: a node that leads and still may lead is never replaced by another. New leaders are drawn by a hash
//! of pool and node, so that the draw is spread over nodes yet the same for whoever repeats it.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use api::{LeaderElectionStrategy, LeaderEndpoint, NodePool};

use crate::nodes::NodeView;

/// The outcome of an election.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Election {
    /// How many leaders the pool asks for; 0 when election is off.
    pub(crate) wanted: usize,
    /// The leaders, sorted by node.
    pub(crate) leaders: Vec<LeaderEndpoint>,
    /// Whether the leaders differ from those in the pool's status.
    pub(crate) changed: bool,
}

/// Elects the leaders of `pool` among its `members`.
pub(crate) fn elect(pool: &NodePool, members: &[Arc<NodeView>]) -> Election {
    let current = pool.status.as_ref().map(|status| status.leader_endpoints.clone()).unwrap_or_default();
    if !pool.spec.enable_leader_election {
        return Election { wanted: 0, leaders: Vec::new(), changed: !current.is_empty() };
    }
    let wanted = pool.spec.wanted_leaders();
    let seated: BTreeSet<&str> = current.iter().map(|leader| leader.node_name.as_str()).collect();
    let mut candidates: Vec<LeaderEndpoint> =
        members.iter().filter_map(|node| candidate(pool, node)).collect();
    candidates.sort_by_cached_key(|candidate| {
        (!seated.contains(candidate.node_name.as_str()), draw(pool, &candidate.node_name))
    });
    candidates.truncate(wanted);
    candidates.sort();
    let mut before = current;
    before.sort();
    Election { wanted, changed: candidates != before, leaders: candidates }
}

/// The node as a leader, if it may be one: ready, with an address, and marked where the strategy asks for it.
fn candidate(pool: &NodePool, node: &NodeView) -> Option<LeaderEndpoint> {
    let marked = match pool.spec.leader_election_strategy {
        LeaderElectionStrategy::Random => true,
        LeaderElectionStrategy::Mark => {
            let selector = &pool.spec.leader_node_label_selector;
            !selector.is_empty() && selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        }
    };
    let address = node.internal_ip.clone()?;
    (marked && node.ready).then(|| LeaderEndpoint { node_name: node.name.clone(), address })
}

fn draw(pool: &NodePool, node: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&pool.metadata.uid, node).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use api::NodePoolStatus;

    use super::*;

    fn pool(strategy: LeaderElectionStrategy, replicas: i32, current: &[(&str, &str)]) -> NodePool {
        let mut pool = NodePool::new("shop", api::NodePoolSpec::default());
        pool.spec.enable_leader_election = true;
        pool.spec.leader_election_strategy = strategy;
        pool.spec.leader_replicas = replicas;
        pool.spec.leader_node_label_selector = [("lead".to_owned(), "yes".to_owned())].into();
        let leader_endpoints = current.iter().map(|(node, address)| endpoint(node, address)).collect();
        pool.status = Some(NodePoolStatus { leader_endpoints, ..NodePoolStatus::default() });
        pool
    }

    fn endpoint(node: &str, address: &str) -> LeaderEndpoint {
        LeaderEndpoint { node_name: node.to_owned(), address: address.to_owned() }
    }

    fn node(name: &str, ready: bool, address: Option<&str>, marked: bool) -> Arc<NodeView> {
        let mut node = NodeView { name: name.to_owned(), ready, ..NodeView::default() };
        node.internal_ip = address.map(str::to_owned);
        if marked {
            node.labels.insert("lead".to_owned(), "yes".to_owned());
        }
        Arc::new(node)
    }

    #[test]
    fn off_means_no_leaders() {
        let mut pool = pool(LeaderElectionStrategy::Random, 1, &[("a", "10.0.0.1")]);
        pool.spec.enable_leader_election = false;
        let election = elect(&pool, &[node("a", true, Some("10.0.0.1"), true)]);
        assert_eq!(election, Election { wanted: 0, leaders: Vec::new(), changed: true });
    }

    #[test]
    fn survivors_stay_and_the_dead_are_replaced() {
        let members = [
            node("a", false, Some("10.0.0.1"), false),
            node("b", true, Some("10.0.0.2"), false),
            node("c", true, Some("10.0.0.3"), false),
            node("d", true, None, false),
        ];
        let pool = pool(LeaderElectionStrategy::Random, 2, &[("a", "10.0.0.1"), ("c", "10.0.0.3")]);
        let election = elect(&pool, &members);
        assert_eq!(election.leaders, [endpoint("b", "10.0.0.2"), endpoint("c", "10.0.0.3")]);
        assert!(election.changed);
    }

    #[test]
    fn fewer_replicas_keep_a_survivor_and_zero_is_one() {
        let members: Vec<_> = ["a", "b", "c"].map(|n| node(n, true, Some("10.0.0.9"), false)).into();
        let seats = [("a", "10.0.0.9"), ("b", "10.0.0.9")];
        for replicas in [0, 1] {
            let election = elect(&pool(LeaderElectionStrategy::Random, replicas, &seats), &members);
            assert_eq!(election.leaders.len(), 1);
            assert_ne!(election.leaders[0].node_name, "c", "a newcomer replaced a survivor");
        }
    }

    #[test]
    fn a_changed_address_is_a_change() {
        let pool = pool(LeaderElectionStrategy::Random, 1, &[("a", "10.0.0.1")]);
        let election = elect(&pool, &[node("a", true, Some("10.0.0.7"), false)]);
        assert_eq!((election.leaders, election.changed), (vec![endpoint("a", "10.0.0.7")], true));
    }

    #[test]
    fn mark_takes_only_marked_nodes() {
        let members = [node("a", true, Some("10.0.0.1"), false), node("b", true, Some("10.0.0.2"), true)];
        let mut pool = pool(LeaderElectionStrategy::Mark, 2, &[]);
        assert_eq!(elect(&pool, &members).leaders, [endpoint("b", "10.0.0.2")]);
        pool.spec.leader_node_label_selector.clear();
        assert_eq!(elect(&pool, &members).leaders, [], "no selector marks no node");
    }

    #[test]
    fn a_settled_election_changes_nothing() {
        let members: Vec<_> = ["a", "b", "c"].map(|n| node(n, true, Some("10.0.0.9"), false)).into();
        let first = elect(&pool(LeaderElectionStrategy::Random, 2, &[]), &members);
        let seats: Vec<_> =
            first.leaders.iter().map(|l| (l.node_name.as_str(), l.address.as_str())).collect();
        let second = elect(&pool(LeaderElectionStrategy::Random, 2, &seats), &members);
        assert_eq!((second.leaders, second.changed), (first.leaders, false));
    }
}

//! Whether a `NodePool` may be deleted: only without nodes, because a node would keep what the pool put on it and belong
//! to a pool that is not there.
//!
//! Pure and total.

use std::fmt;

use api::labels::NODE_POOL;

/// How many nodes a message names.
const NAMED: usize = 5;

/// The nodes of a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PoolNodes {
    /// Their names, or the first of them.
    pub names: Vec<String>,
    /// Whether there are more.
    pub more: bool,
}

/// Why a pool may not be deleted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal<'a> {
    pool: &'a str,
    nodes: &'a PoolNodes,
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, nodes: PoolNodes { names, more } } = self;
        let at_least = if *more { "at least " } else { "" };
        let plural = if names.len() == 1 && !more { "" } else { "s" };
        write!(f, "node pool \"{pool}\" still has {at_least}{} node{plural} (", names.len())?;
        f.write_str(&names[..names.len().min(NAMED)].join(", "))?;
        if names.len() > NAMED {
            f.write_str(", …")?;
        }
        let first = names.first().map_or("NAME", String::as_str);
        write!(
            f,
            "): take each out of the pool before deleting it, as with \"kubectl label node {first} {NODE_POOL}-\"; where its pods \
             have the network of their node, drain it and run \"edge-hub hostnet disable\" on it first"
        )
    }
}

/// Refuses to delete a pool that has nodes.
pub fn plan<'a>(pool: &'a str, nodes: &'a PoolNodes) -> Option<Refusal<'a>> {
    (!nodes.names.is_empty() || nodes.more).then_some(Refusal { pool, nodes })
}

/// Whether `pool` can be the value of a label. Names of objects can be longer; such a pool can have no nodes, and the
/// API server would reject a question for them.
pub fn can_have_nodes(pool: &str) -> bool {
    const LONGEST: usize = 63;
    !pool.is_empty() && pool.len() <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(count: usize, more: bool) -> Option<String> {
        let names = (1..=count).map(|number| format!("n{number}")).collect();
        plan("harbour", &PoolNodes { names, more }).map(|refusal| refusal.to_string())
    }

    #[test]
    fn a_pool_without_nodes_may_go() {
        assert_eq!(message(0, false), None);
    }

    #[test]
    fn a_pool_with_nodes_stays() {
        for (count, more, nodes) in [
            (1, false, "1 node (n1)"),
            (2, false, "2 nodes (n1, n2)"),
            (5, false, "5 nodes (n1, n2, n3, n4, n5)"),
            (6, false, "6 nodes (n1, n2, n3, n4, n5, …)"),
            (500, true, "at least 500 nodes (n1, n2, n3, n4, n5, …)"),
        ] {
            let remedy = "take each out of the pool before deleting it, as with \"kubectl label node n1 apps.openyurt.io/nodepool-\"; \
                where its pods have the network of their node, drain it and run \"edge-hub hostnet disable\" on it first";
            assert_eq!(
                message(count, more),
                Some(format!("node pool \"harbour\" still has {nodes}: {remedy}"))
            );
        }
    }

    #[test]
    fn a_name_too_long_for_a_label_has_no_nodes() {
        for (name, expected) in [("p".repeat(63), true), ("p".repeat(64), false), (String::new(), false)] {
            assert_eq!(can_have_nodes(&name), expected, "{name}");
        }
    }
}

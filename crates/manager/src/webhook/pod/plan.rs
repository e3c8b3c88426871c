//! What becomes of a pod at its creation: pod as raw JSON and what is known of its pool in, patch and warnings or a
//! refusal out.
//!
//! Pure and total: it never panics, whatever the JSON. Only the needed operations are in the patch, so fields of newer
//! Kubernetes versions pass untouched, and its own result needs no further operation.
//!
//! A pod that wants host-network pool P by its label
//! - gets `hostNetwork: true`, and loses the requirement by which the chart's policy keeps pods off such pools;
//! - is bound to P by its node selector, unless it binds itself: by the node selector, by each term of its required node
//!   affinity, or by naming a node of P in `spec.nodeName`. This holds for pods of `DaemonSets` too: one for a node outside
//!   P stays pending, so a `DaemonSet` should carry the node selector itself;
//! - is refused when it names another pool, or excludes P, in one of these places, or a node outside P, when it carries
//!   the annotation that keeps pods off such pools or asks for nodes without their labels, and when it asks for what host
//!   network cannot give (`host_network`).
//!
//! A pod that wants a container-network pool, or a pool that does not exist, is admitted with a warning. Without host
//! network it has none on the nodes of host-network pools, so it is kept off them, unless it is bound to a node already.
//! Setting `hostNetwork` here escalates nothing: policies on it, such as Pod Security, are checked after this.

use api::annotations::EXCLUDE_HOST_NETWORK_POOL;
use api::labels::{DESIRED_NODE_POOL, NODE_POOL, TRUE};
use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::{Value, json};
use thiserror::Error;

use super::binding::{Binding, binding};
use super::exclusion::{Contradiction, contradiction, exclusion, inclusion};
use super::host_network::{Conflict, conflict};
pub use super::raw::Malformed;
use super::raw::{Object, Path};

/// What is known of the pool that a pod wants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PoolNetwork {
    /// Its pods use the network of their node.
    Host,
    /// Its pods have addresses of their own.
    Container,
    /// There is no such pool.
    Unknown,
}

/// What is known of the node that a pod names in `spec.nodeName`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NamedNode {
    /// It is a member of this pool.
    InPool(String),
    /// It is a member of no pool.
    InNoPool,
    /// There is no such node.
    Missing,
}

/// What becomes of a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Decision {
    /// It is admitted.
    Admit {
        /// What is changed; empty when nothing is.
        patch: Patch,
        /// What its author should know.
        warnings: Vec<String>,
    },
    /// It is refused.
    Refuse(Refusal),
}

/// Why a pod is refused: each message names the field, and what to do.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Refusal {
    /// It is not a pod as the API has it.
    #[error("this is no valid pod: {0}")]
    Malformed(#[from] Malformed),
    /// It wants one pool and names another.
    #[error(
        "{field} is {says}, but label {DESIRED_NODE_POOL} wants pool \"{pool}\": name the same pool in both, or remove one"
    )]
    OtherPool {
        /// The pool of the label.
        pool: String,
        /// The field that names the other pool.
        field: String,
        /// What that field says.
        says: String,
    },
    /// It wants one pool and names a node outside it.
    #[error(
        "spec.nodeName is \"{node}\", a node of {membership}, but label {DESIRED_NODE_POOL} wants pool \"{pool}\": name a node of \
         that pool or none, or remove the label"
    )]
    OtherNode {
        /// The pool of the label.
        pool: String,
        /// The node.
        node: String,
        /// Where it is a member, in words.
        membership: String,
    },
    /// It wants a host-network pool and to be kept off such pools.
    #[error(
        "metadata.annotations[{EXCLUDE_HOST_NETWORK_POOL}] keeps the pod off host-network pools, but label \
         {DESIRED_NODE_POOL} wants pool \"{pool}\", which is one: remove the annotation or the label"
    )]
    Excluded {
        /// The pool of the label.
        pool: String,
    },
    /// It wants a host-network pool and only nodes that are in none.
    #[error(
        "{field} is {says}, which no node of a host-network pool fulfils, but label {DESIRED_NODE_POOL} wants pool \"{pool}\", \
         which is one: remove one of them"
    )]
    OtherNodes {
        /// The pool of the label.
        pool: String,
        /// The field that asks for other nodes.
        field: String,
        /// What that field says.
        says: String,
    },
    /// It asks for what host network cannot give.
    #[error(
        "pool \"{pool}\" gives its pods host network, but {field} {reason}: {remedy}, or choose a pool without host network"
    )]
    HostNetwork {
        /// The pool of the label.
        pool: String,
        /// The field that stands against host network.
        field: String,
        /// Why it does.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// The pool that the pod wants to run in, by its label.
pub fn desired_pool(pod: &Value) -> Result<Option<&str>, Malformed> {
    metadata_entry(&Object::root(pod)?, "labels", DESIRED_NODE_POOL)
}

/// The node that the pod is bound to past the scheduler.
pub fn named_node(pod: &Value) -> Result<Option<&str>, Malformed> {
    Object::root(pod)?.object("spec")?.map_or(Ok(None), |spec| node_name(&spec))
}

/// Decides on a pod at its creation. `network` is what is known of its [`desired_pool`]; without one it is not read.
/// `node` is what is known of its [`named_node`]; it is read for host-network pools only.
pub fn plan(pod: &Value, network: PoolNetwork, node: Option<&NamedNode>) -> Decision {
    match try_plan(pod, network, node) {
        Ok((operations, warnings)) => Decision::Admit { patch: Patch(operations), warnings },
        Err(refusal) => Decision::Refuse(refusal),
    }
}

type Admitted = (Vec<PatchOperation>, Vec<String>);

fn try_plan(pod: &Value, network: PoolNetwork, node: Option<&NamedNode>) -> Result<Admitted, Refusal> {
    let root = Object::root(pod)?;
    let pool = metadata_entry(&root, "labels", DESIRED_NODE_POOL)?;
    let excluded = metadata_entry(&root, "annotations", EXCLUDE_HOST_NETWORK_POOL)? == Some(TRUE);
    let spec = root.required("spec")?;

    // Whether anything can still keep the pod off host-network nodes: one that is bound to a node is past the scheduler.
    let host_network = spec.boolean("hostNetwork")? == Some(true);
    let can_be_kept_off = !host_network && node_name(&spec)?.is_none();
    let warning = match (pool, network) {
        (Some(pool), PoolNetwork::Host) if excluded => {
            return Err(Refusal::Excluded { pool: pool.to_owned() });
        }
        (Some(pool), PoolNetwork::Host) => return into_host_network(&spec, pool, node),
        (Some(pool), PoolNetwork::Container) => Some(format!(
            "node pool \"{pool}\" is not a host-network pool: label {DESIRED_NODE_POOL} {}; name a host-network pool, or remove the label",
            if can_be_kept_off {
                "only keeps the pod off host-network nodes"
            } else {
                "does nothing for this pod"
            },
        )),
        (Some(""), PoolNetwork::Unknown) => Some(format!(
            "label {DESIRED_NODE_POOL} is empty: name a pool, or remove it; until then the pod gets no host network{}",
            if can_be_kept_off { " and is kept off host-network nodes" } else { "" },
        )),
        (Some(pool), PoolNetwork::Unknown) => Some(format!(
            "node pool \"{pool}\" of label {DESIRED_NODE_POOL} does not exist: {}; create the pool, then the pod anew",
            match (can_be_kept_off, host_network) {
                (true, _) => "the pod gets no host network and is kept off host-network nodes",
                (false, true) => "the pod keeps its own host network and is bound to no pool",
                (false, false) =>
                    "the pod gets no host network, and spec.nodeName binds it to its node whatever that is",
            },
        )),
        (None, _) => None,
    };
    let without_network = pool.is_some() && can_be_kept_off;
    let operations = if excluded || without_network { exclusion(&spec)? } else { Vec::new() };
    Ok((operations, warning.into_iter().collect()))
}

/// The node that the pod is bound to past the scheduler.
fn node_name<'a>(spec: &Object<'a>) -> Result<Option<&'a str>, Malformed> {
    Ok(spec.string("nodeName")?.filter(|name| !name.is_empty()))
}

fn into_host_network(spec: &Object<'_>, pool: &str, node: Option<&NamedNode>) -> Result<Admitted, Refusal> {
    let mut operations = Vec::new();
    let mut warnings = Vec::new();

    if let (Some(name), Some(node)) = (node_name(spec)?, node) {
        let membership = match node {
            NamedNode::InPool(other) if other == pool => None,
            NamedNode::InPool(other) => Some(format!("pool \"{other}\"")),
            NamedNode::InNoPool => Some("no pool".to_owned()),
            NamedNode::Missing => {
                warnings.push(format!(
                    "spec.nodeName is \"{name}\", and there is no such node: name a node of pool \"{pool}\", or none and the \
                     scheduler chooses one"
                ));
                None
            }
        };
        if let Some(membership) = membership {
            return Err(Refusal::OtherNode { pool: pool.to_owned(), node: name.to_owned(), membership });
        }
    }

    if spec.boolean("hostNetwork")? != Some(true) {
        // A pod that asks for host network itself is the API server's to judge.
        if let Some(Conflict { field, reason, remedy }) = conflict(spec)? {
            return Err(Refusal::HostNetwork { pool: pool.to_owned(), field, reason, remedy });
        }
        operations.push(add(&spec.path().field("hostNetwork"), json!(true)));
    }
    if let Some(Contradiction { field, says }) = contradiction(spec)? {
        return Err(Refusal::OtherNodes { pool: pool.to_owned(), field, says });
    }
    operations.extend(inclusion(spec)?);

    match binding(spec, pool)? {
        Binding::Bound => {}
        Binding::Elsewhere { field, says } => {
            return Err(Refusal::OtherPool { pool: pool.to_owned(), field, says });
        }
        Binding::Open { also_elsewhere } => {
            if let Some(field) = also_elsewhere {
                warnings.push(format!(
                    "{field} names other pools too: the pod is bound to pool \"{pool}\"; remove the others from {field}"
                ));
            }
            let selector = spec.path().field("nodeSelector");
            operations.push(if spec.has("nodeSelector") {
                add(&selector.key(NODE_POOL), json!(pool))
            } else {
                add(&selector, json!({ NODE_POOL: pool }))
            });
        }
    }

    // Kubelets read ClusterFirst as Default for a pod with host network, but take this one at its word.
    if spec.string("dnsPolicy")? == Some("ClusterFirstWithHostNet") {
        warnings.push(format!(
            "spec.dnsPolicy ClusterFirstWithHostNet needs cluster DNS, which nodes of host-network pool \"{pool}\" may lack: use Default"
        ));
    }
    Ok((operations, warnings))
}

fn metadata_entry<'a>(root: &Object<'a>, map: &'static str, key: &str) -> Result<Option<&'a str>, Malformed> {
    let Some(metadata) = root.object("metadata")? else { return Ok(None) };
    metadata.object(map)?.map_or(Ok(None), |map| map.entry(key))
}

/// Sets the value at `path`, which may be there already.
pub(super) fn add(path: &Path, value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: path.pointer(), value })
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

//! The annotation that keeps a pod off the nodes of host-network pools, with `OpenYurt`'s meaning.
//!
//! Pure. To each term of the required node affinity goes the requirement that the node is not one of a host-network
//! pool; without any term, one is made. A term without any expression matches no node and is left alone: the
//! requirement would turn "nowhere" into "anywhere but there".

use api::labels::{HOST_NETWORK, TRUE};
use json_patch::PatchOperation;
use serde_json::{Value, json};

use super::binding::required_terms;
use super::plan::add;
use super::raw::{Malformed, Object};

/// The operations that keep the pod with this `spec` off host-network nodes; none when it keeps off already.
pub(super) fn exclusion(spec: &Object<'_>) -> Result<Vec<PatchOperation>, Malformed> {
    let terms = required_terms(spec)?.unwrap_or_default();
    if terms.is_empty() {
        return Ok(vec![new_term(spec)?]);
    }
    let mut operations = Vec::new();
    for term in terms.iter().filter(|term| !term.is_empty()) {
        let expressions = term.objects("matchExpressions")?;
        let mut excluded = false;
        for expression in &expressions {
            excluded |= is_requirement(expression)?;
        }
        if excluded {
            continue;
        }
        let list = term.path().field("matchExpressions");
        operations.push(if expressions.is_empty() {
            add(&list, json!([requirement()]))
        } else {
            add(&list.end(), requirement())
        });
    }
    Ok(operations)
}

/// One operation that makes the first term, with as much of the way to it as is missing.
fn new_term(spec: &Object<'_>) -> Result<PatchOperation, Malformed> {
    let terms = json!([{ "matchExpressions": [requirement()] }]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let Some(affinity) = spec.object("affinity")? else {
        let value = json!({ "nodeAffinity": { required: { "nodeSelectorTerms": terms } } });
        return Ok(add(&spec.path().field("affinity"), value));
    };
    let Some(node_affinity) = affinity.object("nodeAffinity")? else {
        let value = json!({ required: { "nodeSelectorTerms": terms } });
        return Ok(add(&affinity.path().field("nodeAffinity"), value));
    };
    let Some(selector) = node_affinity.object(required)? else {
        return Ok(add(&node_affinity.path().field(required), json!({ "nodeSelectorTerms": terms })));
    };
    Ok(add(&selector.path().field("nodeSelectorTerms"), terms))
}

fn requirement() -> Value {
    json!({ "key": HOST_NETWORK, "operator": "NotIn", "values": [TRUE] })
}

fn is_requirement(expression: &Object<'_>) -> Result<bool, Malformed> {
    Ok(expression.string("key")? == Some(HOST_NETWORK)
        && expression.string("operator")? == Some("NotIn")
        && expression.strings("values")?.contains(&TRUE))
}

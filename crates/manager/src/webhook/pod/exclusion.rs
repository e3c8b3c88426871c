//! Keeping pods off the nodes of host-network pools, and taking that back: for the annotation that asks for it, with
//! `OpenYurt`'s meaning, and for labelled pods that stay without host network.
//!
//! Pure. To each term of the required node affinity goes the requirement that the node is not one of a host-network
//! pool; without any term, one is made. A term without any expression matches no node and is left alone: the
//! requirement would turn "nowhere" into "anywhere but there". The chart's policy for ordinary pods adds the same
//! requirement in the API server, before the webhook is asked, and without knowing any pool: a pod that gets host network
//! after all must lose it again.

use api::labels::{HOST_NETWORK, HOST_NETWORK_NODE, TRUE};
use json_patch::{PatchOperation, RemoveOperation};
use serde_json::{Map, Value, json};

use super::binding::{quoted, required_terms};
use super::plan::add;
use super::raw::{Malformed, Object, Path};
use crate::raw_json::is_nothing;

/// The name of what is required of nodes, within a node affinity.
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// The operations that keep the pod with this `spec` off host-network nodes; none when it keeps off already.
pub(super) fn exclusion(spec: &Object<'_>) -> Result<Vec<PatchOperation>, Malformed> {
    if selects_others(spec)?.is_some() {
        return Ok(Vec::new());
    }
    let terms = required_terms(spec)?.unwrap_or_default();
    if terms.is_empty() {
        return Ok(vec![new_term(spec)?]);
    }
    let mut operations = Vec::new();
    for term in terms.iter().filter(|term| !term.is_empty()) {
        let expressions = term.objects("matchExpressions")?;
        let mut excluded = false;
        for expression in &expressions {
            excluded |= keeps_off(expression)?;
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

/// The operation that takes the requirement out of `spec`, with what is empty without it; none when it is not there. Who
/// put it there cannot be told. A term that is nothing else is dropped: it held on no node of a host-network pool.
pub(super) fn inclusion(spec: &Object<'_>) -> Result<Option<PatchOperation>, Malformed> {
    let Some(terms) = required_terms(spec)? else { return Ok(None) };
    let mut kept = Vec::with_capacity(terms.len());
    let mut changed = false;
    for term in &terms {
        match without_requirement(term)? {
            None => kept.push(Value::Object(term.members().clone())),
            Some(rest) => {
                changed = true;
                if !rest.values().all(is_nothing) {
                    kept.push(Value::Object(rest));
                }
            }
        }
    }
    if !changed {
        return Ok(None);
    }
    let affinity = spec.path().field("affinity");
    let node_affinity = affinity.field("nodeAffinity");
    let required = node_affinity.field(REQUIRED);
    if !kept.is_empty() {
        return Ok(Some(add(&required.field("nodeSelectorTerms"), kept.into())));
    }
    // The outermost that holds nothing beside the requirement goes: most likely it was made for it.
    let is_only = |object: &Object<'_>, name: &str| {
        object.members().iter().all(|(key, value)| key == name || is_nothing(value))
    };
    let path = match spec.object("affinity")? {
        Some(outer) => match outer.object("nodeAffinity")? {
            Some(inner) if is_only(&inner, REQUIRED) && is_only(&outer, "nodeAffinity") => affinity,
            Some(inner) if is_only(&inner, REQUIRED) => node_affinity,
            _ => required,
        },
        None => required,
    };
    Ok(Some(remove(&path)))
}

/// A field by which no node of a host-network pool will do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Contradiction {
    /// The field.
    pub(super) field: String,
    /// What the field says.
    pub(super) says: String,
}

/// The first field that keeps the pod off host-network nodes other than by the requirement itself, which [`inclusion`]
/// takes out; none in a pod whose node is chosen already, for which the scheduler's fields are not read.
pub(super) fn contradiction(spec: &Object<'_>) -> Result<Option<Contradiction>, Malformed> {
    if spec.string("nodeName")?.is_some_and(|name| !name.is_empty()) {
        return Ok(None);
    }
    if let Some((path, value)) = selects_others(spec)? {
        return Ok(Some(Contradiction { field: path.to_string(), says: format!("\"{value}\"") }));
    }
    for term in required_terms(spec)?.into_iter().flatten() {
        for expression in term.objects("matchExpressions")? {
            if keeps_off(&expression)? && !is_requirement(&expression)? {
                let (field, says) = (expression.path().to_string(), quoted(&expression)?);
                return Ok(Some(Contradiction { field, says }));
            }
        }
    }
    Ok(None)
}

/// The term without the requirement; `None` when it has none.
fn without_requirement(term: &Object<'_>) -> Result<Option<Map<String, Value>>, Malformed> {
    let mut kept = Vec::new();
    let mut found = false;
    for expression in term.objects("matchExpressions")? {
        if is_requirement(&expression)? {
            found = true;
        } else {
            kept.push(Value::Object(expression.members().clone()));
        }
    }
    if !found {
        return Ok(None);
    }
    let mut rest = term.members().clone();
    if kept.is_empty() {
        rest.remove("matchExpressions");
    } else {
        rest.insert("matchExpressions".to_owned(), kept.into());
    }
    Ok(Some(rest))
}

/// One operation that makes the first term, with as much of the way to it as is missing.
fn new_term(spec: &Object<'_>) -> Result<PatchOperation, Malformed> {
    let terms = json!([{ "matchExpressions": [requirement()] }]);
    let Some(affinity) = spec.object("affinity")? else {
        let value = json!({ "nodeAffinity": { REQUIRED: { "nodeSelectorTerms": terms } } });
        return Ok(add(&spec.path().field("affinity"), value));
    };
    let Some(node_affinity) = affinity.object("nodeAffinity")? else {
        let value = json!({ REQUIRED: { "nodeSelectorTerms": terms } });
        return Ok(add(&affinity.path().field("nodeAffinity"), value));
    };
    let Some(selector) = node_affinity.object(REQUIRED)? else {
        return Ok(add(&node_affinity.path().field(REQUIRED), json!({ "nodeSelectorTerms": terms })));
    };
    Ok(add(&selector.path().field("nodeSelectorTerms"), terms))
}

fn requirement() -> Value {
    json!({ "key": HOST_NETWORK, "operator": "NotIn", "values": [TRUE] })
}

/// Whether it is the requirement itself, not only to the same effect.
fn is_requirement(expression: &Object<'_>) -> Result<bool, Malformed> {
    Ok(expression.string("key")? == Some(HOST_NETWORK)
        && expression.string("operator")? == Some("NotIn")
        && expression.strings("values")? == [TRUE])
}

/// Whether it holds on no node of a host-network pool, by any label of such nodes.
fn keeps_off(expression: &Object<'_>) -> Result<bool, Malformed> {
    let key = expression.string("key")?;
    let Some((_, value)) = HOST_NETWORK_NODE.iter().find(|(label, _)| key == Some(label)) else {
        return Ok(false);
    };
    let named = expression.strings("values")?.contains(value);
    Ok(match expression.string("operator")? {
        Some("NotIn") => named,
        Some("In") => !named,
        Some("DoesNotExist") => true,
        _ => false,
    })
}

/// The entry by which the node selector holds on no node of a host-network pool, by any label of such nodes.
fn selects_others<'a>(spec: &Object<'a>) -> Result<Option<(Path, &'a str)>, Malformed> {
    let Some(selector) = spec.object("nodeSelector")? else { return Ok(None) };
    for (label, value) in HOST_NETWORK_NODE {
        if let Some(selected) = selector.entry(label)?.filter(|selected| *selected != value) {
            return Ok(Some((selector.path().key(label), selected)));
        }
    }
    Ok(None)
}

fn remove(path: &Path) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: path.pointer() })
}

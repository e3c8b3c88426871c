//! To which pools a pod binds itself: `spec.nodeName`, its node selector and its required node affinity.
//!
//! Pure. Whether the named node is one of the pool is known to the plan. Terms of the required affinity are alternatives; the expressions within a term must all hold, and so must the
//! node selector beside them. A term without any expression matches no node, so it says nothing here.

use api::labels::NODE_POOL;

use super::raw::{Malformed, Object, Path};

/// What a pod says itself about running in pool P.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Binding {
    /// P is its only possibility, or its node is chosen already.
    Bound,
    /// It can run in P and elsewhere.
    Open {
        /// Where it names other pools beside P.
        also_elsewhere: Option<String>,
    },
    /// It cannot run in P, or an alternative of it cannot.
    Elsewhere {
        /// The field that says so.
        field: String,
        /// What the field says.
        says: String,
    },
}

/// How one affinity term, or one expression, stands to a pool; the narrower, the smaller.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Reach {
    /// It holds on no node of the pool.
    NotPool,
    /// It holds on nodes of the pool only.
    OnlyPool,
    /// It holds there, and in other pools that it names.
    AmongOthers,
    /// It does not speak of pools in a way that settles anything.
    Anywhere,
}

/// Says how `spec` stands to `pool`.
pub(super) fn binding(spec: &Object<'_>, pool: &str) -> Result<Binding, Malformed> {
    if spec.string("nodeName")?.is_some_and(|name| !name.is_empty()) {
        return Ok(Binding::Bound);
    }
    let selected = match spec.object("nodeSelector")? {
        Some(selector) => selector.entry(NODE_POOL)?.map(|value| (value, selector.path().key(NODE_POOL))),
        None => None,
    };
    if let Some((other, path)) = selected.as_ref().filter(|(value, _)| *value != pool) {
        return Ok(Binding::Elsewhere { field: path.to_string(), says: format!("\"{other}\"") });
    }

    let mut also_elsewhere = None;
    let mut all_bound = true;
    let mut any_term = false;
    for term in required_terms(spec)?.into_iter().flatten().filter(|term| !term.is_empty()) {
        any_term = true;
        let (reach, path, says) = reach(&term, pool)?;
        match reach {
            Reach::NotPool => return Ok(Binding::Elsewhere { field: path.to_string(), says }),
            Reach::AmongOthers => also_elsewhere = also_elsewhere.or_else(|| Some(path.to_string())),
            Reach::OnlyPool | Reach::Anywhere => {}
        }
        all_bound &= reach == Reach::OnlyPool;
    }
    if selected.is_some() || (any_term && all_bound) {
        Ok(Binding::Bound)
    } else {
        Ok(Binding::Open { also_elsewhere })
    }
}

/// The terms of the required node affinity; `None` when there is no required node affinity.
pub(super) fn required_terms<'a>(spec: &Object<'a>) -> Result<Option<Vec<Object<'a>>>, Malformed> {
    let Some(affinity) = spec.object("affinity")? else { return Ok(None) };
    let Some(node_affinity) = affinity.object("nodeAffinity")? else { return Ok(None) };
    let Some(required) = node_affinity.object("requiredDuringSchedulingIgnoredDuringExecution")? else {
        return Ok(None);
    };
    required.objects("nodeSelectorTerms").map(Some)
}

/// An expression as messages show it.
pub(super) fn quoted(expression: &Object<'_>) -> Result<String, Malformed> {
    let key = expression.string("key")?.unwrap_or_default();
    let operator = expression.string("operator")?.unwrap_or_default();
    let values = expression.strings("values")?;
    Ok(if values.is_empty() {
        format!("\"{key} {operator}\"")
    } else {
        format!("\"{key} {operator} [{}]\"", values.join(" "))
    })
}

/// The reach of a term: that of its narrowest expression, where it stands, and what it says.
fn reach(term: &Object<'_>, pool: &str) -> Result<(Reach, Path, String), Malformed> {
    let mut narrowest = (Reach::Anywhere, term.path().clone(), String::new());
    for expression in term.objects("matchExpressions")? {
        if expression.string("key")? != Some(NODE_POOL) {
            continue;
        }
        let values = expression.strings("values")?;
        let operator = expression.string("operator")?.unwrap_or_default();
        let named = values.contains(&pool);
        let reach = match operator {
            "In" if !named => Reach::NotPool,
            "In" if values.iter().all(|value| *value == pool) => Reach::OnlyPool,
            "In" => Reach::AmongOthers,
            "NotIn" if named => Reach::NotPool,
            "DoesNotExist" => Reach::NotPool,
            _ => Reach::Anywhere,
        };
        if reach < narrowest.0 {
            narrowest = (reach, expression.path().clone(), quoted(&expression)?);
        }
    }
    Ok(narrowest)
}

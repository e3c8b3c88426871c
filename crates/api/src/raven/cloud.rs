//! Which Gateway stands for the cloud: pure rules that manager and hubs share, so that they judge alike.
//!
//! Cloud nodes that are in no pool and behind no Gateway are one domain. The exposed Gateway without a selector that lists one of them as
//! an endpoint is its gateway; of several the oldest, and the others stand for nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::gateway::ExposeType;
use crate::labels;

/// Whether a Gateway of that name selects nodes by more than the label that names it, which OpenYurt's webhook writes into every selector.
/// An empty selector selects nothing: it would take every node from its pool.
pub fn selects(gateway: &str, selector: Option<&LabelSelector>) -> bool {
    let Some(selector) = selector else { return false };
    let mut labels = selector.match_labels.iter().flatten();
    labels.any(|(key, value)| key != labels::GATEWAY || value != gateway)
        || selector.match_expressions.as_ref().is_some_and(|expressions| !expressions.is_empty())
}

/// What a Gateway is judged by. `T` is a time of any kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Claim<'a, T> {
    /// Its name.
    pub name: &'a str,
    /// When it was made.
    pub created: Option<T>,
    /// How it is exposed.
    pub expose_type: ExposeType,
    /// Whether it [`selects`] nodes.
    pub selects: bool,
    /// Whether it lists a cloud node, in no pool and behind no Gateway, as an endpoint.
    pub lists_cloud_node: bool,
}

/// The Gateways that would stand for the cloud: the first does.
pub fn of_cloud<'a, T: Ord>(claims: impl IntoIterator<Item = Claim<'a, T>>) -> Vec<&'a str> {
    let claims = claims.into_iter();
    let mut claims: Vec<Claim<'a, T>> = claims
        .filter(|claim| !claim.expose_type.is_none() && !claim.selects && claim.lists_cloud_node)
        .collect();
    claims.sort_by(|a, b| (&a.created, a.name).cmp(&(&b.created, b.name)));
    claims.into_iter().map(|claim| claim.name).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_selects_by_more_than_the_label_of_its_gateway() {
        let check = |selector: serde_json::Value| {
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            selects("g", Some(&selector))
        };
        assert!(!selects("g", None));
        assert!(!check(json!({})));
        assert!(!check(json!({ "matchLabels": {}, "matchExpressions": [] })));
        assert!(!check(json!({ "matchLabels": { (labels::GATEWAY): "g" } })));
        assert!(check(json!({ "matchLabels": { (labels::GATEWAY): "h" } })));
        assert!(check(json!({ "matchLabels": { (labels::GATEWAY): "g", "site": "a" } })));
        assert!(check(json!({ "matchExpressions": [{ "key": "site", "operator": "Exists" }] })));
    }

    #[test]
    fn the_oldest_claim_is_first_and_others_are_none() {
        let claim = |name, created| Claim {
            name,
            created: Some(created),
            expose_type: ExposeType::PublicIP,
            selects: false,
            lists_cloud_node: true,
        };
        let claims = [
            claim("b", 2),
            claim("c", 1),
            claim("a", 2),
            Claim { expose_type: ExposeType::None, ..claim("hidden", 0) },
            Claim { selects: true, ..claim("selects", 0) },
            Claim { lists_cloud_node: false, ..claim("elsewhere", 0) },
        ];
        assert_eq!(of_cloud(claims), ["c", "a", "b"]);
        assert_eq!(of_cloud::<u8>([]), [""; 0]);
    }
}

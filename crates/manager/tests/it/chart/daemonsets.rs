//! The policy that warns of labelled `DaemonSet`s whose pods are for more nodes than the pool's. The API server evaluates it in
//! `e2e/tests/it/webhook/workloads.rs`.

use api::labels::{DESIRED_NODE_POOL, NODE_POOL};
use serde_json::json;

use super::{one, render};

#[test]
fn daemonsets_that_are_not_confined_to_their_pool_are_warned_of_and_not_refused() {
    let objects = render(&[]);
    let spec = &one(&objects, "ValidatingAdmissionPolicy", "isthmus-daemonsets")["spec"];
    let binding = &one(&objects, "ValidatingAdmissionPolicyBinding", "isthmus-daemonsets")["spec"];
    assert_eq!(
        *binding,
        json!({ "policyName": "isthmus-daemonsets", "validationActions": ["Warn"] }),
        "to refuse would hold up the DaemonSet's controller"
    );
    assert_eq!(spec["failurePolicy"], "Ignore");
    assert_eq!(
        spec["matchConstraints"],
        json!({ "resourceRules": [
            { "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["daemonsets"], "operations": ["CREATE", "UPDATE"] }
        ] })
    );
    // Label, field and remedy; the pool comes in as the API server evaluates it.
    let message = spec["validations"][0]["messageExpression"].as_str().unwrap();
    for part in [DESIRED_NODE_POOL, NODE_POOL, "spec.template.spec.nodeSelector", "variables.pool"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let text = spec.to_string();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "./-".contains(c)));
    for word in words.filter(|word| word.contains("openyurt.io/")) {
        assert!([DESIRED_NODE_POOL, NODE_POOL].contains(&word), "{word}");
    }
}

//! The policy that keeps the network mode of a NodePool which an annotation says. The API server evaluates it in `e2e/tests/it/crds.rs`.

use api::{NetworkMode, annotations};
use serde_json::json;

use super::{one, render};

#[test]
fn a_mode_that_the_annotation_says_is_final() {
    let objects = render(&[]);
    let spec = &one(&objects, "ValidatingAdmissionPolicy", "isthmus-network-mode")["spec"];
    let binding = &one(&objects, "ValidatingAdmissionPolicyBinding", "isthmus-network-mode")["spec"];
    assert_eq!(*binding, json!({ "policyName": "isthmus-network-mode", "validationActions": ["Deny"] }));
    assert_eq!(spec["failurePolicy"], "Fail");
    // Whole objects in whichever version they are written: a status says no mode of its own.
    assert_eq!(
        spec["matchConstraints"],
        json!({ "resourceRules": [
            { "apiGroups": ["apps.openyurt.io"], "apiVersions": ["*"], "resources": ["nodepools"], "operations": ["UPDATE"] }
        ] })
    );
    // Annotation, field and both remedies; the mode comes in as the API server evaluates it.
    let message = spec["validations"][0]["messageExpression"].as_str().unwrap();
    for part in [
        annotations::POOL_HOST_NETWORK,
        "spec.networkMode",
        "variables.mode",
        "create another pool",
        "move the nodes",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let [host, container] =
        [NetworkMode::HostNetwork, NetworkMode::ContainerNetwork].map(|mode| json!(mode).to_string());
    for variable in spec["variables"].as_array().unwrap() {
        let expression = variable["expression"].as_str().unwrap();
        assert!(expression.contains(&format!("? {host} : {container}")), "{expression}");
    }
    let text = spec.to_string();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "./-".contains(c)));
    for word in words.filter(|word| word.contains("openyurt.io/")) {
        assert_eq!(word, annotations::POOL_HOST_NETWORK);
    }
}

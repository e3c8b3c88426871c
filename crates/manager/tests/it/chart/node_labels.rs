//! The policy for nodes' own changes of what decides where they are. The API server evaluates it in
//! `e2e/tests/it/tunnel/identity.rs`.

use api::annotations::{HUB_BOOTSTRAP_TOKEN, PREVIOUS_ATTRIBUTES, UNREADABLE_RECORD_OF};
use api::labels::{GATEWAY, IS_EDGE_WORKER, LEGACY_DESIRED_NODE_POOL, NODE_POOL};

use super::{of_kind, render};

const KIND: &str = "ValidatingAdmissionPolicy";

#[test]
fn nodes_do_not_change_where_they_are() {
    let policy = |values: &[&str]| {
        let objects = render(values);
        let policies = of_kind(&objects, KIND);
        let found = policies.iter().find(|policy| policy["metadata"]["name"] == "isthmus-node-labels");
        found.map(|policy| policy["spec"].clone())
    };
    assert_eq!(policy(&["nodeLabels.protect=false"]), None);
    let spec = policy(&[]).expect("a policy");
    assert_eq!(spec["failurePolicy"], "Fail");
    let named = |rule: usize| -> Vec<String> {
        let expression = spec["validations"][rule]["expression"].as_str().unwrap();
        expression.split('"').filter(|word| word.contains('/')).map(str::to_owned).collect()
    };
    assert_eq!(named(0), [NODE_POOL, LEGACY_DESIRED_NODE_POOL, GATEWAY, IS_EDGE_WORKER]);
    assert_eq!(named(1), [PREVIOUS_ATTRIBUTES, UNREADABLE_RECORD_OF, HUB_BOOTSTRAP_TOKEN]);
    let bring = |spec: &serde_json::Value| {
        let expression = spec["validations"][0]["expression"].as_str().unwrap().to_owned();
        expression.contains("oldObject == null || ")
    };
    assert!(bring(&spec) && !bring(&policy(&["nodeLabels.atRegistration=false"]).expect("a policy")));
    // The kubelet brings labels when it registers, and writes its status by another path.
    let rule = &spec["matchConstraints"]["resourceRules"][0];
    assert_eq!(
        (&rule["operations"], &rule["resources"]),
        (&["CREATE", "UPDATE"].into(), &["nodes", "nodes/status"].into())
    );
}

/// The record of where nodes are is what the manager writes, and the policy's parameter.
#[test]
fn a_node_that_registers_anew_brings_no_other_place() {
    let spec = |values: &[&str], kind: &str| {
        let objects = render(values);
        let found = of_kind(&objects, kind)
            .into_iter()
            .find(|found| found["metadata"]["name"] == "isthmus-node-places");
        found.map(|found| found["spec"].clone())
    };
    // Where nodes bring no place at all nothing is to be asked.
    for off in ["nodeLabels.protect=false", "nodeLabels.atRegistration=false"] {
        assert_eq!(spec(&[off], KIND), None, "{off}");
    }
    let policy = spec(&[], KIND).expect("a policy");
    assert_eq!(
        (&policy["failurePolicy"], &policy["paramKind"]["kind"]),
        (&"Fail".into(), &"ConfigMap".into())
    );
    let expression = policy["validations"][0]["expression"].as_str().unwrap();
    let named: Vec<&str> = expression.split('"').filter(|word| word.contains('/')).collect();
    assert_eq!(named, [NODE_POOL, GATEWAY]);
    let binding = spec(&[], "ValidatingAdmissionPolicyBinding").expect("a binding");
    let parameters = &binding["paramRef"];
    assert_eq!(parameters["namespace"], "kube-system");
    assert_eq!(parameters["selector"]["matchLabels"][api::labels::NODE_PLACES], "true");
    assert_eq!(parameters["parameterNotFoundAction"], "Allow");
    // What the manager may write.
    let objects = render(&[]);
    let written =
        of_kind(&objects, KIND).into_iter().find(|policy| policy["metadata"]["name"] == "isthmus-hub");
    let written =
        written.expect("a policy")["spec"]["validations"][0]["expression"].as_str().unwrap().to_owned();
    assert!(written.contains(&format!("|{}[0-9a-f]", api::names::NODE_PLACES_PREFIX)), "{written}");
}

//! The policy for ordinary pods: to which pods it applies, and that it is made only where there are such policies.
//!
//! What it does to pods is tested on a real API server, which evaluates it (`e2e/tests/it/webhook/keep_off.rs`).

use api::labels::{DESIRED_NODE_POOL, HOST_NETWORK, NODE_POOL};
use serde_json::{Value, json};

use super::{chart, of_kind, render, run};

const KIND: &str = "MutatingAdmissionPolicy";

fn policies(values: &[&str]) -> Vec<Value> {
    let chart = chart();
    let kind = format!("admissionregistration.k8s.io/v1/{KIND}");
    let mut arguments = vec!["template", "isthmus", chart.to_str().unwrap(), "--api-versions", &kind];
    for value in values {
        arguments.extend(["--set-json", value]);
    }
    let output = run(&arguments);
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
    of_kind(&objects, KIND).into_iter().cloned().collect()
}

#[test]
fn the_policy_is_made_where_the_api_server_has_such_policies() {
    assert_eq!(policies(&[]).len(), 1);
    assert_eq!(policies(&["ordinaryPods.keepOff=false"]), Vec::<Value>::new());
    assert!(of_kind(&render(&[]), KIND).is_empty(), "this Kubernetes does not have the kind");
}

/// A webhook may be skipped, by its failure policy or its namespace selector: labelled pods must not rely on it.
#[test]
fn the_policy_sees_labelled_pods_too() {
    for values in [&[][..], &[r#"webhook.failurePolicy.labelledPods="Ignore""#]] {
        let spec = policies(values)[0]["spec"].clone();
        assert_eq!(
            spec["matchConstraints"],
            json!({ "resourceRules": [
                { "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] }
            ] })
        );
        let conditions = spec["matchConditions"].as_array().unwrap();
        // What lets other pods pass does not let a labelled one.
        for name in ["is-not-bound-to-a-pool", "is-of-no-daemonset"] {
            let condition = conditions.iter().find(|condition| condition["name"] == name).unwrap();
            let expression = condition["expression"].as_str().unwrap();
            assert!(expression.starts_with(&format!("\"{DESIRED_NODE_POOL}\" in ")), "{name}: {expression}");
        }
    }
}

#[test]
fn the_policy_speaks_of_the_labels_that_there_are() {
    let text = policies(&[])[0]["spec"].to_string();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "./-".contains(c)));
    let known = [DESIRED_NODE_POOL, HOST_NETWORK, NODE_POOL];
    for word in words.filter(|word| word.contains("openyurt.io/")) {
        assert!(known.contains(&word), "{word}");
    }
}

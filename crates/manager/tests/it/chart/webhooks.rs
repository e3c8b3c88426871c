//! Which requests reach the webhook, and what happens when it does not answer.

use api::annotations::EXCLUDE_HOST_NETWORK_POOL;
use api::labels::DESIRED_NODE_POOL;
use manager::webhook::{NODE_POOLS_PATH, PODS_PATH};
use serde_json::{Value, json};

use super::{one, render};

fn webhooks(kind: &str, values: &[&str]) -> Vec<Value> {
    one(&render(values), kind, "isthmus")["webhooks"].as_array().unwrap().clone()
}

#[test]
fn every_webhook_asks_the_service_and_waits_briefly() {
    for (kind, path) in
        [("MutatingWebhookConfiguration", PODS_PATH), ("ValidatingWebhookConfiguration", NODE_POOLS_PATH)]
    {
        for webhook in webhooks(kind, &[]) {
            // The manager writes the bundle; one in the template would be put back by upgrades.
            assert_eq!(
                webhook["clientConfig"],
                json!({ "service": {
                    "name": "isthmus-webhook", "namespace": "isthmus-system", "port": 443, "path": path
                } })
            );
            assert_eq!(webhook["timeoutSeconds"], 3);
            assert_eq!(webhook["admissionReviewVersions"], json!(["v1"]));
            assert_eq!(webhook["sideEffects"], "None");
        }
    }
}

#[test]
fn the_service_leads_to_the_webhooks_port() {
    let objects = render(&["ports.webhook=12345"]);
    let service = &one(&objects, "Service", "isthmus-webhook")["spec"];
    assert_eq!(
        (&service["ports"][0]["port"], &service["ports"][0]["targetPort"]),
        (&json!(443), &json!("webhook"))
    );
    let pod = &one(&objects, "Deployment", "isthmus-manager")["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["ports"][0],
        json!({ "name": "webhook", "containerPort": 12345, "protocol": "TCP" })
    );
    assert!(container["args"].as_array().unwrap().contains(&json!("--webhook-address=[::]:12345")));
    for (key, value) in service["selector"].as_object().unwrap() {
        assert_eq!(&pod["metadata"]["labels"][key], value, "{key}");
    }
}

#[test]
fn pods_reach_the_webhook_by_label_or_annotation_and_never_twice() {
    let webhooks = webhooks("MutatingWebhookConfiguration", &[]);
    let [labelled, annotated] = webhooks.as_slice() else { panic!("{} webhooks", webhooks.len()) };
    for webhook in &webhooks {
        assert_eq!(
            webhook["rules"],
            json!([{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
                "scope": "Namespaced"
            }])
        );
        let conditions = webhook["matchConditions"].to_string();
        assert!(
            conditions.contains("!(\\\"kubernetes.io/config.mirror\\\" in object.metadata.annotations)"),
            "{conditions}"
        );
    }
    let selector =
        |operator| json!({ "matchExpressions": [{ "key": DESIRED_NODE_POOL, "operator": operator }] });
    assert_eq!(labelled["objectSelector"], selector("Exists"));
    assert_eq!(annotated["objectSelector"], selector("DoesNotExist"));
    let condition = annotated["matchConditions"][0]["expression"].as_str().unwrap();
    assert!(
        condition
            .contains(&format!("object.metadata.annotations[\"{EXCLUDE_HOST_NETWORK_POOL}\"] == \"true\"")),
        "{condition}"
    );
}

#[test]
fn node_pools_reach_the_webhook_when_they_are_deleted() {
    let webhooks = webhooks("ValidatingWebhookConfiguration", &[]);
    assert_eq!(webhooks.len(), 1);
    assert_eq!(
        webhooks[0]["rules"],
        json!([{
            "apiGroups": ["apps.openyurt.io"], "apiVersions": ["*"], "resources": ["nodepools"],
            "operations": ["DELETE"], "scope": "Cluster"
        }])
    );
}

#[test]
fn labelled_pods_wait_for_the_webhook_and_annotated_ones_do_not() {
    let policies = |values: &[&str]| -> Vec<Value> {
        let pods = webhooks("MutatingWebhookConfiguration", values);
        let pools = webhooks("ValidatingWebhookConfiguration", values);
        pods.iter().chain(&pools).map(|webhook| webhook["failurePolicy"].clone()).collect()
    };
    assert_eq!(policies(&[]), ["Fail", "Ignore", "Fail"]);
    let turned =
        r#"webhook.failurePolicy={"labelledPods":"Ignore","annotatedPods":"Fail","nodePools":"Ignore"}"#;
    assert_eq!(policies(&[turned]), ["Ignore", "Fail", "Ignore"]);
}

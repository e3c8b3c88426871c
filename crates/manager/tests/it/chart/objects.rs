//! The other objects: pods, Secrets, names.

use std::collections::BTreeSet;

use api::labels::{HOST_NETWORK_NODE, IS_EDGE_WORKER};
use serde_json::{Value, json};

use super::{of_kind, one, render, try_render};

fn deployment(values: &[&str]) -> Value {
    one(&render(values), "Deployment", "isthmus-manager")["spec"].clone()
}

#[test]
fn the_manager_is_started_as_it_expects() {
    let container = &deployment(&[])["template"]["spec"]["containers"][0];
    assert_eq!(
        container["args"],
        json!([
            "run",
            "--namespace=$(POD_NAMESPACE)",
            "--identity=$(POD_NAME)",
            "--approve-hub-certificates=true",
            "--hub-access=true",
            "--gateways=true",
            "--gateways-for-edge-pools=false",
            "--gateway-lease=isthmus-manager-gateways",
            "--gateway-lease-duration=3s",
            "--webhook-address=[::]:10273",
            "--health-address=[::]:10272",
            "--metrics-address=[::]:10271",
            "--webhook-service=isthmus-webhook",
            "--mutating-webhook-configuration=isthmus",
            "--validating-webhook-configuration=isthmus",
            "--ca-secret=isthmus-webhook-ca",
            "--serving-secret=isthmus-webhook-serving",
            "--hub-namespace=kube-system",
            "--leader-elect-resource-name=isthmus-manager",
            "--leader-elect-deployment=isthmus-manager",
            "--leader-elect-lease-duration=15s",
            "--leader-elect-renew-deadline=10s",
            "--leader-elect-retry-period=2s",
            "--log-level=info",
            "--log-format=json"
        ])
    );
    for (probe, path) in
        [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
    {
        assert_eq!(container[probe]["httpGet"], json!({ "path": path, "port": "health" }), "{probe}");
    }
}

#[test]
fn every_pod_is_as_locked_up_as_it_can_be() {
    let objects = render(&[]);
    for (kind, name) in [("Deployment", "isthmus-manager"), ("Job", "isthmus-crds")] {
        let pod = &one(&objects, kind, name)["spec"]["template"]["spec"];
        assert_eq!(
            pod["securityContext"],
            json!({
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" }
            })
        );
        for field in ["hostNetwork", "hostPID", "hostIPC", "volumes"] {
            assert_eq!(pod.get(field), None, "{kind} {field}");
        }
        let containers = pod["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        assert_eq!(
            containers[0]["securityContext"],
            json!({
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] }
            })
        );
        assert!(containers[0]["resources"]["limits"]["memory"].is_string());
    }
}

#[test]
fn pods_keep_off_the_edge_and_off_host_network_pools() {
    let objects = render(&[]);
    let mut expected = vec![(IS_EDGE_WORKER, "true")];
    expected.extend(HOST_NETWORK_NODE);
    let expected: BTreeSet<String> =
        expected.into_iter().map(|(key, value)| format!("{key} NotIn [\"{value}\"]")).collect();
    for (kind, name) in [("Deployment", "isthmus-manager"), ("Job", "isthmus-crds")] {
        let affinity = &one(&objects, kind, name)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
        let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        assert_eq!(terms.as_array().unwrap().len(), 1);
        let found = terms[0]["matchExpressions"].as_array().unwrap().iter().map(|expression| {
            let text = |field: &str| expression[field].as_str().unwrap();
            format!("{} {} {}", text("key"), text("operator"), expression["values"])
        });
        assert_eq!(found.collect::<BTreeSet<_>>(), expected, "{kind}");
    }
}

/// The death of a gateway's node is noticed within seconds, unless the leader dies with it.
#[test]
fn the_manager_is_rather_not_on_a_gateways_node() {
    const GATEWAYS: &str = r#"edgeHub.gatewayNodes=["c1","c2"]"#;
    let rather = |values: &[&str]| {
        let affinity = deployment(values)["template"]["spec"]["affinity"]["nodeAffinity"].clone();
        affinity["preferredDuringSchedulingIgnoredDuringExecution"][0]["preference"].clone()
    };
    let not = |node: &str| json!({ "key": "metadata.name", "operator": "NotIn", "values": [node] });
    let expected = json!({ "matchFields": [not("c1"), not("c2")] });
    assert_eq!(rather(&[GATEWAYS]), expected);
    let alone = ["placement.avoidEdgeWorkers=false", "placement.avoidHostNetworkPools=false", GATEWAYS];
    assert_eq!(rather(&alone), expected);
    for none in [&[][..], &[GATEWAYS, "placement.avoidGateways=false"]] {
        assert_eq!(rather(none), json!(null));
    }
}

#[test]
fn the_placement_can_be_given_up() {
    let pod = |values: &[&str]| deployment(values)["template"]["spec"]["affinity"].clone();
    let free = pod(&["placement.avoidEdgeWorkers=false", "placement.avoidHostNetworkPools=false"]);
    assert_eq!(free.get("nodeAffinity"), None);
    assert!(free["podAntiAffinity"].is_object());
    assert_eq!(pod(&[r#"affinity={"podAffinity":{}}"#]), json!({ "podAffinity": {} }));
}

#[test]
fn replicas_go_one_after_the_other() {
    let spec = deployment(&[]);
    assert_eq!(spec["replicas"], 2);
    assert_eq!(spec["strategy"]["rollingUpdate"], json!({ "maxUnavailable": 0, "maxSurge": 1 }));
    let objects = render(&[]);
    assert_eq!(one(&objects, "PodDisruptionBudget", "isthmus-manager")["spec"]["minAvailable"], 1);
    assert_eq!(
        of_kind(&render(&["replicas=1"]), "PodDisruptionBudget").len(),
        0,
        "it would hold up every drain"
    );
}

#[test]
fn upgrades_keep_what_the_manager_wrote_into_its_secrets() {
    let objects = render(&[]);
    let secrets = of_kind(&objects, "Secret");
    assert_eq!(secrets.len(), 2);
    for secret in secrets {
        for field in ["data", "stringData", "immutable"] {
            assert_eq!(secret.get(field), None, "{field}");
        }
    }
}

#[test]
fn the_crds_come_before_all_else_and_can_be_left_out() {
    let objects = render(&[]);
    let hooks: Vec<_> = objects
        .iter()
        .filter(|object| object["metadata"]["annotations"].get("helm.sh/hook").is_some())
        .collect();
    let weight = |object: &Value| {
        object["metadata"]["annotations"]["helm.sh/hook-weight"].as_str().unwrap().parse::<i32>().unwrap()
    };
    let job = one(&objects, "Job", "isthmus-crds");
    assert_eq!(hooks.len(), 4);
    for hook in hooks {
        assert_eq!(hook["metadata"]["annotations"]["helm.sh/hook"], "pre-install,pre-upgrade");
        assert!(hook == job || weight(hook) < weight(job), "{hook}");
    }
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["args"], json!(["crds", "apply"]));
    let without = try_render(&["crds.install=false"]).unwrap();
    assert!(!without.contains("helm.sh/hook") && !without.contains("CustomResourceDefinition"), "{without}");
    assert_eq!(of_kind(&objects, "CustomResourceDefinition").len(), 0, "uninstalling would delete all pools");
}

#[test]
fn the_image_is_named_as_its_parts_say() {
    let image = |values: &[&str]| deployment(values)["template"]["spec"]["containers"][0]["image"].clone();
    assert_eq!(image(&[]), format!("isthmus.dev/isthmus-manager:{}", env!("CARGO_PKG_VERSION")));
    let parts = r#"image={"registry":"registry.example:5000","repository":"a/b","tag":"c"}"#;
    assert_eq!(image(&[parts]), "registry.example:5000/a/b:c");
}

#[test]
fn names_stay_valid_however_long_the_given_one_is() {
    let name = format!("fullnameOverride=\"{}\"", "n".repeat(90));
    let everything = [
        name.as_str(),
        "metrics.serviceMonitor.enabled=true",
        "metrics.dashboard.enabled=true",
        "networkPolicy.enabled=true",
    ];
    let objects = render(&everything);
    let mut seen = BTreeSet::new();
    for object in &objects {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap();
        // The manager looks for this one by its name.
        let fixed = name == api::names::HUB_POOLS_ROLE;
        assert!(name.len() <= 63 && (fixed || name.starts_with("nnn")), "{name}");
        assert_eq!(metadata["labels"]["app.kubernetes.io/part-of"], "isthmus", "{name}");
        assert!(seen.insert(format!("{} {name} {}", object["kind"], metadata["namespace"])), "{name} twice");
    }
    for kind in ["ServiceMonitor", "ConfigMap", "NetworkPolicy"] {
        assert_eq!(of_kind(&objects, kind).len(), 1, "{kind}");
    }
}

#[test]
fn prometheus_verifies_what_the_manager_serves() {
    let endpoint = |values: &[&str]| {
        let values = [&["metrics.serviceMonitor.enabled=true"], values].concat();
        one(&render(&values), "ServiceMonitor", "isthmus-manager")["spec"]["endpoints"][0].clone()
    };
    // The manager writes this key beside the certificate that it serves, for this name.
    let expected = json!({
        "ca": { "secret": { "name": "isthmus-webhook-serving", "key": "ca.crt" } },
        "serverName": "isthmus-webhook.isthmus-system.svc"
    });
    assert_eq!(endpoint(&[])["tlsConfig"], expected);
    let own = endpoint(&[r#"metrics.serviceMonitor.tlsConfig={"insecureSkipVerify":true}"#]);
    assert_eq!(own["tlsConfig"], json!({ "insecureSkipVerify": true }));
}

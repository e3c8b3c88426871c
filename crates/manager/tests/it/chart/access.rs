//! Who may do what: the exact rights, so that each further one is seen.

use serde_json::{Value, json};

use super::{of_kind, one, render};

fn rules(kind: &str, name: &str) -> Value {
    one(&render(&[]), kind, name)["rules"].clone()
}

#[test]
fn the_manager_may_do_in_the_cluster_what_it_does_there() {
    assert_eq!(
        rules("ClusterRole", "isthmus-manager"),
        json!([
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"] },
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"] },
            { "apiGroups": ["apps.openyurt.io"], "resources": ["nodepools"], "verbs": ["get", "list", "watch", "patch"] },
            { "apiGroups": ["apps.openyurt.io"], "resources": ["nodepools/status"], "verbs": ["patch"] },
            { "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] },
            {
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
                "resourceNames": ["isthmus"],
                "verbs": ["get", "list", "watch", "patch"]
            },
            { "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"] },
            { "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"] }
        ])
    );
}

#[test]
fn the_manager_touches_its_own_lease_and_secrets_only() {
    assert_eq!(
        rules("Role", "isthmus-manager"),
        json!([
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] },
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "resourceNames": ["isthmus-manager"],
                "verbs": ["get", "list", "watch", "update"]
            },
            {
                "apiGroups": ["apps"],
                "resources": ["deployments"],
                "resourceNames": ["isthmus-manager"],
                "verbs": ["get"]
            },
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": ["isthmus-webhook-ca", "isthmus-webhook-serving"],
                "verbs": ["get", "list", "watch", "patch"]
            }
        ])
    );
}

#[test]
fn of_config_maps_the_manager_writes_those_for_hubs_only() {
    let objects = render(&[]);
    let role = one(&objects, "Role", "isthmus-hub");
    assert_eq!(role["metadata"]["namespace"], "kube-system");
    assert_eq!(
        role["rules"],
        json!([{
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get", "list", "watch", "create", "patch"]
        }])
    );
    let policy = &one(&objects, "ValidatingAdmissionPolicy", "isthmus-hub")["spec"];
    assert_eq!(policy["failurePolicy"], "Fail");
    assert_eq!(
        policy["matchConditions"][0]["expression"],
        r#"request.userInfo.username == "system:serviceaccount:isthmus-system:isthmus-manager""#
    );
    assert_eq!(
        policy["matchConstraints"]["resourceRules"],
        json!([{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE", "UPDATE", "DELETE"]
        }])
    );
    assert_eq!(
        policy["validations"][0]["expression"],
        r#"(request.operation == "DELETE" ? oldObject : object).metadata.name.startsWith("leader-hub-")"#
    );
    let binding = &one(&objects, "ValidatingAdmissionPolicyBinding", "isthmus-hub")["spec"];
    assert_eq!(binding, &json!({ "policyName": "isthmus-hub", "validationActions": ["Deny"] }));
}

#[test]
fn the_hook_may_write_the_own_crds_only() {
    assert_eq!(
        rules("ClusterRole", "isthmus-crds"),
        json!([
            { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["create"] },
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "resourceNames": ["nodepools.apps.openyurt.io", "gateways.raven.openyurt.io"],
                "verbs": ["get", "patch"]
            }
        ])
    );
}

#[test]
fn there_are_no_other_rights_and_none_for_others() {
    let objects = render(&["edgeHub.access=false", "edgeHub.approve=false"]);
    let names = |kind: &str| -> Vec<String> {
        of_kind(&objects, kind)
            .iter()
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("ClusterRole"), ["isthmus-manager", "isthmus-metrics-reader", "isthmus-crds"]);
    assert_eq!(names("Role"), ["isthmus-hub", "isthmus-manager"]);
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        for binding in of_kind(&objects, kind) {
            let account = match binding["roleRef"]["name"].as_str().unwrap() {
                "isthmus-crds" => "isthmus-crds",
                _ => "isthmus-manager",
            };
            assert_eq!(binding["metadata"]["name"], binding["roleRef"]["name"]);
            assert_eq!(
                binding["subjects"],
                json!([{ "kind": "ServiceAccount", "name": account, "namespace": "isthmus-system" }])
            );
        }
    }
}

/// What of a kind is there because of one value.
fn added(kind: &str, without: &str) -> Vec<String> {
    let names = |set: &[&str]| -> Vec<String> {
        let objects = render(set);
        let names = of_kind(&objects, kind);
        names.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let without = names(&[without]);
    names(&[]).into_iter().filter(|name| !without.contains(name)).collect()
}

#[test]
fn the_hubs_of_the_nodes_may_read_four_things_more() {
    let added = |kind| added(kind, "edgeHub.access=false");
    assert_eq!(added("ClusterRole"), ["isthmus-edge-hub"]);
    assert_eq!(added("ClusterRoleBinding"), ["isthmus-edge-hub", "isthmus-edge-hub-token-keys"]);
    assert_eq!(
        (added("Role"), added("RoleBinding")),
        (vec!["isthmus-edge-hub".into()], vec!["isthmus-edge-hub".into()])
    );

    let read = json!(["get", "list", "watch"]);
    assert_eq!(
        rules("ClusterRole", "isthmus-edge-hub"),
        json!([
            { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read },
            { "apiGroups": ["apps.openyurt.io"], "resources": ["nodepools"], "verbs": read },
        ])
    );
    let objects = render(&[r#"edgeHub.pools=["a","b"]"#]);
    let role = one(&objects, "Role", "isthmus-edge-hub");
    assert_eq!(role["metadata"]["namespace"], "kube-system");
    let names = ["yurt-hub-cfg", "leader-hub-a", "leader-hub-b"];
    let of = |names: &[&str]| json!([{ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": read }]);
    assert_eq!(role["rules"], of(&names));
    assert_eq!(rules("Role", "isthmus-edge-hub"), of(&names[..1]));
    let group =
        |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name });
    for (kind, name, role) in [
        ("ClusterRoleBinding", "isthmus-edge-hub", "isthmus-edge-hub"),
        ("ClusterRoleBinding", "isthmus-edge-hub-token-keys", "system:service-account-issuer-discovery"),
        ("RoleBinding", "isthmus-edge-hub", "isthmus-edge-hub"),
    ] {
        let binding = one(&objects, kind, name);
        assert_eq!(binding["roleRef"]["name"], role);
        assert_eq!(binding["subjects"], json!([group("isthmus:edge-hubs"), group("system:nodes")]));
        let own_only = render(&[r#"edgeHub.group="""#]);
        assert_eq!(one(&own_only, kind, name)["subjects"], json!([group("isthmus:edge-hubs")]));
    }
}

#[test]
fn the_manager_approves_for_one_signer_and_tokens_ask() {
    let added = |kind| added(kind, "edgeHub.approve=false");
    assert_eq!(added("ClusterRole"), ["isthmus-edge-hub-bootstrap", "isthmus-hub-approver"]);
    assert_eq!(added("ClusterRoleBinding"), ["isthmus-edge-hub-bootstrap", "isthmus-hub-approver"]);
    assert_eq!(added("ValidatingAdmissionPolicy"), ["isthmus-hub-approver"]);
    assert_eq!(added("ValidatingAdmissionPolicyBinding"), ["isthmus-hub-approver"]);
    let group = "certificates.k8s.io";
    assert_eq!(
        rules("ClusterRole", "isthmus-hub-approver"),
        json!([
            { "apiGroups": [group], "resources": ["certificatesigningrequests"], "verbs": ["list", "watch"] },
            { "apiGroups": [group], "resources": ["certificatesigningrequests/approval"], "verbs": ["patch"] },
            {
                "apiGroups": [group],
                "resources": ["signers"],
                "resourceNames": [api::names::HUB_SIGNER],
                "verbs": ["approve"]
            }
        ])
    );
    assert_eq!(
        rules("ClusterRole", "isthmus-edge-hub-bootstrap"),
        json!([{ "apiGroups": [group], "resources": ["certificatesigningrequests"], "verbs": ["create", "get"] }])
    );
    let objects = render(&[]);
    let subjects = |name: &str| one(&objects, "ClusterRoleBinding", name)["subjects"].clone();
    assert_eq!(subjects("isthmus-edge-hub-bootstrap")[0]["name"], api::names::HUB_BOOTSTRAP_GROUP);
    assert_eq!(
        subjects("isthmus-hub-approver"),
        json!([{ "kind": "ServiceAccount", "name": "isthmus-manager", "namespace": "isthmus-system" }])
    );
    let policy = &one(&objects, "ValidatingAdmissionPolicy", "isthmus-hub-approver")["spec"];
    assert_eq!(policy["failurePolicy"], "Fail");
    let expression = policy["validations"][0]["expression"].as_str().unwrap();
    for part in [api::names::HUB_SIGNER, api::names::HUB_BOOTSTRAP_GROUP, api::names::NODE_USER_PREFIX] {
        assert!(expression.contains(part), "{part} is not in {expression}");
    }
}

#[test]
fn metrics_are_for_named_readers() {
    let reader =
        r#"metrics.readers=[{"kind":"ServiceAccount","name":"prometheus","namespace":"monitoring"}]"#;
    let objects = render(&[reader]);
    let role = one(&objects, "ClusterRole", "isthmus-metrics-reader");
    assert_eq!(role["rules"], json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]));
    let binding = one(&objects, "ClusterRoleBinding", "isthmus-metrics-reader");
    assert_eq!(
        binding["subjects"],
        json!([{ "kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring" }])
    );
}

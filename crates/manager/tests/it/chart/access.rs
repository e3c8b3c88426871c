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
                "resourceNames": ["isthmus-manager", "isthmus-manager-gateways"],
                "verbs": ["get", "watch", "update"]
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
            },
            { "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] }
        ])
    );
}

#[test]
fn events_are_written_where_those_of_the_cluster_are() {
    let objects = render(&[]);
    let role = one(&objects, "Role", "isthmus-events");
    assert_eq!(role["metadata"]["namespace"], "default");
    let events =
        json!([{ "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] }]);
    assert_eq!(role["rules"], events);
    let binding = one(&objects, "RoleBinding", "isthmus-events");
    assert_eq!(binding["metadata"]["namespace"], "default");
    assert_eq!(binding["subjects"][0]["name"], "isthmus-manager");
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
        r#"(request.operation == "DELETE" ? oldObject : object).metadata.name.matches("^(leader-hub-.+|edge-tunnel-nodes|isthmus-node-places-[0-9a-f])$")"#
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
fn gateways_are_kept_in_one_namespace_and_their_specs_left_alone() {
    let group = "raven.openyurt.io";
    assert_eq!(
        rules("ClusterRole", "isthmus-gateways"),
        json!([
            { "apiGroups": [group], "resources": ["gateways"], "verbs": ["get", "list", "watch", "create", "delete"] },
            { "apiGroups": [group], "resources": ["gateways/status"], "verbs": ["patch"] }
        ])
    );
    let objects = render(&[]);
    let role = one(&objects, "Role", "isthmus-gateways");
    assert_eq!(role["metadata"]["namespace"], api::names::NAMESPACE);
    let write = json!(["list", "watch", "create", "patch", "delete"]);
    assert_eq!(
        role["rules"],
        json!([
            { "apiGroups": [""], "resources": ["services"], "verbs": write },
            { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": write },
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"] },
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"] },
            {
                "apiGroups": [""], "resources": ["configmaps"],
                "resourceNames": [api::names::TUNNEL_NODES_CONFIG_MAP], "verbs": ["patch"]
            }
        ])
    );
    let policy = &one(&objects, "ValidatingAdmissionPolicy", "isthmus-gateways")["spec"];
    let expression = policy["validations"][0]["expression"].as_str().unwrap();
    assert!(
        expression.contains(&format!("startsWith({:?})", api::names::PROXY_SERVICES_PREFIX)),
        "{expression}"
    );
    let hints = &one(&objects, "ValidatingAdmissionPolicyBinding", "isthmus-gateway-hints")["spec"];
    assert_eq!(hints["validationActions"], json!(["Warn"]), "a hint is no refusal");
    let off = render(&["gateways.enabled=false"]);
    for kind in ["ClusterRole", "Role", "ValidatingAdmissionPolicy"] {
        assert!(
            of_kind(&off, kind).iter().all(|o| !o["metadata"]["name"].as_str().unwrap().contains("-gateway")),
            "{kind}"
        );
    }
}

#[test]
fn serving_certificates_are_approved_for_gateways_alone() {
    assert_eq!(
        rules("ClusterRole", "isthmus-gateway-approver"),
        json!([{
            "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
            "resourceNames": [api::names::GATEWAY_SIGNER], "verbs": ["approve"]
        }])
    );
    let objects = render(&[]);
    let policy = &one(&objects, "ValidatingAdmissionPolicy", "isthmus-gateway-approver")["spec"];
    let condition = policy["matchConditions"][1]["expression"].as_str().unwrap();
    assert_eq!(condition, format!("object.spec.signerName == \"{}\"", api::names::GATEWAY_SIGNER));
    let expression = policy["validations"][0]["expression"].as_str().unwrap();
    for part in api::names::GATEWAY_USAGES.into_iter().chain([api::names::NODE_USER_PREFIX]) {
        assert!(expression.contains(part), "{part} is not in {expression}");
    }
}

#[test]
fn there_are_no_other_rights_and_none_for_others() {
    let objects = render(&["edgeHub.access=false", "edgeHub.approve=false", "gateways.enabled=false"]);
    let names = |kind: &str| -> Vec<String> {
        of_kind(&objects, kind)
            .iter()
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("ClusterRole"), ["isthmus-manager", "isthmus-metrics-reader", "isthmus-crds"]);
    assert_eq!(names("Role"), ["isthmus-hub", "isthmus-manager", "isthmus-events"]);
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
fn the_hubs_of_the_nodes_may_read_five_things_more() {
    let added = |kind| added(kind, "edgeHub.access=false");
    assert_eq!(added("ClusterRole"), ["isthmus-edge-hub"]);
    assert_eq!(added("ClusterRoleBinding"), ["isthmus-edge-hub", "isthmus-edge-hub-token-keys"]);
    assert_eq!(added("Role"), ["isthmus-edge-hub", "isthmus-edge-hub-pools", "isthmus-hub-access"]);
    let pools = render(&[]);
    let pools = one(&pools, "Role", api::names::HUB_POOLS_ROLE);
    assert!(pools.get("rules").is_none(), "an upgrade would take away what the manager has written");
    assert_eq!(added("RoleBinding"), ["isthmus-edge-hub", "isthmus-edge-hub-pools", "isthmus-hub-access"]);

    let read = json!(["get", "list", "watch"]);
    assert_eq!(
        rules("ClusterRole", "isthmus-edge-hub"),
        json!([
            { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read },
            { "apiGroups": ["apps.openyurt.io"], "resources": ["nodepools"], "verbs": read },
            { "apiGroups": ["raven.openyurt.io"], "resources": ["gateways"], "verbs": read },
            { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"] },
        ])
    );
    let objects = render(&[]);
    let names = ["yurt-hub-cfg", "isthmus-node-metric"];
    assert_eq!(
        rules("Role", "isthmus-edge-hub"),
        json!([{ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": read }])
    );
    for name in ["isthmus-edge-hub", "isthmus-edge-hub-pools"] {
        assert_eq!(one(&objects, "RoleBinding", name)["metadata"]["namespace"], "kube-system");
    }
    let group =
        |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name });
    for (kind, name, role) in [
        ("ClusterRoleBinding", "isthmus-edge-hub", "isthmus-edge-hub"),
        ("ClusterRoleBinding", "isthmus-edge-hub-token-keys", "system:service-account-issuer-discovery"),
        ("RoleBinding", "isthmus-edge-hub", "isthmus-edge-hub"),
        ("RoleBinding", "isthmus-edge-hub-pools", api::names::HUB_POOLS_ROLE),
    ] {
        let binding = one(&objects, kind, name);
        assert_eq!(binding["roleRef"]["name"], role);
        assert_eq!(binding["subjects"], json!([group("isthmus:edge-hubs"), group("system:nodes")]));
        let own_only = render(&[r#"edgeHub.group="""#]);
        assert_eq!(one(&own_only, kind, name)["subjects"], json!([group("isthmus:edge-hubs")]));
    }
}

/// The names of the pools' ConfigMaps are in a Role that the manager keeps, and it can give the hubs no other right by that.
#[test]
fn the_manager_writes_one_role_and_binds_none() {
    assert_eq!(
        rules("Role", "isthmus-hub-access"),
        json!([{
            "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "resourceNames": [api::names::HUB_POOLS_ROLE],
            "verbs": ["patch"],
        }])
    );
    let objects = render(&[]);
    for kind in ["ClusterRole", "Role"] {
        for role in of_kind(&objects, kind) {
            let rules = role["rules"].to_string();
            assert!(!rules.contains("rolebindings") && !rules.contains("escalate"), "{role}");
            assert!(!rules.contains("\"bind\""), "{role}");
        }
    }
}

#[test]
fn the_hubs_of_named_gateways_read_nodes_and_write_their_own_reports() {
    let names = |objects: &[Value], kind: &str| -> Vec<String> {
        let named = of_kind(objects, kind)
            .into_iter()
            .filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned));
        named.filter(|name| name == "isthmus-edge-hub-gateway").collect()
    };
    let none = render(&[]);
    for kind in ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ValidatingAdmissionPolicy"] {
        assert_eq!(names(&none, kind), [""; 0], "{kind}");
    }
    let objects = render(&[r#"edgeHub.gatewayNodes=["c1","c2"]"#]);
    let rules = |kind| one(&objects, kind, "isthmus-edge-hub-gateway")["rules"].clone();
    let nodes = json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] }]);
    assert_eq!(rules("ClusterRole"), nodes);
    let reports = ["c1", "c2"].map(api::names::gateway_lease);
    let config_maps = json!([
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"] },
        { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": reports, "verbs": ["get", "update"] },
    ]);
    assert_eq!(rules("Role"), config_maps);
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        let user =
            |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name });
        let subjects = one(&objects, kind, "isthmus-edge-hub-gateway")["subjects"].clone();
        assert_eq!(subjects, json!([user("system:node:c1"), user("system:node:c2")]));
    }
    let policy = &one(&objects, "ValidatingAdmissionPolicy", "isthmus-edge-hub-gateway")["spec"];
    assert_eq!(policy["failurePolicy"], "Fail");
    let expression = policy["validations"][0]["expression"].as_str().unwrap();
    let offset = api::names::NODE_USER_PREFIX.len();
    assert!(expression.contains(&format!("substring({offset})")), "{expression}");
    assert!(expression.contains(api::names::GATEWAY_LEASE_PREFIX), "{expression}");
}

#[test]
fn the_manager_approves_for_one_signer_and_tokens_ask() {
    let added = |kind| added(kind, "edgeHub.approve=false");
    assert_eq!(
        added("ClusterRole"),
        ["isthmus-edge-hub-bootstrap", "isthmus-hub-approver", "isthmus-gateway-approver"]
    );
    assert_eq!(
        added("ClusterRoleBinding"),
        ["isthmus-edge-hub-bootstrap", "isthmus-hub-approver", "isthmus-gateway-approver"]
    );
    assert_eq!(added("ValidatingAdmissionPolicy"), ["isthmus-hub-approver", "isthmus-gateway-approver"]);
    assert_eq!(
        added("ValidatingAdmissionPolicyBinding"),
        ["isthmus-hub-approver", "isthmus-gateway-approver"]
    );
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

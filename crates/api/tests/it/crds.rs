//! The CRDs themselves: what holds for every version, and what users see in tables.

use api::{Gateway, GatewaySpec, NodePool, NodePoolSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::Resource;
use serde_json::json;

#[test]
fn versions_are_those_that_peers_know() {
    let versions = |crd: &CustomResourceDefinition| -> Vec<String> {
        let describe = |v: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion| {
            let storage = if v.storage { " storage" } else { "" };
            let deprecated = if v.deprecated == Some(true) { " deprecated" } else { "" };
            assert_eq!(v.deprecated, v.deprecation_warning.as_ref().map(|_| true), "a deprecation has a warning");
            assert!(v.served, "{} is served", v.name);
            format!("{}{storage}{deprecated}", v.name)
        };
        crd.spec.versions.iter().map(describe).collect()
    };
    let crds = api::crds();
    let by_name: Vec<(&str, Vec<String>)> =
        crds.iter().map(|crd| (crd.metadata.name.as_deref().unwrap(), versions(crd))).collect();
    insta::assert_json_snapshot!(by_name);
    // The clients of the types speak the storage version.
    assert_eq!(NodePool::api_version(&()), "apps.openyurt.io/v1beta2");
    assert_eq!(Gateway::api_version(&()), "raven.openyurt.io/v1beta1");
}

#[test]
fn versions_differ_in_nothing_but_their_name() {
    for crd in api::crds() {
        let name = crd.metadata.name.as_deref().unwrap();
        assert_eq!(crd.spec.conversion.as_ref().unwrap().strategy, "None", "{name}");
        let (first, others) = crd.spec.versions.split_first().unwrap();
        assert!(first.subresources.as_ref().unwrap().status.is_some(), "{name}");
        for other in others {
            assert_eq!(
                first.schema, other.schema,
                "{name} {}: without conversion the schemas must be equal",
                other.name
            );
            assert_eq!(first.subresources, other.subresources, "{name} {}", other.name);
            assert_eq!(first.selectable_fields, other.selectable_fields, "{name} {}", other.name);
            assert_eq!(
                first.additional_printer_columns, other.additional_printer_columns,
                "{name} {}",
                other.name
            );
        }
    }
}

#[test]
fn names_are_those_that_users_type() {
    let names: Vec<_> = api::crds().into_iter().map(|crd| (crd.spec.scope, crd.spec.names)).collect();
    insta::assert_json_snapshot!(names);
}

#[test]
fn tables_show_what_users_ask_first() {
    let columns: Vec<Vec<String>> = api::crds()
        .into_iter()
        .map(|crd| {
            let columns = crd.spec.versions.into_iter().next().unwrap().additional_printer_columns.unwrap();
            let shown = |priority: Option<i32>| {
                if priority == Some(0) || priority.is_none() { "" } else { " -o wide" }
            };
            let line = |c: CustomResourceColumnDefinition| {
                format!("{} {}{}", c.name.to_uppercase(), c.json_path, shown(c.priority))
            };
            columns.into_iter().map(line).collect()
        })
        .collect();
    insta::assert_json_snapshot!(columns);
}

#[test]
fn every_field_is_described() {
    for crd in api::crds() {
        let name = crd.metadata.name.unwrap();
        let schema =
            crd.spec.versions.into_iter().next().unwrap().schema.unwrap().open_api_v3_schema.unwrap();
        assert!(schema.description.is_some(), "{name}");
        for part in ["spec", "status"] {
            described(&schema.properties.as_ref().unwrap()[part], &format!("{name} {part}"));
        }
    }
}

/// Fails at the first field that `kubectl explain` could say nothing about.
fn described(schema: &JSONSchemaProps, path: &str) {
    let description = schema.description.as_deref().unwrap_or_default();
    assert!(!description.is_empty(), "{path} has no description: write a comment on the field");
    assert!(!description.contains('\n'), "{path}: kubectl explain breaks lines itself");
    for (field, schema) in schema.properties.iter().flatten() {
        described(schema, &format!("{path}.{field}"));
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        items
            .properties
            .iter()
            .flatten()
            .for_each(|(field, schema)| described(schema, &format!("{path}[].{field}")));
    }
}

#[test]
fn no_field_may_be_null() {
    let text = serde_json::to_string(&api::crds()).unwrap();
    assert!(!text.contains("nullable"), "a null must be dropped by the API server, not stored");
}

#[test]
fn the_defaults_of_the_types_are_those_of_the_api_server() {
    assert_eq!(serde_json::from_value::<NodePoolSpec>(json!({})).unwrap(), NodePoolSpec::default());
    assert_eq!(serde_json::from_value::<GatewaySpec>(json!({})).unwrap(), GatewaySpec::default());
}

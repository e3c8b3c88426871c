//! The CRDs: the single list of what the project installs, one CRD a kind with all of its versions.
//!
//! All versions of a kind have the same schema and columns, so the API server converts between them by renaming: no
//! webhook, and no field is lost whichever version writes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionVersion, JSON,
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt as _;
use serde_json::json;

use crate::names::{GATEWAY_NAME_MAX, NODE_POOL_NAME_MAX};
use crate::{Gateway, NodeLoad, NodeMetric, NodePool};

/// All CRDs of the project, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![gateways(), node_pools()]
}

/// What NodeMetric would be as a CRD: its schema and columns. The manager serves it from memory; installed it is nowhere.
pub fn node_metrics() -> CustomResourceDefinition {
    served(NodeMetric::crd())
}

/// What NodeLoad would be as a CRD; as [`node_metrics`].
pub fn node_loads() -> CustomResourceDefinition {
    served(NodeLoad::crd())
}

fn served(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            plain(schema);
            schema.required = None;
        }
    }
    crd
}

fn node_pools() -> CustomResourceDefinition {
    let deprecation =
        "apps.openyurt.io/v1alpha1 NodePool is deprecated; use apps.openyurt.io/v1beta2 NodePool";
    let name = NameRule {
        max: NODE_POOL_NAME_MAX,
        message: format!(
            "a NodePool's name has at most {NODE_POOL_NAME_MAX} characters, because the ConfigMap leader-hub-<name> carries \
             its own name as a label value of at most 63: use a shorter name"
        ),
    };
    complete(NodePool::crd(), name, &[("v1beta1", None), ("v1alpha1", Some(deprecation))])
}

fn gateways() -> CustomResourceDefinition {
    let name = NameRule {
        max: GATEWAY_NAME_MAX,
        message: format!(
            "a Gateway's name has at most {GATEWAY_NAME_MAX} characters, because nodes carry it as the value of their label \
             raven.openyurt.io/gateway: use a shorter name"
        ),
    };
    complete(Gateway::crd(), name, &[("v1alpha1", None)])
}

/// The longest name an object may have, and why. The rule stands at `metadata.name` and not at the root, because there
/// the API server does not ask it again of an object whose name is as it was: objects that are older than the rule can
/// still be updated.
struct NameRule {
    max: usize,
    message: String,
}

/// A CRD as derived, whose one version is the storage version, with what the derive cannot say: rules for the name, a spec
/// that may be left out, and the other versions, each with its deprecation warning.
fn complete(
    mut crd: CustomResourceDefinition,
    name: NameRule,
    others: &[(&str, Option<&str>)],
) -> CustomResourceDefinition {
    let Some(storage) = crd.spec.versions.first_mut() else { return crd };
    if let Some(schema) = storage.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
        plain(schema);
        let properties = schema.properties.get_or_insert_default();
        properties.insert("metadata".to_owned(), metadata(name));
        // Everything in a spec has a default, so the spec has one.
        if let Some(spec) = properties.get_mut("spec") {
            spec.default = Some(JSON(json!({})));
        }
        schema.required = None;
    }
    let storage = storage.clone();
    crd.spec.versions.extend(others.iter().map(|(name, deprecation)| CustomResourceDefinitionVersion {
        name: (*name).to_owned(),
        storage: false,
        deprecated: deprecation.map(|_| true),
        deprecation_warning: deprecation.map(str::to_owned),
        ..storage.clone()
    }));
    crd.spec.conversion =
        Some(CustomResourceConversion { strategy: "None".to_owned(), ..CustomResourceConversion::default() });
    crd
}

fn metadata(name: NameRule) -> JSONSchemaProps {
    let rule = ValidationRule {
        rule: format!("size(self) <= {}", name.max),
        message: Some(name.message),
        ..ValidationRule::default()
    };
    let name = JSONSchemaProps {
        type_: Some("string".to_owned()),
        x_kubernetes_validations: Some(vec![rule]),
        ..JSONSchemaProps::default()
    };
    JSONSchemaProps {
        type_: Some("object".to_owned()),
        properties: Some([("name".to_owned(), name)].into()),
        ..JSONSchemaProps::default()
    }
}

/// Takes away what the derive adds and users do not need:
///
/// - `nullable` of every optional field: the API server then drops a null, as it does for built-in kinds, instead of
///   storing it, and `has(self.field)` means what it says.
/// - `title`, the name of the Rust type.
/// - The line breaks of comments in descriptions: `kubectl explain` breaks lines itself.
fn plain(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    if let Some(description) = &mut schema.description {
        *description = description.replace('\n', " ");
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        plain(values);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        plain(items);
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(plain);
}

//! The rules of the CRDs, checked against the real API server with the very cases that the unit tests use.

use anyhow::{Result, ensure};
use api::annotations;
use e2e::pools::remove_pool;
use e2e::{client, kubectl, kubectl_apply};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::case::{Case, contains};

#[tokio::test]
async fn the_api_server_accepts_and_refuses_what_the_cases_say() -> Result<()> {
    let client = client().await?;
    let mut wrong = Vec::new();
    let mut checked = 0;
    for file in ["node_pool.yaml", "gateway.yaml"] {
        let path = e2e::repository().join("crates/api/tests/cases").join(file);
        let cases: Vec<Case> = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        for case in cases {
            checked += 1;
            if let Err(error) = check(&client, &case).await {
                wrong.push(format!("{file}: {}: {error:#}", case.name));
            }
        }
    }
    ensure!(checked > 100, "only {checked} cases were found");
    ensure!(wrong.is_empty(), "{} of {checked} cases:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

async fn check(client: &Client, case: &Case) -> Result<()> {
    let Case { name: _, old, object, refused, becomes } = case;
    let present = match old {
        Some(old) => Some(store(client, old).await?),
        None => None,
    };
    let answer = loop {
        match send(client, object, present.as_ref()).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            answer => break answer,
        }
    };
    if let Some(old) = &present {
        api_of(client, old)?.delete(&old.name_any(), &DeleteParams::default()).await?;
    }
    match (answer, refused) {
        (Ok(accepted), None) => {
            let accepted = serde_json::to_value(accepted)?;
            let becomes = becomes.clone().unwrap_or_else(|| json!({}));
            ensure!(contains(&accepted, &becomes), "became {accepted}");
        }
        (Err(kube::Error::Api(status)), Some(part)) => {
            ensure!(status.message.contains(part), "refused with other words: {}", status.message);
        }
        (Ok(_), Some(part)) => anyhow::bail!("accepted, not refused with {part:?}"),
        (Err(error), _) => anyhow::bail!("refused: {error}"),
    }
    Ok(())
}

fn api_of(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.as_ref().ok_or_else(|| anyhow::anyhow!("no type"))?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    Ok(Api::all_with(client.clone(), &resource))
}

async fn store(client: &Client, object: &Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let api = api_of(client, &object)?;
    api.delete(&object.name_any(), &DeleteParams::default()).await.ok();
    Ok(api.create(&PostParams::default(), &object).await?)
}

/// Creates the object, or replaces the one that is `present`, without keeping it.
async fn send(
    client: &Client,
    object: &Value,
    present: Option<&DynamicObject>,
) -> Result<DynamicObject, kube::Error> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let types: kube::core::TypeMeta =
        serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let gvk = GroupVersionKind::try_from(&types).unwrap_or_else(|_| GroupVersionKind::gvk("", "", ""));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let mut object = object.clone();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let sent = match present {
        None => {
            api.create(&params, &serde_json::from_value(object).map_err(kube::Error::SerdeError)?).await?
        }
        Some(present) => {
            // Controllers write its status meanwhile.
            let present = api.get(&present.name_any()).await?;
            object["metadata"]["resourceVersion"] = json!(present.resource_version());
            let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
            api.replace(&name, &params, &object).await?
        }
    };
    Ok(sent)
}

#[tokio::test]
async fn every_version_is_served_and_explained_and_reads_the_same() -> Result<()> {
    let client = client().await?;
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    for expected in api::crds() {
        let present = crds.get(&expected.name_any()).await?;
        let strategy = present.spec.conversion.map(|conversion| conversion.strategy);
        ensure!(strategy.as_deref() == Some("None"), "{}: {strategy:?}", expected.name_any());
        for version in expected.spec.versions {
            let gvk = GroupVersionKind::gvk(&expected.spec.group, &version.name, &expected.spec.names.kind);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
            api.list(&kube::api::ListParams::default()).await?;
        }
    }
    let explained = kubectl(&["explain", "nodepool.spec", "--recursive"]).await?.ok()?;
    for field in ["networkMode", "hostNetwork", "leaderReplicas", "poolScopeMetadata"] {
        ensure!(explained.contains(field), "kubectl explain does not know {field}");
    }
    let one =
        kubectl(&["explain", "gateway.spec.endpoints.underNAT", "--api-version=raven.openyurt.io/v1beta1"])
            .await?
            .ok()?;
    ensure!(one.contains("DESCRIPTION") && !one.contains("<empty>"), "{one}");

    let gateway = json!({
        "apiVersion": "raven.openyurt.io/v1beta1", "kind": "Gateway", "metadata": { "name": "e2e-columns" }, "spec": {},
    });
    kubectl_apply(&gateway.to_string()).await?.ok()?;
    let table = kubectl(&["get", "gw", "e2e-columns"]).await?.ok()?;
    let header: Vec<_> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    let columns = "NAME EXPOSE NODES PROXY TUNNEL ACTIVE CONNECTED VIA RTT AGE";
    ensure!(header.join(" ") == columns, "{table}");
    kubectl(&["delete", "gw", "e2e-columns"]).await?.ok()?;

    // Nothing is lost between versions.
    let pools = [("v1alpha1", "selector"), ("v1beta1", "hostNetwork"), ("v1beta2", "leaderReplicas")];
    let manifest = json!({
        "apiVersion": "apps.openyurt.io/v1alpha1", "kind": "NodePool", "metadata": { "name": "e2e-versions" },
        "spec": { "hostNetwork": true, "leaderReplicas": 3, "selector": { "matchLabels": { "a": "b" } } },
    });
    kubectl_apply(&manifest.to_string()).await?.ok()?;
    for (version, field) in pools {
        let gvk = GroupVersionKind::gvk("apps.openyurt.io", version, "NodePool");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
        let touch = json!({ "metadata": { "annotations": { "e2e/touched-by": version } } });
        let touched = api.patch("e2e-versions", &PatchParams::default(), &Patch::Merge(&touch)).await?;
        ensure!(!touched.data["spec"][field].is_null(), "{version} lost {field}");
        for (_, field) in pools {
            ensure!(!touched.data["spec"][field].is_null(), "a write through {version} lost {field}");
        }
    }
    kubectl(&["delete", "np", "e2e-versions"]).await?.ok()?;
    Ok(())
}

/// A rule of a CRD sees no annotations: an admission policy of the chart keeps what they say.
#[tokio::test]
async fn a_mode_that_openyurts_annotation_says_cannot_change() -> Result<()> {
    const NAME: &str = "e2e-annotated";
    let client = client().await?;
    remove_pool(&client, NAME).await?;
    let note = annotations::POOL_HOST_NETWORK;
    let pool = json!({
        "apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool",
        "metadata": { "name": NAME, "annotations": { (note): "true" } }, "spec": { "type": "Edge" },
    });
    kubectl_apply(&pool.to_string()).await?.ok()?;
    let in_force = ["wait", "np", NAME, "--for=jsonpath={.status.networkMode}=HostNetwork", "--timeout=20s"];
    kubectl(&in_force).await?.ok()?;

    let (without, other) = (format!("{note}-"), format!("{note}=false"));
    let contrary = r#"{"spec":{"networkMode":"ContainerNetwork"}}"#;
    for words in [
        vec!["annotate", "np", NAME, &without],
        vec!["annotate", "--overwrite", "np", NAME, &other],
        vec!["patch", "np", NAME, "--type=merge", "-p", contrary],
    ] {
        let refused = kubectl(&words).await?;
        ensure!(!refused.success, "{words:?} turned the pool around");
        for part in
            [note, "set spec.networkMode to HostNetwork", "create another pool and move the nodes there"]
        {
            ensure!(
                refused.stderr.contains(part),
                "{words:?}: the refusal does not say {part}: {}",
                refused.stderr
            );
        }
    }
    // What leaves the mode as it is passes: another change, and the remedy.
    kubectl(&["label", "np", NAME, "e2e/other=1"]).await?.ok()?;
    let same = r#"{"spec":{"networkMode":"HostNetwork"}}"#;
    kubectl(&["patch", "np", NAME, "--type=merge", "-p", same]).await?.ok()?;
    kubectl(&["annotate", "np", NAME, &without]).await?.ok()?;
    kubectl(&in_force).await?.ok()?;
    remove_pool(&client, NAME).await
}

//! Rich objects: made on the server, taken away again, and thinned at random.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::server::{Resource, Server};

const NAMESPACE: &str = "e2e-transcode";

/// A certificate request that the API server accepts: ECDSA P-256, CN=e2e.
const CERTIFICATE_REQUEST: &str = include_str!("certificate-request.base64");

/// An object that was made.
pub(super) struct Made {
    pub(super) resource: Resource,
    /// As it was sent.
    pub(super) object: Value,
}

impl Made {
    pub(super) fn namespace(&self) -> Option<&'static str> {
        self.resource.namespaced.then_some(NAMESPACE)
    }

    fn path(&self) -> String {
        let name = self.object["metadata"]["name"].as_str().unwrap_or_default();
        format!("{}/{name}", self.resource.collection(self.namespace()))
    }
}

/// Makes all objects, with their status.
pub(super) async fn create(server: &Server, resources: &[Resource]) -> Result<Vec<Made>> {
    let text = include_str!("objects.yaml").replace("CERTIFICATE_REQUEST", CERTIFICATE_REQUEST.trim());
    let objects: Vec<Value> = serde_saphyr::from_str(&text)?;
    let client = e2e::client().await?;
    e2e::fresh_namespace(&client, NAMESPACE).await?;
    let (mut made, mut wrong) = (Vec::new(), Vec::new());
    for object in objects {
        let (kind, version) = (object["kind"].as_str(), object["apiVersion"].as_str());
        let resource = resources
            .iter()
            .find(|known| {
                Some(&*known.kind) == kind
                    && Some(&*known.gvr.api_version()) == version
                    && known.can("create")
            })
            .with_context(|| format!("{kind:?} of {version:?} is not served"))?;
        let one = Made { resource: resource.clone(), object };
        if let Err(error) = create_one(server, &one).await {
            wrong.push(format!("{}: {error:#}", one.path()));
        }
        made.push(one);
    }
    if !wrong.is_empty() {
        delete(server, &made).await;
    }
    ensure!(wrong.is_empty(), "{} objects were refused:\n{}", wrong.len(), wrong.join("\n"));
    Ok(made)
}

async fn create_one(server: &Server, made: &Made) -> Result<()> {
    // Of an interrupted run.
    delete_one(server, made).await;
    server.post_json(&made.resource.collection(made.namespace()), &made.object).await?;
    if !made.object["status"].is_null() {
        let status = json!({ "status": made.object["status"] });
        server.merge(&format!("{}/status", made.path()), &status).await?;
    }
    Ok(())
}

/// Takes the objects away; what is gone already is as well.
pub(super) async fn delete(server: &Server, made: &[Made]) {
    for made in made {
        delete_one(server, made).await;
    }
    server.delete(&format!("/api/v1/namespaces/{NAMESPACE}")).await.ok();
}

async fn delete_one(server: &Server, made: &Made) {
    let path = made.path();
    server.delete(&path).await.ok();
    // Nobody else takes away the finalizers of these objects.
    server.merge(&path, &json!({ "metadata": { "finalizers": null } })).await.ok();
}

/// The object with members, at random, left out, emptied or set to null. Names and types stay.
pub(super) fn thinned(object: &Value, seed: u64) -> Value {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
    // Some variants lose little, some much.
    let one_in = [4, 8, 16, 40, 100][usize::try_from(random.below(5)).unwrap_or(0)];
    let mut object = object.clone();
    for part in [
        "metadata",
        "spec",
        "status",
        "data",
        "rules",
        "webhooks",
        "template",
        "endpoints",
        "subsets",
        "ports",
    ] {
        if let Some(part) = object.get_mut(part) {
            thin(part, one_in, &mut random);
        }
    }
    object["metadata"]["name"] = json!(format!("variant-{seed}"));
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    object
}

fn thin(value: &mut Value, one_in: u64, random: &mut Random) {
    match value {
        Value::Object(members) => {
            members.retain(|_, _| random.below(one_in) != 0);
            for member in members.values_mut() {
                thin_or_empty(member, one_in, random);
            }
        }
        Value::Array(items) => {
            items.retain(|_| random.below(one_in) != 0);
            for item in items {
                thin_or_empty(item, one_in, random);
            }
        }
        _ => {}
    }
}

fn thin_or_empty(value: &mut Value, one_in: u64, random: &mut Random) {
    if random.below(one_in * 2) != 0 {
        return thin(value, one_in, random);
    }
    *value = match value {
        _ if random.below(3) == 0 => Value::Null,
        Value::Object(_) => json!({}),
        Value::Array(_) => json!([]),
        Value::String(_) => json!(""),
        Value::Number(_) => json!(0),
        Value::Bool(_) | Value::Null => json!(false),
    };
}

/// A generator of numbers that gives the same for the same seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Removes what two dry runs of one request do not share, and what the wire cannot carry: an empty list and none at all
/// are the same on it. Stored objects are compared without this.
pub(super) fn forget_what_each_request_makes_anew(object: &mut Value) {
    for field in ["uid", "creationTimestamp", "managedFields", "generateName"] {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove(field);
        }
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            if spec.get(field).is_some_and(|value| value != "None") {
                spec.remove(field);
            }
        }
    }
    forget_random_and_empty(object);
}

fn forget_random_and_empty(value: &mut Value) {
    match value {
        Value::Object(members) => {
            // Allocated at random, or the time of the request.
            members.retain(|name, _| {
                !["nodePort", "lastTransitionTime", "lastPhaseTransitionTime"].contains(&name.as_str())
                    && !name.ends_with("controller-uid")
            });
            members.values_mut().for_each(forget_random_and_empty);
            members.retain(|_, member| !is_empty(member));
        }
        Value::Array(items) => items.iter_mut().for_each(forget_random_and_empty),
        Value::String(text) if text.starts_with("kube-api-access-") => text.clear(),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

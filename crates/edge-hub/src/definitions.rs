//! Which fields of a custom resource selectors may name, and whether its objects have namespaces: its definition says so (`selectableFields`, KEP-4358;
//! `scope`). It is asked for by name, with the hub's own credential, once a request names a field that not every resource has, or it makes a difference
//! where the objects are, and what it said is kept over a restart.
//!
//! Whether it says so still is asked again with the first such request after a minute, by its metadata alone: a definition may have some hundred
//! kilobytes. So a field that is selectable no more is answered for no longer than that, while there is a link. A stream of its own that names it the API
//! server ends and refuses at once, and with it what reads it (`Progress::is_gone`). Of a shared resource the hub alone selects: watches that are open
//! then last until they end.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube_wire::{resource::GroupVersionResource, selectable_field::SelectableFields, transcode};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::debug;

use crate::{
    found_out::FoundOut,
    offline::coding::Coding,
    storage::Storage,
    upstream::{Answer, Credential, USER_AGENT, Upstream},
};

/// How long an answer may take, and whoever waits for others'.
const DEADLINE: Duration = Duration::from_secs(5);

/// How large an answer may be, as it comes, in bytes. etcd takes no larger object.
const LARGEST: usize = 4 << 20;

/// How long it is believed; and that nobody could say.
const BELIEVED: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(5));

/// The whole of a definition, and its metadata alone.
const WHOLE: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// What definitions say, as far as it was asked for.
pub struct Definitions {
    upstream: Upstream,
    storage: Storage,
    known: FoundOut<Option<Fields>>,
    /// One is asked for at a time, and by the first who wants it alone.
    turn: tokio::sync::Mutex<()>,
}

/// What a definition says of one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Fields {
    /// Of the definition: its UID, and a number that changes when what it says does.
    of: (String, String),
    /// As the definition writes them: `.spec.color`.
    paths: Vec<String>,
    /// Whether its objects have namespaces; what was stored earlier does not say.
    #[serde(default)]
    is_namespaced: Option<bool>,
}

/// Whether a scope, as definitions and discovery write it, has namespaces.
pub(crate) fn has_namespaces(scope: &str) -> Option<bool> {
    match scope {
        "Namespaced" => Some(true),
        "Cluster" => Some(false),
        _ => None,
    }
}

impl Definitions {
    /// Knows nothing but what is stored.
    pub fn new(upstream: Upstream, storage: Storage) -> Self {
        Self { upstream, storage, known: FoundOut::default(), turn: tokio::sync::Mutex::default() }
    }

    /// The fields that selectors may name, as far as that is known.
    pub fn fields(&self, resource: &GroupVersionResource) -> Option<SelectableFields> {
        let Fields { paths, .. } = self.last_known(resource)?;
        Some(SelectableFields::custom(paths.iter().map(String::as_str)))
    }

    /// Whether its objects have namespaces, as far as that is known.
    pub fn is_namespaced(&self, resource: &GroupVersionResource) -> Option<bool> {
        self.last_known(resource)?.is_namespaced
    }

    /// Asks for the definition, if that was not done a moment ago. If it was asked for now, whether it says that its objects have namespaces.
    pub async fn refresh(&self, resource: &GroupVersionResource) -> Option<bool> {
        if transcode::knows(resource) || !may_be_defined(resource) || self.known.now(resource).is_some() {
            return None;
        }
        let _turn = timeout(DEADLINE, self.turn.lock()).await.ok()?;
        if self.known.now(resource).is_some() {
            return None;
        }
        let before = self.last_known(resource);
        let asked = timeout(DEADLINE, self.ask(resource, before.as_ref())).await.ok().flatten();
        let said = asked.as_ref().and_then(|fields| fields.as_ref()?.is_namespaced);
        let (fields, within) = match asked {
            Some(fields) => (fields, BELIEVED.0),
            // Nobody can say: as it was.
            None => (before.clone(), BELIEVED.1),
        };
        if fields != before {
            debug!(%resource, ?fields, "what may be selected by");
            self.store(resource, fields.as_ref());
        }
        self.known.believe(resource, fields, within);
        said
    }

    fn last_known(&self, resource: &GroupVersionResource) -> Option<Fields> {
        let stored = || serde_json::from_slice(&self.storage.blob(&blob(resource))?).ok();
        self.known.last(resource).unwrap_or_else(stored)
    }

    fn store(&self, resource: &GroupVersionResource, fields: Option<&Fields>) {
        let name = blob(resource);
        let text = fields.and_then(|fields| serde_json::to_vec(fields).ok());
        match text {
            Some(text) => self.storage.keep_blob(&name, &text),
            None => {
                if let Err(error) = self.storage.remove_blob(&name) {
                    debug!(%resource, %error, "cannot store that there is no such definition");
                }
            }
        }
    }

    /// What there is now, `Some(None)` if there is no definition; `None` if nobody can say.
    async fn ask(&self, resource: &GroupVersionResource, before: Option<&Fields>) -> Option<Option<Fields>> {
        if let Some(before) = before.filter(|before| before.is_namespaced.is_some()) {
            match self.get(resource, METADATA).await? {
                Some(now) if now.version()? == before.of => return Some(Some(before.clone())),
                Some(_) => {}
                None => return Some(None),
            }
        }
        let Some(definition) = self.get(resource, WHOLE).await? else { return Some(None) };
        let of = definition.version()?;
        let is_namespaced = has_namespaces(&definition.spec.scope);
        let versions = definition.spec.versions.into_iter();
        // One that it does not have has no objects either.
        let version = versions.filter(|version| *version.name == *resource.version);
        let paths = version.flat_map(|version| version.selectable_fields).map(|field| field.json_path);
        Some(Some(Fields { of, paths: paths.collect(), is_namespaced }))
    }

    /// The same of the definition itself.
    async fn get(&self, resource: &GroupVersionResource, accept: HeaderValue) -> Option<Option<Definition>> {
        let Some(answer) = get(&self.upstream, resource, accept).await? else { return Some(None) };
        let coding = Coding::of(answer.headers())?;
        let body = Limited::new(answer.into_body(), LARGEST).collect().await.ok()?.to_bytes();
        Some(Some(serde_json::from_slice(&coding.plain(body.to_vec())?).ok()?))
    }
}

/// Whether there may be a definition of that name: anybody may ask for anything, and of the core group there is none.
pub(crate) fn may_be_defined(resource: &GroupVersionResource) -> bool {
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    is_name(&resource.group) && is_name(&resource.resource)
}

/// The API server's answer with the definition of a resource, asked for with the hub's own credential; `Some(None)` if there is none, and `None` if
/// nobody can say.
pub(crate) async fn get(
    upstream: &Upstream,
    resource: &GroupVersionResource,
    accept: HeaderValue,
) -> Option<Option<Response<Answer>>> {
    let GroupVersionResource { group, resource: name, .. } = resource;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}.{group}");
    let request = Request::get(path)
        .header(header::ACCEPT, accept)
        .header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))
        .header(header::USER_AGENT, USER_AGENT)
        .body(Body::empty())
        .ok()?;
    let answer = upstream.send(&Credential::Node, request).await.ok()?;
    debug!(%resource, status = %answer.status(), "is there a definition of it?");
    match answer.status() {
        StatusCode::OK => Some(Some(answer)),
        StatusCode::NOT_FOUND => Some(None),
        // A refusal says nothing, and may be of an API server that has not read its rules yet.
        _ => None,
    }
}

/// What is read of a definition, whole or its metadata alone.
#[derive(Deserialize)]
struct Definition {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    generation: Option<i64>,
    resource_version: String,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default)]
    scope: String,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    name: String,
    #[serde(default)]
    selectable_fields: Vec<Field>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Field {
    json_path: String,
}

impl Definition {
    /// What identifies what it says. Its generation counts the changes of its `spec`.
    fn version(&self) -> Option<(String, String)> {
        let Metadata { uid, generation, resource_version } = &self.metadata;
        let number = generation.map_or_else(|| resource_version.clone(), |generation| generation.to_string());
        (!uid.is_empty() && !number.is_empty()).then(|| (uid.clone(), number))
    }
}

fn blob(resource: &GroupVersionResource) -> String {
    format!("selectable {}/{}", resource.api_version(), resource.resource)
}

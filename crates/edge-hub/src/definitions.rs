//! Which fields of a custom resource selectors may name: its definition says so (`selectableFields`, KEP-4358). It is asked for by name, with the
//! hub's own credential, once a request names a field that not every resource has, and what it said is kept over a restart.
//!
//! Whether it says so still is asked again with the first such request after a minute, by its metadata alone: a definition may have some hundred
//! kilobytes. So a field that is selectable no more is answered for no longer than that, while there is a link. A stream of its own that names it the API
//! server ends and refuses at once, and with it what reads it (`Progress::is_gone`). Of a shared resource the hub alone selects: watches that are open
//! then last until they end.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube_wire::{resource::GroupVersionResource, selectable_field::SelectableFields, transcode};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::debug;

use crate::{
    offline::coding::Coding,
    storage::Storage,
    upstream::{Credential, USER_AGENT, Upstream},
};

/// How long an answer may take, and whoever waits for others'.
const DEADLINE: Duration = Duration::from_secs(5);

/// How large an answer may be, as it comes, in bytes. etcd takes no larger object.
const LARGEST: usize = 4 << 20;

/// How long it is believed; and that nobody could say.
const BELIEVED: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(5));

/// Of how many resources it is remembered; of others it is read from the disk, and asked for each time.
const KEPT: usize = 1024;

/// The whole of a definition, and its metadata alone.
const WHOLE: HeaderValue = HeaderValue::from_static("application/json");
const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// What definitions say, as far as it was asked for.
pub struct Definitions {
    upstream: Upstream,
    storage: Storage,
    known: Mutex<HashMap<GroupVersionResource, Known>>,
    /// One is asked for at a time, and by the first who wants it alone.
    turn: tokio::sync::Mutex<()>,
}

struct Known {
    fields: Option<Fields>,
    until: Instant,
}

/// What a definition says of one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Fields {
    /// Of the definition: its UID, and a number that changes when what it says does.
    of: (String, String),
    /// As the definition writes them: `.spec.color`.
    paths: Vec<String>,
}

impl Definitions {
    /// Knows nothing but what is stored.
    pub fn new(upstream: Upstream, storage: Storage) -> Self {
        Self { upstream, storage, known: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// The fields that selectors may name, as far as that is known.
    pub fn fields(&self, resource: &GroupVersionResource) -> Option<SelectableFields> {
        let Fields { paths, of: _ } = self.last_known(resource)?;
        Some(SelectableFields::custom(paths.iter().map(String::as_str)))
    }

    /// Asks for the definition, if that was not done a moment ago.
    pub async fn refresh(&self, resource: &GroupVersionResource) {
        let is_name = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        };
        let is_custom =
            !transcode::knows(resource) && is_name(&resource.group) && is_name(&resource.resource);
        if !is_custom || self.is_fresh(resource) {
            return;
        }
        let Ok(_turn) = timeout(DEADLINE, self.turn.lock()).await else { return };
        if self.is_fresh(resource) {
            return;
        }
        let before = self.last_known(resource);
        let (fields, within) = match timeout(DEADLINE, self.ask(resource, before.as_ref())).await {
            Ok(Some(fields)) => (fields, BELIEVED.0),
            // Nobody can say: as it was.
            Ok(None) | Err(_) => (before.clone(), BELIEVED.1),
        };
        if fields != before {
            debug!(%resource, ?fields, "what may be selected by");
            self.store(resource, fields.as_ref());
        }
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() >= KEPT {
            known.retain(|_, known| known.until > now);
        }
        if known.len() < KEPT || known.contains_key(resource) {
            known.insert(resource.clone(), Known { fields, until: now + within });
        }
    }

    fn is_fresh(&self, resource: &GroupVersionResource) -> bool {
        self.known.lock().get(resource).is_some_and(|known| known.until > Instant::now())
    }

    fn last_known(&self, resource: &GroupVersionResource) -> Option<Fields> {
        if let Some(known) = self.known.lock().get(resource) {
            return known.fields.clone();
        }
        serde_json::from_slice(&self.storage.blob(&blob(resource))?).ok()
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
        if let Some(before) = before {
            match self.get(resource, METADATA).await? {
                Some(now) if now.version()? == before.of => return Some(Some(before.clone())),
                Some(_) => {}
                None => return Some(None),
            }
        }
        let Some(definition) = self.get(resource, WHOLE).await? else { return Some(None) };
        let of = definition.version()?;
        let versions = definition.spec.versions.into_iter();
        // One that it does not have has no objects either.
        let version = versions.filter(|version| *version.name == *resource.version);
        let paths = version.flat_map(|version| version.selectable_fields).map(|field| field.json_path);
        Some(Some(Fields { of, paths: paths.collect() }))
    }

    /// The definition, `Some(None)` if there is none; `None` if nobody can say.
    async fn get(&self, resource: &GroupVersionResource, accept: HeaderValue) -> Option<Option<Definition>> {
        let GroupVersionResource { group, resource: name, .. } = resource;
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}.{group}");
        let mut request =
            Request::get(path).header(header::USER_AGENT, USER_AGENT).body(Body::empty()).ok()?;
        *request.headers_mut() = HeaderMap::from_iter([
            (header::ACCEPT, accept),
            (header::ACCEPT_ENCODING, HeaderValue::from_static("gzip")),
            (header::USER_AGENT, HeaderValue::from_static(USER_AGENT)),
        ]);
        let answer = self.upstream.send(&Credential::Node, request).await.ok()?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Some(None),
            // A refusal says nothing, and may be of an API server that has not read its rules yet.
            _ => return None,
        }
        let coding = Coding::of(answer.headers())?;
        let body = Limited::new(answer.into_body(), LARGEST).collect().await.ok()?.to_bytes();
        Some(Some(serde_json::from_slice(&coding.plain(body.to_vec())?).ok()?))
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

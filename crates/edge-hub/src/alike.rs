//! Which resources look alike to all who may read them, so that one stream can serve several users.
//!
//! The API server's own resources and those of `CustomResourceDefinition`s do: who may list a scope sees all of it. An aggregated API
//! server may show each caller something else under the same path (the projects of a user). Nothing in its answers tells it from the
//! others, so a definition is asked for by name, with the hub's own credential, and where there is none users are kept apart. Secrets and
//! `ConfigMaps` are apart always: who may read which is decided by name.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use axum::body::Body;
use http::{Request, StatusCode, header};
use kube_wire::{resource::GroupVersionResource, transcode};
use parking_lot::Mutex;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::{
    cloud_config,
    storage::Storage,
    upstream::{Credential, USER_AGENT, Upstream},
};

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// How long it is believed that there is a definition; and that there is none, or what was known before where nobody says.
const BELIEVED: (Duration, Duration) = (Duration::from_hours(1), Duration::from_mins(1));

/// Of how many resources it is kept; of others it is asked each time.
const KEPT: usize = 1024;

/// Finds it out, and remembers it over a restart.
pub struct Alike {
    upstream: Upstream,
    storage: Storage,
    known: Mutex<HashMap<GroupVersionResource, (bool, Instant)>>,
}

impl Alike {
    /// Knows nothing but what is stored.
    pub fn new(upstream: Upstream, storage: Storage) -> Self {
        Self { upstream, storage, known: Mutex::default() }
    }

    /// Whether all who may read this resource see the same of it.
    pub async fn is(&self, resource: &GroupVersionResource) -> bool {
        let is_name = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        };
        if cloud_config::private(resource) {
            return false;
        }
        if transcode::knows(resource) {
            return true;
        }
        // Of the core group all are known, and anybody may ask for anything.
        if !is_name(&resource.group) || !is_name(&resource.resource) {
            return false;
        }
        let known = self.known.lock().get(resource).copied();
        if let Some((is, _)) = known.filter(|(_, until)| *until > Instant::now()) {
            return is;
        }
        let name = blob(resource);
        // Seldom, and a large future.
        let Some(is) = Box::pin(self.is_defined(resource)).await else {
            // Nobody can say: as it was.
            let was = known.map_or_else(|| self.storage.blob(&name).is_some(), |(is, _)| is);
            if self.upstream.is_up() {
                self.believe(resource, was, BELIEVED.1);
            }
            return was;
        };
        if known.is_none_or(|(was, _)| was != is) {
            match (is, self.storage.blob(&name).is_some()) {
                (true, false) => self.storage.keep_blob(&name, b"defined"),
                (false, true) => {
                    if let Err(error) = self.storage.remove_blob(&name) {
                        warn!(%resource, %error, "cannot store that it is no custom resource");
                    }
                }
                _ => {}
            }
        }
        self.believe(resource, is, if is { BELIEVED.0 } else { BELIEVED.1 });
        is
    }

    fn believe(&self, resource: &GroupVersionResource, is: bool, within: Duration) {
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() >= KEPT {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < KEPT || known.contains_key(resource) {
            known.insert(resource.clone(), (is, now + within));
        }
    }

    /// Whether there is a definition of that name; `None` if there is no link, or no sensible answer.
    async fn is_defined(&self, resource: &GroupVersionResource) -> Option<bool> {
        let GroupVersionResource { group, resource: name, .. } = resource;
        // The definition itself may have some hundred kilobytes.
        let request =
            Request::get(format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}.{group}"))
                .header(header::ACCEPT, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
                .header(header::USER_AGENT, USER_AGENT)
                .body(Body::empty())
                .ok()?;
        let answer = timeout(DEADLINE, self.upstream.send(&Credential::Node, request)).await.ok()?.ok()?;
        debug!(%resource, status = %answer.status(), "is there a definition of it?");
        match answer.status() {
            StatusCode::OK => Some(true),
            StatusCode::NOT_FOUND => Some(false),
            // A refusal says nothing, and may be of an API server that has not read its rules yet.
            _ => None,
        }
    }
}

fn blob(resource: &GroupVersionResource) -> String {
    format!("defined {}/{}", resource.api_version(), resource.resource)
}

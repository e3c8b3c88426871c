//! Which resources look alike to all who may read them, so that one stream can serve several users.
//!
//! The API server's own resources and those of `CustomResourceDefinition`s do: who may list a scope sees all of it. An aggregated API
//! server may show each caller something else under the same path (the projects of a user). Nothing in its answers tells it from the
//! others, so a definition is asked for by name, with the hub's own credential, and where there is none users are kept apart. Secrets and
//! `ConfigMaps` are apart always: who may read which is decided by name.

use std::time::Duration;

use kube_wire::{resource::GroupVersionResource, transcode};
use tokio::time::timeout;
use tracing::warn;

use crate::{cloud_config, definitions, found_out::FoundOut, storage::Storage, upstream::Upstream};

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// How long it is believed that there is a definition; and that there is none, or what was known before where nobody says.
const BELIEVED: (Duration, Duration) = (Duration::from_hours(1), Duration::from_mins(1));

/// Finds it out, and remembers it over a restart.
pub struct Alike {
    upstream: Upstream,
    storage: Storage,
    known: FoundOut<bool>,
}

impl Alike {
    /// Knows nothing but what is stored.
    pub fn new(upstream: Upstream, storage: Storage) -> Self {
        Self { upstream, storage, known: FoundOut::default() }
    }

    /// Whether all who may read this resource see the same of it.
    pub async fn is(&self, resource: &GroupVersionResource) -> bool {
        if cloud_config::private(resource) {
            return false;
        }
        if transcode::knows(resource) {
            return true;
        }
        if !definitions::may_be_defined(resource) {
            return false;
        }
        if let Some(is) = self.known.now(resource) {
            return is;
        }
        let known = self.known.last(resource);
        let name = blob(resource);
        // Seldom, and a large future.
        let Some(is) = Box::pin(self.is_defined(resource)).await else {
            // Nobody can say: as it was.
            let was = known.unwrap_or_else(|| self.storage.blob(&name).is_some());
            if self.upstream.is_up() {
                self.known.believe(resource, was, BELIEVED.1);
            }
            return was;
        };
        if known != Some(is) {
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
        self.known.believe(resource, is, if is { BELIEVED.0 } else { BELIEVED.1 });
        is
    }

    /// Whether there is a definition of that name; `None` if there is no link, or no sensible answer.
    async fn is_defined(&self, resource: &GroupVersionResource) -> Option<bool> {
        let asked = definitions::get(&self.upstream, resource, definitions::METADATA);
        Some(timeout(DEADLINE, asked).await.ok()??.is_some())
    }
}

fn blob(resource: &GroupVersionResource) -> String {
    format!("defined {}/{}", resource.api_version(), resource.resource)
}

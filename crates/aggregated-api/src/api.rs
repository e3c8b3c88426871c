//! The API as a whole: which resources there are, who guards them, and the router that answers.

use std::sync::Arc;

use axum::{Router, response::Response};
use futures::future::BoxFuture;
use kube_wire::request::ResourcePath;
use serde_json::{Value, json};

use crate::{
    authenticate::{Authenticator, User},
    authorize::Authorizer,
    discovery::Discovery,
    health::Health,
    openapi::OpenApi,
    places::Places,
    resource::ResourceInfo,
    serve::{Server, serve},
    served::Served,
    storage::Storage,
};

/// What `/version` says.
#[derive(Debug, Clone, Default)]
pub struct VersionInfo {
    /// `1`
    pub major: String,
    /// `36`
    pub minor: String,
    /// `v1.36.0`
    pub git_version: String,
    /// Of the source.
    pub git_commit: String,
}

impl VersionInfo {
    pub(crate) fn to_json(&self) -> Value {
        let Self { major, minor, git_version, git_commit } = self;
        json!({
            "major": major, "minor": minor, "gitVersion": git_version, "gitCommit": git_commit, "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "rustc", "platform": std::env::consts::ARCH,
        })
    }
}

/// How much is taken at a time; of each user a part of that ([`Places`]).
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest body of a request, in bytes.
    pub body: usize,
    /// How many requests that only read may be under way, lists until their answers begin; watches do not count.
    pub reading: usize,
    /// How many lists may be under way, from their requests until they are sent.
    pub sending: usize,
    /// How many requests that write may be under way.
    pub writing: usize,
}

/// The API server's own: 3 MiB, 400, 200; and 400 lists.
impl Default for Limits {
    fn default() -> Self {
        Self { body: 3 << 20, reading: 400, sending: 400, writing: 200 }
    }
}

/// Sees every request for a resource that was authenticated and authorized, and may answer in place of the storage: a standby hands it to
/// its leader.
pub trait Intercept: Send + Sync + 'static {
    /// The answer, or the request back to be answered here.
    fn intercept(
        &self,
        path: ResourcePath,
        user: User,
        request: axum::extract::Request,
    ) -> BoxFuture<'_, Result<Response, axum::extract::Request>>;
}

/// One check of `/healthz`, `/livez` or `/readyz`: `Err` says what is wrong.
pub type HealthCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What a line of `/readyz?verbose` says that is no check and always passes.
pub type HealthNote = Arc<dyn Fn() -> String + Send + Sync>;

/// An API under construction. Without an authenticator everybody is `system:anonymous`; without an authorizer nobody may
/// do anything but ask for health.
#[derive(Default)]
pub struct AggregatedApi {
    resources: Vec<(ResourceInfo, Arc<dyn Storage>)>,
    authenticator: Option<Arc<dyn Authenticator>>,
    authorizer: Option<Arc<dyn Authorizer>>,
    intercept: Option<Arc<dyn Intercept>>,
    live: Vec<(String, HealthCheck)>,
    ready: Vec<(String, HealthCheck)>,
    notes: Vec<(String, HealthNote)>,
    version: VersionInfo,
    limits: Limits,
}

impl AggregatedApi {
    /// One without resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves a resource from a storage.
    #[must_use]
    pub fn resource(mut self, info: ResourceInfo, storage: Arc<dyn Storage>) -> Self {
        self.resources.push((info, storage));
        self
    }

    /// Says who calls.
    #[must_use]
    pub fn authenticator(mut self, authenticator: Arc<dyn Authenticator>) -> Self {
        self.authenticator = Some(authenticator);
        self
    }

    /// Says what they may do.
    #[must_use]
    pub fn authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Self {
        self.authorizer = Some(authorizer);
        self
    }

    /// May answer for resources in place of the storages.
    #[must_use]
    pub fn intercept(mut self, intercept: Arc<dyn Intercept>) -> Self {
        self.intercept = Some(intercept);
        self
    }

    /// A check of `/livez`, and with it of `/healthz` and `/readyz`.
    #[must_use]
    pub fn live(mut self, name: &str, check: HealthCheck) -> Self {
        self.live.push((name.to_owned(), check));
        self
    }

    /// A check of `/readyz` alone.
    #[must_use]
    pub fn ready(mut self, name: &str, check: HealthCheck) -> Self {
        self.ready.push((name.to_owned(), check));
        self
    }

    /// A line of `/readyz?verbose` for people.
    #[must_use]
    pub fn note(mut self, name: &str, note: HealthNote) -> Self {
        self.notes.push((name.to_owned(), note));
        self
    }

    /// What `/version` says.
    #[must_use]
    pub fn version(mut self, version: VersionInfo) -> Self {
        self.version = version;
        self
    }

    /// How much is taken at a time; of each user a part of that ([`Places`]).
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What answers. Serve it with connection info [`Peer`](crate::Peer).
    pub fn router(self) -> Router {
        let Self { resources, authenticator, authorizer, intercept, live, ready, notes, version, limits } =
            self;
        let resources: Vec<_> =
            resources.into_iter().map(|(info, storage)| Arc::new(Served::new(info, storage))).collect();
        let infos: Vec<_> = resources.iter().map(|served| &served.info).collect();
        let server = Server {
            discovery: Discovery::new(&infos),
            openapi: OpenApi::new(&infos, &version.git_version),
            resources,
            authenticator,
            authorizer,
            intercept,
            health: Health { live, ready, notes },
            version,
            limits,
            reading: Places::new(limits.reading),
            sending: Places::new(limits.sending),
            writing: Places::new(limits.writing),
        };
        Router::new().fallback(serve).with_state(Arc::new(server))
    }
}

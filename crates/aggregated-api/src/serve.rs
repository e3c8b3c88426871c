//! The way of a request: who calls, whether there is room, whether they may, and who answers.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{ConnectInfo, Request, State},
    response::Response,
};
use bytes::Bytes;
use http::{StatusCode, request::Parts};
use kube_wire::{
    request::{ApiPath, RequestInfo, ResourcePath, Verb},
    resource::GroupVersionResource,
    selector_requirements::SelectorRequirements,
    status::Status,
};
use parking_lot::Mutex;
use tracing::{debug, warn};

use crate::{
    answer::{failure, plain},
    api::{Intercept, Limits, VersionInfo},
    authenticate::{Authenticator, Peer, User},
    authorize::{Attributes, Authorizer, Decision},
    body,
    discovery::Discovery,
    health::Health,
    openapi::OpenApi,
    places::{Place, Places},
    room,
    served::Served,
    verbs::{self, Call, verb_name},
};

/// Everything that answers needs.
pub(crate) struct Server {
    pub(crate) resources: Vec<Arc<Served>>,
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
    pub(crate) authorizer: Option<Arc<dyn Authorizer>>,
    pub(crate) intercept: Option<Arc<dyn Intercept>>,
    pub(crate) health: Health,
    pub(crate) discovery: Discovery,
    pub(crate) openapi: OpenApi,
    pub(crate) version: VersionInfo,
    pub(crate) limits: Limits,
    pub(crate) reading: Arc<Places>,
    pub(crate) sending: Arc<Places>,
    pub(crate) writing: Arc<Places>,
}

/// What a request has until its answer begins.
struct Room {
    _request: Place,
    /// Of a list alone, which keeps it until it is sent.
    sending: Option<Place>,
}

/// Answers any request.
pub(crate) async fn serve(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.get::<ConnectInfo<Peer>>().map(|info| info.0.clone()).unwrap_or_default();
    let user = match server.user(&peer, &mut parts).await {
        Ok(user) => user,
        Err(status) => return failure(&status),
    };
    let request = RequestInfo::parse(&parts.method, &parts.uri);
    let room = match server.room(&user, &request) {
        Ok(room) => room,
        Err(status) => return failure(&status),
    };
    let exempt = matches!(&request.path, ApiPath::NonResource(path) if Health::is_exempt(path));
    if !exempt && let Err(status) = server.allow(&user, &request, &parts).await {
        return failure(&status);
    }
    let response = match &request.path {
        ApiPath::Resource(path) => {
            server.resource(request.verb, path, user, Request::from_parts(parts, body)).await
        }
        ApiPath::NonResource(path) => server.path(request.verb, path, &parts),
    };
    match room {
        Some(Room { sending: Some(place), .. }) => room::kept(place, response),
        _ => response,
    }
}

impl Server {
    /// Who calls. Credentials do not go further than this.
    async fn user(&self, peer: &Peer, parts: &mut Parts) -> Result<User, Status> {
        let Some(authenticator) = &self.authenticator else { return Ok(User::anonymous()) };
        let found = authenticator.authenticate(peer, &parts.headers).await;
        authenticator.strip(&mut parts.headers);
        match found {
            Ok(Some(user)) => Ok(user.authenticated()),
            Ok(None) => Ok(User::anonymous()),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                debug!(error, "a caller was not recognised");
                Err(Status::unauthorized())
            }
        }
    }

    /// Room for one more request of this user. Watches need none; nor does what is no resource: the API server takes an extension whose discovery or
    /// health it does not get for gone, however busy that is, and both are ready-made. A list has a place among lists as well, from its beginning, so
    /// that none is made, and nothing deleted, for which there is no room then; while it is sent it takes none from other requests.
    fn room(&self, user: &User, request: &RequestInfo) -> Result<Option<Room>, Status> {
        if matches!(request.path, ApiPath::NonResource(_)) || request.verb == Verb::Watch {
            return Ok(None);
        }
        let reads = matches!(request.verb, Verb::Get | Verb::List);
        let shows_many = matches!(request.verb, Verb::List | Verb::DeleteCollection);
        let take = |places: &Arc<Places>| {
            let full = || Status::too_many_requests("Too many requests, please try again later.", 1);
            places.take(user).ok_or_else(full)
        };
        Ok(Some(Room {
            _request: take(if reads { &self.reading } else { &self.writing })?,
            sending: shows_many.then(|| take(&self.sending)).transpose()?,
        }))
    }

    async fn allow(&self, user: &User, request: &RequestInfo, parts: &Parts) -> Result<(), Status> {
        let selectors = SelectorRequirements::of(request, parts.uri.query().unwrap_or_default());
        let attributes = Attributes { user: user.clone(), request: request.clone(), selectors };
        let decision = match &self.authorizer {
            Some(authorizer) => authorizer.authorize(&attributes).await,
            None => Ok(Decision::Denied(String::new())),
        };
        match decision {
            Ok(Decision::Allowed) => Ok(()),
            Ok(Decision::Denied(reason)) => Err(forbidden(&attributes, &reason)),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                warn!(error, "cannot review what a caller may do");
                Err(Status::internal_error("cannot review what the caller may do"))
            }
        }
    }

    async fn resource(&self, verb: Verb, path: &ResourcePath, user: User, request: Request) -> Response {
        let Some(served) = self.resources.iter().find(|served| served.resource == path.resource) else {
            return plain(StatusCode::NOT_FOUND, "404 page not found\n");
        };
        let request = match &self.intercept {
            Some(intercept) => match intercept.intercept(path.clone(), user.clone(), request).await {
                Ok(response) => return response,
                Err(request) => request,
            },
            None => request,
        };
        let (parts, body) = request.into_parts();
        let body = match self.body(verb, body).await {
            Ok(body) => body,
            Err(status) => return failure(&status),
        };
        let query = parts.uri.query().unwrap_or_default();
        let warnings = Mutex::default();
        let (user, headers) = (&user, &parts.headers);
        let call = Call { served, path, query, user, headers, body: &body, warnings: &warnings };
        let answered = verbs::answer(verb, &call).await;
        answered.unwrap_or_else(|| plain(StatusCode::NOT_FOUND, "404 page not found\n"))
    }

    async fn body(&self, verb: Verb, body: Body) -> Result<Bytes, Status> {
        if matches!(verb, Verb::Get | Verb::List | Verb::Watch) {
            return Ok(Bytes::new());
        }
        body::whole(body, self.limits.body).await
    }

    /// Answers what is no resource.
    fn path(&self, verb: Verb, path: &str, parts: &Parts) -> Response {
        let query = parts.uri.query().unwrap_or_default();
        if verb != Verb::Get {
            let words = "the server does not allow this method on the requested resource";
            let details = Some(kube_wire::status::StatusDetails::default());
            return failure(&crate::field_error::failure(405, "MethodNotAllowed", words.to_owned(), details));
        }
        if let Some(response) = self.health.answer(path, query) {
            return response;
        }
        if let Some(response) = self.discovery.answer(path, &parts.headers) {
            return response;
        }
        if let Some(response) = self.openapi.answer(path, &parts.headers) {
            return response;
        }
        if path == "/version" {
            return crate::discovery::json(&self.version.to_json());
        }
        plain(StatusCode::NOT_FOUND, "404 page not found\n")
    }
}

/// Status 403 in the API server's words.
fn forbidden(attributes: &Attributes, reason: &str) -> Status {
    let Attributes { user, request, selectors: _ } = attributes;
    let user = kube_wire::quoting::quoted(&user.name);
    let verb = verb_name(request.verb);
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match &request.path {
        ApiPath::NonResource(path) => {
            let none = GroupVersionResource::new("", "", "");
            let path = kube_wire::quoting::quoted(path);
            Status::forbidden(&none, "", &format!("User {user} cannot {verb} path {path}{reason}"))
        }
        ApiPath::Resource(path) => {
            let ResourcePath { resource, namespace, name, subresource, verb_in_path: _ } = path;
            let whole = match subresource.as_deref() {
                Some(subresource) => format!("{}/{subresource}", resource.resource),
                None => resource.resource.to_string(),
            };
            let place = match namespace.as_deref() {
                Some(namespace) => format!(" in the namespace {}", kube_wire::quoting::quoted(namespace)),
                None => " at the cluster scope".to_owned(),
            };
            let words = format!(
                "User {user} cannot {verb} resource {} in API group {}{place}{reason}",
                kube_wire::quoting::quoted(&whole),
                kube_wire::quoting::quoted(&resource.group),
            );
            Status::forbidden(resource, name.as_deref().unwrap_or_default(), &words)
        }
    }
}

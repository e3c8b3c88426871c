//! What becomes of a request: refused, answered from what is held, or handed on.
//!
//! ```text
//!  listener ─► who calls? ─► what about? ─┬─ a document about the API ─► handed on and kept, or from what was kept
//!                  │ 401                  ├─ a read of a resource ─────► serve (from a subscription), or handed on
//!                                         └─ anything else ────────────► handed on, or 503; 504 if it may have been done
//! ```

mod forward;
mod places;
mod refuse;
mod unanswered;
pub(crate) mod whole;
mod whose;
mod written;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, State},
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body::Body as _;
use kube_wire::{
    request::{ApiPath, RequestInfo, ResourcePath, Verb},
    resource::ObjectKey,
    status::Status,
};
use tokio::time::{Instant, timeout};
use tracing::debug;

use self::places::ANSWERS;
pub use self::refuse::refusal;
use crate::{
    authenticate::{Caller, Unauthenticated, tokens::Standing},
    hub::Hub,
    keeping::Keeping,
    listen::{Peer, Seat},
    metrics::Outcome,
    offline::{
        documents, local_pods, node_lease, node_tokens,
        tables::{self, Tables},
    },
    serve,
    upstream::LinkState,
};

/// How long after a request broke it may take until the link that it went over is known to have gone.
const LINK_IS_KNOWN: Duration = Duration::from_secs(1);

/// Answers every request that comes in over one of the listeners.
pub fn router(hub: Arc<Hub>) -> Router {
    Router::new().fallback(handle).with_state(hub)
}

async fn handle(
    State(hub): State<Arc<Hub>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request<Body>,
) -> Response<Body> {
    let seat = request.extensions_mut().remove::<Seat>();
    let accept = request.headers().get(header::ACCEPT).cloned();
    let verb = RequestInfo::parse(request.method(), request.uri()).verb.into();
    hub.authenticator.look(&peer, request.headers()).await;
    let caller = hub.authenticator.caller(&peer, request.headers());
    let shown = seat.as_ref().zip(caller.as_ref().ok());
    if let Some((seat, caller)) = shown {
        whose::tell_before(&hub, caller, seat);
    }
    let result = match &caller {
        Ok(caller) => answer(&hub, caller, request).await,
        Err(why) => Err(Box::new(unauthenticated(*why))),
    };
    let outcome = match &result {
        Ok(response) => response.extensions().get().copied().unwrap_or(Outcome::HandedOn),
        Err(_) => Outcome::Refused,
    };
    hub.meters.request(verb, outcome);
    let response = result.unwrap_or_else(|status| {
        let mut response = refusal(accept.as_ref(), &status);
        if response.status() == StatusCode::NOT_FOUND && !hub.upstream.is_up() {
            let stale = HeaderValue::from_static(
                "299 edge-hub \"no link to the API server: not found in what is known here\"",
            );
            response.headers_mut().insert(header::WARNING, stale);
        }
        response
    });
    if let Some((seat, caller)) = shown {
        whose::tell_after(&hub, caller, seat, response.status());
    }
    response
}

async fn answer(
    hub: &Arc<Hub>,
    caller: &Caller,
    request: Request<Body>,
) -> Result<Response<Body>, Box<Status>> {
    let info = RequestInfo::parse(request.method(), request.uri());
    match &info.path {
        ApiPath::NonResource(path) if info.verb == Verb::Get && documents::is_document(path) => {
            document(hub, caller, request).await
        }
        ApiPath::NonResource(_) => hand_on(hub, caller, request).await,
        ApiPath::Resource(path) => {
            // To HEAD the API server has no answer, whatever its path is.
            let reads =
                request.method() == Method::GET && matches!(info.verb, Verb::Get | Verb::List | Verb::Watch);
            // Whose rights count then is the API server's to say; here the caller's own would be taken.
            if impersonates(request.headers()) {
                let write = written::of(&info, path, request.uri());
                let answer = hand_on(hub, caller, request).await;
                return written::note(hub, write, answer).await;
            }
            if reads && path.subresource.is_none() && !path.verb_in_path {
                return read(hub, caller, info.verb, path, request).await;
            }
            if node_tokens::is_request(caller, &info) {
                return node_token(hub, caller, request).await;
            }
            let write = written::of(&info, path, request.uri());
            if let Some(pod) = local_pods::of_node(caller, &info) {
                let answer = pod_status(hub, caller, &pod, request).await;
                return written::note(hub, write, answer).await;
            }
            if !hub.upstream.is_up()
                && let Some(name) = node_lease::of_node(caller, &info, &hub.authenticator)
            {
                return node_lease::accept(name, request).await;
            }
            let answer = hand_on(hub, caller, request).await;
            written::note(hub, write, answer).await
        }
    }
}

/// A read of a resource. If the link goes while it is handed on, what is held may answer it once that is known, or the next link.
async fn read(
    hub: &Arc<Hub>,
    caller: &Caller,
    verb: Verb,
    path: &ResourcePath,
    request: Request<Body>,
) -> Result<Response<Body>, Box<Status>> {
    let (parts, body) = request.into_parts();
    let may_repeat = verb != Verb::Watch && body.is_end_stream();
    let began = Instant::now();
    let mut link = hub.upstream.state();
    let is_up = |state: &LinkState| matches!(state, LinkState::Up(_));
    let was_up = is_up(&link.borrow_and_update());
    let status = match read_once(hub, caller, verb, path, &parts, body).await {
        Err(status) if status.code == 503 && may_repeat && was_up => status,
        result => return result,
    };
    // An API server that is only slow is not to be asked the same again, though the link was renewed meanwhile.
    let is_slow = began.elapsed() >= hub.lifetimes.head;
    if is_slow || timeout(LINK_IS_KNOWN, link.changed()).await.is_err() {
        return Err(status);
    }
    let again = read_once(hub, caller, verb, path, &parts, Body::empty()).await;
    if !again.as_ref().is_err_and(|status| status.code == 503) {
        return again;
    }
    match timeout(LINK_IS_KNOWN, link.wait_for(is_up)).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) | Err(_) => return again,
    }
    read_once(hub, caller, verb, path, &parts, Body::empty()).await
}

/// A read of a resource: answered from what is held, or handed on.
async fn read_once(
    hub: &Arc<Hub>,
    caller: &Caller,
    verb: Verb,
    path: &ResourcePath,
    parts: &Parts,
    body: Body,
) -> Result<Response<Body>, Box<Status>> {
    let filter = match serve::read(hub, caller, verb, path, parts).await? {
        serve::Read::Answer(response) => return Ok(response),
        serve::Read::HandOn => None,
        serve::Read::HandOnThrough(filter) => Some(filter),
    };
    let mut handed = parts.clone();
    if filter.is_some() {
        handed.headers.remove(header::ACCEPT_ENCODING);
    }
    let answer = hand_on(hub, caller, Request::from_parts(handed, body)).await;
    let answer = answer.map_err(|mut status| {
        unanswered::not_kept(&hub.sharing.load(), &path.resource, &mut status);
        status
    })?;
    let query = parts.uri.query().unwrap_or_default();
    match answer.status() {
        StatusCode::OK => {
            hub.subscriptions.passed_by(&path.resource);
            serve::handed_on::answered(hub, caller, verb, path, query);
        }
        StatusCode::FORBIDDEN => serve::handed_on::refused(hub, caller, verb, path, query).await,
        _ => {}
    }
    if verb == Verb::Watch {
        return Ok(serve::handed_on::while_allowed(hub, caller, path, query, answer));
    }
    if let Some(filter) = filter {
        return serve::handed_on::through(&filter, answer).await;
    }
    let kept = tables::is_wanted(&parts.headers, query);
    Ok(if kept { keep_table(hub, caller, path, query, answer) } else { answer })
}

/// Whether the caller wants to be somebody else for this request (`Impersonate-User`, `-Group`, `-Uid`, `-Extra-…`).
fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
}

/// Hands a request on, with the caller's own credential. Whether that is good the API server says, but for what is made up: the link is spared that. Of one
/// user there are only so many answers at a time, as each may be read so slowly that much of it is held here.
async fn hand_on(hub: &Hub, caller: &Caller, request: Request<Body>) -> Result<Response<Body>, Box<Status>> {
    let credential = caller.credential().ok_or_else(|| Box::new(certificate_stays()))?;
    let place = match caller {
        Caller::Token(token) => {
            let holder = match hub.tokens.standing(token) {
                Standing::MadeUp => return Err(Box::new(Status::unauthorized())),
                Standing::IssuedTo(owner) => Some(owner),
                Standing::Unknown => None,
            };
            let place = ANSWERS.take(holder.clone()).ok_or_else(|| Box::new(crowded()))?;
            Some((place, whole::Of(holder)))
        }
        Caller::Node | Caller::Certificate(_) => None,
    };
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let answer = forward::forward(hub, caller, &credential, request).await;
    let mut answer = answer.map_err(|error| {
        let changes = unanswered::changes(&method, &uri);
        Box::new(unanswered::status(changes, &error))
    })?;
    let Some((place, of)) = place else { return Ok(answer) };
    answer.extensions_mut().insert(of);
    Ok(answer.map(|body| Body::new(Keeping::new(body, place))))
}

/// Too much is handed on for one caller, or in all.
fn crowded() -> Status {
    let message = "edge-hub: too many requests of this user are handed on to the API server already";
    Status { message: message.to_owned(), ..Status::not_ready(1) }
}

/// Keeps a table for when there is no link, once it has passed and its reader's name is known.
fn keep_table(
    hub: &Arc<Hub>,
    caller: &Caller,
    path: &ResourcePath,
    query: &str,
    answer: Response<Body>,
) -> Response<Body> {
    let (hub, caller, resource) = (hub.clone(), caller.clone(), path.resource.clone());
    let scope = tables::scope_of(path, query);
    Tables::watch(answer, move |body| {
        let tasks = hub.tasks.clone();
        tasks.spawn(async move {
            if let Ok(named) = hub.name(&caller).await {
                let tables = hub.tables.clone();
                let Some(turn) = tables.turn().await else {
                    debug!(%resource, "a table is not kept: the disk has enough to do");
                    return;
                };
                hub.tasks.spawn_blocking(move || {
                    tables.keep(turn, &named.owner, &resource, scope.as_ref(), &body);
                });
            }
        });
    })
}

/// A token of a pod of this node: the API server's, or the one that it gave before.
async fn node_token(
    hub: &Hub,
    caller: &Caller,
    request: Request<Body>,
) -> Result<Response<Body>, Box<Status>> {
    let request = node_tokens::read(request).await?;
    let name = node_tokens::name(&request);
    match hand_on(hub, caller, request.map(Body::from)).await {
        Ok(response) => Ok(node_tokens::keep(&hub.storage, &hub.tokens.time, &name, response).await),
        Err(status) if unanswered::is_undelivered(&status) => {
            let exists =
                |namespace: &str, pod: &str, uid: &str| local_pods::may_exist(hub, namespace, pod, uid);
            node_tokens::answer(&hub.storage, &name, hub.tokens.time.now(), exists).ok_or(status)
        }
        Err(status) => Err(status),
    }
}

/// What the kubelet says of one of its pods: handed on, and remembered if nobody can be told.
async fn pod_status(
    hub: &Hub,
    caller: &Caller,
    pod: &ObjectKey,
    request: Request<Body>,
) -> Result<Response<Body>, Box<Status>> {
    let request = local_pods::read(request).await?;
    let patch = request.body().clone();
    let answer = hand_on(hub, caller, request.map(Body::from)).await;
    match &answer {
        Ok(response) if response.status().is_success() => local_pods::note(hub, pod, &patch, true),
        Err(status) if unanswered::is_undelivered(status) => local_pods::note(hub, pod, &patch, false),
        _ => {}
    }
    answer
}

async fn document(hub: &Hub, caller: &Caller, request: Request<Body>) -> Result<Response<Body>, Box<Status>> {
    let headers = request.headers().clone();
    let path = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    let handed_on = hand_on(hub, caller, request).await;
    match handed_on {
        Ok(response) => {
            if response.status() == StatusCode::NOT_MODIFIED {
                hub.documents.note_asked(&path, &headers);
            }
            Ok(hub.documents.keep_for_client(&path, &headers, response))
        }
        // A certificate cannot be handed on; how the API server is must be asked.
        Err(status)
            if status.code == 503 || caller.credential().is_none() && !documents::is_of_health(&path) =>
        {
            // Somebody who cannot be named gets nothing, however public the document is.
            hub.name(caller).await.map_err(|error| Box::new(serve::unnamed(&error)))?;
            let kept = hub.documents.answer(&path, &headers, hub.upstream.is_up());
            let mut response = kept.ok_or_else(|| Box::new(absent(hub, &path, *status)))?;
            hub.documents.note_asked(&path, &headers);
            response.extensions_mut().insert(Outcome::Held);
            Ok(response)
        }
        Err(status) => Err(status),
    }
}

/// What is said of a document that is not kept: of `OpenAPI` that there may be one which the hub did not fetch, and how it would have.
fn absent(hub: &Hub, path: &str, mut status: Status) -> Status {
    if status.code == 503
        && let Some(why) = hub.sharing.load().openapi.absence(path)
    {
        status.message = format!("{}: {why}", status.message);
    }
    status
}

fn unauthenticated(why: Unauthenticated) -> Status {
    debug!(%why, "refused");
    if why == Unauthenticated::Crowded {
        return Status::too_many_requests(why.to_string(), 1);
    }
    let mut status = Status::unauthorized();
    status.message = format!("Unauthorized: {why}");
    status
}

fn certificate_stays() -> Status {
    Status::bad_request(
        "edge-hub: this is for the API server to answer, and a client certificate cannot be handed on, since its key stays with you: send a \
         ServiceAccount token instead; lists and objects as plain JSON are answered here (kubectl -o name or -o yaml, curl -A name/1)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impersonation_is_seen_in_each_of_its_headers() {
        for (name, expected) in [
            ("impersonate-user", true),
            ("Impersonate-Group", true),
            ("impersonate-extra-scopes", true),
            ("x-impersonate-user", false),
            ("authorization", false),
        ] {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), "x".parse().unwrap())]);
            assert_eq!(impersonates(&headers), expected, "{name}");
        }
    }
}

//! What the API server says of what the hub shares and is not sure of: of one object whose reader is shown it through a filter, watches,
//! which last no longer than their watcher's right, and refusals.

use std::sync::Arc;

use axum::body::{Body, BodyDataStream, Bytes};
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Response, StatusCode, header};
use kube_wire::{
    frame::{self, Form, Projection, TypeMeta, read::envelope},
    object::{Encoding, Object},
    request::{ResourcePath, Verb},
    status::Status,
};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::{Read, misplaced, wanted::Wanted};
use crate::{
    authenticate::{Caller, tokens::TokenError},
    authorize::{Attributes, Decision, Undecided},
    filters::{Filter, Outcome, Telling},
    hub::Hub,
    proxy::whole::{self, Unread},
};

/// The API server's own answer is not filtered: a client that saw it would never learn that something is hidden from it. One object can be
/// filtered on its way, and of more the client is told `instead`.
pub(super) fn unless_filtered(
    filter: Option<&Arc<Filter>>,
    verb: Verb,
    read: Result<Read, Box<Status>>,
    instead: impl FnOnce() -> Status,
) -> Result<Read, Box<Status>> {
    match (read, filter) {
        (Ok(Read::HandOn), Some(filter)) if verb == Verb::Get => Ok(Read::HandOnThrough(filter.clone())),
        (Ok(Read::HandOn), Some(_)) => Err(Box::new(instead())),
        (read, _) => read,
    }
}

/// Shows an answer to a GET through a filter. What is no object, or none that the hub can read, stays as it is.
pub async fn through(filter: &Filter, response: Response<Body>) -> Result<Response<Body>, Box<Status>> {
    let Some(encoding) = encoding(response.headers()).filter(|_| response.status() == StatusCode::OK) else {
        return Ok(response);
    };
    let (mut head, body) = response.into_parts();
    let whole = whole::read(body, head.extensions.get()).await.map_err(|(why, _)| Box::new(unread(why)))?;
    let shown = shown(filter, encoding, &whole.bytes).unwrap_or_else(|| whole.bytes.clone());
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, whole.body(shown)))
}

/// Why an object is not shown that has to pass a filter first.
fn unread(why: Unread) -> Status {
    match why {
        Unread::Crowded => {
            let message = "edge-hub: as much as this user may have of objects is on its way to it already";
            Status { message: message.to_owned(), ..Status::not_ready(1) }
        }
        Unread::TooLarge => {
            Status::internal_error("edge-hub: the answer of the API server is larger than an object may be")
        }
        Unread::Broken => {
            Status::service_unavailable("edge-hub: the answer of the API server broke off".to_owned())
        }
    }
}

/// A watch that the API server answers: it looks at the right of its watcher when it begins, and never again.
struct Reviewed {
    hub: Arc<Hub>,
    caller: Caller,
    attributes: Attributes,
    body: BodyDataStream,
    review: Instant,
    undecided: Undecided,
}

/// Ends a watch once its watcher may no longer read this, as one that is answered from what is held. What is not shared stays as it is.
pub fn while_allowed(
    hub: &Arc<Hub>,
    caller: &Caller,
    path: &ResourcePath,
    query: &str,
    answer: Response<Body>,
) -> Response<Body> {
    let asked = Wanted::known(hub, Verb::Watch, path, query);
    let (Ok(wanted), StatusCode::OK, true) =
        (asked, answer.status(), hub.sharing.load().keeps(&path.resource))
    else {
        return answer;
    };
    let attributes = wanted.attributes(path);
    let (head, body) = answer.into_parts();
    let review = Instant::now() + hub.lifetimes.review;
    let (hub, caller, body) = (hub.clone(), caller.clone(), body.into_data_stream());
    let watch = Reviewed { hub, caller, attributes, body, review, undecided: Undecided::default() };
    Response::from_parts(head, Body::from_stream(watch.chunks()))
}

impl Reviewed {
    fn chunks(self) -> impl stream::Stream<Item = Result<Bytes, axum::Error>> + Send {
        stream::unfold(self, async |mut watch| {
            loop {
                tokio::select! {
                    chunk = watch.body.next() => return chunk.map(|chunk| (chunk, watch)),
                    () = sleep_until(watch.review) => {}
                }
                if !watch.may_go_on().await {
                    debug!(
                        resource = %watch.attributes.resource,
                        "a watch that was handed on ends: access was revoked, or cannot be asked"
                    );
                    return None;
                }
            }
        })
    }

    async fn may_go_on(&mut self) -> bool {
        self.review = Instant::now() + self.hub.lifetimes.review;
        let decision = match self.hub.name(&self.caller).await {
            Ok(named) => self.hub.may(&named.subject, &self.attributes).await,
            Err(TokenError::Refused(why)) => Decision::Unauthorized(why),
            Err(error) if self.hub.upstream.is_up() => Decision::Passing(error.to_string()),
            Err(error) => Decision::Unknown(error.to_string()),
        };
        self.undecided.goes_on(&decision, self.hub.lifetimes.allowed, Instant::now())
    }
}

/// The API server refused a read that was handed on to it: without a link its reader is shown nothing from now on.
pub async fn refused(hub: &Hub, caller: &Caller, verb: Verb, path: &ResourcePath, query: &str) {
    if !hub.sharing.load().keeps(&path.resource) {
        return;
    }
    if let (Ok(wanted), Ok(named)) = (Wanted::known(hub, verb, path, query), hub.name(caller).await) {
        hub.authorizer.refused(&named.subject, &wanted.attributes(path));
    }
}

/// The API server answered a read that was handed on to it, of a resource of which something is held: without a link its reader is shown that, too.
pub fn answered(hub: &Arc<Hub>, caller: &Caller, verb: Verb, path: &ResourcePath, query: &str) {
    misplaced::is_served(hub, verb, path, query);
    if !hub.sharing.load().keeps(&path.resource) || !hub.subscriptions.are_of(&path.resource) {
        return;
    }
    let Ok(wanted) = Wanted::known(hub, verb, path, query) else { return };
    let (hub, caller, attributes) = (hub.clone(), caller.clone(), wanted.attributes(path));
    let (refusals, tasks) = (hub.authorizer.refusals(), hub.tasks.clone());
    // Its reader does not wait until it is known who that is.
    tasks.spawn(async move {
        if let Ok(named) = hub.name(&caller).await {
            hub.authorizer.answered(&named.subject, &attributes, refusals);
        }
    });
}

/// In which encoding an object may be, if it is whole and plain.
pub fn encoding(headers: &HeaderMap) -> Option<Encoding> {
    let media = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    match media {
        _ if headers.contains_key(header::CONTENT_ENCODING) => None,
        "application/json" => Some(Encoding::Json),
        "application/vnd.kubernetes.protobuf" => Some(Encoding::Protobuf),
        _ => None,
    }
}

/// The bytes in which the object is shown; `None`: those in which it came.
fn shown(filter: &Filter, encoding: Encoding, body: &Bytes) -> Option<Bytes> {
    let ((api_version, kind), object) = match encoding {
        Encoding::Json => (Default::default(), Object::from_json(body.clone()).ok()?),
        Encoding::Protobuf => envelope(body).ok()?,
    };
    let Outcome::Replace(shown) = filter.outcome(&object.into(), Telling::State) else { return None };
    let form = Form { encoding, projection: Projection::Whole };
    let type_meta = TypeMeta { api_version: &api_version, kind: &kind };
    Some(frame::object(form, type_meta, &*shown).concat().into())
}

//! Answering reads of resources from what is held: lists, watches, single objects.
//!
//! ```text
//!  what is wanted? ─► who asks? ─► may they? ─► which subscription? ─► whole? ─► fresh enough? ─► encode
//! ```
//! While there is a link, everything that the hub is not sure of is handed on, so that the API server says it in its own words.
//! Without a link the hub answers what it knows, says how old that is, and refuses the rest.

mod awaited;
mod before;
mod buffers;
mod counted;
mod encode;
mod filtered;
mod form;
mod get;
pub mod handed_on;
mod list;
mod misplaced;
mod most_recent;
mod of_the_node;
mod wanted;
mod watch;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderValue, Response, header, request::Parts};
use kube_wire::{
    accept::Representation,
    request::{ResourcePath, Verb},
    resource_version::ResourceVersion,
    status::Status,
    transcode,
};
use tokio::time::Instant;
use tracing::debug;
use watch_cache::Scope;

use self::{
    awaited::{beyond, catching_up, complete, doubted, reached},
    before::Before,
    encode::Encoder,
    filtered::reader,
    form::{Rather, refused_first, representation},
    of_the_node::of_the_node,
    wanted::{Wanted, sharded, unknown_without_link},
};
use crate::{
    authenticate::{Caller, tokens::TokenError},
    authorize::{Attributes, Decision},
    filters::{Client, Filter},
    hub::{Hub, Named},
    metrics::Outcome,
    offline::documents::warning,
    subscriptions::{Carrier, Key, Owner, Progress, Subscription},
};

/// How long a request waits for a version that the hub has not come to, as the API server does.
const TOO_LARGE: Duration = Duration::from_secs(3);

/// What becomes of a read.
pub enum Read {
    /// This.
    Answer(Response<Body>),
    /// The API server is to say.
    HandOn,
    /// The API server is to say, and the reader is shown that through a filter: one object.
    HandOnThrough(Arc<Filter>),
}

/// A read that may be answered here: everything about it that is known before the cache is looked at.
struct Asked<'a> {
    hub: &'a Arc<Hub>,
    /// When it came.
    came: Instant,
    named: Named,
    attributes: Attributes,
    /// By what name it is remembered through which filter the client saw it, whatever it is answered from; empty where there are no filters.
    reader: Box<str>,
    /// What it asks for, of whom; of what is pooled the whole.
    own: Key,
    /// What it is answered from, if that is another: what the node reads for itself.
    of_node: Option<Key>,
    scope: Scope,
    /// Who carries what has to be opened for it.
    carrier: Carrier,
    /// Whether the API server can be asked in its caller's name.
    goes_on: bool,
    /// The one stream that it may be answered from, if its reader is only known to have been allowed that one.
    only: Option<Arc<Subscription>>,
    representation: Representation,
    /// The version of the table that the client would rather have, without a link; see [`Rather`].
    table: Rather,
    client: Client,
    /// What the client is shown; all, if there is none.
    filter: Option<Arc<Filter>>,
    /// The turn of the view when that was chosen.
    turn: u64,
}

/// Answers a read, or says that it is to be handed on.
pub async fn read(
    hub: &Arc<Hub>,
    caller: &Caller,
    verb: Verb,
    path: &ResourcePath,
    request: &Parts,
) -> Result<Read, Box<Status>> {
    let came = Instant::now();
    let sharing = hub.sharing.load_full();
    if !sharing.keeps(&path.resource) {
        return Ok(Read::HandOn);
    }
    let up = hub.upstream.is_up();
    // What cannot be answered is the API server's while there is one, but what a filter shows otherwise. A reflector keeps its version on 429 and
    // backs off; after 503 it would list anew.
    let refuse = |status: Status| match status.code {
        429 => Err(Box::new(status)),
        // In the name of a certificate nobody else can be asked.
        _ if up && caller.credential().is_some() => Ok(Read::HandOn),
        503 if verb == Verb::Watch => {
            Err(Box::new(Status { message: status.message, ..Status::not_ready(5) }))
        }
        _ => Err(Box::new(status)),
    };
    let query = request.uri.query().unwrap_or_default();
    let wanted = match Wanted::of(hub, caller, verb, path, query).await {
        Ok(wanted) if !wanted.is_sharded() => wanted,
        Ok(_) => return refuse(sharded(up)),
        Err(status) => {
            let status = refused_first(request, &path.resource, verb, status);
            return refuse(if up { status } else { unknown_without_link(path, status) });
        }
    };
    let (representation, table) = match representation(request, &path.resource, &wanted, up) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => return Ok(Read::HandOn),
        Err(status) => return refuse(status),
    };
    let namespace = path.namespace.as_deref().unwrap_or_default();
    let named = match hub.name(caller).await {
        Ok(named) => named,
        // Whose filters it would be is not known.
        Err(TokenError::Unavailable(why)) if up && hub.filters.concern(verb, &path.resource, namespace) => {
            return refuse(busy(&why));
        }
        Err(error) => return refuse(unnamed(&error)),
    };
    let client = Client::of(&named.owner, &request.headers);
    let (filter, turn) = filter(hub, &client, verb, path).await?;
    let refuse = |status: Status| {
        handed_on::unless_filtered(filter.as_ref(), verb, refuse(status.clone()), || match status.code {
            503 => Status { message: status.message, ..Status::not_ready(1) },
            _ => status,
        })
    };
    let attributes = wanted.attributes(path);
    let alike = async { matches!(named.owner, Owner::User(_)) && hub.alike.is(&path.resource).await };
    let (alike, decision) = tokio::join!(alike, hub.may(&named.subject, &attributes));
    let owner = if alike { Owner::Users } else { named.owner.clone() };
    let is_pooled = sharing.pools(&path.resource);
    let own = wanted.key(path, &owner);
    let reader = reader(&client, &own, representation);
    let own = if is_pooled { Key::pooled(&path.resource) } else { own };
    let of_node = of_the_node(hub, &wanted, &own, &named);
    let shared = if is_pooled { Some(&own) } else { of_node.as_ref() };
    let mut only = None;
    match decision {
        Decision::Allowed => {}
        Decision::Unknown(ref why) | Decision::Passing(ref why) => {
            match before::known(hub, &decision, &wanted, path, &named, &owner, shared) {
                Before::Allowed => {}
                Before::From(subscription) => only = Some(subscription),
                Before::Never if matches!(decision, Decision::Passing(_)) => return refuse(busy(why)),
                Before::Never => return refuse(Status::service_unavailable(format!("edge-hub: {why}"))),
            }
        }
        Decision::Denied(why) => return refuse(Status::forbidden(&path.resource, &attributes.name, &why)),
        Decision::Unauthorized(_) => return refuse(Status::unauthorized()),
    }
    let carrier = if shared.is_some() { Some(Carrier::node()) } else { named.carrier(caller.credential()) };
    let Some(carrier) = carrier else { return Ok(Read::HandOn) };
    let scope = place(path).or_else(|| wanted.selected_namespace()).map_or(Scope::Cluster, Scope::Namespace);
    let asked = Asked {
        hub,
        came,
        named,
        attributes,
        reader,
        own,
        of_node,
        scope,
        carrier,
        goes_on: caller.credential().is_some(),
        only,
        representation,
        table,
        client,
        filter: filter.clone(),
        turn,
    };
    if let Some(status) = asked.unserved(&wanted, verb, path, &request.uri).await {
        return refuse(status);
    }
    let read = asked.answer(wanted, path, query).await;
    let read = handed_on::unless_filtered(asked.filter.as_ref(), verb, read, || asked.not_yet())?;
    Ok(asked.tell_of_corrections(read))
}

/// The namespace that a request is about. Of a Namespace itself the path names itself, which is no place; that of anything else is one, also
/// of what is only called so (`namespaces` of another group, or `/api/v1/namespaces/a/namespaces`), as for the review.
pub(crate) fn place(path: &ResourcePath) -> Option<Box<str>> {
    let core = path.resource.group.is_empty() && &*path.resource.resource == "namespaces";
    path.namespace.clone().filter(|_| !core || path.namespace != path.name)
}

/// The filter that a request passes through, if it looks at the cluster once that is known, and the turn of the view of that moment. Before that it would show what is
/// to be hidden.
async fn filter(
    hub: &Hub,
    client: &Client,
    verb: Verb,
    path: &ResourcePath,
) -> Result<(Option<Arc<Filter>>, u64), Box<Status>> {
    let choose = || {
        let namespace = path.namespace.as_deref().unwrap_or_default();
        let (filter, view) = hub.filters.in_force(client, verb, &path.resource, namespace);
        (filter, view.turn)
    };
    let hides = |chosen: Option<&Arc<Filter>>| chosen.is_some_and(|filter| filter.looks_at_the_cluster());
    let chosen = choose();
    if !hides(chosen.0.as_ref()) {
        return Ok(chosen);
    }
    let is_settled = hub.filters.settled().await;
    let chosen = choose();
    if is_settled || !hides(chosen.0.as_ref()) {
        return Ok(chosen);
    }
    Err(Box::new(busy("what filters of this client look at has not been read yet")))
}

/// The API server cannot say just now whether the caller may: to be tried again, as it says itself when it has too much to do.
fn busy(why: &str) -> Status {
    let mut status = Status::not_ready(1);
    status.message = format!("edge-hub: {why}");
    status
}

/// The refusal of a caller whose token is not good or cannot be checked.
pub fn unnamed(error: &TokenError) -> Status {
    debug!(%error, "refused");
    match error {
        TokenError::Refused(_) => Status::unauthorized(),
        TokenError::Unavailable(_) => Status::service_unavailable(format!("edge-hub: {error}")),
        TokenError::Passing(_) => busy(&error.to_string()),
    }
}

impl Asked<'_> {
    /// What it is answered from.
    fn key(&self) -> &Key {
        self.of_node.as_ref().unwrap_or(&self.own)
    }

    /// Answers from what is held, or says that it is to be handed on.
    async fn answer(&self, wanted: Wanted, path: &ResourcePath, query: &str) -> Result<Read, Box<Status>> {
        match wanted {
            Wanted::List(list) => list::answer(self, list, query).await,
            Wanted::Watch(watch) => watch::answer(self, watch).await,
            Wanted::Get => get::answer(self, path, query).await,
        }
    }

    /// Why what cannot be handed on is not answered.
    fn not_yet(&self) -> Status {
        let found = self.hub.subscriptions.find(self.key(), self.is_protobuf(), &self.carrier);
        match found.map(|subscription| subscription.progress().borrow().clone()) {
            Some(Progress::Refused(status)) => *status,
            _ => Status::not_ready(1),
        }
    }

    fn is_protobuf(&self) -> bool {
        transcode::knows(&self.key().resource)
    }

    /// By what names the configuration has the client as one whose answers are kept, however seldom it asks.
    fn agents(&self) -> BTreeSet<Box<str>> {
        let sharing = self.hub.sharing.load();
        sharing
            .cache_agents
            .iter()
            .filter(|agent| &***agent == "*" || self.client.is(agent))
            .cloned()
            .collect()
    }

    /// Without a link: what is held or was stored may have all of this though nothing of just this name does. Its reader may carry that if it was
    /// allowed all of it. With one a stream of just this can be begun, but not for who goes on from a version (`since`): one that was told before a restart is of what
    /// was stored.
    fn take_wider(&self, since: Option<ResourceVersion>) {
        let up = self.hub.upstream.is_up();
        if up && since.is_none() {
            return;
        }
        let subscriptions = &self.hub.subscriptions;
        let held = subscriptions.wider_held(self.key(), &self.carrier.user, since);
        let may = |wider: &Key| {
            wider.owner == Owner::Node || !up && before::remembers(self.hub, &self.named, wider)
        };
        if let Some(wider) = held.into_iter().find(may) {
            subscriptions.open(&wider, self.is_protobuf(), &self.carrier, BTreeSet::new());
        }
    }

    /// Says in the answer that pods of this node are shown otherwise than the API server has them.
    fn tell_of_corrections(&self, read: Read) -> Read {
        let count = self.filter.as_ref().map_or(0, |filter| filter.corrections());
        match read {
            Read::Answer(mut response) if count > 0 => {
                let text = format!(
                    "299 edge-hub \"{count} pods of this node are shown where the kubelet says: the API server does not know it yet\""
                );
                if let Ok(text) = HeaderValue::from_str(&text) {
                    response.headers_mut().append(header::WARNING, text);
                }
                Read::Answer(response)
            }
            read => read,
        }
    }

    /// Gives an answer from what is held its headers; `stale`: how old it may be, if it may be old.
    fn head(&self, response: &mut Response<Body>, content_type: HeaderValue, stale: Option<Duration>) {
        response.extensions_mut().insert(Outcome::Held);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Some(age) = stale {
            let before = self.hub.last_link.ended_before_this_start();
            headers.insert(header::WARNING, warning(None, age, self.hub.upstream.is_up(), before));
        }
    }

    fn encoder(&self, subscription: &Arc<Subscription>) -> Option<Encoder> {
        Encoder::new(subscription, self.representation)
    }
}

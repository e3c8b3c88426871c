//! A list from what is held.

use api::names::{FRESHNESS, HUB_CONFIG_MAP};
use http::{HeaderValue, Response};
use kube_wire::{
    list_options::{ListRead, ListRequest},
    status::Status,
    transcode::TranscodeError,
};
use watch_cache::{Scope, WatchAnswer};

use super::{Asked, Read, beyond, buffers, complete, counted::counted, doubted, reached};
use crate::{
    filters::Place,
    freshness::{self, Verdict},
};

pub(super) async fn answer(
    asked: &Asked<'_>,
    request: ListRequest,
    query: &str,
) -> Result<Read, Box<Status>> {
    let hub = asked.hub;
    asked.take_wider(None);
    let Some(request) = meant(asked, request, query) else { return Ok(Read::HandOn) };
    let request = &request;
    let opened = hub.subscriptions.open(asked.key(), asked.is_protobuf(), &asked.carrier, asked.agents());
    let Some(subscription) = opened else { return Ok(Read::HandOn) };
    let first = subscription.version().is_none();
    if !complete(hub, &subscription).await? {
        return Ok(Read::HandOn);
    }
    let may_ask = asked.may_ask();
    let is_up = || hub.upstream.is_up() && may_ask;
    let verdict = match &request.read {
        ListRead::MostRecent | ListRead::Continue { at: None, .. } => {
            asked.most_recent(&subscription, first).await
        }
        ListRead::NotOlderThan(_) | ListRead::Exact(_) => asked.at_version(&subscription).await,
        _ => freshness::any(asked.age(&subscription)),
    };
    let up = is_up();
    let stale = match verdict {
        Verdict::Held { stale } => stale,
        Verdict::Forward => return Ok(Read::HandOn),
        Verdict::Unavailable => return Err(Box::new(too_old_for_policy(asked))),
        Verdict::NotYet => return Err(Box::new(doubted())),
    };
    if let ListRead::NotOlderThan(version) = request.read
        && !reached(&subscription, version).await
    {
        return if is_up() { Ok(Read::HandOn) } else { Err(Box::new(beyond(hub, &subscription, version))) };
    }
    // What is selected is looked for without the lock: upstream's events do not wait for it.
    let page = match subscription.read(|cache| cache.listed(&request.read)) {
        Ok(listed) => asked.shown(listed.page(request, asked.scope.clone())),
        Err(_) if up => return Ok(Read::HandOn),
        Err(WatchAnswer::Behind { .. })
            if let ListRead::NotOlderThan(version) | ListRead::Exact(version) = request.read =>
        {
            return Err(Box::new(beyond(hub, &subscription, version)));
        }
        Err(answer) => return Err(Box::new(refusal(&request.read, &answer))),
    };
    let at = page.resource_version;
    let place = Place {
        is_first: !matches!(request.read, ListRead::Continue { .. }),
        is_last: page.continue_token.is_none(),
        held: subscription.version().filter(|held| *held > at),
    };
    if let Some(mut table) = asked.table(&page)? {
        asked.record(at, place);
        asked.head(&mut table, HeaderValue::from_static("application/json"), stale);
        return Ok(Read::Answer(table));
    }
    let Some(encoder) = asked.encoder(&subscription) else { return Ok(Read::HandOn) };
    // Before the head of the answer is out: half a list helps nobody, and breaks off again each time.
    let told = match request.read {
        _ if !encoder.transcodes() => Ok(()),
        _ if !asked.is_protobuf() => encoder.check(&page.objects).map_err(Some),
        ListRead::Exact(_) | ListRead::Continue { at: Some(_), .. } => {
            encoder.check(&page.objects).map_err(Some)
        }
        _ => subscription.is_told_as_json(None),
    };
    // What is filtered is told here or not at all. Who only was shown it so would have to wait for a newer hub.
    if let Err(why) = told {
        let is_handed_on = hub.upstream.is_up() && asked.filter.is_none();
        return if is_handed_on { Ok(Read::HandOn) } else { Err(Box::new(untold(why.as_ref()))) };
    }
    asked.record(at, place);
    let body = buffers::body(encoder.list(page), asked.key().to_string());
    let mut response = Response::new(counted(body, hub, &subscription));
    asked.head(&mut response, HeaderValue::from_static(encoder.content_type()), stale);
    asked.tell_of_columns(&mut response);
    Ok(Read::Answer(response))
}

/// What a list comes to that names an object, which the API server reads by its key where only one can be meant. `None`: whether that is so makes a
/// difference, and is the API server's to know.
fn meant(asked: &Asked<'_>, list: ListRequest, query: &str) -> Option<ListRequest> {
    if list.fields.requires_exactly("metadata.name").is_none_or(str::is_empty) {
        return Some(list);
    }
    let of_one = list.clone().of_one(query);
    match asked.scope {
        Scope::Namespace(_) => Some(of_one),
        // It is one if the resource has no namespaces.
        Scope::Cluster if list.limit != Some(1) && of_one.read == list.read => Some(list),
        Scope::Cluster if asked.hub.upstream.is_up() && asked.filter.is_none() => None,
        Scope::Cluster if asked.held_in_namespaces() == Some(false) => Some(of_one),
        Scope::Cluster => Some(list),
    }
}

/// Why a list cannot be answered without a link.
fn refusal(read: &ListRead, answer: &WatchAnswer) -> Status {
    match (answer, read) {
        // A token of a version that the hub has not come to is of no use either: without a link it never comes there.
        (WatchAnswer::Expired { .. } | WatchAnswer::Behind { .. }, ListRead::Continue { after, .. }) => {
            Status::continue_expired(kube_wire::continue_token::reencode(after))
        }
        (WatchAnswer::Expired { .. }, _) => Status::list_expired(),
        _ => Status::not_ready(1),
    }
}

fn untold(why: Option<&TranscodeError>) -> Status {
    let why = why.map(|error| format!(": {error}")).unwrap_or_default();
    Status::service_unavailable(format!(
        "edge-hub: only the API server can show this as JSON, or a newer hub{why}; protobuf is answered"
    ))
}

fn too_old_for_policy(asked: &Asked<'_>) -> Status {
    Status::service_unavailable(format!(
        "edge-hub: no sign of life from the API server, and the freshness of {} (`freshness` in the file of --config, --freshness, or `{FRESHNESS}` of ConfigMap {HUB_CONFIG_MAP}) allows no older answer",
        asked.key().resource
    ))
}

//! One object from what is held. A read of one object opens no subscription, and what it brings is never kept: a store that can
//! be listed holds whole lists only.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderValue, Response};
use kube_wire::{
    list_options::{ListRead, check_export},
    request::ResourcePath,
    resource::ObjectKey,
    status::Status,
    transcode,
};
use watch_cache::{Page, Scope};

use super::{Asked, Read, beyond, counted::counted, doubted, form::check_one, reached};
use crate::{
    filters::{Outcome, Telling},
    freshness::{self, Verdict},
    subscriptions::Subscription,
};

pub(super) async fn answer(asked: &Asked<'_>, path: &ResourcePath, query: &str) -> Result<Read, Box<Status>> {
    let hub = asked.hub;
    let up = hub.upstream.is_up();
    let name = path.name.as_deref().unwrap_or_default();
    let namespace = match &asked.scope {
        Scope::Cluster => "",
        Scope::Namespace(namespace) => namespace,
    };
    let object_key = ObjectKey::new(namespace, name);
    asked.take_wider(None);
    let found = || hub.subscriptions.find(asked.key(), asked.is_protobuf(), &asked.carrier);
    let whole = |subscription: &Arc<Subscription>| {
        subscription.version().is_some() && !(up && subscription.progress().borrow().is_gone())
    };
    // Without a link a narrower stream will do if it has the object: that it has not would say nothing.
    let narrower = || {
        let owner = &asked.key().owner;
        hub.subscriptions.holding(owner, &path.resource, &object_key, |_| true).filter(|_| !up)
    };
    let subscription = match &asked.only {
        Some(only) => Some(only.clone()).filter(whole),
        None => found().filter(whole).or_else(narrower),
    };
    let Some(subscription) = subscription else { return Ok(Read::HandOn) };
    // Whether a custom resource is exported only its own API server knows, which is asked while there is a link.
    let plain = if up || transcode::knows(&path.resource) { check_export(query) } else { Ok(()) };
    let read = match plain.and_then(|()| ListRead::of_object(query)) {
        Ok(read) => read,
        Err(_) if up => return Ok(Read::HandOn),
        Err(status) => return Err(Box::new(status)),
    };
    let verdict = match read {
        ListRead::MostRecent if !asked.goes_on => asked.most_recent(&subscription, false).await,
        ListRead::MostRecent => {
            let policy = hub.sharing.load().freshness(&path.resource);
            if !asked.sees_own_writes(&subscription, policy, Some(&object_key)).await {
                return Ok(Read::HandOn);
            }
            let age = asked.proved_age(&subscription, policy).await;
            freshness::most_recent(policy, age, hub.upstream.is_up())
        }
        ListRead::NotOlderThan(version) => match asked.at_version(&subscription).await {
            held @ Verdict::Held { .. } if reached(&subscription, version).await => held,
            Verdict::Held { .. } if !hub.upstream.is_up() => {
                return Err(Box::new(beyond(hub, &subscription, version)));
            }
            Verdict::Held { .. } => Verdict::Forward,
            verdict => verdict,
        },
        ListRead::Any => freshness::any(asked.age(&subscription)),
        _ => Verdict::Forward,
    };
    let stale = match verdict {
        Verdict::Held { stale } => stale,
        Verdict::NotYet => return Err(Box::new(doubted())),
        Verdict::Forward | Verdict::Unavailable => return Ok(Read::HandOn),
    };
    let up = hub.upstream.is_up();
    let held = subscription.read(watch_cache::Cache::snapshot);
    let object = held.and_then(|held| held.get(&object_key).cloned());
    let Some(object) = object else {
        // That it is not there is the API server's to say while it can be asked. Of what is current it needs not be.
        let can_be_asked = up && (asked.goes_on || stale.is_some());
        return if can_be_asked {
            Ok(Read::HandOn)
        } else {
            Err(Box::new(Status::not_found(&path.resource, name)))
        };
    };
    let object = match asked.filter.as_ref().map(|filter| filter.outcome(&object, Telling::State)) {
        Some(Outcome::Replace(shown)) => shown,
        Some(Outcome::Drop) => return Err(Box::new(Status::not_found(&path.resource, name))),
        Some(Outcome::Keep) | None => object,
    };
    check_one(&asked.representation, &path.resource)?;
    let page = Page {
        objects: vec![object.clone()],
        resource_version: object.resource_version(),
        continue_token: None,
        remaining: None,
    };
    if let Some(mut table) = asked.table(&page)? {
        asked.head(&mut table, HeaderValue::from_static("application/json"), stale);
        return Ok(Read::Answer(table));
    }
    let Some(encoder) = asked.encoder(&subscription) else { return Ok(Read::HandOn) };
    let pieces = match encoder.object(&object) {
        Ok(pieces) => pieces,
        Err(_) if up => return Ok(Read::HandOn),
        Err(error) => return Err(Box::new(Status::internal_error(&format!("edge-hub: {error}")))),
    };
    let mut response = Response::new(counted(Body::from(pieces.concat()), hub, &subscription));
    asked.head(&mut response, HeaderValue::from_static(encoder.content_type()), stale);
    asked.tell_of_columns(&mut response);
    Ok(Read::Answer(response))
}

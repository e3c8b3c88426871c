//! Where filters meet what is served: lists, and the events of a watch.

use std::sync::Arc;

use kube_wire::{
    accept::{As, Representation},
    list_options::{WatchRequest, WatchStart},
    object::Object,
    resource_version::ResourceVersion,
};
use watch_cache::{Cache, Cursor, Delivery, Page, Scope, Selection, Selects, WatchAnswer};

use super::Asked;
use crate::{
    filters::{self, Client, Filter, Otherwise, Outcome, Place, Telling, View},
    subscriptions::Key,
};

/// By what name it is remembered through which filter a client saw what it asks for; empty where nothing is filtered.
pub(super) fn reader(client: &Client, asked: &Key, representation: Representation) -> Box<str> {
    if filters::Filtered::of(&asked.resource).is_none() {
        return Box::default();
    }
    let is_metadata = matches!(representation.as_, As::PartialObjectMetadata | As::PartialObjectMetadataList);
    filters::reader(client, asked, is_metadata)
}

/// What a request selects, of what its client is shown. As one selection, so that an object that becomes hidden is told as
/// deleted, and one that comes into sight as added, as with any other selector.
pub(super) struct Filtered {
    selection: Selection,
    filter: Option<Arc<Filter>>,
    /// What of the state that a watch begins with its client may know otherwise.
    otherwise: Otherwise,
}

impl Filtered {
    /// What is written of what happened since `began`, or of what there was then.
    pub(super) fn shown(&self, delivery: Delivery, began: ResourceVersion) -> Delivery {
        if self.filter.is_none() && self.otherwise.is_nothing() {
            return delivery;
        }
        let told = |object: Arc<Object>, told| match &self.filter {
            Some(filter) => filter.shown(&object, told),
            None => object,
        };
        let shown = |object: Arc<Object>| {
            let own = object.resource_version();
            if own > began {
                return told(object, Telling::Event);
            }
            self.otherwise.state(told(object, Telling::State), own)
        };
        match delivery {
            Delivery::Added(object) => Delivery::Added(shown(object)),
            Delivery::Modified(object) => Delivery::Modified(shown(object)),
            Delivery::Deleted(object) => Delivery::Deleted(told(object, Telling::Event)),
            Delivery::InitialEnd(_) | Delivery::Bookmark(_) => delivery,
        }
    }

    /// What its client is to be told of an object that it knows through this filter, once `now` takes its place: what it would see otherwise
    /// then. As a state of the object, at a version that informers take for news ([`View::version_of`]); what goes away as it was.
    pub(super) fn retold(&self, object: &Arc<Object>, now: Option<&Filter>, view: &View) -> Option<Delivery> {
        if !self.selection.selects(object) {
            return None;
        }
        let of = |filter: Option<&Filter>, told| match filter {
            Some(filter) => filter.outcome(object, told),
            None => Outcome::Keep,
        };
        let shown = |outcome| match outcome {
            Outcome::Replace(shown) => shown,
            Outcome::Keep | Outcome::Drop => object.clone(),
        };
        // Of both at the object's own version: it is what they show that counts.
        match (of(self.filter.as_deref(), Telling::Event), of(now, Telling::Event)) {
            (before, after) if before == after => None,
            (Outcome::Drop, _) => Some(Delivery::Added(shown(of(now, Telling::State)))),
            (before, Outcome::Drop) => Some(Delivery::Deleted(shown(before))),
            _ => {
                let shown = shown(of(now, Telling::State));
                let own = object.resource_version();
                Some(Delivery::Modified(if shown.resource_version() == own {
                    Arc::new(shown.with_resource_version(view.version_of(own)))
                } else {
                    shown
                }))
            }
        }
    }

    /// The filter that it shows by.
    pub(super) fn filter(&self) -> Option<&Arc<Filter>> {
        self.filter.as_ref()
    }

    /// Shows by this filter from now on.
    pub(super) fn set_filter(&mut self, filter: Option<Arc<Filter>>) {
        self.filter = filter;
    }
}

impl Selects for Filtered {
    fn scope(&self) -> &Scope {
        self.selection.scope()
    }

    fn selects(&self, object: &Object) -> bool {
        self.selection.selects(object) && self.filter.as_ref().is_none_or(|filter| filter.keeps(object))
    }

    fn is_everything(&self) -> bool {
        self.filter.is_none() && self.selection.is_everything()
    }
}

/// Begins a watch on what the client is shown.
pub(super) fn watch(
    cache: &Cache,
    request: &WatchRequest,
    asked: &Asked<'_>,
) -> Result<Cursor<Filtered>, WatchAnswer> {
    let begins_with_a_state = matches!(request.start, WatchStart::Initial { .. });
    let otherwise = if begins_with_a_state { asked.saw_otherwise() } else { Otherwise::NOTHING };
    let filter = asked.filter.clone();
    cache.watch_with(request, asked.scope.clone(), |selection| Filtered { selection, filter, otherwise })
}

/// Whether a list through `filter` shows the object at the version that it has.
pub(super) fn stands_at_its_own(filter: Option<&Filter>, object: &Arc<Object>) -> bool {
    filter.is_none_or(|filter| filter.lists_at_its_own(object))
}

impl Asked<'_> {
    /// What the client may know otherwise than it is shown it now.
    fn saw_otherwise(&self) -> Otherwise {
        self.hub.filters.saw_otherwise(&self.reader, self.filter.as_deref(), self.turn)
    }

    /// Whether the API server may answer in the hub's place. Who is shown it through a filter has nobody else to ask, nor has who was, and may know objects otherwise at
    /// the versions that the API server gives.
    pub(super) fn may_ask(&self) -> bool {
        self.filter.is_none() && self.saw_otherwise().is_nothing()
    }

    /// What the client is shown of a page. Through a filter it may be shorter than was asked for, and does not say how much is left.
    pub(super) fn shown(&self, page: Page) -> Page {
        let (filter, otherwise) = (self.filter.as_ref(), self.saw_otherwise());
        if filter.is_none() && otherwise.is_nothing() {
            return page;
        }
        let objects = page.objects.into_iter().filter_map(|object| {
            let own = object.resource_version();
            let shown = match filter.map(|filter| filter.outcome(&object, Telling::State)) {
                None | Some(Outcome::Keep) => object,
                Some(Outcome::Replace(shown)) => shown,
                Some(Outcome::Drop) => return None,
            };
            Some(otherwise.state(shown, own))
        });
        let remaining = page.remaining.filter(|_| filter.is_none());
        Page { objects: objects.collect(), remaining, ..page }
    }

    /// Remembers through which filter the client is shown it at that version, or a page of it.
    pub(super) fn record(&self, at: ResourceVersion, place: Place) {
        if self.hub.filters.show(&self.reader, self.filter.as_deref(), at, place) {
            // At once, though nobody waits for it: a hub that was killed would know less than was shown.
            let hub = self.hub.clone();
            self.hub.tasks.spawn(async move { hub.shown_is_stored().await });
        }
    }
}

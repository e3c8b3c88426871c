//! Where filters meet what is served: lists, and the events of a watch.

use std::sync::Arc;

use kube_wire::{list_options::WatchRequest, object::Object, resource_version::ResourceVersion};
use watch_cache::{Cache, Cursor, Delivery, Page, Scope, Selection, Selects, WatchAnswer};

use super::Asked;
use crate::filters::{Filter, Outcome, Telling};

/// What a request selects, of what its client is shown. As one selection, so that an object that becomes hidden is told as
/// deleted, and one that comes into sight as added, as with any other selector.
pub(super) struct Filtered {
    selection: Selection,
    filter: Option<Arc<Filter>>,
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
    scope: Scope,
    filter: Option<Arc<Filter>>,
) -> Result<Cursor<Filtered>, WatchAnswer> {
    cache.watch_with(request, scope, |selection| Filtered { selection, filter })
}

/// What is written of what happened since `began`, or of what there was then.
pub(super) fn shown(delivery: Delivery, filter: &Filter, began: ResourceVersion) -> Delivery {
    let shown = |object: Arc<Object>| {
        let told = if object.resource_version() > began { Telling::Event } else { Telling::State };
        filter.shown(&object, told)
    };
    match delivery {
        Delivery::Added(object) => Delivery::Added(shown(object)),
        Delivery::Modified(object) => Delivery::Modified(shown(object)),
        Delivery::Deleted(object) => Delivery::Deleted(filter.shown(&object, Telling::Event)),
        Delivery::InitialEnd(_) | Delivery::Bookmark(_) => delivery,
    }
}

impl Asked<'_> {
    /// What the client is shown of a page. It may be shorter than was asked for, and does not say how much is left.
    pub(super) fn shown(&self, page: Page) -> Page {
        let Some(filter) = &self.filter else { return page };
        let objects =
            page.objects.into_iter().filter_map(|object| match filter.outcome(&object, Telling::State) {
                Outcome::Keep => Some(object),
                Outcome::Replace(shown) => Some(shown),
                Outcome::Drop => None,
            });
        Page { objects: objects.collect(), remaining: None, ..page }
    }

    /// Remembers through which filter the client saw all of it. Pages of one list through two filters are no whole.
    pub(super) fn record(&self, further_page: bool) {
        let filters = &self.hub.filters;
        let filter = self.filter.as_deref();
        if further_page && !filters.saw(&self.client, &self.own, filter) {
            filters.show(&self.client, &self.own, None);
        } else {
            filters.show(&self.client, &self.own, filter);
        }
    }
}

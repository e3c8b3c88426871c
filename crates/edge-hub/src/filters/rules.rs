//! Which filters a request passes through: the defaults, less what is disabled, and more components by configuration.

use std::collections::{BTreeMap, BTreeSet};

use kube_wire::request::Verb;

use super::{Client, FilterName, Filtered, View};

/// Which filters apply to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Filters that apply to somebody.
    pub enabled: BTreeSet<FilterName>,
    /// Components beside those of [`FilterName::default_components`].
    pub components: BTreeMap<FilterName, BTreeSet<Box<str>>>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { enabled: BTreeSet::from(FilterName::ALL), components: BTreeMap::new() }
    }
}

impl Rules {
    /// The filters of a request, in the order in which they are applied.
    pub fn choose(
        &self,
        client: &Client,
        verb: Verb,
        resource: Filtered,
        namespace: &str,
    ) -> Box<[FilterName]> {
        let filters = self.enabled.iter().filter(|name| {
            let added = self.components.get(name).into_iter().flatten();
            name.applies(resource, verb, namespace)
                && (name.default_components().iter().any(|component| client.is(component))
                    || added.into_iter().any(|component| client.is(component)))
        });
        filters.copied().collect()
    }

    /// Filters that are on and can do nothing while the view is so.
    pub fn idle(&self, view: &View) -> Box<[FilterName]> {
        self.enabled.iter().copied().filter(|name| !name.acts(view)).collect()
    }
}

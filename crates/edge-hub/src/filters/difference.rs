//! Which objects one filter may show otherwise than another, by what differs of their views: most changes are about one Service or one pod, and of thousands of
//! slices few have to be looked at.

use std::collections::BTreeSet;

use kube_wire::{object::Object, resource::ObjectKey};
use memchr::memmem;

use super::{Filter, FilterName, Topology, View, service_topology};

/// The objects that may be shown otherwise.
pub enum Difference {
    /// Any.
    All,
    /// Those of some Services, and those that name some pods.
    Some {
        /// The Services.
        services: BTreeSet<ObjectKey>,
        /// The UIDs of the pods.
        pods: Vec<Box<str>>,
    },
}

impl Difference {
    /// What `now` may show otherwise than `before`; without a filter all is shown as it is.
    pub fn between(before: Option<&Filter>, now: Option<&Filter>) -> Self {
        let nothing = View::of_node("", None, None);
        let (a, b) = (before.map_or(&nothing, Filter::view), now.map_or(&nothing, Filter::view));
        let has = |filter: Option<&Filter>, name| filter.is_some_and(|filter| filter.has(name));
        // All that show by more than Services and pods must be in both, and show the same.
        let is_known = FilterName::ALL.into_iter().all(|name| match name {
            FilterName::LocalPods => true,
            name if has(before, name) != has(now, name) => false,
            FilterName::ServiceTopology => !has(now, name) || a.node == b.node,
            name => !has(now, name) || name.indifferent(a, b),
        });
        if !is_known {
            return Self::All;
        }
        let services = if has(now, FilterName::ServiceTopology) { services(a, b) } else { BTreeSet::new() };
        let pods = |filter: Option<&Filter>| {
            let filter = filter.filter(|filter| filter.has(FilterName::LocalPods));
            filter.map(|filter| filter.view().local_pods.clone()).unwrap_or_default()
        };
        let (before, now) = (pods(before), pods(now));
        let all = before.pods.keys().chain(now.pods.keys());
        let pods = all.filter(|&uid| before.pods.get(uid) != now.pods.get(uid)).cloned().collect();
        Self::Some { services, pods }
    }

    /// How much it takes to learn that of an object, at least one.
    pub fn cost(&self) -> usize {
        match self {
            Self::All => 1,
            Self::Some { services: _, pods } => 1 + pods.len(),
        }
    }

    /// Whether the object may be shown otherwise.
    pub fn may_concern(&self, object: &Object) -> bool {
        let Self::Some { services, pods } = self else { return true };
        !services.is_empty() && services.contains(&service_topology::service(object))
            || pods.iter().any(|uid| memmem::find(object.body(), uid.as_bytes()).is_some())
    }
}

/// The Services of which other endpoints may be shown.
fn services(a: &View, b: &View) -> BTreeSet<ObjectKey> {
    let pools = a.pool.is_some() != b.pool.is_some() || a.pool_nodes != b.pool_nodes;
    let of = |view: &View, key: &ObjectKey| view.topology.get(key).copied();
    let differs = |key: &&ObjectKey| of(a, key) != of(b, key) || pools && of(b, key) == Some(Topology::Pool);
    a.topology.keys().chain(b.topology.keys()).filter(differs).cloned().collect()
}

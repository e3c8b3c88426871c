//! Of which resources, groups and versions something is on the node.

use std::{collections::BTreeSet, sync::Arc};

use kube_wire::resource::GroupVersionResource;

use super::{Key, Subscription, Subscriptions};

impl Subscriptions {
    /// The resources of which there is a stream that the API server does not refuse.
    pub fn resources(&self) -> BTreeSet<GroupVersionResource> {
        self.not_refused().map(|subscription| subscription.key().resource.clone()).collect()
    }

    /// The groups and versions of which there is a stream, or was one before this start, as the paths of their resources begin: `/api/v1`,
    /// `/apis/apps/v1`. Not those of which the API server refuses all that is asked for.
    pub fn versions(&self) -> BTreeSet<String> {
        // First: who asks for one of these takes it away and opens it, under one lock.
        let mut names: Vec<String> = self.restored.lock().names().map(str::to_owned).collect();
        names.extend(self.not_refused().map(|subscription| subscription.key().to_string()));
        names.iter().filter_map(|name| Key::version_in(name)).map(str::to_owned).collect()
    }

    fn not_refused(&self) -> impl Iterator<Item = Arc<Subscription>> {
        self.all().into_iter().filter(|subscription| !subscription.progress().borrow().is_gone())
    }
}

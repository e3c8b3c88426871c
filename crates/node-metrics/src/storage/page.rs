//! Lists: what of the store they show is chosen at once; the JSON of each object is made when its turn to be sent comes.

use std::sync::Arc;

use aggregated_api::{Objects, Page, StorageError};
use kube_wire::continue_token;
use kube_wire::list_options::{ListRead, ListRequest};
use kube_wire::object::Object;
use kube_wire::resource::ObjectKey;

use super::kind::Kind;
use super::sending::Sending;
use super::{NodeMetrics, version};
use crate::ledger::{Selectable, Stored};

/// How many objects are looked at before others get their turn.
const BATCH: usize = 256;

/// What a list shows: versions that stay what they are, whatever becomes of their nodes.
struct Chosen<K: Kind> {
    source: Arc<NodeMetrics>,
    values: Arc<Sending<K::Value>>,
    count: usize,
}

impl<K: Kind> Objects for Chosen<K> {
    fn count(&self) -> usize {
        self.count
    }

    fn object(&self, index: usize) -> Result<Arc<Object>, StorageError> {
        self.source.object::<K>(&*self.values.get(index, self.source.now().steady)?)
    }

    fn take(&self, index: usize) -> Result<Arc<Object>, StorageError> {
        self.source.object::<K>(&*self.values.reach(index, self.source.now().steady)?)
    }
}

impl NodeMetrics {
    pub(super) async fn page<K: Kind>(self: &Arc<Self>, request: &ListRequest) -> Result<Page, StorageError> {
        let ListRequest { read, limit, labels, fields, timeout: _, shards: _ } = request;
        let (state, at, from) = self.state_for::<K>(read)?;
        let everything = labels.is_everything() && fields.is_everything();
        let limit = limit.filter(|_| *read != ListRead::Any).and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(usize::MAX);
        let first = state.partition_point(|stored| &*stored.name < from);
        let (mut values, mut looked) = (Vec::new(), first);
        for stored in state.get(first..).unwrap_or_default() {
            if values.len() >= limit {
                break;
            }
            looked += 1;
            if everything || self.selects::<K>((labels, fields), &stored.name, &stored.value.head())? {
                values.push(Arc::clone(stored));
            }
            if looked % BATCH == 0 {
                tokio::task::yield_now().await;
            }
        }
        let remaining = state.len() - looked;
        let token = |last: &Arc<Stored<K::Value>>| {
            continue_token::encode(ObjectKey::new("", &last.name).as_str(), Some(version(at)))
        };
        let continue_token = values.last().filter(|_| remaining > 0).map(token);
        if continue_token.is_some() {
            self.hold::<K>(at, state);
        }
        let count = values.len();
        let values = self.readers.begin(values, None, self.now().steady);
        Ok(Page {
            objects: Box::new(Chosen::<K> { source: Arc::clone(self), values, count }),
            continue_token,
            remaining: (remaining > 0 && everything).then_some(remaining as u64),
            resource_version: version(at),
        })
    }
}

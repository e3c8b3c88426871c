//! What the cluster says, from the hub's own subscriptions: the node's pods, the Node, and whom to report to. They are stored, so that after
//! a start without a link the pods still have their names.

use std::{collections::BTreeMap, sync::Arc};

use kube_wire::{
    edit::{Field, Message},
    object::{Encoding, Object},
    resource::{GroupVersionResource, ObjectKey},
    transcode,
};
use node_report::Resources;
use node_sampler::{Facts, PodFacts};
use serde_json::Value;

use super::{Shared, Told, pod};
use crate::{
    filters::follow::{Source, Told as News, named},
    hub::Hub,
    subscriptions::{Key, Owner},
};

const DATA: Field = Field::new("data", 2);

/// Whom to report to, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// UID of the Node; empty while it is not known.
    pub(super) node_uid: String,
    /// The ConfigMap; `None` while there is none.
    pub(super) told: Option<Told>,
}

/// Keeps the facts, for as long as it is polled.
pub(super) async fn follow(hub: Arc<Hub>, shared: Arc<Shared>) {
    let core = |resource| GroupVersionResource::new("", "v1", resource);
    let mut pods = Source::new(Key {
        owner: Owner::Node,
        resource: core("pods"),
        namespace: Box::default(),
        labels: Box::default(),
        fields: format!("spec.nodeName={}", shared.node).into(),
    });
    let mut own_node = Source::new(named(&core("nodes"), "", &shared.node));
    let config = named(&core("configmaps"), api::names::NAMESPACE, api::names::NODE_METRIC_CONFIG_MAP);
    let mut config = Source::new(config);
    let mut held: BTreeMap<ObjectKey, (String, PodFacts)> = BTreeMap::new();
    let (mut known, mut allocatable) = (Known::default(), Resources::default());
    loop {
        pods.read(&hub, |news| match news {
            News::Reset => held.clear(),
            News::Put(object) => match json(&core("pods"), object).as_ref().and_then(pod::pod) {
                Some(facts) => drop(held.insert(object.key().clone(), facts)),
                None => drop(held.remove(object.key())),
            },
            News::Gone(object) => drop(held.remove(object.key())),
        });
        own_node.read(&hub, |news| {
            // A Node that is gone from the cache for a moment is the same one afterwards.
            if let News::Put(object) = news {
                object.uid().clone_into(&mut known.node_uid);
                allocatable = json(&core("nodes"), object).as_ref().map(pod::allocatable).unwrap_or_default();
            }
        });
        config.read_one(&hub, |object| {
            known.told = object.map(|object| {
                let message = Message::of(object);
                Told::of(|key| message.as_ref()?.entry(DATA, key))
            });
        });
        shared.facts.store(Arc::new(Facts { pods: held.values().cloned().collect(), allocatable }));
        shared.known.send_if_modified(|before| {
            let is_new = *before != known;
            before.clone_from(&known);
            is_new
        });
        tokio::select! {
            () = pods.changed() => {}
            () = own_node.changed() => {}
            () = config.changed() => {}
        }
    }
}

fn json(resource: &GroupVersionResource, object: &Object) -> Option<Value> {
    match object.encoding() {
        Encoding::Json => serde_json::from_slice(object.body()).ok(),
        Encoding::Protobuf => {
            serde_json::from_slice(&transcode::to_json(resource, object.body(), true).ok()?).ok()
        }
    }
}

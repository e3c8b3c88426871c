//! Writes what a [`Plan`] says, but for statuses. Each write stands alone: one that fails is reported and holds up no other. Objects
//! are applied on the server: what others wrote into them stays.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use api::names::{MANAGER, NAMESPACE, TUNNEL_NODES, TUNNEL_NODES_CONFIG_MAP};
use api::{Gateway, NodePool};
use futures::FutureExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use super::pace::Paces;
use super::plan::Plan;
use super::pool_gateways::PoolGateways;
use super::writes::{Backlog, Done, Write, carry_out, rows};
use super::{Context, Told};
use crate::controllers::conditions::event;
use crate::controllers::node_pool::apply::WriteError;
use crate::controllers::told_events::node_reference;

/// What became of the writes.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) errors: Vec<String>,
    /// When a write that was held back is due.
    pub(crate) look_at: Option<Instant>,
}

impl Applied {
    pub(crate) fn note(&mut self, what: &str, result: Result<(), WriteError>) {
        if let Err(error) = result {
            self.errors.push(format!("{what}: {error}"));
        }
    }

    /// Notes what came of a write that can wait, and after a failure does.
    pub(crate) fn note_of_turn(&mut self, paces: &mut Paces, object: &str, result: Result<(), WriteError>) {
        if result.is_ok() {
            paces.succeed(object);
        } else {
            self.look_by(paces.fail(object, Instant::now()));
        }
        self.note(object, result);
    }

    /// Begins writes that can wait and were admitted. Those that were not begun are due at once.
    pub(crate) async fn take_turn<T>(
        &mut self,
        paces: &mut Paces,
        backlog: &mut Backlog,
        writes: Vec<Write<'_, T>>,
    ) -> Vec<(String, T)> {
        let Done { outcomes, left } = backlog.take_turn(writes).await;
        for object in &left {
            paces.retract(object);
        }
        if !left.is_empty() {
            self.look_by(Instant::now());
        }
        outcomes
    }

    /// Has all looked at again by then.
    pub(crate) fn look_by(&mut self, due: Instant) {
        self.look_at = Some(self.look_at.map_or(due, |earlier| earlier.min(due)));
    }

    /// Whether that object may be written now.
    pub(crate) fn admit(&mut self, paces: &mut Paces, object: &str) -> bool {
        match paces.admit(object, Instant::now()) {
            Ok(()) => true,
            Err(due) => {
                self.look_by(due);
                false
            }
        }
    }
}

/// Writes the plan.
pub(crate) async fn apply(
    context: &Context,
    plan: &Plan,
    paces: &mut Paces,
    backlog: &mut Backlog,
    told: &mut Told,
) -> Applied {
    let Plan {
        verdicts: _,
        services,
        slices,
        stale_services,
        stale_slices,
        node_names,
        misnamed,
        pool_gateways,
        look_at: _,
    } = plan;
    let mut applied = Applied::default();
    // Slices first: they are what must follow the hubs within seconds.
    apply_objects(context, rows(slices), &mut applied, paces).await;
    apply_objects(context, services.iter().map(|service| vec![service]).collect(), &mut applied, paces).await;
    delete_objects(context, stale_slices, &mut applied, paces).await;
    delete_objects(context, stale_services, &mut applied, paces).await;
    if let Some(text) = node_names
        && applied.admit(paces, TUNNEL_NODES_CONFIG_MAP)
    {
        applied.note(TUNNEL_NODES_CONFIG_MAP, write_node_names(context, text).await);
    }
    tell_of_misnamed(context, misnamed, told).await;
    make_gateways(context, pool_gateways, &mut applied, paces, backlog).await;
    tell_of_hand_made(context, &pool_gateways.hand_made, told).await;
    applied
}

/// How an object is called in messages and in what is remembered of its writes.
fn title<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{} {}", K::kind(&()), object.name_any())
}

/// Applies the objects of each row one after the other, and the rows beside one another.
async fn apply_objects<'a, K>(
    context: &'a Context,
    rows: Vec<Vec<&'a K>>,
    applied: &mut Applied,
    paces: &mut Paces,
) where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'a,
{
    let mut writes = Vec::new();
    for mut row in rows {
        row.retain(|object| applied.admit(paces, &title(*object)));
        let write = async move {
            let mut results = Vec::new();
            for object in row {
                results.push((title(object), apply_object(context, object).await));
            }
            results
        };
        // Each has its own title.
        writes.push((String::new(), write.boxed()));
    }
    for (title, result) in carry_out(writes, None).await.outcomes.into_iter().flat_map(|(_, row)| row) {
        applied.note(&title, result);
    }
}

async fn apply_object<K>(context: &Context, object: &K) -> Result<(), WriteError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let objects = Api::<K>::namespaced(context.client.clone(), NAMESPACE);
    let params = PatchParams::apply(MANAGER).force();
    context.leadership.run(objects.patch(&object.name_any(), &params, &Patch::Apply(object))).await??;
    context.metrics.writes.inc();
    Ok(())
}

async fn delete_objects<K>(context: &Context, objects: &[Arc<K>], applied: &mut Applied, paces: &mut Paces)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync,
{
    let api = &Api::<K>::namespaced(context.client.clone(), NAMESPACE);
    let mut writes = Vec::new();
    for object in objects.iter().filter(|object| object.meta().deletion_timestamp.is_none()) {
        let title = title(object.as_ref());
        if applied.admit(paces, &title) {
            writes.push((title, delete(context, api, object.as_ref()).boxed()));
        }
    }
    for (title, result) in carry_out(writes, None).await.outcomes {
        applied.note(&title, result);
    }
}

/// Deletes the very object that was looked at.
async fn delete<K>(context: &Context, objects: &Api<K>, object: &K) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    let params = DeleteParams::default().preconditions(preconditions);
    match context.leadership.run(objects.delete(&object.name_any(), &params)).await? {
        // Gone, or another one by now.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => return Ok(()),
        other => drop(other?),
    }
    context.metrics.writes.inc();
    info!(object = title(object), "deleted");
    Ok(())
}

async fn write_node_names(context: &Context, text: &str) -> Result<(), WriteError> {
    let mut object = ConfigMap {
        data: Some(BTreeMap::from([(TUNNEL_NODES.to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    };
    object.metadata.name = Some(TUNNEL_NODES_CONFIG_MAP.to_owned());
    let config_maps = Api::<ConfigMap>::namespaced(context.client.clone(), NAMESPACE);
    let params = PatchParams::apply(MANAGER).force();
    let patch = Patch::Apply(&object);
    context.leadership.run(config_maps.patch(TUNNEL_NODES_CONFIG_MAP, &params, &patch)).await??;
    context.metrics.writes.inc();
    Ok(())
}

async fn create(context: &Context, gateways: &Api<Gateway>, gateway: &Gateway) -> Result<(), WriteError> {
    match context.leadership.run(gateways.create(&PostParams::default(), gateway)).await? {
        // Somebody came first: then it is theirs.
        Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
        other => drop(other?),
    }
    context.metrics.writes.inc();
    info!(gateway = gateway.name_any(), "made a Gateway for the pool of that name");
    Ok(())
}

async fn make_gateways(
    context: &Context,
    plan: &PoolGateways,
    applied: &mut Applied,
    paces: &mut Paces,
    backlog: &mut Backlog,
) {
    let PoolGateways { create: wanted, delete: unwanted, hand_made: _ } = plan;
    let gateways = Api::<Gateway>::all(context.client.clone());
    let mut writes = Vec::new();
    for gateway in wanted {
        let title = title(gateway);
        if applied.admit(paces, &title) {
            writes.push((title, create(context, &gateways, gateway).boxed()));
        }
    }
    for gateway in unwanted {
        let title = title(gateway.as_ref());
        if applied.admit(paces, &title) {
            writes.push((title, delete(context, &gateways, gateway.as_ref()).boxed()));
        }
    }
    for (title, result) in applied.take_turn(paces, backlog, writes).await {
        applied.note_of_turn(paces, &title, result);
    }
}

/// Tells of nodes whose names are not led to the gateways, each once.
async fn tell_of_misnamed(context: &Context, misnamed: &BTreeSet<String>, told: &mut Told) {
    told.misnamed.retain(|node| misnamed.contains(node));
    for node in misnamed {
        if !told.misnamed.insert(node.clone()) {
            continue;
        }
        warn!(node, "a node has a name that is reserved, and cluster DNS does not lead it to the gateways");
        let note = format!(
            "the name of the node is that of a Service, of the cluster's domain or of gateways, so {TUNNEL_NODES_CONFIG_MAP} leaves it out: \
             register it under another name"
        );
        let event = event(false, "NameReserved", &note, "LeadName");
        context.events.tell(&event, &node_reference(node)).await;
    }
}

/// Tells of pools whose Gateway somebody made by hand, each once.
async fn tell_of_hand_made(context: &Context, pools: &[Arc<NodePool>], told: &mut Told) {
    told.hand_made.retain(|pool| pools.iter().any(|other| other.name_any() == *pool));
    for pool in pools {
        if !told.hand_made.insert(pool.name_any()) {
            continue;
        }
        let note = format!(
            "the pool asks for a Gateway ({}), and there is one of its name that was not made for it: that one is left as it is, and \
             serves the pool",
            api::annotations::POOL_GATEWAY
        );
        let event = event(true, "GatewayExists", &note, "MakeGateway");
        context.events.tell(&event, &pool.object_ref(&())).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::leader::NotLeading;

    /// As many as are begun at a time hang and fail, as where a webhook times out.
    #[tokio::test(start_paused = true)]
    async fn writes_that_hang_and_fail_keep_no_others_from_being_begun() {
        let (mut paces, mut backlog) = (Paces::default(), Backlog::default());
        let mut done = BTreeSet::new();
        for turn in 0..2 {
            let mut applied = Applied::default();
            let mut writes = Vec::new();
            for number in (0..20).filter(|number| !done.contains(number)) {
                let title = number.to_string();
                let write = async move {
                    tokio::time::sleep(Duration::from_secs(if number < 16 { 10 } else { 0 })).await;
                    (number, if number < 16 { Err(NotLeading.into()) } else { Ok(()) })
                };
                if applied.admit(&mut paces, &title) {
                    writes.push((title, write.boxed()));
                }
            }
            for (title, (number, result)) in applied.take_turn(&mut paces, &mut backlog, writes).await {
                if result.is_ok() {
                    done.insert(number);
                }
                applied.note_of_turn(&mut paces, &title, result);
            }
            let due = applied.look_at.unwrap();
            if turn == 0 {
                assert_eq!((applied.errors.len(), done.len()), (16, 0));
                assert!(due <= Instant::now(), "what was left is due at once");
            } else {
                assert_eq!(done, (16..20).collect(), "what was left is begun first");
            }
        }
        // What failed is due when it was said to be, whatever wakes the controller until then.
        let mut paces = Paces::default();
        let mut applied = Applied::default();
        applied.note_of_turn(&mut paces, "0", Err(NotLeading.into()));
        let due = applied.look_at.unwrap();
        assert_eq!(paces.admit("0", due.checked_sub(Duration::from_millis(1)).unwrap()), Err(due));
        assert_eq!(paces.admit("0", due), Ok(()));
    }
}

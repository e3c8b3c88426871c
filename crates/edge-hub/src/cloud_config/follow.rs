//! Keeps what is shared and filtered as the file and the cluster say it.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use api::names::{POOL_SCOPE_RESOURCES, POOL_SCOPED_METADATA};
use kube_wire::{
    edit::{Field, Message},
    object::Object,
    request::Verb,
    resource::GroupVersionResource,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Layer, beside,
    followed_file::FollowedFile,
    in_vain, leader_hub,
    places::{Place, PlaceState},
    problems_of_yurt_hub_cfg, rules, yurt_hub_cfg,
};
use crate::{
    filters::{
        Rules,
        follow::{Source, named},
    },
    hub::Hub,
    run::Sharing,
    subscriptions::Key,
};

/// How long what a new pool shares is awaited before that counts which counts without it: the manager gives hubs the right to read it when it makes the
/// pool, and a hub that was refused asks again within 30 s.
const HELD: Duration = Duration::from_secs(45);

const DATA: Field = Field::new("data", 2);

/// What was said at the start.
#[derive(Debug, Clone)]
pub struct Start {
    /// The flags.
    pub flags: Layer,
    /// The filters by flags.
    pub rules: Rules,
    /// The file, and what it said.
    pub file: Option<(PathBuf, Layer)>,
}

/// Follows the file and the ConfigMaps until `shutdown`.
pub async fn follow(hub: Arc<Hub>, start: Start, shutdown: CancellationToken) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = run(hub, start) => {}
    }
}

async fn run(hub: Arc<Hub>, start: Start) {
    let Start { flags, rules: by_flags, file } = start;
    let mut file = FollowedFile::new(file);
    let name = |name: &str| format!("{}/{name}", api::names::NAMESPACE);
    let mut config = Source::new(config_map(api::names::HUB_CONFIG_MAP));
    let mut config_place = Place::unread(name(api::names::HUB_CONFIG_MAP));
    let mut cluster = Layer::default();
    let mut pool: Option<Arc<str>> = None;
    let mut leader: Option<(Source, Place)> = None;
    let (mut config_problems, mut leader_problems) = (Vec::new(), Vec::new());
    let mut pooled = None;
    // Until when what is shared stays as it is, since what the pool says is not known yet.
    let mut held_until = None;
    let mut revision = hub.filters.revision();
    // What an earlier run kept, before it was to be passed through.
    for resource in &hub.sharing.load_full().passed_through {
        hub.subscriptions.let_go(resource, is_read_by_hub(resource));
    }
    loop {
        revision.borrow_and_update();
        let current = hub.filters.view().pool.clone();
        if current != pool {
            if let Some(key) = leader.take().and_then(|(source, _)| source.key) {
                hub.subscriptions.close_own(&key);
            }
            let of_pool = current.as_deref().map(api::names::leader_hub_config_map);
            leader = of_pool.map(|of| (Source::new(config_map(&of)), Place::unread(name(&of))));
            held_until = leader.as_ref().map(|_| Instant::now() + HELD);
            (pool, pooled) = (current, None);
        }
        config.read_one(&hub, |told| {
            let Some(object) = told else {
                cluster = Layer::default();
                return config_place.is_absent();
            };
            cluster = yurt_hub_cfg(data(object), &cluster);
            let keys = Message::of(object).map(|message| message.keys(DATA)).unwrap_or_default();
            config_problems = problems_of_yurt_hub_cfg(&cluster, keys);
            config_place.counts(Some(object.resource_version().get()));
        });
        if let Some((source, place)) = &mut leader {
            source.read_one(&hub, |told| {
                let Some(object) = told else {
                    pooled = None;
                    return place.is_absent();
                };
                match leader_hub(data(object)) {
                    Ok((said, problems)) => {
                        (pooled, leader_problems) = (said, problems);
                        place.counts(Some(object.resource_version().get()));
                    }
                    Err(problems) => place.says_nothing(problems),
                }
            });
        }
        let is_unread = |(_, place): &(Source, Place)| place.state == PlaceState::Unread;
        held_until =
            held_until.filter(|until| leader.as_ref().is_some_and(is_unread) && Instant::now() < *until);
        let held = held_until.map(|_| hub.sharing.load().pooled.clone());
        let shared = pooled.clone().or(held).or_else(|| cluster.pooled.clone());
        let cloud = Layer { pooled: shared, ..cluster.clone() };
        apply(&hub, Sharing::resolve(&flags, &file.layer, &cloud));
        hub.filters.set_rules(rules(&by_flags, &file.layer, &cloud));
        let refusal = |source: &Source| Some(format!("it cannot be read: {}", source.refusal()?));
        let sharing = hub.sharing.load_full();
        let tell = |place: &mut Place,
                    problems: &[String],
                    pooled: Option<&BTreeSet<GroupVersionResource>>,
                    key: &str| {
            if place.state == PlaceState::InForce {
                let in_vain = pooled.into_iter().flat_map(|pooled| in_vain(pooled, &sharing, key));
                place.tell(problems.iter().cloned().chain(in_vain).collect());
            }
        };
        tell(&mut config_place, &config_problems, cluster.pooled.as_ref(), POOL_SCOPE_RESOURCES);
        if let Some((_, place)) = &mut leader {
            tell(place, &leader_problems, pooled.as_ref(), POOL_SCOPED_METADATA);
        }
        let by_pool = leader.as_ref().filter(|_| pooled.is_some()).map(|(_, place)| place.name.as_str());
        let by_cluster = cluster.pooled.as_ref().map(|_| config_place.name.as_str());
        let mut places: Vec<Place> = file.shown(by_pool.or(by_cluster), &sharing).into_iter().collect();
        let more = cluster.pooled.as_ref();
        let more = more.and_then(|of| beside(of, &sharing, POOL_SCOPE_RESOURCES, by_pool, "this ConfigMap"));
        places.push(config_place.with(more).with(refusal(&config)));
        places.extend(leader.iter().map(|(source, place)| place.with(refusal(source))));
        hub.configured_by.store(Arc::new(places));
        let leader = leader.as_mut().map(|(source, _)| source);
        tokio::select! {
            () = config.changed() => {}
            () = changed(leader) => {}
            _ = revision.changed() => {}
            () = file.changed() => {}
            () = sleep_until(held_until.unwrap_or_else(Instant::now)), if held_until.is_some() => {}
        }
    }
}

/// One of the ConfigMaps by which the cluster tells hubs what to do.
pub(crate) fn config_map(name: &str) -> Key {
    named(&GroupVersionResource::new("", "v1", "configmaps"), api::names::NAMESPACE, name)
}

/// Whether the hub reads some of that for itself, by whatever version: for its filters, the tunnel, node metrics or its configuration. What it read last
/// holds without a link, even where clients' reads are passed through, and parts of it may ask later than this one.
fn is_read_by_hub(resource: &GroupVersionResource) -> bool {
    match (&*resource.group, &*resource.resource) {
        ("", what) => ["configmaps", "nodes", "pods", "services"].contains(&what),
        ("apps.openyurt.io", what) => what == "nodepools",
        ("raven.openyurt.io", what) => what == "gateways",
        _ => false,
    }
}

/// What a ConfigMap says by key.
pub(crate) fn data(object: &Object) -> impl Fn(&str) -> Option<String> {
    let message = Message::of(object);
    move |key| message.as_ref()?.entry(DATA, key)
}

async fn changed(source: Option<&mut Source>) {
    match source {
        Some(source) => source.changed().await,
        None => std::future::pending().await,
    }
}

/// Puts in force what is shared: what is new begins at once, what is gone ends unless the hub reads it itself. Of what is passed through from now on
/// nothing is kept.
fn apply(hub: &Hub, sharing: Sharing) {
    let before = hub.sharing.load();
    if **before == sharing {
        return;
    }
    let pooled = |sharing: &Sharing| -> BTreeSet<_> {
        sharing.pooled.iter().filter(|resource| sharing.keeps(resource)).cloned().collect()
    };
    let (old, new) = (pooled(&before), pooled(&sharing));
    hub.sharing.store(Arc::new(sharing));
    hub.subscriptions.keep_agents(&hub.sharing.load().cache_agents);
    let keeps = |resource: &&GroupVersionResource| before.keeps(resource);
    for resource in hub.sharing.load().passed_through.iter().filter(keeps) {
        info!(%resource, "passed through from now on");
        if hub.filters.concern(Verb::List, resource, "") {
            warn!(%resource, "passed through: clients are shown it as the API server has it, and filters do nothing");
        }
        hub.subscriptions.let_go(resource, is_read_by_hub(resource));
    }
    for resource in new.difference(&old) {
        info!(%resource, "shared from now on");
        hub.subscriptions.open_pooled(resource);
    }
    for resource in old.difference(&new) {
        info!(%resource, "no longer shared");
        hub.subscriptions.unshare(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud_config::resource;

    #[test]
    fn what_the_hub_reads_for_itself_is_known() {
        for (text, expected) in [
            ("/v1/configmaps", true),
            ("/v1/nodes", true),
            ("/v1/pods", true),
            ("/v1/services", true),
            ("/v1/endpoints", false),
            ("discovery.k8s.io/v1/endpointslices", false),
            ("apps.openyurt.io/v1beta2/nodepools", true),
            ("raven.openyurt.io/v1beta1/gateways", true),
            ("example.com/v1/gateways", false),
        ] {
            assert_eq!(is_read_by_hub(&resource(text).unwrap()), expected, "{text}");
        }
    }
}

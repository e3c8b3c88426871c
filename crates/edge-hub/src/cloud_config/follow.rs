//! Keeps what is shared and filtered as the file and the cluster say it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kube_wire::{
    edit::{Field, Message},
    object::Object,
    request::Verb,
    resource::GroupVersionResource,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{field::display, info, warn};

use super::{FileError, Layer, leader_hub, private, read, rules, unknown_of_yurt_hub_cfg, yurt_hub_cfg};
use crate::{
    filters::{
        Rules,
        follow::{Source, Told, named},
    },
    hub::Hub,
    run::Sharing,
    subscriptions::Key,
};

/// How often the file is looked at.
const FILE: Duration = Duration::from_millis(500);

const DATA: Field = Field::new("data", 2);

/// The key of the file that says what is shared.
const POOL_SCOPE_RESOURCES: &str = "poolScopeResources";

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
    let (path, mut file) = file.map_or((None, Layer::default()), |(path, layer)| (Some(path), layer));
    warn_of_private(&file, POOL_SCOPE_RESOURCES, path.as_deref());
    let mut config = Source::new(config_map(api::names::HUB_CONFIG_MAP));
    let mut cluster = Layer::default();
    let mut pool: Option<Arc<str>> = None;
    let mut leader: Option<Source> = None;
    let mut pooled = None;
    let mut complaint = String::new();
    let mut revision = hub.filters.revision();
    // What an earlier run kept, before it was to be passed through.
    for resource in &hub.sharing.load_full().passed_through {
        hub.subscriptions.let_go(resource);
    }
    loop {
        revision.borrow_and_update();
        let current = hub.filters.view().pool.clone();
        if current != pool {
            if let Some(key) = leader.take().and_then(|source| source.key) {
                hub.subscriptions.close_own(&key);
            }
            leader = current
                .as_deref()
                .map(|pool| Source::new(config_map(&api::names::leader_hub_config_map(pool))));
            (pool, pooled) = (current, None);
        }
        config.read(&hub, |told| match told {
            Told::Put(object) => {
                let keys = Message::of(object).map(|message| message.keys(DATA));
                for key in unknown_of_yurt_hub_cfg(keys.unwrap_or_default()) {
                    warn!(
                        config_map = api::names::HUB_CONFIG_MAP,
                        key, "nothing reads it: keys are cache_agents and the names of filters"
                    );
                }
                cluster = yurt_hub_cfg(data(object));
            }
            Told::Gone(_) => cluster = Layer::default(),
            // What it said holds until it is read anew.
            Told::Reset => {}
        });
        if let Some(leader) = &mut leader {
            leader.read(&hub, |told| match told {
                Told::Put(object) => pooled = leader_hub(data(object), pooled.as_ref()).pooled,
                Told::Gone(_) => pooled = None,
                Told::Reset => {}
            });
        }
        let cloud = Layer { pooled: pooled.clone(), ..cluster.clone() };
        apply(&hub, Sharing::resolve(&flags, &file, &cloud), &cloud);
        hub.filters.set_rules(rules(&by_flags, &file, &cloud));
        tokio::select! {
            () = config.changed() => {}
            () = changed(&mut leader) => {}
            _ = revision.changed() => {}
            () = changed_file(path.as_ref(), &mut file, &mut complaint) => {}
        }
    }
}

/// One of the ConfigMaps by which the cluster tells hubs what to do.
pub(crate) fn config_map(name: &str) -> Key {
    named(&GroupVersionResource::new("", "v1", "configmaps"), api::names::NAMESPACE, name)
}

/// What a ConfigMap says by key.
pub(crate) fn data(object: &Object) -> impl Fn(&str) -> Option<String> {
    let message = Message::of(object);
    move |key| message.as_ref()?.entry(DATA, key)
}

async fn changed(source: &mut Option<Source>) {
    match source {
        Some(source) => source.changed().await,
        None => std::future::pending().await,
    }
}

/// Returns when the file says something else. A file that is wrong changes nothing; it is complained of once.
async fn changed_file(path: Option<&PathBuf>, layer: &mut Layer, complaint: &mut String) {
    let Some(path) = path else { return std::future::pending().await };
    loop {
        sleep(FILE).await;
        let of = path.clone();
        let answer = tokio::task::spawn_blocking(move || read(&of)).await;
        match answer {
            Ok(Ok(new)) => {
                complaint.clear();
                if *layer != new {
                    warn_of_private(&new, POOL_SCOPE_RESOURCES, Some(path));
                    *layer = new;
                    return;
                }
            }
            Ok(Err(error)) => complain(&error, complaint),
            Err(_) => return std::future::pending().await,
        }
    }
}

fn complain(error: &FileError, last: &mut String) {
    let error = error.to_string();
    if *last != error {
        warn!(%error, "the configuration stays as it was");
        *last = error;
    }
}

/// Says which resources are named in vain, by this key of the file, if there is one, or of a ConfigMap; for when it begins to count.
fn warn_of_private(layer: &Layer, key: &str, file: Option<&Path>) {
    let file = file.map(|path| display(path.display()));
    for resource in layer.pooled.iter().flatten().filter(|resource| private(resource)) {
        warn!(file, key, %resource, "never shared: who may read which is decided by name");
    }
}

/// Puts in force what is shared: what is new begins at once, what is gone ends unless the hub reads it itself. Of what is passed through from now on
/// nothing is kept.
fn apply(hub: &Hub, sharing: Sharing, cloud: &Layer) {
    let before = hub.sharing.load();
    if **before == sharing {
        return;
    }
    warn_of_private(cloud, api::names::POOL_SCOPED_METADATA, None);
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
        hub.subscriptions.let_go(resource);
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

//! An index of the ConfigMaps that concern the gateways: those by which the hubs of exposed gateways say that they accept links, with
//! what they report and when they were seen to change, on our own clock; and raven's, by name.
//!
//! A renewal that says nothing new is no change to anybody: it only moves the time at which the report would lapse.

mod absences;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::names::{GATEWAY_LEASE_PREFIX, RAVEN_AGENT_CONFIG_MAP, RAVEN_CONFIG_MAP, TUNNEL_NODES_CONFIG_MAP};
use api::raven::tunnel_report::StoredReport;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tracing::warn;

use self::absences::Absences;
use super::liveness::{Liveness, Sightings};
use crate::watches::{ByName, Index};

/// Key of a report's data: which run of the hub keeps it; empty when it ended.
const HOLDER: &str = "holderIdentity";

/// How long hubs may take to report again once the API server answers: the longest wait between their attempts (5 s), a beat, and
/// what a write may take.
const RETURN: Duration = Duration::from_secs(8);

/// Whether reports can be read, and so whether a hub could write them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Reach {
    /// They can, and have been for longer than [`RETURN`].
    #[default]
    Whole,
    /// The API server does not answer.
    Broken,
    /// It answers again, since then.
    Back(Instant),
}

impl Reach {
    /// An answer came at `now`.
    fn answered(self, now: Instant) -> Self {
        match self {
            Self::Broken => Self::Back(now),
            Self::Back(since) if now < since + RETURN => self,
            Self::Back(_) | Self::Whole => Self::Whole,
        }
    }

    /// Whether the silence of a hub whose report changed last at `changed` is its own. What the first answer tells may have been
    /// written before all broke: only a later change shows that the hub is back as well.
    fn is_its_own(self, changed: Option<Instant>) -> bool {
        match self {
            Self::Broken => false,
            Self::Back(since) => changed.is_some_and(|changed| changed > since),
            Self::Whole => true,
        }
    }
}

/// What is known of a hub by its report.
#[derive(Clone, Debug)]
pub(crate) struct Hub {
    pub(crate) liveness: Liveness,
    /// Round-trip times in milliseconds, 0 where it is not known, to the nodes that have a link to it.
    pub(crate) links: BTreeMap<String, i32>,
    /// The nodes of exposed gateways that it has a link to.
    pub(crate) siblings: BTreeSet<String>,
    /// The nodes that lately lost their last link to it because they answered no more.
    pub(crate) silent: BTreeSet<String>,
    /// The port at which it accepts links, if it says so.
    pub(crate) port: Option<u16>,
    /// Where it takes what is sent to the internal Service, if it says so.
    pub(crate) ways_in: Option<BTreeSet<SocketAddr>>,
}

/// What is read of a report.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Told {
    links: BTreeMap<String, i32>,
    siblings: BTreeSet<String>,
    silent: BTreeSet<String>,
    port: Option<u16>,
    ways_in: Option<BTreeSet<SocketAddr>>,
}

#[derive(Debug)]
struct Entry {
    resource_version: String,
    /// Which run of the hub keeps it.
    holder: String,
    sightings: Sightings,
    /// The report as it stands there.
    stored: StoredReport,
    told: Told,
}

impl Entry {
    /// Whether a report that is known to be there now is of before this one: etcd was restored from a backup, and its versions were set back.
    fn is_undone_by(&self, version: &str) -> bool {
        version != self.resource_version && !is_newer(version, &self.resource_version)
    }
}

/// The index, by the nodes' names.
#[derive(Debug, Default)]
pub(crate) struct HubReports {
    entries: RwLock<BTreeMap<String, Entry>>,
    reach: Mutex<Reach>,
    /// Changes when etcd seems to have been restored from a backup.
    restored: watch::Sender<()>,
    /// When the list began that is on its way, or came last.
    listing: Mutex<Option<Instant>>,
    /// For which reports it changed because they are not there.
    absences: Mutex<Absences>,
}

impl HubReports {
    /// Nothing can be read now. Hubs write no more than that, so nobody lapses until they have had the time to return.
    pub(crate) fn interrupted(&self) {
        *self.reach.lock() = Reach::Broken;
    }

    /// The API server answered.
    fn answered(&self, now: Instant) -> Reach {
        let mut reach = self.reach.lock();
        *reach = reach.answered(now);
        *reach
    }

    /// All hubs at `now`.
    pub(crate) fn at(&self, now: Instant) -> BTreeMap<String, Hub> {
        let entries = self.entries.read();
        let hub = |entry: &Entry| {
            let Told { links, siblings, silent, port, ways_in } = entry.told.clone();
            Hub { liveness: entry.sightings.liveness(now).0, links, siblings, silent, port, ways_in }
        };
        entries.iter().map(|(node, entry)| (node.clone(), hub(entry))).collect()
    }

    /// The nodes whose reports should have changed by `now`, with the version that was seen last.
    pub(crate) fn suspects(&self, now: Instant) -> Vec<(String, String)> {
        let entries = self.entries.read();
        let suspects =
            entries.iter().filter(|(_, entry)| entry.sightings.liveness(now).0 == Liveness::Suspect);
        suspects.map(|(node, entry)| (node.clone(), entry.resource_version.clone())).collect()
    }

    /// When the first report will have to have changed.
    pub(crate) fn next_end(&self, now: Instant) -> Option<Instant> {
        self.entries.read().values().filter_map(|entry| entry.sightings.liveness(now).1).min()
    }

    /// The report of `node` was asked for and is still at that version: its hub is silent, unless nobody could have written.
    /// Returns whether it counts as that.
    pub(crate) fn lapse(&self, node: &str, resource_version: &str, now: Instant) -> bool {
        let reach = self.answered(now);
        match self.entries.write().get_mut(node) {
            Some(entry)
                if entry.resource_version == resource_version
                    && reach.is_its_own(entry.sightings.changed) =>
            {
                entry.sightings.lapsed = true;
                true
            }
            _ => false,
        }
    }

    /// Takes in a report, and says whether it is news to anybody.
    fn take(&self, node: &str, config: &ConfigMap, now: Instant) -> bool {
        let resource_version = config.resource_version().unwrap_or_default();
        let holder = config.data.as_ref().and_then(|data| data.get(HOLDER)).cloned().unwrap_or_default();
        let held = !holder.is_empty();
        let stored = StoredReport::of(config);
        let mut entries = self.entries.write();
        let Some(entry) = entries.get_mut(node) else {
            let told = told(node, &stored);
            let sightings = Sightings { held, first: now, changed: None, missed: false, lapsed: false };
            entries.insert(node.to_owned(), Entry { resource_version, holder, sightings, stored, told });
            return true;
        };
        if !is_newer(&resource_version, &entry.resource_version) {
            return false;
        }
        let was_alive = entry.sightings.liveness(now).0 == Liveness::Alive;
        let mut news = !was_alive || entry.sightings.held != held;
        entry.resource_version = resource_version;
        let first = entry.sightings.first;
        entry.sightings = Sightings { held, first, changed: Some(now), missed: false, lapsed: false };
        // One that ends, or has begun anew, gave its links up itself.
        let goes_on = held && entry.holder == holder;
        entry.holder = holder;
        if entry.stored != stored {
            let told = told(node, &stored);
            news |= told != entry.told;
            let before = std::mem::replace(&mut entry.told, told);
            entry.stored = stored;
            if goes_on {
                let lost = &before.siblings - &entry.told.siblings;
                miss(&mut entries, &lost, now);
            }
        }
        news
    }

    /// Takes in a report, and returns its node if that is news to anybody.
    pub(crate) fn apply(&self, config: &ConfigMap, now: Instant) -> BTreeSet<String> {
        self.answered(now);
        let node = node_of(config).filter(|node| self.take(node, config, now));
        node.into_iter().collect()
    }

    /// Changes when an answer shows that etcd may have been restored. Watches that go on from the versions of before are silent until they are
    /// passed, so all is to be listed anew.
    pub(crate) fn restored(&self) -> watch::Receiver<()> {
        self.restored.subscribe()
    }

    /// The report of `node` was asked for, is known at that version, and is not there at `now`. The watches begin anew for it: once, and again only if they do
    /// not tell of it in a while.
    pub(crate) fn missing(&self, node: &str, seen: &str, now: Instant) {
        let mut absences = self.absences.lock();
        let entries = self.entries.read();
        let is_at =
            |node: &str, seen: &str| entries.get(node).is_some_and(|entry| entry.resource_version == seen);
        absences.retain(is_at);
        if is_at(node, seen) && absences.note(node, seen, now) {
            self.restored.send_replace(());
        }
    }

    /// Takes in a report that was asked for while `seen` was known of it, as [`Self::apply`] does. If nothing was told since, what is there is the
    /// truth, though its version be lower. Then it is known anew, as at the start: that its hub lives the next change shows.
    pub(crate) fn answer(&self, config: &ConfigMap, seen: &str, now: Instant) -> BTreeSet<String> {
        let version = config.resource_version().unwrap_or_default();
        if let Some(node) = node_of(config) {
            let mut entries = self.entries.write();
            let known = entries.get(&node).filter(|entry| entry.resource_version == seen);
            if known.is_some_and(|entry| entry.is_undone_by(&version)) {
                warn!(
                    node,
                    version, seen, "a report's version was set back: etcd was restored from a backup"
                );
                entries.remove(&node);
                self.restored.send_replace(());
            }
        }
        self.apply(config, now)
    }

    fn delete(&self, config: &ConfigMap) -> BTreeSet<String> {
        let gone = node_of(config).filter(|node| self.entries.write().remove(node).is_some());
        gone.into_iter().collect()
    }

    /// All are listed from `now` on.
    fn listing(&self, now: Instant) {
        *self.listing.lock() = Some(now);
    }

    /// These are all there are. One that was known at a later version is known anew, as [`Self::answer`] has it; unless that was told by an answer while the
    /// list was on its way, and may be newer than what the list has.
    fn replace(&self, configs: &[ConfigMap], now: Instant) -> BTreeSet<String> {
        let version = |config: &ConfigMap| config.resource_version().unwrap_or_default();
        let present: BTreeMap<String, String> =
            configs.iter().filter_map(|config| Some((node_of(config)?, version(config)))).collect();
        let mut touched = BTreeSet::new();
        let began = *self.listing.lock();
        self.entries.write().retain(|node, entry| {
            let may_be_newer = began.is_some_and(|began| entry.sightings.told() >= began);
            let stays = present.get(node).is_some_and(|version| may_be_newer || !entry.is_undone_by(version));
            if !stays {
                touched.insert(node.clone());
            }
            stays
        });
        touched.extend(configs.iter().flat_map(|config| self.apply(config, now)));
        touched
    }
}

/// A hub has lost its links to these: each of them is missed, unless another that lives has one, for then it was no end of theirs.
fn miss(entries: &mut BTreeMap<String, Entry>, lost: &BTreeSet<String>, now: Instant) {
    for sibling in lost {
        let has_link = |(node, entry): (&String, &Entry)| {
            let lives = entry.sightings.liveness(now).0 == Liveness::Alive;
            lives && node != sibling && entry.told.siblings.contains(sibling)
        };
        if entries.iter().any(has_link) {
            continue;
        }
        if let Some(sibling) = entries.get_mut(sibling) {
            sibling.sightings.missed = true;
        }
    }
}

/// Versions are numbers that grow, until etcd is restored. Should they ever not be, another one is a newer one.
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

fn told(node: &str, stored: &StoredReport) -> Told {
    match stored.read() {
        Ok(report) => Told {
            links: report.links.into_iter().map(|link| (link.node, link.round_trip_millis.max(0))).collect(),
            siblings: report.siblings.into_iter().collect(),
            silent: report.silent.into_iter().collect(),
            port: report.port,
            ways_in: report.ways_in.map(|ways| ways.into_iter().collect()),
        },
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            warn!(node, error, "the report of a gateway's tunnels cannot be read and counts as empty");
            Told::default()
        }
    }
}

fn node_of(config: &ConfigMap) -> Option<String> {
    config.metadata.name.as_deref()?.strip_prefix(GATEWAY_LEASE_PREFIX).map(str::to_owned)
}

/// The index of all of them. One watch fills it: RBAC and selectors know no beginning of names.
#[derive(Default)]
pub(crate) struct ConfigMaps {
    pub(crate) hubs: HubReports,
    named: ByName<ConfigMap>,
}

impl ConfigMaps {
    /// One of raven's, if it is there.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<ConfigMap>> {
        self.named.get(name)
    }
}

fn is_named(config: &ConfigMap) -> bool {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    [RAVEN_CONFIG_MAP, RAVEN_AGENT_CONFIG_MAP, TUNNEL_NODES_CONFIG_MAP].contains(&name)
}

impl Index<ConfigMap> for ConfigMaps {
    fn apply(&self, config: ConfigMap) -> BTreeSet<String> {
        if is_named(&config) { self.named.apply(config) } else { self.hubs.apply(&config, Instant::now()) }
    }

    fn delete(&self, config: ConfigMap) -> BTreeSet<String> {
        if is_named(&config) { self.named.delete(config) } else { self.hubs.delete(&config) }
    }

    fn listing(&self) {
        self.hubs.listing(Instant::now());
    }

    fn replace(&self, configs: Vec<ConfigMap>) -> BTreeSet<String> {
        let (named, others): (Vec<_>, Vec<_>) = configs.into_iter().partition(is_named);
        let mut touched = self.named.replace(named);
        touched.extend(self.hubs.replace(&others, Instant::now()));
        touched
    }

    fn interrupted(&self) {
        self.hubs.interrupted();
    }
}

#[cfg(test)]
mod tests;

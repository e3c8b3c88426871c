//! How loaded a node is, in steps with a margin: pure. A step is left only when the figure is clearly below it, so that a figure that
//! swings about a threshold is told once.

use std::sync::{Arc, OnceLock};

use api::slo::freshness::FreshnessState;
use api::slo::load::{Load, LoadStep, NodeLoadStatus};
use kube_wire::object::Object;
use kube_wire::resource_version::ResourceVersion;
use serde_json::{Map, Value, json};

use crate::ledger::{Selectable, Stored};
use crate::record::{MalformedRecord, Record, uid};
use crate::render::Allocatable;
use crate::reported::Reported;

mod thresholds;

pub use thresholds::{MalformedThresholds, Thresholds};

/// A share in millionths.
type Ppm = u64;

/// What steps are made of; absent is what is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    cpu: Option<Ppm>,
    memory: Option<Ppm>,
    cpu_pressure: Option<Ppm>,
    memory_pressure: Option<Ppm>,
    io_pressure: Option<Ppm>,
}

impl Figures {
    /// What a node reported, of what it has to give: averages over the policy's window.
    pub fn of(reported: &Reported, allocatable: Allocatable) -> Self {
        let used = reported.usage().usage.unwrap_or_default();
        let share = |used: Option<u64>, of: u64| {
            u64::try_from((u128::from(used?) * 1_000_000).checked_div(u128::from(of))?).ok()
        };
        let pressure = reported.usage().pressure.unwrap_or_default();
        let window =
            |stats: Option<node_report::report::PressureStats>| stats?.some?.window_ppm.map(u64::from);
        Self {
            cpu: share(used.cpu_milli, allocatable.cpu_milli),
            memory: share(used.memory_bytes, allocatable.memory_bytes),
            cpu_pressure: window(pressure.cpu),
            memory_pressure: window(pressure.memory),
            io_pressure: window(pressure.io),
        }
    }
}

impl Thresholds {
    /// The steps of these figures, after those that were before.
    pub fn judge(&self, before: Load, now: Figures) -> Load {
        let Self { cpu, memory, cpu_pressure, memory_pressure, io_pressure, hysteresis } = self;
        let step = |thresholds: &[u32], before: Option<LoadStep>, now: Option<Ppm>| {
            Some(step(thresholds, *hysteresis, before, now?))
        };
        Load {
            cpu: step(cpu, before.cpu, now.cpu),
            memory: step(memory, before.memory, now.memory),
            cpu_pressure: step(cpu_pressure, before.cpu_pressure, now.cpu_pressure),
            memory_pressure: step(memory_pressure, before.memory_pressure, now.memory_pressure),
            io_pressure: step(io_pressure, before.io_pressure, now.io_pressure),
        }
    }
}

/// The step of `now`, of thresholds in percent that rise. It may stay where it was before while `now` is within the margin.
fn step(thresholds: &[u32], margin: u32, before: Option<LoadStep>, now: Ppm) -> LoadStep {
    let ppm = |percent: u32| u64::from(percent) * 10_000;
    let crossed = thresholds.iter().take_while(|threshold| now >= ppm(**threshold)).count();
    // At a low threshold the margin is half of it: else it could never be left.
    let held = |threshold: u32| now >= ppm(threshold) - ppm(margin).min(ppm(threshold) / 2);
    let held = thresholds.iter().take_while(|threshold| held(**threshold)).count();
    let before = before.map_or(0, |before| usize::try_from(before.level).unwrap_or(0));
    let level = crossed.max(before.min(held));
    let at_least = level.checked_sub(1).and_then(|at| thresholds.get(at)).copied().unwrap_or(0);
    LoadStep {
        level: i32::try_from(level).unwrap_or(i32::MAX),
        at_least: i32::try_from(at_least).unwrap_or(i32::MAX),
    }
}

/// One version of one NodeLoad.
#[derive(Debug)]
pub struct LoadRecord {
    uid: String,
    created: Value,
    /// What it says.
    pub status: NodeLoadStatus,
    object: OnceLock<Arc<Object>>,
}

impl LoadRecord {
    /// That of a NodeMetric.
    pub fn of(record: &Record) -> Self {
        Self {
            uid: uid(record.uid()),
            created: record.metadata.get("creationTimestamp").cloned().unwrap_or_default(),
            status: NodeLoadStatus { state: record.freshness.state, load: record.load },
            object: OnceLock::new(),
        }
    }

    /// The same, for another version.
    pub(crate) fn again(&self) -> Self {
        let Self { uid, created, status, object: _ } = self;
        Self { uid: uid.clone(), created: created.clone(), status: *status, object: OnceLock::new() }
    }

    /// Whether a client would see no difference.
    pub fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.status == other.status
    }

    fn encode(&self, name: &str, version: u64, api_version: &str) -> Result<Vec<u8>, serde_json::Error> {
        let Self { uid, created, status, object: _ } = self;
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), name.into());
        metadata.insert("uid".to_owned(), uid.as_str().into());
        metadata.insert("resourceVersion".to_owned(), version.to_string().into());
        metadata.insert("creationTimestamp".to_owned(), created.clone());
        serde_json::to_vec(&json!({
            "apiVersion": api_version, "kind": "NodeLoad", "metadata": metadata, "spec": {}, "status": status,
        }))
    }
}

impl Selectable for LoadRecord {
    /// There are no labels.
    type Head = FreshnessState;

    fn head(&self) -> FreshnessState {
        self.status.state
    }
}

/// An object that has of one what selectors look at.
pub(crate) fn head(
    name: &str,
    state: FreshnessState,
    version: u64,
    api_version: &str,
) -> Result<Object, MalformedRecord> {
    let head = json!({
        "apiVersion": api_version, "kind": "NodeLoad", "metadata": { "name": name, "resourceVersion": version.to_string() },
        "spec": {}, "status": { "state": state },
    });
    Ok(Object::from_valid_json(serde_json::to_vec(&head)?.into())?)
}

/// The version as clients get it; made once.
pub(crate) fn object(stored: &Stored<LoadRecord>, api_version: &str) -> Result<Arc<Object>, MalformedRecord> {
    let record = &stored.value;
    if let Some(object) = record.object.get() {
        return Ok(Arc::clone(object));
    }
    let body = record.encode(&stored.name, stored.version, api_version)?;
    let object = Arc::new(Object::from_json(body.into())?);
    Ok(Arc::clone(record.object.get_or_init(|| object)))
}

/// The last state under the version of its end.
pub(crate) fn departed(
    last: &Stored<LoadRecord>,
    version: u64,
    api_version: &str,
) -> Result<Arc<Object>, MalformedRecord> {
    let object = object(last, api_version)?;
    Ok(ResourceVersion::new(version)
        .map_or_else(|| Arc::clone(&object), |version| Arc::new(object.with_resource_version(version))))
}

/// How many nodes are at each step of each figure, by the percent that is crossed; for metrics.
pub fn census<'a>(
    loads: impl Iterator<Item = &'a NodeLoadStatus>,
) -> std::collections::BTreeMap<(&'static str, i32), usize> {
    let mut counts = std::collections::BTreeMap::new();
    for NodeLoadStatus { load, .. } in loads.filter(|status| status.state == FreshnessState::Fresh) {
        let steps = [
            ("cpu", load.cpu),
            ("memory", load.memory),
            ("cpu_pressure", load.cpu_pressure),
            ("memory_pressure", load.memory_pressure),
            ("io_pressure", load.io_pressure),
        ];
        for (figure, step) in steps {
            if let Some(step) = step {
                *counts.entry((figure, step.at_least)).or_default() += 1;
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_left_only_beyond_the_margin() {
        let thresholds = [50, 65, 80];
        let mut before = None;
        let walk = [
            (49.9, 0, 0),
            (50.0, 1, 50),
            (46.0, 1, 50),
            (51.0, 1, 50),
            (45.0, 1, 50),
            (44.9, 0, 0),
            (81.0, 3, 80),
            (75.0, 3, 80),
            (74.0, 2, 65),
            (61.0, 2, 65),
            (10.0, 0, 0),
            (120.0, 3, 80),
        ];
        for (percent, level, at_least) in walk {
            // Percentages of this test are small and positive.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let now = step(&thresholds, 5, before, (percent * 10_000.0) as u64);
            assert_eq!(now, LoadStep { level, at_least }, "{percent} after {before:?}");
            before = Some(now);
        }
    }

    #[test]
    fn a_low_threshold_can_be_left_and_other_thresholds_are_taken_at_once() {
        let high = Some(LoadStep { level: 1, at_least: 4 });
        assert_eq!(step(&[4], 5, high, 20_000).level, 1);
        assert_eq!(step(&[4], 5, high, 19_999).level, 0);
        // The list became shorter, or ended: the level is never beyond it.
        let top = Some(LoadStep { level: 4, at_least: 90 });
        assert_eq!(step(&[50], 5, top, 480_000), LoadStep { level: 1, at_least: 50 });
        assert_eq!(step(&[], 5, top, 480_000), LoadStep { level: 0, at_least: 0 });
    }

    #[test]
    fn what_is_not_known_has_no_step() {
        let known = Figures { cpu: Some(0), ..Figures::default() };
        let before = Load { memory: Some(LoadStep { level: 1, at_least: 50 }), ..Load::default() };
        let load = Thresholds::default().judge(before, known);
        assert_eq!(load, Load { cpu: Some(LoadStep::default()), ..Load::default() });
    }
}

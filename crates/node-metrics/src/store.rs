//! All objects, and what is known of their nodes: a deterministic state machine. Time comes in; nothing here waits, locks or
//! knows who leads.
//!
//! ```text
//!  Following ──promote──► Warming ──99 % of live nodes are in, or the rest is declared gone──► Serving
//!      ▲                     └──────────────────────── demote ◄───────────────────────────────────┘
//! ```
//! While it follows it holds a copy of the leader's state, if it ever got a whole one. Only a serving store may be read: what it
//! does not hold then is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::slo::freshness::FreshnessState;
use jiff::Timestamp;
use node_report::{Answer, Verdict};
use serde_json::Value;

use crate::books::Books;
use crate::freshness::{Now, Rules, Silence};
use crate::ledger::Ledger;
use crate::load::{LoadRecord, Thresholds};
use crate::policy::NodePolicy;
use crate::record::Record;
use crate::reported::Reported;

mod copy;
mod node_facts;
mod reports;
mod settle;
mod warm;
mod write;

pub use copy::Copied;
pub use node_facts::NodeFacts;
pub use write::{MOST_WRITTEN, WriteError};

/// A copy whose leader was not heard of for so long says nothing of nodes any more. Leaders send bookmarks each minute.
const COPY_LIFE: Duration = Duration::from_secs(75);

/// So many versions below the ceiling are left to the count: a clock that leaps forward does not use them up, and the ceiling is raised
/// long before so many changes have come.
const COUNTED: u64 = 10_000_000;

/// What the store goes by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// How long nodes may be silent.
    pub rules: Rules,
}

/// Whether the store may be read, and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Another replica leads, or none.
    Following,
    /// This replica leads since then, and does not know enough yet.
    Warming {
        /// On the steady clock.
        since: Duration,
    },
    /// This replica leads, and what it does not hold is not there.
    Serving,
}

/// How much is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Nodes that are alive.
    pub live: usize,
    /// Those of them of which there is something.
    pub covered: usize,
    /// All objects.
    pub objects: usize,
}

/// What becomes of a report.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was looked at: taken, dropped, or a full one is needed.
    Judged {
        /// Which of them; never superseded.
        verdict: Verdict,
        /// What the answer says.
        reply: Box<Reply>,
    },
    /// The reporter knows a later leader.
    Superseded,
    /// There is no such Node.
    Unknown,
    /// This replica does not lead.
    NotLeading,
}

/// What the store has to say to a reporter.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The leader's term.
    pub epoch: u64,
    /// Which report is held: incarnation and number.
    pub held: Option<(u64, u64)>,
    /// What the node is to collect.
    pub policy: NodePolicy,
}

/// Where what is held comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// It was all served: by the leader that it is a copy of, or by this replica.
    Served,
    /// There may be something that this replica made up and served to nobody.
    Own,
}

/// What a copy was told of how that changes by which selectors choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reselections {
    /// All since it was last whole.
    Told,
    /// Not all; its leader's stream tells them now.
    Missed,
    /// Nothing: its leader's stream does not tell them.
    Untold,
}

/// The state machine.
#[derive(Debug)]
pub struct Store {
    settings: Settings,
    thresholds: Thresholds,
    ledger: Books,
    nodes: BTreeMap<Arc<str>, Tracked>,
    nodes_listed: bool,
    phase: Phase,
    epoch: u64,
    copied: bool,
    reselections: Reselections,
    /// When the copy last heard of its leader.
    copied_at: Option<Duration>,
    origin: Origin,
    /// Whether the leadership began with a copy that was fresh: what it says of a node counts until the node reports.
    warm: bool,
    /// When the copy last had all that its leader served.
    complete_at: Option<Duration>,
    /// How long that was before this leadership, if it began with what was served.
    lag: Option<Duration>,
    /// When the leadership began.
    began: Duration,
    /// When it was last looked at whether enough is known.
    looked: Duration,
    /// When this leadership was last known to be one: a process that stands still learns only afterwards that its own is over.
    led: Duration,
}

/// A Node, and how it reports to this leader.
#[derive(Debug)]
struct Tracked {
    facts: NodeFacts,
    reported: Option<Arc<Reported>>,
    /// The last report, or the beginning of this leadership.
    heard: Duration,
    /// The interval that the answer to the last report asked for: the node goes by it until it hears another.
    told: Duration,
    /// `None`: it has never reported to anybody.
    silence: Option<Silence>,
    /// Its object was served by the leader before, whatever that knew of it.
    inherited: bool,
    /// The `spec` that this leader last made its object say, which somebody else may have written over since.
    settled: Option<Arc<Value>>,
}

/// What condition `NodeMetricFresh` of a Node says, and what it should say; never stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// What it says, as far as is known here; `None`: there is none.
    pub before: Option<Silence>,
    /// What it should say.
    pub now: Silence,
}

impl Store {
    /// An empty one that follows.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            thresholds: Thresholds::default(),
            ledger: Books::default(),
            nodes: BTreeMap::new(),
            nodes_listed: false,
            phase: Phase::Following,
            epoch: 0,
            copied: false,
            reselections: Reselections::Missed,
            copied_at: None,
            origin: Origin::Own,
            warm: false,
            complete_at: None,
            lag: None,
            began: Duration::ZERO,
            looked: Duration::ZERO,
            led: Duration::ZERO,
        }
    }

    /// The objects in the order of their changes.
    pub fn ledger(&self) -> &Ledger<Record> {
        &self.ledger
    }

    /// How loaded nodes are, in the order of changes.
    pub fn loads(&self) -> &Ledger<LoadRecord> {
        self.ledger.loads()
    }

    /// Judges loads by these from the next reports on.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// Whether it may be read.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The term of this leadership, or of the last.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many nodes are in which state, for metrics.
    pub fn states(&self) -> BTreeMap<FreshnessState, usize> {
        let mut states = BTreeMap::new();
        for tracked in self.nodes.values() {
            *states.entry(tracked.silence.map_or(FreshnessState::NeverReported, Into::into)).or_default() +=
                1;
        }
        states
    }

    /// Versions stay at or below this: it was made known, so that the next leader begins above.
    pub fn set_ceiling(&mut self, ceiling: u64) {
        self.ledger.set_ceiling(ceiling.saturating_sub(COUNTED));
    }

    /// Begins to lead: above every version up to `floor`, which an earlier leader may have told of. Returns the term.
    pub fn promote(&mut self, now: Now, floor: u64) -> u64 {
        let missed = floor > self.ledger.last();
        self.ledger.begin_above(floor.max(self.ledger.last()).max(now.micros()));
        self.ledger.set_ceiling(u64::MAX);
        self.epoch = self.ledger.last();
        if self.reselections != Reselections::Told {
            self.ledger.forget_reselections();
        }
        if missed {
            self.ledger.restamp();
        }
        self.phase = Phase::Warming { since: now.steady };
        self.began = now.steady;
        self.led = now.steady;
        self.warm = self.copied_at.is_some_and(|at| now.steady.saturating_sub(at) <= COPY_LIFE);
        let is_served = self.warm && self.origin == Origin::Served;
        self.lag = self.complete_at.filter(|_| is_served).map(|at| now.steady.saturating_sub(at));
        for name in self.of_former_nodes() {
            self.ledger.remove(&name, now.micros());
        }
        let (rules, lag) = (self.settings.rules, self.lag);
        for tracked in self.nodes.values_mut() {
            let record = self.ledger.get(&tracked.facts.name);
            // What an earlier attempt to lead made up was served by nobody.
            tracked.inherited =
                self.warm && record.is_some() && (self.origin == Origin::Served || tracked.inherited);
            tracked.reported = None;
            tracked.heard = now.steady;
            tracked.told = Duration::ZERO;
            tracked.settled = None;
            let state = record.map(|record| record.value.freshness.state);
            tracked.silence = settle::known_before(state, &tracked.facts, rules, lag);
        }
        self.origin = Origin::Own;
        // Its watch of Nodes may lag behind its copy: objects without a Node stay until somebody has looked.
        self.settle(now);
        self.epoch
    }

    /// Whether the leadership began with a fresh copy.
    pub fn is_warm(&self) -> bool {
        self.warm
    }

    /// Ceases to lead. What it holds becomes a copy that may lag: it is as old as the last [`tick`](Self::tick), since others may have led
    /// for long when a process that stood still finds out.
    pub fn demote(&mut self) {
        if self.phase == Phase::Serving {
            self.copied_at = Some(self.led);
            self.complete_at = Some(self.led);
            self.origin = Origin::Served;
        }
        self.phase = Phase::Following;
        self.copied = false;
        for tracked in self.nodes.values_mut() {
            tracked.reported = None;
        }
    }

    /// Takes in a Node as it is now.
    pub fn node_applied(&mut self, now: Now, facts: NodeFacts) {
        let name = Arc::clone(&facts.name);
        match self.nodes.get_mut(&name) {
            Some(tracked) if tracked.facts.uid == facts.uid => tracked.facts = facts,
            _ => {
                // A Node of another identity begins anew.
                let former = self.nodes.get(&name).map(|tracked| &tracked.facts);
                let held = self.ledger.get(&name).filter(|_| self.phase != Phase::Following);
                if held.is_some_and(|held| settle::is_replaced(&held.value, former, &facts)) {
                    self.ledger.remove(&name, now.micros());
                }
                let record = self.ledger.get(&name).map(|record| record.value.freshness.state);
                let lag = self.lag.filter(|_| self.phase != Phase::Following);
                let silence = settle::known_before(record, &facts, self.settings.rules, lag);
                // A watch of Nodes that lags behind the copy: the object came with that.
                let inherited =
                    self.warm && self.phase != Phase::Following && self.ledger.get(&name).is_some();
                let (heard, told) = (now.steady, Duration::ZERO);
                let (reported, settled) = (None, None);
                let tracked = Tracked { facts, reported, heard, told, silence, inherited, settled };
                self.nodes.insert(Arc::clone(&name), tracked);
            }
        }
        if self.phase != Phase::Following {
            self.settle_node(&name, now);
        }
    }

    /// The Node of this UID is gone, and its NodeMetric with it; that of a later Node of its name stays.
    pub fn node_deleted(&mut self, now: Now, name: &str, uid: &str) {
        if self.nodes.get(name).is_none_or(|tracked| tracked.facts.uid == uid) {
            self.nodes.remove(name);
            self.remove_of(now, name, uid);
        }
    }

    /// All Nodes have been taken in; these are their names. A Node that was known and is not among them is gone. Of an object whose Node was
    /// never known here the list says nothing, which may have begun before there was that Node: it is among the [`Store::orphans`].
    pub fn nodes_listed(&mut self, now: Now, names: &BTreeSet<Arc<str>>) {
        self.nodes_listed = true;
        let (kept, gone) =
            std::mem::take(&mut self.nodes).into_iter().partition(|(name, _)| names.contains(name));
        self.nodes = kept;
        let gone: BTreeMap<Arc<str>, Tracked> = gone;
        for (name, tracked) in &gone {
            self.remove_of(now, name, &tracked.facts.uid);
        }
        if self.phase != Phase::Following {
            self.settle(now);
        }
    }

    /// How long ago a node was heard (`None`: never by this leader), and how often it is to report; `None` if there is no such Node.
    pub fn silence(&self, name: &str, now: Now) -> Option<(Option<Duration>, Duration)> {
        let Tracked { facts, reported, heard, .. } = self.nodes.get(name)?;
        let silent = reported.as_ref().map(|_| now.steady.saturating_sub(*heard));
        Some((silent, facts.policy.interval))
    }

    /// The answer to the report that was just judged asks the node for this interval.
    pub fn ask_for(&mut self, name: &str, interval: Duration) {
        if let Some(tracked) = self.nodes.get_mut(name) {
            // Hubs take no longer one for what they were told.
            tracked.told = tracked.told.max(interval.min(Answer::LONGEST_INTERVAL));
        }
    }

    /// What condition `NodeMetricFresh` of Nodes should say and does not, by name.
    pub fn conditions(&self) -> Vec<(Arc<str>, Transition)> {
        if self.phase != Phase::Serving {
            return Vec::new();
        }
        let wrong = |(name, tracked): (&Arc<str>, &Tracked)| {
            // Of the stale nothing is sure: their condition stays.
            let now = tracked.silence.filter(|silence| *silence != Silence::Stale)?;
            let before = tracked.facts.condition;
            (before != Some(now)).then(|| (Arc::clone(name), Transition { before, now }))
        };
        self.nodes.iter().filter_map(wrong).collect()
    }
}

fn seconds(time: Timestamp) -> Timestamp {
    time.round(jiff::Unit::Second).unwrap_or(time)
}

#[cfg(test)]
mod tests;

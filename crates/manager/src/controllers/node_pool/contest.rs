//! Pure: whether somebody else keeps undoing what a pool writes on a node, and when to write it next.
//!
//! Comes in: what is to be written, what was written, and the time. A value that was written and must be written again
//! was undone. Once or twice that is drift, which is repaired at once; past [`LIMIT`] within a [`WINDOW`] it is a
//! contest, and writes of nothing but such values are spaced ever wider until nobody undoes them any more. What else a pool
//! has to write on the node never waits for it. It must not write or wait.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use api::annotations::PREVIOUS_ATTRIBUTES;

use super::ownership::Attributes;
use super::plan::NodePatch;

/// How often a value may have to be written again within a [`WINDOW`] before it counts as contested.
const LIMIT: u32 = 5;

/// For how long rewrites are counted, and for how long at least nobody may undo a write for a contest to be over.
const WINDOW: Duration = Duration::from_mins(1);

/// How long a contested node is left alone first; it doubles with each write that is undone.
const FIRST_HOLD: Duration = Duration::from_secs(10);

/// The longest that a contested node is left alone.
const LAST_HOLD: Duration = Duration::from_mins(5);

/// What can be contested on a node.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Field {
    Label(String),
    Annotation(String),
    /// Key and effect, as `key:effect`.
    Taint(String),
}

impl Field {
    /// Whether the pool wants a value of it.
    fn is_wanted(&self, wanted: &Attributes) -> bool {
        let Attributes { labels, annotations, taints } = wanted;
        match self {
            Self::Label(key) => labels.contains_key(key),
            Self::Annotation(key) => key == PREVIOUS_ATTRIBUTES || annotations.contains_key(key),
            Self::Taint(name) => taints.iter().any(|taint| taint.name() == *name),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Self::Label(name) => ("label", name),
            Self::Annotation(name) => ("annotation", name),
            Self::Taint(name) => ("taint", name),
        };
        write!(f, "{kind} {name}")
    }
}

/// A node that somebody else keeps writing as well.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contest {
    /// What they write.
    pub(crate) fields: BTreeSet<Field>,
    /// The other field managers; `None` if they have not been looked for.
    pub(crate) rivals: Option<BTreeSet<String>>,
    /// How many times the node was written since.
    tries: u32,
    /// When it may be written again.
    next: Instant,
    /// When the contest is over, if there is nothing to write then.
    calm_at: Instant,
    /// Whether there was something to write when the node was looked at last.
    pending: bool,
}

impl Contest {
    fn new(fields: BTreeSet<Field>, now: Instant) -> Self {
        let mut contest = Self { fields, rivals: None, tries: 0, next: now, calm_at: now, pending: true };
        contest.hold(now);
        contest
    }

    fn hold(&mut self, now: Instant) {
        let hold = FIRST_HOLD.saturating_mul(1 << self.tries.min(6)).min(LAST_HOLD);
        self.next = now + hold;
        self.calm_at = now + hold.max(WINDOW);
    }

    /// When to look at the node again.
    pub(crate) fn look_at(&self) -> Instant {
        if self.pending { self.next } else { self.calm_at }
    }

    /// Whether the other managers should be looked for: what they wrote stands on the node now.
    pub(crate) fn is_unexplained(&self) -> bool {
        self.rivals.is_none() && self.pending
    }
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |names: Vec<String>| names.join(", ");
        let rivals: Vec<String> = self.rivals.iter().flatten().cloned().collect();
        write!(
            f,
            "{} is changed again and again by {}; remove it from the pool, or keep the other from writing it; until then \
             it is tried ever more seldom",
            join(self.fields.iter().map(ToString::to_string).collect()),
            if rivals.is_empty() { "somebody else".to_owned() } else { join(rivals) },
        )
    }
}

/// A value that was written.
#[derive(Debug)]
struct Deed {
    field: u64,
    value: u64,
    at: Instant,
    /// How often it was written again since `since`.
    rewrites: u32,
    since: Instant,
}

#[derive(Debug, Default)]
struct History {
    /// The pool that last looked at the node: another's quarrel is not its own.
    pool: Option<String>,
    deeds: Vec<Deed>,
    contest: Option<Contest>,
}

/// What was written on which node of late, and the contests.
#[derive(Debug, Default)]
pub(crate) struct Contests {
    nodes: HashMap<String, History>,
    swept: Option<Instant>,
}

impl History {
    /// Forgets a quarrel of another pool, and one about what the pool no longer wants.
    fn look(&mut self, pool: &str, wanted: &Attributes) {
        if self.pool.as_deref().is_some_and(|other| other != pool) {
            *self = Self::default();
        }
        self.pool.get_or_insert_with(|| pool.to_owned());
        if let Some(contest) = &mut self.contest {
            contest.fields.retain(|field| field.is_wanted(wanted));
            if contest.fields.is_empty() {
                self.contest = None;
            }
        }
    }
}

impl Contests {
    /// Takes out of `patches` those that must wait, and returns the contests of the nodes `looked_at`, members and leavers of
    /// `pool`, which wants `wanted` of its members.
    pub(crate) fn review<'a>(
        &mut self,
        pool: &str,
        wanted: &Attributes,
        patches: &mut Vec<NodePatch>,
        looked_at: impl Iterator<Item = &'a str>,
        now: Instant,
    ) -> BTreeMap<String, Contest> {
        if self.nodes.is_empty() {
            return BTreeMap::new();
        }
        let looked_at: Vec<&str> = looked_at.collect();
        for node in &looked_at {
            if let Some(history) = self.nodes.get_mut(*node) {
                history.look(pool, wanted);
            }
        }
        let pending: BTreeSet<String> = patches.iter().map(|patch| patch.node.clone()).collect();
        patches.retain(|patch| self.may_write(patch, now));
        let mut contests = BTreeMap::new();
        for node in looked_at {
            let Some(history) = self.nodes.get_mut(node) else { continue };
            let Some(contest) = &mut history.contest else { continue };
            contest.pending = pending.contains(node);
            if !contest.pending && now >= contest.calm_at {
                history.contest = None;
            } else {
                contests.insert(node.to_owned(), contest.clone());
            }
        }
        contests
    }

    /// Whether the patch may be written now.
    fn may_write(&mut self, patch: &NodePatch, now: Instant) -> bool {
        let Some(History { pool: _, deeds, contest }) = self.nodes.get_mut(&patch.node) else { return true };
        let is_contested = |(field, value): &(Field, Option<&str>)| {
            let (field, value) = (fingerprint(field), fingerprint(value));
            deeds.iter().any(|deed| {
                let rewrites = if now < deed.since + WINDOW { deed.rewrites } else { 0 };
                (deed.field, deed.value) == (field, value) && rewrites >= LIMIT
            })
        };
        let contested: BTreeSet<Field> = writes(patch).filter(is_contested).map(|(field, _)| field).collect();
        // The record only follows what it records.
        let is_known = |(field, value): (Field, Option<&str>)| {
            let fought = contest.as_ref().is_some_and(|contest| contest.fields.contains(&field));
            let repeated = deeds
                .iter()
                .any(|deed| (deed.field, deed.value) == (fingerprint(&field), fingerprint(&value)));
            contested.contains(&field)
                || (fought && repeated)
                || matches!(&field, Field::Annotation(key) if key == PREVIOUS_ATTRIBUTES)
        };
        let has_news = !writes(patch).all(is_known);
        match contest {
            // It takes the contested values along: one more rewrite a piece of news, and no more.
            Some(contest) if has_news => {
                contest.fields.extend(contested);
                true
            }
            Some(contest) => {
                contest.fields.extend(contested);
                let may = now >= contest.next;
                if may {
                    contest.tries += 1;
                    contest.hold(now);
                }
                may
            }
            None if contested.is_empty() || has_news => true,
            None => {
                *contest = Some(Contest::new(contested, now));
                false
            }
        }
    }

    /// Remembers that `patch` was written at `now`.
    pub(crate) fn note_written(&mut self, patch: &NodePatch, now: Instant) {
        self.sweep(now);
        let deeds = &mut self.nodes.entry(patch.node.clone()).or_default().deeds;
        for (field, value) in writes(patch) {
            let (field, value) = (fingerprint(&field), fingerprint(&value));
            match deeds.iter_mut().find(|deed| deed.field == field) {
                Some(deed) if deed.value == value && now < deed.since + WINDOW => {
                    (deed.rewrites, deed.at) = (deed.rewrites + 1, now);
                }
                Some(deed) => {
                    let rewrites = u32::from(deed.value == value);
                    *deed = Deed { field, value, at: now, rewrites, since: now };
                }
                None => deeds.push(Deed { field, value, at: now, rewrites: 0, since: now }),
            }
        }
    }

    /// Remembers who else writes the contested fields of `node`.
    pub(crate) fn name_rivals(&mut self, node: &str, rivals: &BTreeSet<String>) {
        if let Some(contest) = self.nodes.get_mut(node).and_then(|history| history.contest.as_mut()) {
            contest.rivals = Some(rivals.clone());
        }
    }

    /// Forgets what is too long ago to count, once a [`WINDOW`].
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|swept| now < swept + WINDOW) {
            return;
        }
        self.swept = Some(now);
        self.nodes.retain(|_, history| {
            // A contest is about what was written, however long ago.
            if history.contest.is_none() {
                history.deeds.retain(|deed| now < deed.at + WINDOW);
            }
            match &history.contest {
                None => !history.deeds.is_empty(),
                Some(contest) => now < contest.calm_at + LAST_HOLD,
            }
        });
        self.nodes.shrink_to_fit();
    }
}

/// What a patch writes; `None` for what it removes.
fn writes(patch: &NodePatch) -> impl Iterator<Item = (Field, Option<&str>)> {
    let NodePatch { node: _, resource_version: _, labels, annotations, taints: _, taint_changes } = patch;
    let labels = labels.iter().map(|(key, value)| (Field::Label(key.clone()), value.as_deref()));
    let annotations =
        annotations.iter().map(|(key, value)| (Field::Annotation(key.clone()), value.as_deref()));
    let taints = taint_changes.iter().map(|(key, value)| (Field::Taint(key.clone()), value.as_deref()));
    labels.chain(annotations).chain(taints)
}

/// Values are long, nodes are many, and only whether two are the same is asked.
fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Who, apart from `us`, is on record as a writer of any of `fields`.
pub(crate) fn rivals(managed: &[ManagedFieldsEntry], fields: &BTreeSet<Field>, us: &str) -> BTreeSet<String> {
    let owns = |entry: &ManagedFieldsEntry| {
        let Some(owned) = &entry.fields_v1 else { return false };
        fields.iter().any(|field| {
            let place = match field {
                Field::Label(key) => &owned.0["f:metadata"]["f:labels"][format!("f:{key}")],
                Field::Annotation(key) => &owned.0["f:metadata"]["f:annotations"][format!("f:{key}")],
                // The list is owned as a whole.
                Field::Taint(_) => &owned.0["f:spec"]["f:taints"],
            };
            !place.is_null()
        })
    };
    let others = managed.iter().filter(|entry| owns(entry)).filter_map(|entry| entry.manager.clone());
    others.filter(|manager| manager != us).collect()
}

#[cfg(test)]
mod tests;

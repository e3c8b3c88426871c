//! Who owns which fields: `metadata.managedFields`, kept at every write, and server-side apply. After `structured-merge-diff` and the field manager of the
//! API server, with a resource's one version: sets of fields, a comparison of two objects, and entries by manager.

use jiff::Timestamp;
use kube_wire::status::{Status, StatusCause, StatusDetails};
use serde_json::{Map, Value, json};

use crate::{field_error::failure, metadata};

mod atom;
mod compare;
mod entries;
mod field_set;
mod merge;
mod typed;

pub(crate) use self::atom::Atom;
use self::{
    compare::{Comparison, compare},
    entries::{Entry, Operation},
    field_set::{FieldSet, PathElement},
    merge::{merge, without},
    typed::{field_set, misfits},
};

/// Who writes, and what.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    /// `status`, or nothing.
    pub(crate) subresource: &'a str,
    /// Whether the status is another path's to write.
    pub(crate) has_status: bool,
    pub(crate) now: Timestamp,
}

impl Writer<'_> {
    /// What of the object is not this path's to write, and so not its writers' to own.
    fn others(&self) -> &'static [&'static str] {
        match (self.subresource, self.has_status) {
            ("", true) => &["status"],
            ("", false) => &[],
            _ => &["metadata", "spec"],
        }
    }

    fn entry(&self, operation: Operation, set: FieldSet) -> Entry {
        Entry {
            manager: if self.manager.is_empty() { "unknown" } else { self.manager }.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            time: None,
            subresource: self.subresource.to_owned(),
            set,
        }
    }

    fn time(&self) -> String {
        metadata::rfc3339(self.now)
    }
}

/// Whether two entries are of one manager: one that applies is the same in any version.
fn same_manager(a: &Entry, b: &Entry) -> bool {
    let key = |entry: &Entry| (entry.manager.clone(), entry.operation, entry.subresource.clone());
    key(a) == key(b) && (a.operation == Operation::Apply || a.api_version == b.api_version)
}

/// How many managers that update are told apart; the oldest above that become one.
const UPDATERS_MAX: usize = 10;
const OLD_UPDATERS: &str = "ancient-changes";
const BEFORE: &str = "before-first-apply";

/// Fields that belong to the server.
const SERVERS: [&[&str]; 11] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

fn stripped(set: &FieldSet) -> FieldSet {
    let mut servers = FieldSet::default();
    for path in SERVERS {
        let path: Vec<_> = path.iter().map(|name| PathElement::field(name)).collect();
        servers.insert(&path);
    }
    set.difference(&servers)
}

fn without_managed_fields(object: &Map<String, Value>) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Value::Object(object)
}

/// Records in `new` who owns what after an update or a creation (then there is no `old`).
///
/// An object that nobody's fields were recorded of is left so: whoever made it did not want it.
pub(crate) fn updated(
    old: Option<&Map<String, Value>>,
    new: &mut Map<String, Value>,
    atom: &Atom,
    writer: &Writer<'_>,
) {
    let live = || old.and_then(entries::read).unwrap_or_default();
    let entries = if !writer.subresource.is_empty() {
        live()
    } else if entries::are_reset(new) {
        Vec::new()
    } else {
        entries::read(new).filter(|entries| !entries.is_empty()).unwrap_or_else(live)
    };
    if entries.is_empty() && old.is_some() {
        metadata::of(new).remove("managedFields");
        return;
    }
    let empty = json!({ "apiVersion": new.get("apiVersion"), "kind": new.get("kind") });
    let before = old.map_or(empty, without_managed_fields);
    let after = without_managed_fields(new);
    // What cannot be merged is not kept: validation refuses it in a moment.
    let kept = record(&before, &after, atom, entries, writer).unwrap_or_default();
    entries::write(new, kept);
}

/// The entries after an update.
fn record(
    before: &Value,
    after: &Value,
    atom: &Atom,
    mut entries: Vec<Entry>,
    writer: &Writer<'_>,
) -> Result<Vec<Entry>, String> {
    if let Some(misfit) = misfits(after, atom, true).into_iter().next() {
        return Err(misfit);
    }
    entries.retain(|entry| entry.api_version == writer.api_version);
    let comparison = filtered(compare(before, after, atom)?, writer);
    for entry in &mut entries {
        let taken = comparison.added.union(&comparison.modified);
        entry.set = entry.set.difference(&taken).difference(&comparison.removed);
    }
    let own = stripped(&comparison.modified.union(&comparison.added));
    let identity = writer.entry(Operation::Update, FieldSet::default());
    // Its earlier fields were taken from it as from anybody.
    let earlier =
        entries.iter().position(|entry| same_manager(entry, &identity)).map(|at| entries.remove(at));
    entries.retain(|entry| !entry.set.is_empty());
    let earlier = earlier.filter(|entry| !entry.set.is_empty());
    if own.is_empty() {
        entries.extend(earlier);
    } else {
        let set = earlier.map_or_else(|| own.clone(), |earlier| own.union(&earlier.set));
        entries.push(Entry { time: Some(writer.time()), set, ..identity });
    }
    Ok(capped(entries))
}

/// Without what is not this path's to write.
fn filtered(comparison: Comparison, writer: &Writer<'_>) -> Comparison {
    let Comparison { added, modified, removed } = comparison;
    let others = writer.others();
    Comparison {
        added: added.without_tops(others),
        modified: modified.without_tops(others),
        removed: removed.without_tops(others),
    }
}

/// Makes the oldest of too many updaters one.
fn capped(entries: Vec<Entry>) -> Vec<Entry> {
    let (mut updaters, mut kept): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.operation == Operation::Update);
    if updaters.len() > UPDATERS_MAX {
        updaters.sort_by_key(|entry| (entry.time.clone(), entry.identifier()));
        let newer = updaters.split_off(updaters.len() - UPDATERS_MAX + 1);
        let mut old = updaters.into_iter();
        if let Some(first) = old.next() {
            let one =
                old.fold(first, |one, next| Entry { set: one.set.union(&next.set), time: next.time, ..one });
            kept.push(Entry { manager: OLD_UPDATERS.to_owned(), subresource: String::new(), ..one });
        }
        updaters = newer;
    }
    kept.extend(updaters);
    kept
}

/// What came of a configuration.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) object: Map<String, Value>,
    /// Whether it is another object than before, but for who owns what.
    pub(crate) changed: bool,
}

/// Server-side apply: what the object becomes when `config` is applied to `live` (an object with a kind alone, if there is none). Status 409 if others own
/// what would change, unless that is forced; status 500 if the configuration has not the types of the schema.
pub(crate) fn applied(
    live: &Map<String, Value>,
    config: &Map<String, Value>,
    atom: &Atom,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Applied, Status> {
    let failed = |why: String| Status::untranslated(why);
    let mut entries = entries::read(live).unwrap_or_default();
    let live_value = without_managed_fields(live);
    if entries.is_empty() {
        // Nobody recorded who made it: somebody before.
        let empty = json!({ "apiVersion": writer.api_version, "kind": live.get("kind") });
        let before = Writer { manager: BEFORE, ..*writer };
        entries = record(&empty, &live_value, atom, entries, &before).map_err(failed)?;
    }
    entries.retain(|entry| entry.api_version == writer.api_version);
    let config_value = Value::Object(config.clone());
    let wrong = misfits(&config_value, atom, false);
    if !wrong.is_empty() {
        let text = |name: &str| metadata::text(config, name);
        let kind = config.get("kind").and_then(Value::as_str).unwrap_or_default();
        let wrong = match &wrong[..] {
            [one] => one.clone(),
            many => format!("errors:\n  {}", many.join("\n  ")),
        };
        return Err(Status::untranslated(format!(
            "failed to create typed patch object ({}/{}; {}, Kind={kind}): {wrong}",
            text("namespace"),
            text("name"),
            writer.api_version,
        )));
    }
    let merged = merge(&live_value, &config_value, atom)
        .map_err(|why| failed(format!("failed to merge config: {why}")))?;
    let identity =
        writer.entry(Operation::Apply, field_set(&config_value, atom).without_tops(writer.others()));
    let last = entries.iter().position(|entry| same_manager(entry, &identity)).map(|at| entries.remove(at));
    let merged = match &last {
        Some(last) if !last.set.is_empty() => {
            let managed = entries.iter().fold(identity.set.clone(), |all, entry| all.union(&entry.set));
            pruned(&merged, &last.set, &managed, atom)
        }
        _ => merged,
    };
    let comparison = compare(&live_value, &merged, atom);
    let comparison =
        filtered(comparison.map_err(|why| failed(format!("failed to compare objects: {why}")))?, writer);
    let taken = comparison.modified.union(&comparison.added);
    if !force {
        conflicts(&entries, &taken)?;
    }
    for entry in &mut entries {
        entry.set = entry.set.difference(&taken).difference(&comparison.removed);
    }
    let changed = !field_set::same(&live_value, &merged);
    let own = Entry { set: stripped(&identity.set), ..identity };
    let time = if changed { Some(writer.time()) } else { last.and_then(|last| last.time) };
    entries.push(Entry { time, ..own });
    entries.retain(|entry| !entry.set.is_empty());
    let Value::Object(mut object) = (if changed { merged } else { live_value }) else {
        return Err(Status::internal_error("apply lost the object"));
    };
    entries::write(&mut object, entries);
    Ok(Applied { object, changed })
}

/// Removes what was applied before (`last`), is not now, and is managed by nobody.
fn pruned(merged: &Value, last: &FieldSet, managed: &FieldSet, atom: &Atom) -> Value {
    let fields = |value: &Value| field_set(value, atom).with_named(atom);
    let last = last.with_named(atom);
    let all = fields(merged);
    let rest = fields(&without(merged, &last, atom));
    // Back comes what somebody owns, and what within it nobody does and was not applied before.
    let rest = without(merged, &all.difference(&rest.union(&managed.with_named(atom))), atom);
    without(merged, &all.difference(&fields(&rest)).intersection(&last), atom)
}

/// Status 409 about every field that another manager owns and that would change.
fn conflicts(entries: &[Entry], taken: &FieldSet) -> Result<(), Status> {
    let mut found: Vec<_> = entries
        .iter()
        .map(|entry| (entry.identifier(), entry.describe(), entry.set.intersection(taken).paths()))
        .filter(|(.., fields)| !fields.is_empty())
        .collect();
    found.sort();
    let cause = |who: &str, field: &String| StatusCause {
        reason: "FieldManagerConflict".to_owned(),
        message: format!("conflict with {who}"),
        field: field.clone(),
    };
    let causes: Vec<_> =
        found.iter().flat_map(|(_, who, fields)| fields.iter().map(|field| cause(who, field))).collect();
    let message = match (&found[..], causes.len()) {
        ([], _) => return Ok(()),
        ([(_, who, fields)], 1) => {
            format!("Apply failed with 1 conflict: conflict with {who}: {}", fields[0])
        }
        (all, count) => {
            let lines = |(_, who, fields): &(String, String, Vec<String>)| {
                let fields: Vec<_> = fields.iter().map(|field| format!("- {field}")).collect();
                format!("conflicts with {who}:\n{}", fields.join("\n"))
            };
            let all: Vec<_> = all.iter().map(lines).collect();
            format!("Apply failed with {count} conflicts: {}", all.join("\n"))
        }
    };
    let details = StatusDetails { causes, ..StatusDetails::default() };
    Err(failure(409, "Conflict", message, Some(details)))
}

/// Whether two objects differ in nothing but the times at which their managers wrote, which are then not worth a write.
pub(crate) fn same_but_times(new: &Map<String, Value>, old: &Map<String, Value>) -> bool {
    let timeless = |object: &Map<String, Value>| {
        let mut entries = entries::read(object).unwrap_or_default();
        for entry in &mut entries {
            entry.time = None;
        }
        entries.sort_by_key(Entry::identifier);
        entries
    };
    without_managed_fields(new) == without_managed_fields(old) && timeless(new) == timeless(old)
}

#[cfg(test)]
mod tests;

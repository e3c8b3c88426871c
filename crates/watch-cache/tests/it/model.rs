//! What upstream did, as plain data, and what a reader must see of it. Written from the contract of list and watch; nothing
//! here uses the cache or its crates.

use std::collections::BTreeMap;

/// Where objects stand. As the bytes of `namespace/name` order them, `a-b/x` comes before `a/x`.
pub(crate) const KEYS: [(&str, &str); 6] =
    [("a", "x"), ("a", "y"), ("a-b", "x"), ("a0", "x"), ("b", "x"), ("b", "z")];

pub(crate) type Version = u64;

/// What selectors look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) app: u8,
    pub(crate) node: u8,
}

/// One revision: the object that stood there afterwards, if any.
pub(crate) type Revision = (Version, usize, Option<Facts>);

/// What a reader asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) namespace: Option<&'static str>,
    pub(crate) app: Option<(bool, u8)>,
    pub(crate) node: Option<u8>,
}

impl Pick {
    pub(crate) fn picks(&self, key: usize, facts: Facts) -> bool {
        self.namespace.is_none_or(|namespace| namespace == KEYS[key].0)
            && self.app.is_none_or(|(equal, app)| (facts.app == app) == equal)
            && self.node.is_none_or(|node| facts.node == node)
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.app.is_none() && self.node.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
}

/// One event of a watch. `version` is what its object says; `written` is at which version its content came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) kind: Kind,
    pub(crate) key: usize,
    pub(crate) version: Version,
    pub(crate) written: Version,
    pub(crate) facts: Facts,
}

/// The stream of a watch that saw everything up to `from` and has been told everything up to `to`.
pub(crate) fn expected(history: &[Revision], pick: &Pick, from: Version, to: Version) -> Vec<Told> {
    let mut state: BTreeMap<usize, (Version, Facts)> = BTreeMap::new();
    let mut stream = Vec::new();
    for &(version, key, facts) in history.iter().filter(|revision| revision.0 <= to) {
        let before = state.get(&key).copied().filter(|(_, facts)| pick.picks(key, *facts));
        let after = facts.filter(|facts| pick.picks(key, *facts));
        let told = match (before, after) {
            (None, None) => None,
            (None, Some(facts)) => Some((Kind::Added, version, facts)),
            (Some(_), Some(facts)) => Some((Kind::Modified, version, facts)),
            (Some((written, facts)), None) => Some((Kind::Deleted, written, facts)),
        };
        stream.extend(told.filter(|_| version > from).map(|(kind, written, facts)| Told {
            kind,
            key,
            version,
            written,
            facts,
        }));
        match facts {
            Some(facts) => state.insert(key, (version, facts)),
            None => state.remove(&key),
        };
    }
    stream
}

/// The objects that are picked at a version, in the order of a list, as a watch tells them.
pub(crate) fn listed(history: &[Revision], pick: &Pick, at: Version) -> Vec<Told> {
    let mut objects: Vec<Told> = (0..KEYS.len())
        .filter_map(|key| {
            let newest = history.iter().rfind(|revision| revision.0 <= at && revision.1 == key)?;
            let facts = newest.2.filter(|facts| pick.picks(key, *facts))?;
            Some(Told { kind: Kind::Added, key, version: newest.0, written: newest.0, facts })
        })
        .collect();
    objects.sort_by_key(|told| format!("{}/{}", KEYS[told.key].0, KEYS[told.key].1));
    objects
}

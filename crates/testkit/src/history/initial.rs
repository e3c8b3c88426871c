//! The initial state of a watch: which version it is of, and whether it is whole.

use std::collections::BTreeMap;

use serde_json::Value;

use super::check::{Checking, are_same};
use super::{Change, End, Guarantee, Observation, Shown, Violation, is_same, key, version};

/// Finds the version the initial events of a session are the state at. Gives the number of observations that belong to
/// the state and that version; nothing if the session ended before the state was whole.
///
/// Without an end mark nobody says which version it is: each is tried. The latest is taken, which is the most lenient for
/// what follows; what follows decides between splits.
pub(super) fn initial_state(
    checking: &mut Checking<'_>,
    at_least: u64,
    bookmarks: bool,
) -> Result<Option<(usize, u64)>, Violation> {
    let observations = &checking.session.observations;
    let mark = observations.iter().enumerate().find_map(|(at, observation)| match observation {
        Observation::Bookmark { rv, initial_end: true } => Some((at, *rv)),
        _ => None,
    });
    // The sorted block of ADDED; what is not of it is live, and has no place before a mark.
    let mut block = Vec::<&Value>::new();
    for observation in observations {
        let Observation::Event(Change::Added, object) = observation else { break };
        if block.last().is_some_and(|last| key(last) >= key(object)) {
            break;
        }
        block.push(object);
    }
    if let Some((at, rv)) = mark {
        if rv < at_least {
            return checking.violation(
                Guarantee::Completeness,
                at,
                format!("{at_least} or later"),
                format!("the state at {rv}"),
            );
        }
        checking.advance(at, rv)?;
        if let Some(stray) = observations.iter().take(at).nth(block.len()) {
            return misplaced(checking, &block, stray);
        }
        let state: BTreeMap<String, &Value> = block.iter().map(|object| (key(object), *object)).collect();
        let expected = whole(checking, rv);
        let both = |key: &str| (expected.get(key).copied(), state.get(key).copied());
        let differs = |key: &&str| {
            let (theirs, ours) = both(key);
            !are_same(theirs, ours)
        };
        if let Some(key) = expected.keys().copied().chain(state.keys().map(String::as_str)).find(differs) {
            let (theirs, ours) = both(key);
            let shown = |object: Option<&Value>| {
                object.map_or("nothing".to_owned(), |object| format!("{key}: {object}"))
            };
            let selected = ours.is_none_or(|object| checking.session.scope.has(key, object));
            let guarantee = if selected { Guarantee::Completeness } else { Guarantee::Filter };
            return checking.violation(guarantee, at, shown(theirs), shown(ours));
        }
        return Ok(Some((at + 1, rv)));
    }
    if bookmarks && checking.session.end == End::Quiescent {
        let at = observations.len();
        return checking.violation(
            Guarantee::Completeness,
            at,
            "the mark of the initial state's end",
            "silence",
        );
    }
    // Broken before its end, or never marked.
    let newest = block.iter().map(|object| version(object)).max().unwrap_or(0);
    let mut candidates: Vec<_> = checking.epoch.revisions.iter().map(|revision| revision.rv).collect();
    candidates.push(checking.epoch.last().max(at_least));
    candidates.insert(0, 0);
    let ended = checking.session.end == End::Broken || bookmarks;
    let mut partial = false;
    for rv in candidates.into_iter().rev() {
        let upper = checking
            .epoch
            .revisions
            .iter()
            .find(|revision| revision.rv > rv)
            .map_or(u64::MAX, |next| next.rv - 1);
        if upper < at_least.max(newest) {
            break;
        }
        let expected = whole(checking, rv);
        let same = expected.values().zip(&block).take_while(|(ours, theirs)| is_same(ours, theirs)).count();
        if same == expected.len() && !bookmarks {
            let next = observations.get(same).map(|observation| match observation {
                Observation::Event(_, object) => version(object),
                Observation::Bookmark { rv, .. } => *rv,
                _ => u64::MAX,
            });
            if next.is_none_or(|next| next > rv) {
                return Ok(Some((same, rv)));
            }
        }
        partial = partial || (same == block.len() && block.len() == observations.len());
    }
    if ended && partial {
        return Ok(None);
    }
    let found: Vec<_> = block.iter().map(|object| format!("{}@{}", key(object), version(object))).collect();
    let expected = format!("the whole state at a version not before {}", at_least.max(newest));
    checking.violation(Guarantee::Completeness, block.len(), expected, found.join(" "))
}

/// Something stands before the mark of the state's end, behind `block`, that is not the next object of a list.
fn misplaced<T>(checking: &Checking<'_>, block: &[&Value], found: &Observation) -> Result<T, Violation> {
    let again = |object: &Value| block.iter().any(|shown| key(shown) == key(object));
    let guarantee = match found {
        Observation::Event(Change::Added, object) if again(object) => Guarantee::Unique,
        Observation::Event(Change::Added, _) => Guarantee::Ordered,
        Observation::Event(..) => Guarantee::IsCreate,
        Observation::Bookmark { .. } => Guarantee::Bookmarkable,
        Observation::Page { .. } | Observation::Error { .. } => Guarantee::Completeness,
    };
    let last = block.last().map_or_else(|| "nothing".to_owned(), |last| key(last));
    let expected = format!("ADDED of what a list has after {last}, or the mark of its end");
    checking.violation(guarantee, block.len(), expected, format!("{found:?}"))
}

fn whole<'a>(checking: &Checking<'a>, rv: u64) -> Shown<'a> {
    checking.epoch.shown_at(rv, &checking.session.scope)
}

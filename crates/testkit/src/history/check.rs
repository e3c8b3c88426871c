//! The checker: sessions against the model.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::initial::initial_state;
use super::{
    Change, End, Epoch, Guarantee, ListAt, Model, Observation, Request, Scope, Session, Shown, State,
    Violation, is_same, key, version,
};

/// What a client has seen of a resource so far.
#[derive(Debug, Clone, Default)]
struct Seen {
    epoch: usize,
    /// The highest version it was shown.
    highest: u64,
    events: HashSet<(String, u64)>,
}

/// An event that the model says a watch has to show.
#[derive(Debug, Clone)]
pub struct Expected<'a> {
    /// Its version.
    pub rv: u64,
    /// What happened to the object, for who watches.
    pub change: Change,
    /// The object's.
    pub key: &'a str,
    /// The object; one that is gone as it last was, at the version of its end.
    pub object: Cow<'a, Value>,
}

/// All that a watch of `scope` has to show after `after`.
pub fn expected<'a>(epoch: &'a Epoch, scope: &Scope, after: u64) -> Vec<Expected<'a>> {
    let mut state = Shown::new();
    let mut expected = Vec::new();
    for revision in &epoch.revisions {
        let key = revision.key.as_str();
        let before = match &revision.object {
            Some(object) => state.insert(key, object),
            None => state.remove(key),
        };
        if revision.rv <= after {
            continue;
        }
        let before = before.filter(|object| scope.has(key, object));
        let now = revision.object.as_ref().filter(|object| scope.has(key, object));
        let (change, object) = match (before, now) {
            (None, None) => continue,
            (None, Some(now)) => (Change::Added, Cow::Borrowed(now)),
            (Some(_), Some(now)) => (Change::Modified, Cow::Borrowed(now)),
            (Some(before), None) => {
                let mut gone = before.clone();
                gone["metadata"]["resourceVersion"] = revision.rv.to_string().into();
                (Change::Deleted, Cow::Owned(gone))
            }
        };
        expected.push(Expected { rv: revision.rv, change, key, object });
    }
    expected
}

/// Checks sessions of any clients. Each must be possible in one epoch of the model: in none before those that had been noticed when it was
/// asked, in the last if it is open at the end, and a client's epochs never go back.
pub fn check(model: &Model, sessions: &[Session]) -> Result<(), Violation> {
    let mut clients = BTreeMap::<(&str, &str), Seen>::new();
    for (index, session) in sessions.iter().enumerate() {
        let seen = clients.entry((&session.client, &session.resource)).or_default();
        let mut first = None;
        let mut found = None;
        let last = model.epochs.len().saturating_sub(1);
        let from = if session.end == End::Quiescent { last } else { session.epoch.min(last) };
        for (number, epoch) in model.epochs.iter().enumerate().skip(seen.epoch.max(from)) {
            let mut then = seen.clone();
            if number > then.epoch {
                then = Seen { epoch: number, ..Seen::default() };
            }
            let mut checking = Checking { epoch, session, index, seen: &mut then };
            match checking.run() {
                Ok(()) => {
                    found = Some(then);
                    break;
                }
                Err(violation) => {
                    first.get_or_insert(violation);
                }
            }
        }
        match (found, first) {
            (Some(then), _) => *seen = then,
            (None, Some(violation)) => return Err(violation),
            (None, None) => {}
        }
    }
    Ok(())
}

/// Checks that `state`, which a client of `scope` has come to after quiescence, is the cluster's.
pub fn check_converged(model: &Model, scope: &Scope, state: &State) -> Result<(), Violation> {
    let Some(epoch) = model.epochs.last() else { return Ok(()) };
    let expected = epoch.shown_at(u64::MAX, scope);
    let keys = expected.keys().copied().chain(state.keys().map(String::as_str));
    for (index, key) in keys.enumerate() {
        let (theirs, ours) = (expected.get(key).copied(), state.get(key));
        if !are_same(theirs, ours) {
            return Err(Violation {
                guarantee: Guarantee::Convergence,
                session: 0,
                observation: index,
                expected: format!("{key}: {}", shown(theirs)),
                found: shown(ours),
            });
        }
    }
    Ok(())
}

/// Whether both are there and the same, or neither is there.
pub(super) fn are_same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => is_same(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn shown(object: Option<&Value>) -> String {
    object.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

pub(super) struct Checking<'a> {
    pub(super) epoch: &'a Epoch,
    pub(super) session: &'a Session,
    index: usize,
    seen: &'a mut Seen,
}

impl Checking<'_> {
    pub(super) fn violation<T>(
        &self,
        guarantee: Guarantee,
        observation: usize,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Result<T, Violation> {
        let (expected, found) = (expected.into(), found.into());
        Err(Violation { guarantee, session: self.index, observation, expected, found })
    }

    fn run(&mut self) -> Result<(), Violation> {
        for (at, observation) in self.session.observations.iter().enumerate() {
            let last = at + 1 == self.session.observations.len();
            if matches!(observation, Observation::Error { .. }) && !last {
                return self.violation(Guarantee::Reliable, at + 1, "nothing after an error", "more");
            }
        }
        match self.session.request {
            Request::List(at) => self.list(at),
            Request::WatchAfter(rv) => self.live(0, rv),
            Request::WatchInitial { at_least, bookmarks } => {
                let refused = matches!(self.session.observations.first(), Some(Observation::Error { .. }));
                if refused || (self.session.observations.is_empty() && self.session.end != End::Quiescent) {
                    return Ok(());
                }
                let initial = initial_state(self, at_least.unwrap_or(0), bookmarks)?;
                match initial {
                    Some((events, rv)) => self.live(events, rv),
                    None => Ok(()),
                }
            }
        }
    }

    fn list(&mut self, asked: ListAt) -> Result<(), Violation> {
        let mut start: Option<String> = None;
        for (at, observation) in self.session.observations.iter().enumerate() {
            let Observation::Page { rv, items, more, remaining } = observation else { continue };
            match asked {
                ListAt::Exact(exact) if exact != *rv => {
                    return self.violation(
                        Guarantee::Completeness,
                        at,
                        format!("version {exact}"),
                        rv.to_string(),
                    );
                }
                ListAt::NotOlderThan(least) if *rv < least => {
                    return self.violation(
                        Guarantee::Completeness,
                        at,
                        format!("version {least} or later"),
                        rv.to_string(),
                    );
                }
                _ => {}
            }
            // Exact reads go back by request.
            if !matches!(asked, ListAt::Exact(_)) {
                self.advance(at, *rv)?;
            }
            let whole = self.epoch.shown_at(*rv, &self.session.scope);
            let after = start.take();
            let mut expected =
                whole.iter().filter(|(key, _)| after.as_ref().is_none_or(|after| **key > after.as_str()));
            for item in items {
                match expected.next() {
                    Some((key, object)) if is_same(object, item) => start = Some((*key).to_owned()),
                    other => {
                        let there = other.map_or("no more".to_owned(), |(_, object)| object.to_string());
                        let guarantee = if self.session.scope.has(&key(item), item) {
                            Guarantee::Completeness
                        } else {
                            Guarantee::Filter
                        };
                        return self.violation(guarantee, at, there, item.to_string());
                    }
                }
            }
            let left = expected.count() as u64;
            start = start.or(after);
            if !more && left > 0 {
                return self.violation(
                    Guarantee::Completeness,
                    at,
                    format!("{left} more at {rv}"),
                    "the end of the list",
                );
            }
            if remaining.is_some_and(|remaining| remaining != left) {
                return self.violation(
                    Guarantee::Completeness,
                    at,
                    format!("{left} remaining"),
                    format!("{remaining:?}"),
                );
            }
        }
        let pages = self.session.observations.iter().rev();
        let cut_short = pages.take(1).any(|last| matches!(last, Observation::Page { more: true, .. }));
        if cut_short && self.session.end != End::Broken {
            let at = self.session.observations.len();
            return self.violation(Guarantee::Completeness, at, "the next page", "nothing");
        }
        Ok(())
    }

    /// Notes that the client was shown the version `rv`.
    pub(super) fn advance(&mut self, at: usize, rv: u64) -> Result<(), Violation> {
        if rv < self.seen.highest {
            let highest = self.seen.highest;
            return self.violation(Guarantee::NoRewind, at, format!("{highest} or later"), rv.to_string());
        }
        self.seen.highest = rv;
        Ok(())
    }

    /// Checks what comes from observation `from` on: the events after `start`.
    fn live(&mut self, from: usize, start: u64) -> Result<(), Violation> {
        let all = expected(self.epoch, &self.session.scope, start);
        let mut pending = all.iter().peekable();
        let mut last = start;
        let mut bookmark = None;
        for (at, observation) in self.session.observations.iter().enumerate().skip(from) {
            match observation {
                Observation::Error { .. } | Observation::Page { .. } => return Ok(()),
                Observation::Bookmark { rv, .. } => {
                    if *rv < last {
                        return self.violation(
                            Guarantee::Bookmarkable,
                            at,
                            format!("{last} or later"),
                            rv.to_string(),
                        );
                    }
                    if let Some(missed) = pending.peek().filter(|event| event.rv <= *rv) {
                        let missed = format!("{} at {} before it", missed.key, missed.rv);
                        return self.violation(Guarantee::Bookmarkable, at, missed, format!("bookmark {rv}"));
                    }
                    (last, bookmark) = (*rv, Some(*rv));
                    self.advance(at, *rv)?;
                }
                Observation::Event(change, object) => {
                    self.event(at, *change, object, last, bookmark)?;
                    let guarantee = if at == from && matches!(self.session.request, Request::WatchAfter(_)) {
                        Guarantee::Resumable
                    } else {
                        Guarantee::Reliable
                    };
                    let next = pending.next();
                    self.same(at, *change, object, next, guarantee)?;
                    last = version(object);
                    self.seen.events.insert((key(object), last));
                    self.advance(at, last)?;
                }
            }
        }
        let at = self.session.observations.len();
        match pending.next() {
            Some(missed) if self.session.end == End::Quiescent => {
                let silent = at == from && matches!(self.session.request, Request::WatchAfter(_));
                let guarantee = if silent { Guarantee::Resumable } else { Guarantee::Reliable };
                self.violation(guarantee, at, format!("{} at {}", missed.key, missed.rv), "silence")
            }
            _ => Ok(()),
        }
    }

    /// What can be said of an event by itself and what came before.
    fn event(
        &self,
        at: usize,
        change: Change,
        object: &Value,
        last: u64,
        bookmark: Option<u64>,
    ) -> Result<(), Violation> {
        let (key, rv) = (key(object), version(object));
        if !self.session.scope.has(&key, object) {
            return self.violation(
                Guarantee::Filter,
                at,
                "what was asked for",
                format!("{change:?} {object}"),
            );
        }
        if rv > last {
            return Ok(());
        }
        let guarantee = if self.seen.events.contains(&(key, rv)) {
            Guarantee::Unique
        } else if bookmark.is_some_and(|bookmark| rv <= bookmark) {
            Guarantee::Bookmarkable
        } else {
            Guarantee::Ordered
        };
        self.violation(guarantee, at, format!("after {last}"), format!("{change:?} {object}"))
    }

    fn same(
        &self,
        at: usize,
        change: Change,
        object: &Value,
        expected: Option<&Expected<'_>>,
        missing: Guarantee,
    ) -> Result<(), Violation> {
        let found = || format!("{change:?} {object}");
        let Some(expected) = expected else {
            return self.violation(Guarantee::Reliable, at, "no event", found());
        };
        let wanted = || format!("{:?} {}", expected.change, expected.object);
        if expected.rv != version(object) || expected.key != key(object) {
            let guarantee = if expected.rv < version(object) { missing } else { Guarantee::Reliable };
            return self.violation(guarantee, at, wanted(), found());
        }
        if expected.change != change {
            let guarantee = match (expected.change, change) {
                (Change::Added, Change::Modified) | (Change::Modified, Change::Added) => Guarantee::IsCreate,
                _ => Guarantee::Reliable,
            };
            return self.violation(guarantee, at, wanted(), found());
        }
        if !is_same(&expected.object, object) {
            let guarantee = if change == Change::Deleted { Guarantee::PrevKv } else { Guarantee::Reliable };
            return self.violation(guarantee, at, wanted(), found());
        }
        Ok(())
    }
}

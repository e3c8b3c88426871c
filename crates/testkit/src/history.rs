//! What happened in a cluster, what clients saw of it, and whether they may have seen that.
//!
//! The model is the list of writes; a session is one list (all of its pages) or one watch of one client. The checker
//! computes what a client had to see by folding the model: it knows nothing of caches, and nothing of how anybody serves.

mod check;
mod expired;
mod fresh;
mod initial;
mod isolation;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};
use tokio::time::Instant;

pub use self::check::{Expected, check, check_converged, expected};
pub use self::expired::{Doubtful, Forgotten, Reasons, check_expired};
pub use self::fresh::{Acknowledged, Freshness, check_fresh};
pub use self::isolation::{Denial, check_isolated};
use crate::selector::{FieldSelector, LabelSelector};

/// One write: the object as it is since then, or nothing if it was deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// Ascending within an epoch.
    pub rv: u64,
    /// `namespace/name`, or `name`.
    pub key: String,
    /// The object; nothing if it was deleted.
    pub object: Option<Value>,
}

/// A history without a step back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Epoch {
    /// All writes of one resource, ascending.
    pub revisions: Vec<Revision>,
}

/// Objects by key, which is the order of lists.
pub type State = BTreeMap<String, Value>;

/// Objects by key, as a model has them.
pub(crate) type Shown<'a> = BTreeMap<&'a str, &'a Value>;

impl Epoch {
    /// All objects as they were at `rv`.
    pub fn at(&self, rv: u64) -> State {
        let mut state = State::new();
        for revision in self.revisions.iter().take_while(|revision| revision.rv <= rv) {
            match &revision.object {
                Some(object) => state.insert(revision.key.clone(), object.clone()),
                None => state.remove(&revision.key),
            };
        }
        state
    }

    /// The same of a scope, without copies.
    pub(crate) fn shown_at<'a>(&'a self, rv: u64, scope: &Scope) -> Shown<'a> {
        let mut shown = Shown::new();
        for revision in self.revisions.iter().take_while(|revision| revision.rv <= rv) {
            match &revision.object {
                Some(object) => shown.insert(&revision.key, object),
                None => shown.remove(revision.key.as_str()),
            };
        }
        shown.retain(|key, object| scope.has(key, object));
        shown
    }

    /// The last version.
    pub fn last(&self) -> u64 {
        self.revisions.last().map_or(0, |revision| revision.rv)
    }
}

/// The history of one resource: a new epoch begins where an etcd was restored and versions were given again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    /// At least one.
    pub epochs: Vec<Epoch>,
}

/// Which objects a request is about.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope {
    /// Only of this namespace.
    pub namespace: Option<String>,
    /// Only with these labels.
    pub labels: LabelSelector,
    /// Only with these fields.
    pub fields: FieldSelector,
}

impl Scope {
    /// Whether an object is meant.
    pub fn has(&self, key: &str, object: &Value) -> bool {
        let here = self
            .namespace
            .as_ref()
            .is_none_or(|ns| key.split_once('/').is_some_and(|(first, _)| first == ns));
        here && self.labels.matches(object) && self.fields.matches(object)
    }
}

/// What a session asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A list, with all of its pages.
    List(ListAt),
    /// A watch of what comes after a version.
    WatchAfter(u64),
    /// A watch that begins with the state.
    WatchInitial {
        /// Not older than this; 0 is any, none is most recent.
        at_least: Option<u64>,
        /// Whether bookmarks are allowed: then the end of the state is marked.
        bookmarks: bool,
    },
}

/// The version of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListAt {
    /// The most recent.
    MostRecent,
    /// Any.
    Any,
    /// Not older than.
    NotOlderThan(u64),
    /// Just this.
    Exact(u64),
}

/// What a session saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// A page of a list.
    Page {
        /// Its version.
        rv: u64,
        /// Its items.
        items: Vec<Value>,
        /// Whether there is another page.
        more: bool,
        /// How many objects follow, if it said so.
        remaining: Option<u64>,
    },
    /// An event.
    Event(Change, Value),
    /// A bookmark.
    Bookmark {
        /// Its version.
        rv: u64,
        /// Whether it marks the end of the initial state.
        initial_end: bool,
    },
    /// An error: an answer that is one, or an event of type ERROR.
    Error {
        /// Its code.
        code: u16,
        /// Its message.
        message: String,
    },
}

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// ADDED.
    Added,
    /// MODIFIED.
    Modified,
    /// DELETED.
    Deleted,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it should: the last page, or the end of a watch.
    Clean,
    /// The connection broke, or the client left.
    Broken,
    /// It is open, and nothing more comes: the cluster was left alone and everything that was to come had the time to.
    Quiescent,
}

/// One request of a client and all it saw of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Who asked. Sessions of one client and one resource must be in the order they were made, one after the other.
    pub client: String,
    /// What of.
    pub resource: String,
    /// Which objects.
    pub scope: Scope,
    /// What was asked for.
    pub request: Request,
    /// When.
    pub began: Instant,
    /// What came, in order.
    pub observations: Vec<Observation>,
    /// How it ended.
    pub end: End,
    /// Whose rights counted; empty for who may do anything.
    pub user: String,
    /// When each of the observations was made.
    pub times: Vec<Instant>,
    /// Since when there was an answer that is no error, and until when; no end if there was none yet.
    pub open: Option<(Instant, Option<Instant>)>,
    /// How many restores of the cluster had been noticed when it was asked: nothing that they undid may be shown.
    pub epoch: usize,
    /// Whether any of it is an answer of the API server that was handed on: what handed it on need not have come so far itself.
    pub handed_on: bool,
    /// Whether any of it says, by a `Warning` header, that it may be old.
    pub is_old: bool,
}

/// What clients of a watchable API rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Guarantee {
    /// Only objects that were asked for.
    Filter,
    /// Versions ascend.
    Ordered,
    /// Nothing twice, not even after a resumption.
    Unique,
    /// No event is left out, and none made up.
    Reliable,
    /// A resumption goes on with the next event, or says 410 where that has a reason; it is not silent.
    Resumable,
    /// A bookmark is not ahead of what was delivered, and nothing before it follows.
    Bookmarkable,
    /// What is deleted is shown as it last was.
    PrevKv,
    /// ADDED if and only if it was not there before.
    IsCreate,
    /// A client is never shown an older version than before.
    NoRewind,
    /// The most recent state has what was written a while before, or says that it may be old.
    Fresh,
    /// After quiescence a client's state is the cluster's.
    Convergence,
    /// A list, and a watch's initial state, is whole.
    Completeness,
    /// Who may not read it is shown nothing of it, and has no watch of it open.
    Isolation,
}

/// A guarantee that was not kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// Which.
    pub guarantee: Guarantee,
    /// The session's index among those checked.
    pub session: usize,
    /// The observation's index in its session.
    pub observation: usize,
    /// What the model has.
    pub expected: String,
    /// What was seen.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { guarantee, session, observation, expected, found } = self;
        write!(
            f,
            "{guarantee:?} at session {session}, observation {observation}: expected {expected}, found {found}"
        )
    }
}

impl std::error::Error for Violation {}

/// The key of an object.
pub fn key(object: &Value) -> String {
    let text = |name: &str| object["metadata"][name].as_str();
    let name = text("name").unwrap_or_default();
    text("namespace").filter(|ns| !ns.is_empty()).map_or_else(|| name.to_owned(), |ns| format!("{ns}/{name}"))
}

/// The version of an object, 0 if it has none that is a number.
pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether two objects are the same but for what lists of built-in kinds leave out.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let left_out = |name: &str| ["apiVersion", "kind"].contains(&name);
    let count = |fields: &Map<String, Value>| fields.keys().filter(|name| !left_out(name)).count();
    count(one) == count(other)
        && one.iter().all(|(name, value)| left_out(name) || other.get(name) == Some(value))
}

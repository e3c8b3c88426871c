//! What is given to the store and what it gives back. Keys and bodies are opaque bytes.

use std::{fmt, path::PathBuf, sync::Arc};

use bytes::Bytes;

/// The name of a subscription: (owner, resource, namespace, label selector, field selector) in the caller's spelling.
/// It stands on the disk in the clear.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub Arc<str>);

impl From<&str> for SubscriptionId {
    fn from(id: &str) -> Self {
        SubscriptionId(id.into())
    }
}

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an event did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there before.
    Added,
    /// It was there before.
    Modified,
    /// It is gone; the body is its last state.
    Deleted,
}

/// One entry of a subscription's log.
///
/// A log starts with [`Record::Begin`], the whole list, and [`Record::Complete`]; events and bookmarks follow. Another
/// `Begin` starts a new list, which takes the place of all before it when it is complete.
#[derive(Clone, PartialEq, Eq)]
pub enum Record {
    /// An object of the list, or one that an event added or modified.
    Put {
        /// The object's key, at most 65,535 bytes.
        key: Bytes,
        /// The version of the object; of an event, greater than any version before.
        version: u64,
        /// The canonical bytes.
        body: Bytes,
        /// What the event did; not looked at in a list.
        change: Change,
    },
    /// An event: the object is gone.
    Delete {
        /// The object's key.
        key: Bytes,
        /// The version of the deletion.
        version: u64,
        /// The last state of the object, for watchers.
        body: Bytes,
    },
    /// A new whole list follows.
    Begin,
    /// As [`Record::Begin`], and all bodies up to the next `Begin` are encrypted on the disk.
    BeginSealed,
    /// The list is whole, as of `version`.
    Complete {
        /// The version of the list.
        version: u64,
    },
    /// Nothing changed up to `version`.
    Bookmark {
        /// The version of the bookmark; one that is behind is ignored.
        version: u64,
    },
    /// Forgets the subscription and all its bytes.
    Drop,
}

/// Bodies may be secret.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::Put { key, version, body, change } => {
                write!(f, "Put({change:?} {} @{version}, {} bytes)", key.escape_ascii(), body.len())
            }
            Record::Delete { key, version, body } => {
                write!(f, "Delete({} @{version}, {} bytes)", key.escape_ascii(), body.len())
            }
            Record::Begin => f.write_str("Begin"),
            Record::BeginSealed => f.write_str("BeginSealed"),
            Record::Complete { version } => write!(f, "Complete(@{version})"),
            Record::Bookmark { version } => write!(f, "Bookmark(@{version})"),
            Record::Drop => f.write_str("Drop"),
        }
    }
}

/// A subscription as it was found: a whole state of the past, with the events that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Whose it is.
    pub subscription: SubscriptionId,
    /// All up to this version is in it.
    pub version: u64,
    /// Whether the bodies are encrypted on the disk.
    pub sealed: bool,
    /// The objects, in no order.
    pub objects: Vec<Stored>,
    /// The version that [`Restored::history`] follows on: a watch can resume from it or any version after it.
    pub history_after: u64,
    /// All events after `history_after`, in their order.
    pub history: Vec<StoredEvent>,
}

/// An object.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its key.
    pub key: Bytes,
    /// Its version.
    pub version: u64,
    /// Its canonical bytes.
    pub body: Bytes,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} @{}, {} bytes", self.key.escape_ascii(), self.version, self.body.len())
    }
}

/// An event.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// What happened.
    pub change: Change,
    /// The object after it; of a deletion, its last state with the version of the deletion.
    pub object: Stored,
    /// The object before it, where there was one. Bodies are shared with [`Restored::objects`] and other events.
    pub previous: Option<Stored>,
}

impl fmt::Debug for StoredEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let previous = self.previous.as_ref().map(|previous| previous.version);
        write!(f, "{:?} {:?}, before @{previous:?}", self.change, self.object)
    }
}

/// A subscription that was not restored as it was written.
#[derive(Debug)]
pub struct Problem {
    /// Whose it is; unknown when the file does not say.
    pub subscription: Option<SubscriptionId>,
    /// The file that the problem was found in.
    pub path: PathBuf,
    /// What is wrong.
    pub kind: ProblemKind,
}

/// What is wrong with a subscription on the disk.
#[derive(Debug, thiserror::Error)]
pub enum ProblemKind {
    /// It has been removed, and must be fetched anew; unless an older list was still there, which is restored then.
    #[error("the file is damaged ({0}): the subscription was dropped and must be fetched again")]
    Damaged(&'static str),
    /// Nothing has been removed. Give the right key, or append [`Record::Drop`].
    #[error("the file was sealed with another key: start with that key, or drop the subscription")]
    WrongKey,
    /// Nothing has been removed; a new whole list takes its place.
    #[error("the file cannot be read: {0}")]
    Unreadable(std::io::Error),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { subscription, path, kind } = self;
        match subscription {
            Some(subscription) => write!(f, "{} ({subscription}): {kind}", path.display()),
            None => write!(f, "{}: {kind}", path.display()),
        }
    }
}

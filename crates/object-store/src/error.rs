//! What can fail, with the file and the way on.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::record::SubscriptionId;

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Two processes would write into the same files.
    #[error("the object store {} is in use by process {holder}: stop that one, or give this one another folder", path.display())]
    InUse {
        /// The lock.
        path: PathBuf,
        /// The process that holds it, as it wrote itself down.
        holder: String,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// What was asked of the store could not be done. It stays usable for reading and for trying again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only a `Begin` starts a subscription.
    #[error("{subscription}: {what} before the subscription was begun")]
    NotBegun {
        /// Whose.
        subscription: SubscriptionId,
        /// The record that came too early.
        what: &'static str,
    },
    /// Events must have ascending versions, else the log is no history.
    #[error("{subscription}: an event of version {version} after {current}")]
    NotAhead {
        /// Whose.
        subscription: SubscriptionId,
        /// The version given.
        version: u64,
        /// The version before it.
        current: u64,
    },
    /// The key or body does not fit a record.
    #[error("{subscription}: a key of {key} and a body of {body} bytes is too long")]
    TooLong {
        /// Whose.
        subscription: SubscriptionId,
        /// Length of the key.
        key: usize,
        /// Length of the body.
        body: usize,
    },
    /// To seal needs a key.
    #[error("{0} must be sealed, and the store was opened without a key")]
    NoKey(String),
    /// What is there was sealed with another key, and is left alone.
    #[error("{} was sealed with another key: start with that key, or drop what is in it", path.display())]
    WrongKey {
        /// The file.
        path: PathBuf,
    },
    /// The system gave no random numbers, or the cipher refused.
    #[error("sealing failed")]
    Seal,
    /// The file is not as it was written.
    #[error("{} is damaged: fetch again what is in it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// A file operation failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}; {}", path.display(), remedy(source))]
pub struct DiskError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl DiskError {
    /// What the system said.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run as the owner of the folder",
        io::ErrorKind::ReadOnlyFilesystem => "make the file system writable",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space; it is tried again",
        io::ErrorKind::NotADirectory => "remove the file that stands where a folder must be",
        _ => "it is tried again",
    }
}

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    move |source| DiskError { action, path: path.to_owned(), source }
}

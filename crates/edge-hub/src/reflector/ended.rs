//! Why a list or a watch ended, which says what is to be done next.

use kube_wire::{resource_version::ResourceVersion, status::Status};

use crate::upstream::UpstreamError;

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    /// The stream came to its regular end.
    #[error("the stream ended")]
    Done,
    /// The version is too old for the server (410): only a whole list helps.
    #[error("the version has expired")]
    Expired,
    /// Upstream is behind what is known of it: its etcd was restored, or it is another cluster. Only a whole list helps.
    #[error("upstream is at version {theirs}, before {known}")]
    Rewound {
        /// Where any stream of the resource had come to.
        known: ResourceVersion,
        /// The server's most recent.
        theirs: ResourceVersion,
    },
    /// What is held cannot be what upstream had: its etcd was restored and has passed our version since. Only a whole list helps.
    #[error("what is held is not what upstream has: {reason}")]
    Diverged {
        /// What does not fit.
        reason: String,
        /// Whether nothing else explains it. A watch that is silent for seconds while the number of objects is another is a sign.
        is_certain: bool,
    },
    /// Readers know more than what is held: they were given what the server had said there is not.
    #[error("what is held is of the time before")]
    Passed,
    /// The link broke or is not there.
    #[error(transparent)]
    Link(#[from] UpstreamError),
    /// The server refuses.
    #[error("refused: {}", .0.message)]
    Refused(Box<Status>),
    /// What came could not be read; the reason names what.
    #[error("unreadable: {0}")]
    Unreadable(String),
}

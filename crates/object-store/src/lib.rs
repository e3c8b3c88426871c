//! A crash-safe store of API objects and their recent history: one log a subscription, read at the start only.
//!
//! What [`Store::sync`] has returned from is there after any crash. A subscription comes back as one whole state of its
//! past or not at all. What [`Store::hand_over`] has returned from is there after the end of the process. Keys and bodies
//! are opaque; there is no clock, no thread and no socket in here. Calls wait for the disk, `hand_over` hardly ever: call
//! them where waiting is allowed.

mod blobs;
mod disk;
mod error;
mod frame;
mod ledger;
mod log;
mod record;
mod restore;
mod seal;
mod segment;
mod statistics;
mod store;

pub use crate::{
    blobs::{Blobs, Checked},
    disk::{Disk, RealDisk},
    error::{DiskError, Error, OpenError},
    log::Sizes,
    record::{Change, Problem, ProblemKind, Record, Restored, Stored, StoredEvent, SubscriptionId},
    seal::Key,
    statistics::Statistics,
    store::{Compaction, Dropping, Earlier, List, Store, Torn, Unfinished, Unsynced, Waited},
};

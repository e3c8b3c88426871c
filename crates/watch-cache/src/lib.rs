//! The shared list/watch cache of one subscription, as a deterministic state machine.
//!
//! What came from upstream goes in through the writer's calls ([`cache`]); lists ([`list`]) and watches ([`cursor`]) come
//! out for any number of readers, with selectors of their own. Nothing here opens a socket or a file, reads a clock, or
//! starts a thread: time, waiting and freshness are the caller's.
//!
//! Three structures carry it. [`snapshot`]: the objects at one version, immutable once handed out, ordered as the API
//! server orders keys. `history`: one ring of recent events for all readers. [`cursor`]: where one reader stands in that
//! ring, a few words and no queue, so a slow reader costs nobody anything.

pub mod cache;
pub mod cursor;
pub mod event;
#[cfg(test)]
mod fixture;
mod history;
pub mod list;
pub mod restore;
pub mod selection;
pub mod snapshot;
pub mod watch;

pub use cache::{Cache, Limits, OutOfOrder, Replaced, Rewind};
pub use cursor::{Cursor, Delivery, Step};
pub use event::{Change, Event};
pub use list::{ListAnswer, Listed, Page};
pub use selection::{Scope, Selection, Selects};
pub use snapshot::{Objects, Snapshot};
pub use watch::WatchAnswer;

//! Where a stream stands between two requests: what is asked next, and what is believed of upstream.

use kube_wire::resource_version::ResourceVersion;

use super::{Believed, list::Listing};
use crate::metrics::Resync;

/// What is to be done next, and what is known of upstream.
pub(super) struct Course {
    /// What has come of a list.
    pub(super) listing: Listing,
    /// Why everything is listed next; else it is watched.
    pub(super) relist: Option<Resync>,
    /// Whether what is held was not what upstream has, and no watch has lasted since.
    pub(super) diverged: bool,
    /// What is believed of upstream.
    pub(super) believed: Believed,
    /// Whether what a watch tells is held back while there is a doubt.
    pub(super) holds: bool,
    /// How often upstream had gone back in time before what is held was listed.
    pub(super) listed_after: u64,
    /// The same of the list that is on its way, and how far anybody had come since.
    pub(super) before: (u64, Option<ResourceVersion>),
}

impl Course {
    /// Of a stream that has come to that version; of one that has none all is listed first.
    pub(super) fn new(version: Option<ResourceVersion>, listed_after: u64) -> Self {
        Self {
            listing: Listing::default(),
            relist: version.is_none().then_some(Resync::First),
            diverged: false,
            believed: Believed::default(),
            listed_after,
            holds: true,
            before: (0, None),
        }
    }

    /// Everything is listed, from its first page on.
    pub(super) fn anew(&mut self, why: Resync) {
        (self.listing, self.relist) = (Listing::default(), Some(why));
    }

    /// The same, as what is held was not what upstream has. Whether that is the first time since a watch lasted.
    pub(super) fn diverges(&mut self) -> bool {
        self.anew(Resync::Diverged);
        !std::mem::replace(&mut self.diverged, true)
    }
}

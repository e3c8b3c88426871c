//! Where a reader of a ledger stands, and what a change is to it. Pure.
//!
//! The ledger keeps the last change of each name alone, so a reader that catches up is told in several turns of names that changed more
//! than once, and may go away between any two events. What it says then of where it stands is the version of the last event: of names
//! that changed before that and once more after it, it was told neither change. Until such a reader has caught up, everything that it may
//! hold and is not to hold any more is told as gone; whoever does not hold it lets that pass, as informers do.

use super::{Change, Stored};

/// What a change is to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It has come, or was not selected before.
    Added,
    /// It is another.
    Modified,
    /// It is gone, or is not selected any more.
    Deleted,
}

/// Where a reader stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    told: u64,
    /// When it last knew everything. Only what is older than this is sure to be known: of what changed since then twice, the first
    /// change stands no more in the order. While it is `resumed` it says so and need not be right.
    knew_all: u64,
    resumed: bool,
}

impl Place {
    /// Of one that knows everything up to `version`.
    pub(crate) fn whole(version: u64) -> Self {
        Self { told: version, knew_all: version, resumed: false }
    }

    /// Of one that was told something of `version`, by this ledger or the one before.
    pub(crate) fn resumed(version: u64) -> Self {
        Self { resumed: true, ..Self::whole(version) }
    }

    /// Up to where it was told.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// Whether it knows everything up to there.
    pub(crate) fn is_whole(&self) -> bool {
        !self.resumed && self.told == self.knew_all
    }

    /// It is told up to there, and `last` is the ledger's last version.
    pub(crate) fn reach(&mut self, told: u64, last: u64) {
        self.told = told;
        if told >= last {
            *self = Self::whole(told);
        }
    }

    /// What a change is to it; `selected`: it is to hold it as it is now, or was last. What came and went since it last looked is nothing to it.
    pub(crate) fn news<T>(&self, change: &Change<T>, selected: bool) -> Option<News> {
        match change {
            Change::Live(stored) if selected && stored.added > self.knew_all => Some(News::Added),
            Change::Live(_) if selected => Some(News::Modified),
            Change::Live(stored) | Change::Gone { last: stored, .. } => {
                // What left the selection may have been in it when the reader last knew.
                let was_selected = selected || stored.reselected > self.knew_all;
                (self.resumed || (self.may_know(stored) && was_selected)).then_some(News::Deleted)
            }
        }
    }

    fn may_know<T>(&self, stored: &Stored<T>) -> bool {
        stored.added <= self.told
    }
}

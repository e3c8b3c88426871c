//! Where a reader of a ledger stands, and what a change is to it. Pure.
//!
//! The ledger keeps the last change of each name alone, so a reader that catches up is told in several turns of names that changed more
//! than once, and may go away between any two events. What it says then of where it stands is the version of the last event: of names
//! that changed before that and once more after it, it was told neither change. It holds them as they were before, which does no harm: the later change is
//! told, or that they are gone.
//!
//! Of what is left behind by a selection that is not so, for the later change of something that is not selected is no news. Therefore the ledger keeps
//! each change of that by which selectors choose in its place, and every reader is told there what left its selection. So a reader holds
//! nothing at any place that it is not to hold there, and by what it says of where it stands it is known what it may hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Change, Selectable};

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
#[derive(Clone, Debug)]
pub(crate) struct Place {
    told: u64,
    /// When it last knew everything; while it is `resumed` it says so.
    knew_all: u64,
    resumed: bool,
    /// Of what came since then, or is selected otherwise: whether it holds it.
    holds: BTreeMap<Arc<str>, bool>,
}

impl Place {
    /// Of one that knows everything up to `version`.
    pub(crate) fn whole(version: u64) -> Self {
        Self { told: version, knew_all: version, resumed: false, holds: BTreeMap::new() }
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

    /// What a change is to it, which is told of them in their order; `selects`: whether it is to hold what has such a head. What came and went since it last
    /// looked is nothing to it.
    pub(crate) fn news<T: Selectable, E>(
        &mut self,
        change: &Change<T>,
        selects: impl Fn(&T::Head) -> Result<bool, E>,
    ) -> Result<Option<News>, E> {
        let known = self.holds.get(change.name()).copied();
        Ok(match change {
            Change::Live(stored) => {
                let is_selected = selects(&stored.value.head())?;
                // As it was selected then, if nothing else is known.
                let holds = known.unwrap_or(stored.added <= self.knew_all && is_selected);
                if is_selected && !holds {
                    self.holds.insert(Arc::clone(&stored.name), true);
                }
                is_selected.then_some(if holds { News::Modified } else { News::Added })
            }
            Change::Reselected { how, .. } => {
                let was_selected = selects(&how.before)?;
                let holds = known.unwrap_or(how.added <= self.knew_all && was_selected);
                let leaves = holds && !selects(&how.after)?;
                self.holds.insert(Arc::clone(&how.name), holds && !leaves);
                leaves.then_some(News::Deleted)
            }
            Change::Gone { last, .. } => {
                self.holds.remove(&last.name);
                let holds = match known {
                    Some(holds) => holds,
                    None => last.added <= self.knew_all && selects(&last.value.head())?,
                };
                holds.then_some(News::Deleted)
            }
        })
    }
}

//! Which connection of a listener goes where there are as many as may be. Pure, but for telling that one.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;
use tunnel::doorway::Source;

use crate::make_room::lowest_of_most;

/// One user has at most this part of a listener's connections.
pub(super) const SHARE: usize = 4;

/// When so many have ended, what they took of memory is given back to the system.
pub(super) const MANY: usize = 256;

/// Whose a connection is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// Nobody's who is known, from there.
    Stranger(Source),
    /// That of somebody from there whose credential the API server has found to be good, and whose name the hub does not know.
    Unnamed(Source),
    /// A user's.
    User(Box<str>),
    /// The node's.
    Node,
}

/// Whose each connection of a listener is, and what it does.
pub(super) struct Book {
    /// How many there may be.
    most: usize,
    /// How many of one user.
    of_user: usize,
    /// How many of nobody.
    strangers: usize,
    /// Whether of these such as ask go after those that do not: nobody asks for long who is not known.
    is_local: bool,
    next: u64,
    pub(super) taken: BTreeMap<u64, Entry>,
    /// How many there were, since memory was given back.
    pub(super) were: usize,
}

/// One connection.
pub(super) struct Entry {
    pub(super) holder: Holder,
    /// How many of its requests are not answered, as a whole.
    pub(super) under_way: usize,
    /// It is nothing any more but the answer to a watch.
    pub(super) is_watch: bool,
    /// What comes later has a higher one.
    pub(super) waits_since: u64,
    leave: CancellationToken,
}

impl Book {
    /// Nobody has a seat yet.
    pub(super) fn new(most: usize, strangers: usize, is_local: bool) -> Self {
        let (of_user, strangers) = ((most / SHARE).max(1), strangers.max(1));
        Self { most, of_user, strangers, is_local, next: 0, taken: BTreeMap::new(), were: 0 }
    }

    /// A seat for a new connection from there, and what says that another has it. None where others have all, and nobody has more than it needs.
    pub(super) fn seat(&mut self, from: Source) -> Option<(u64, CancellationToken)> {
        self.make_room()?;
        let (number, leave) = (self.moment(), CancellationToken::new());
        let entry = Entry {
            holder: Holder::Stranger(from),
            under_way: 0,
            is_watch: false,
            waits_since: number,
            leave: leave.clone(),
        };
        self.taken.insert(number, entry);
        self.were = self.were.max(self.taken.len());
        Some((number, leave))
    }

    pub(super) fn moment(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Sends one away, if another would be too many.
    fn make_room(&mut self) -> Option<()> {
        let strangers = self.taken.values().filter(|entry| entry.holder.is_stranger()).count();
        let gone = if strangers >= self.strangers {
            self.of_most(Holder::is_stranger)
        } else if self.taken.len() >= self.most {
            self.idle_of_node().or_else(|| {
                self.of_most(|holder| *holder != Holder::Node).filter(|gone| self.is_one_of_many(*gone))
            })
        } else {
            return Some(());
        };
        self.send_away(gone?);
        Some(())
    }

    /// What goes first of whoever has most, of these.
    fn of_most(&self, of: impl Fn(&Holder) -> bool) -> Option<u64> {
        let all = self.taken.iter().filter(|(_, entry)| of(&entry.holder));
        let rank = |number: u64, entry: &Entry| entry.rank(number, self.is_local);
        lowest_of_most(all.map(|(number, entry)| (number, &entry.holder, rank(*number, entry)))).copied()
    }

    /// The one that has waited longest of the node's, if it has more than half of all.
    fn idle_of_node(&self) -> Option<u64> {
        let of_node = self.taken.iter().filter(|(_, entry)| entry.holder == Holder::Node);
        let waits = of_node.clone().filter(|(_, entry)| entry.under_way == 0);
        let longest = waits.min_by_key(|(_, entry)| entry.waits_since).map(|(number, _)| *number);
        longest.filter(|_| of_node.count() > self.most / 2)
    }

    /// Whether its user has others.
    fn is_one_of_many(&self, number: u64) -> bool {
        self.taken.get(&number).is_some_and(|entry| self.count(&entry.holder) > 1)
    }

    fn count(&self, holder: &Holder) -> usize {
        self.taken.values().filter(|entry| entry.holder == *holder).count()
    }

    pub(super) fn send_away(&mut self, number: u64) {
        if let Some(entry) = self.taken.remove(&number) {
            entry.leave.cancel();
        }
    }

    /// That one is this user's, of whose one goes if those are too many.
    pub(super) fn is_of(&mut self, number: u64, holder: &Holder) {
        let Some(entry) = self.taken.get_mut(&number) else { return };
        entry.holder = holder.clone();
        if *holder != Holder::Node
            && self.count(holder) > self.of_user
            && let Some(gone) = self.of_most(|other| other == holder)
        {
            self.send_away(gone);
        }
    }

    /// Whether many have ended since they were counted.
    pub(super) fn is_much_less(&self) -> bool {
        self.were >= self.taken.len() + MANY
    }

    pub(super) fn is_counted(&mut self) {
        self.were = self.taken.len();
    }
}

impl Holder {
    pub(super) fn is_stranger(&self) -> bool {
        matches!(self, Self::Stranger(_))
    }
}

impl Entry {
    /// The lowest of one holder's goes first: of nobody's the oldest, whatever it does where anybody may come.
    fn rank(&self, number: u64, is_local: bool) -> (u8, u64) {
        match self.holder {
            Holder::Stranger(_) if is_local && self.under_way > 0 => (1, number),
            Holder::Stranger(_) => (0, number),
            _ if self.under_way == 0 => (0, self.waits_since),
            _ if self.is_watch => (1, !number),
            _ => (2, !number),
        }
    }
}

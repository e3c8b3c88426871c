use std::collections::BTreeMap;

use proptest::prelude::*;

use super::place::{News, Place};
use super::*;

fn name(number: u8) -> Arc<str> {
    Arc::from(format!("n{number}"))
}

/// Whether a reader of selected values is to hold one.
fn is_selected(value: u32) -> bool {
    value.is_multiple_of(2)
}

impl Selectable for u32 {
    type Head = bool;

    fn head(&self) -> bool {
        is_selected(*self)
    }
}

/// A client that holds all values, or the selected: what it was told, up to where, and its watch while that lasts.
#[derive(Debug, Default)]
struct Reader {
    selects: bool,
    known: BTreeMap<Arc<str>, u32>,
    told: u64,
    watch: Option<Place>,
    /// A watch of it ended while it caught up, and it has not caught up since: what it holds is not known.
    cut: bool,
}

impl Reader {
    fn holds(&self, value: u32) -> bool {
        !self.selects || is_selected(value)
    }

    fn truth(&self, ledger: &Ledger<u32>) -> BTreeMap<Arc<str>, u32> {
        truth(ledger).into_iter().filter(|(_, value)| self.holds(*value)).collect()
    }

    fn is_known(&self, ledger: &Ledger<u32>) -> bool {
        if self.selects { ledger.is_known_to_selectors(self.told) } else { ledger.is_known(self.told) }
    }

    /// Reads `turns` times some changes. With `cut` its watch ends behind the first event of the last turn.
    fn read(&mut self, ledger: &Ledger<u32>, turns: usize, cut: bool) {
        if !self.is_known(ledger) {
            // Told 410: begins anew with a list.
            (self.known, self.told, self.cut) = (self.truth(ledger), ledger.last(), false);
            self.watch = Some(Place::whole(self.told));
        }
        let mut place = self.watch.take().unwrap_or_else(|| Place::resumed(self.told));
        for turn in 1..=turns {
            let (changes, told) = ledger.after(place.told(), 2);
            for change in &changes {
                let selects = |head: &bool| Ok::<_, std::convert::Infallible>(!self.selects || *head);
                let Ok(Some(news)) = place.news(change, selects) else { continue };
                assert!(change.version() > self.told, "versions went back: {change:?} {self:?}");
                self.told = change.version();
                let knew = match change {
                    Change::Live(stored) => {
                        self.known.insert(Arc::clone(&stored.name), stored.value).is_some()
                    }
                    Change::Reselected { .. } | Change::Gone { .. } => {
                        self.known.remove(change.name()).is_some()
                    }
                };
                assert!(
                    self.cut || knew == (news != News::Added),
                    "{news:?} of {change:?}: {self:?} {place:?}"
                );
                if cut && turn == turns {
                    self.cut = true;
                    return;
                }
            }
            place.reach(told, ledger.last());
            if place.is_whole() {
                // As by a bookmark.
                (self.told, self.cut) = (told, false);
                assert_eq!(self.known, self.truth(ledger));
                break;
            }
        }
        self.watch = Some(place);
    }

    fn catch_up(&mut self, ledger: &Ledger<u32>) {
        self.read(ledger, usize::MAX, false);
    }
}

fn truth(ledger: &Ledger<u32>) -> BTreeMap<Arc<str>, u32> {
    ledger.values().map(|s| (Arc::clone(&s.name), s.value)).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u32, u64),
    Remove(u8, u64),
    Read(usize),
    /// Some turns, and whether the watch or stream ends in the middle of the last.
    ReadSome(usize, usize, bool),
    Follow,
    FollowSome(usize, bool),
    /// The standby takes over with a clock that may be behind; it may have missed the last changes.
    TakeOver {
        lags: bool,
        clock: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..6, any::<u32>(), 0u64..1_000).prop_map(|(n, v, at)| Step::Put(n, v, at)),
        3 => (0u8..6, 0u64..1_000).prop_map(|(n, at)| Step::Remove(n, at)),
        2 => (0usize..4).prop_map(Step::Read),
        4 => (0usize..4, 1usize..3, any::<bool>()).prop_map(|(n, turns, cut)| Step::ReadSome(n, turns, cut)),
        1 => Just(Step::Follow),
        2 => (1usize..3, any::<bool>()).prop_map(|(turns, cut)| Step::FollowSome(turns, cut)),
        1 => (any::<bool>(), 0u64..1_000).prop_map(|(lags, clock)| Step::TakeOver { lags, clock }),
    ]
}

/// A standby: the copy of a ledger, and while its stream lasts up to where it heard and when it knew all.
#[derive(Default)]
struct Standby {
    copy: Ledger<u32>,
    stream: Option<(u64, u64)>,
}

impl Standby {
    fn whole(ledger: &Ledger<u32>) -> Self {
        let mut copy = Ledger::default();
        let names = ledger.values().map(|s| Arc::clone(&s.name)).collect();
        ledger.values().for_each(|s| copy.copy(&s.name, s.value, (s.version, s.added)));
        copy.copied_whole(&names, ledger.last());
        Self { copy, stream: None }
    }

    fn follow(&mut self, ledger: &Ledger<u32>, turns: usize, cut: bool) {
        let complete = self.copy.complete();
        if self.stream.is_none() && !ledger.is_known_to_selectors(complete) {
            *self = Self::whole(ledger);
        }
        let complete = self.copy.complete();
        let (mut heard, mut knew_all) = self.stream.take().unwrap_or((complete, complete));
        for turn in 1..=turns {
            let (changes, told) = ledger.after(heard, 2);
            for change in changes {
                match change {
                    Change::Live(stored) => {
                        self.copy.copy(&stored.name, stored.value, (stored.version, stored.added));
                    }
                    Change::Reselected { how, .. } => self.copy.copy_reselection(how),
                    Change::Gone { version, last } => {
                        if last.version > knew_all {
                            self.copy.copy(&last.name, last.value, (last.version, last.added));
                        }
                        self.copy.copy_removal(&last.name, version);
                    }
                }
                if cut && turn == turns {
                    return;
                }
            }
            heard = told;
            if told >= ledger.last() {
                self.copy.copy_progress(told);
                knew_all = told;
                break;
            }
        }
        self.stream = Some((heard, knew_all));
    }
}

/// The ledger of the standby as the new leader's, once every source of truth has told it what it missed.
fn take_over(before: &Ledger<u32>, standby: Standby, ceiling: u64) -> Ledger<u32> {
    let mut ledger = standby.copy;
    ledger.begin_above(ceiling);
    ledger.restamp(|value| *value);
    ledger.set_ceiling(ceiling + 100_000);
    let gone: Vec<_> =
        ledger.values().filter(|s| before.get(&s.name).is_none()).map(|s| Arc::clone(&s.name)).collect();
    for name in gone {
        ledger.remove(&name, 0);
    }
    for stored in before.values() {
        put(&mut ledger, &stored.name, stored.value, 0);
    }
    ledger
}

/// Sets a value unless it is the same.
fn put(ledger: &mut Ledger<u32>, name: &Arc<str>, value: u32, at: u64) {
    let before = ledger.get(name).map(|stored| stored.value);
    if before != Some(value) {
        ledger.put(name, value, at);
    }
}

proptest! {
    #[test]
    fn versions_never_go_back_and_readers_end_with_the_truth(steps in prop::collection::vec(step(), 1..60)) {
        let mut ledger = Ledger::<u32>::default();
        let mut ceiling = 100_000;
        ledger.set_ceiling(ceiling);
        let reader = |selects| Reader { selects, ..Reader::default() };
        let mut readers = [false, false, true, true].map(reader);
        let mut standby = Standby::default();
        for step in steps {
            let told = ledger.last();
            match step {
                Step::Put(n, value, at) => put(&mut ledger, &name(n), value, at),
                Step::Remove(n, at) => drop(ledger.remove(&name(n), at)),
                Step::Read(reader) => readers[reader].catch_up(&ledger),
                Step::ReadSome(reader, turns, cut) => readers[reader].read(&ledger, turns, cut),
                Step::Follow => standby.follow(&ledger, usize::MAX, false),
                Step::FollowSome(turns, cut) => standby.follow(&ledger, turns, cut),
                Step::TakeOver { lags, clock } => {
                    if !lags {
                        standby.follow(&ledger, usize::MAX, false);
                    }
                    ledger = take_over(&ledger, standby, ceiling);
                    ceiling += 100_000;
                    for reader in &mut readers {
                        let caught_up = reader.watch.take().is_some_and(|place| place.is_whole());
                        reader.cut |= !caught_up;
                    }
                    // The clock of the new leader may be behind: versions go on all the same.
                    let stored = ledger.put(&name(0), 0, clock);
                    prop_assert!(stored.version > told);
                    standby = Standby::whole(&ledger);
                }
            }
            prop_assert!(ledger.last() >= told);
        }
        for reader in &mut readers {
            reader.catch_up(&ledger);
        }
    }
}

#[test]
fn history_is_as_long_as_there_are_names() {
    let mut ledger = Ledger::<u32>::default();
    for round in 0..1_000 {
        for n in 0..5 {
            ledger.put(&name(n), 2 * round, 0);
        }
    }
    assert_eq!(ledger.after(0, usize::MAX).0.len(), 5);
    assert_eq!(ledger.last(), 5_000);
}

#[test]
fn whoever_stands_before_a_forgotten_deletion_begins_anew() {
    let mut ledger = Ledger::<u32>::default();
    for round in 0..2_000 {
        ledger.put(&name(1), round, 0);
        ledger.remove("n1", 0);
    }
    assert_eq!(ledger.after(0, usize::MAX).0.len(), TOMBSTONES);
    assert!(!ledger.is_known(0) && ledger.is_known(ledger.oldest()));
    assert_eq!(ledger.after(ledger.oldest(), 1).0[0].version(), ledger.oldest() + 2);
}

#[test]
fn the_ceiling_holds_back_the_clock_and_not_the_count() {
    let mut ledger = Ledger::<u32>::default();
    ledger.set_ceiling(100);
    assert_eq!(ledger.put(&name(1), 1, 90).version, 90);
    assert_eq!(ledger.put(&name(1), 1, 900).version, 100);
    assert_eq!(ledger.put(&name(1), 1, 900).version, 101);
}

#[test]
fn of_what_selectors_choose_by_so_much_is_kept_and_who_comes_later_begins_anew() {
    let mut ledger = Ledger::<u32>::default();
    for value in 0..5_000 {
        ledger.put(&name(1), value, 0);
        ledger.put(&name(1), value, 0);
    }
    let changes = ledger.after(0, usize::MAX).0;
    let reselections = changes.iter().filter(|change| matches!(change, Change::Reselected { .. }));
    assert_eq!((changes.len(), reselections.count()), (RESELECTIONS + 1, RESELECTIONS));
    assert!(ledger.is_known(0) && !ledger.is_known_to_selectors(0));
    assert!(ledger.is_known_to_selectors(changes[0].version() - 1));
    ledger.forget_reselections();
    assert!(!ledger.is_known_to_selectors(ledger.last() - 1) && ledger.is_known_to_selectors(ledger.last()));
    assert_eq!(ledger.after(0, usize::MAX).0.len(), 1);
}

#[test]
fn what_is_of_one_version_is_told_at_one_time() {
    let mut ledger = Ledger::<u32>::default();
    for value in [1, 2, 3] {
        ledger.put(&name(1), value, 0);
    }
    let mut told = 0;
    let mut seen = Vec::new();
    while told < ledger.last() {
        let (changes, at) = ledger.after(told, 1);
        seen.push(changes.iter().map(Change::version).collect::<Vec<_>>());
        told = at;
    }
    assert_eq!(seen, [vec![2], vec![3, 3]], "which is so now stands behind how it came to be so");
}

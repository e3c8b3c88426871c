use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn name(number: u8) -> Arc<str> {
    Arc::from(format!("n{number}"))
}

/// What a reader knows: names and values, and up to where it was told.
#[derive(Clone, Debug, Default, PartialEq)]
struct Reader {
    known: BTreeMap<Arc<str>, u32>,
    told: u64,
}

impl Reader {
    /// Reads on to the end, and fails on what is not true: a DELETED of what it did not know, or a version that goes back.
    fn catch_up(&mut self, ledger: &Ledger<u32>) {
        if !ledger.is_known(self.told) {
            // Told 410: begins anew with a list.
            self.known = truth(ledger);
            self.told = ledger.last();
        }
        let knew_all = self.told;
        loop {
            let (changes, told) = ledger.after(self.told, 2);
            let done = changes.is_empty();
            for change in changes {
                assert!(change.version() > self.told);
                match change {
                    Change::Live(stored) => {
                        let knew = self.known.insert(Arc::clone(&stored.name), stored.value).is_some();
                        assert!(
                            stored.added > knew_all || knew,
                            "MODIFIED of what was unknown: {stored:?} {self:?}"
                        );
                    }
                    Change::Gone { last, .. } => {
                        let knew = self.known.remove(&last.name).is_some();
                        assert!(
                            last.added > knew_all || knew,
                            "DELETED of what was unknown: {last:?} {self:?}"
                        );
                    }
                }
            }
            assert!(told >= self.told);
            self.told = told;
            if done {
                break;
            }
        }
        assert_eq!(self.known, truth(ledger));
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
    Follow,
    /// The standby takes over with a clock that may be behind; it may have missed the last changes.
    TakeOver {
        lags: bool,
        clock: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u8..6, any::<u32>(), 0u64..1_000).prop_map(|(n, v, at)| Step::Put(n, v, at)),
        2 => (0u8..6, 0u64..1_000).prop_map(|(n, at)| Step::Remove(n, at)),
        3 => (0usize..3).prop_map(Step::Read),
        1 => Just(Step::Follow),
        1 => (any::<bool>(), 0u64..1_000).prop_map(|(lags, clock)| Step::TakeOver { lags, clock }),
    ]
}

/// A standby: the copy of a ledger, and up to where it heard.
#[derive(Default)]
struct Standby {
    copy: Ledger<u32>,
    heard: u64,
}

impl Standby {
    fn follow(&mut self, ledger: &Ledger<u32>) {
        let (changes, told) = ledger.after(self.heard, usize::MAX);
        for change in changes {
            match change {
                Change::Live(stored) => self.copy.copy(&stored.name, stored.value, stored.version),
                Change::Gone { version, last } => {
                    if last.added > self.heard {
                        self.copy.copy(&last.name, last.value, last.version);
                    }
                    self.copy.copy_removal(&last.name, version);
                }
            }
        }
        self.copy.copy_progress(told);
        self.heard = told;
    }
}

/// The ledger of the standby as the new leader's, once every source of truth has told it what it missed.
fn take_over(before: &Ledger<u32>, standby: Standby, ceiling: u64) -> Ledger<u32> {
    let mut ledger = standby.copy;
    ledger.begin_above(ceiling);
    ledger.set_ceiling(ceiling + 100_000);
    let gone: Vec<_> =
        ledger.values().filter(|s| before.get(&s.name).is_none()).map(|s| Arc::clone(&s.name)).collect();
    for name in gone {
        ledger.remove(&name, 0);
    }
    for stored in before.values() {
        if ledger.get(&stored.name).is_none_or(|s| s.value != stored.value) {
            ledger.put(&stored.name, stored.value, 0, false);
        }
    }
    ledger
}

proptest! {
    #[test]
    fn versions_never_go_back_and_readers_end_with_the_truth(steps in prop::collection::vec(step(), 1..60)) {
        let mut ledger = Ledger::<u32>::default();
        let mut ceiling = 100_000;
        ledger.set_ceiling(ceiling);
        let mut readers = vec![Reader::default(); 3];
        let mut standby = Standby::default();
        let mut told = 0;
        for step in steps {
            match step {
                Step::Put(n, value, at) => {
                    let stored = ledger.put(&name(n), value, at, false);
                    prop_assert!(stored.version > told);
                    told = stored.version;
                }
                Step::Remove(n, at) => {
                    if let Some((version, _)) = ledger.remove(&name(n), at) {
                        prop_assert!(version > told);
                        told = version;
                    }
                }
                Step::Read(reader) => readers[reader].catch_up(&ledger),
                Step::Follow => standby.follow(&ledger),
                Step::TakeOver { lags, clock } => {
                    if !lags {
                        standby.follow(&ledger);
                    }
                    ledger = take_over(&ledger, standby, ceiling);
                    ceiling += 100_000;
                    standby = Standby::default();
                    // The clock of the new leader may be behind: versions go on all the same.
                    let stored = ledger.put(&name(0), 0, clock, false);
                    prop_assert!(stored.version > told);
                    told = stored.version;
                    // Its own standby begins with a whole list.
                    let names = ledger.values().map(|s| Arc::clone(&s.name)).collect();
                    ledger.values().for_each(|s| standby.copy.copy(&s.name, s.value, s.version));
                    standby.copy.copied_whole(&names, told);
                    standby.heard = told;
                }
            }
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
            ledger.put(&name(n), round, 0, false);
        }
    }
    assert_eq!(ledger.after(0, usize::MAX).0.len(), 5);
    assert_eq!(ledger.last(), 5_000);
}

#[test]
fn whoever_stands_before_a_forgotten_deletion_begins_anew() {
    let mut ledger = Ledger::<u32>::default();
    for round in 0..2_000 {
        ledger.put(&name(1), round, 0, false);
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
    assert_eq!(ledger.put(&name(1), 1, 90, false).version, 90);
    assert_eq!(ledger.put(&name(1), 1, 900, false).version, 100);
    assert_eq!(ledger.put(&name(1), 1, 900, false).version, 101);
}

#[test]
fn selectors_are_told_when_to_look_again() {
    let mut ledger = Ledger::<u32>::default();
    let first = ledger.put(&name(1), 1, 0, false);
    assert_eq!(first.reselected, first.version);
    let second = ledger.put(&name(1), 2, 0, false);
    assert_eq!(second.reselected, first.version);
    let third = ledger.put(&name(1), 2, 0, true);
    assert_eq!((third.reselected, third.added), (third.version, first.version));
}

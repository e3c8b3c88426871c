//! Whole lists that are written beside the store.

use std::io;

use object_store::{Change, Error, List, Record, Restored, Store, SubscriptionId};

use crate::{
    script::{open, put, try_open},
    sim_disk::{Fault, SimDisk},
};

/// Enough objects for several files.
const OBJECTS: u64 = 12;

fn id(name: &str) -> SubscriptionId {
    SubscriptionId::from(name)
}

fn records(version: u64) -> Vec<Record> {
    let objects = (0..OBJECTS).map(|key| put(key, version - key, Change::Added));
    objects.chain([Record::Complete { version }]).collect()
}

/// A list of that subscription that is on the disk, if that takes it, and not in the store.
fn written(store: &mut Store, name: &str, version: u64) -> (List, Result<(), Error>) {
    let mut list = store.begin(&id(name), false).unwrap();
    list.take(&records(version)).unwrap();
    let written = list.hand_over();
    (list, written)
}

fn listed(store: &mut Store, name: &str, version: u64) -> Result<(), Error> {
    let (list, written) = written(store, name, version);
    store.install(list);
    written
}

/// The subscriptions in a store that is opened on what is left of the disk, and their versions.
fn versions(disk: &SimDisk) -> Vec<(String, u64)> {
    let (store, restored) = open(disk);
    assert!(store.problems().is_empty(), "{:?}", store.problems());
    let all =
        restored.iter().map(|Restored { subscription, version, .. }| (subscription.to_string(), *version));
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

fn after_kill(disk: &SimDisk) -> Vec<(String, u64)> {
    let disk = disk.copy();
    disk.kill();
    versions(&disk)
}

#[test]
fn others_are_stored_and_synced_while_a_list_is_written() {
    let disk = SimDisk::default();
    let (mut store, _) = open(&disk);
    listed(&mut store, "a", 50).unwrap();
    listed(&mut store, "b", 60).unwrap();
    let mut list = store.begin(&id("a"), false).unwrap();
    list.take(&records(80)).unwrap();
    // All of this before the list has touched the disk.
    store.append(&id("b"), &[put(1, 61, Change::Modified)]).unwrap();
    store.hand_over(&id("b")).unwrap();
    let waited = store.unsynced().wait();
    store.settle(waited).unwrap();
    store.sync().unwrap();
    store.compact_step(1 << 20).unwrap();
    assert_eq!(after_kill(&disk), [("a".to_owned(), 50), ("b".to_owned(), 61)]);
    list.hand_over().unwrap();
    store.install(list);
    store.append(&id("a"), &[put(1, 81, Change::Modified)]).unwrap();
    store.sync().unwrap();
    disk.lose_power(0);
    assert_eq!(versions(&disk), [("a".to_owned(), 81), ("b".to_owned(), 61)]);
}

#[test]
fn of_what_was_dropped_meanwhile_nothing_is_left() {
    // Of a subscription that was stored before, and of one that was not; synced before the list comes back, or not.
    for (before, synced) in [(false, false), (false, true), (true, false), (true, true)] {
        let disk = SimDisk::default();
        let (mut store, _) = open(&disk);
        if before {
            listed(&mut store, "a", 50).unwrap();
            store.sync().unwrap();
        }
        let mut list = store.begin(&id("a"), false).unwrap();
        list.take(&records(80)).unwrap();
        store.append(&id("a"), &[Record::Drop]).unwrap();
        store.hand_over(&id("a")).unwrap();
        if synced {
            store.sync().unwrap();
        }
        list.hand_over().unwrap();
        assert_eq!(after_kill(&disk), [], "{before} {synced}: all of it is on the disk, and dropped");
        store.install(list);
        store.sync().unwrap();
        disk.lose_power(0);
        let (mut store, restored) = open(&disk);
        assert!(restored.is_empty(), "{before} {synced}");
        listed(&mut store, "a", 90).unwrap();
        store.sync().unwrap();
        assert_eq!(after_kill(&disk), [("a".to_owned(), 90)]);
    }
}

#[test]
fn of_two_lists_the_one_counts_that_was_begun_last() {
    for late in [false, true] {
        let disk = SimDisk::default();
        let (mut store, _) = open(&disk);
        let (first, _) = written(&mut store, "a", 50);
        let (second, _) = written(&mut store, "a", 60);
        let order = if late { [second, first] } else { [first, second] };
        for list in order {
            store.install(list);
        }
        store.sync().unwrap();
        disk.lose_power(0);
        assert_eq!(versions(&disk), [("a".to_owned(), 60)]);
    }
}

#[test]
fn a_list_that_is_not_whole_leaves_the_one_before() {
    let disk = SimDisk::default();
    let (mut store, _) = open(&disk);
    listed(&mut store, "a", 50).unwrap();
    let mut list = store.begin(&id("a"), false).unwrap();
    list.take(&records(80)[..9]).unwrap();
    list.hand_over().unwrap();
    assert!(
        list.take(&[
            put(1, 80, Change::Added),
            Record::Complete { version: 80 },
            Record::Complete { version: 81 }
        ])
        .is_err()
    );
    store.install(list);
    store.sync().unwrap();
    let (files, whole) = (disk.files().len(), versions(&disk));
    assert_eq!(whole, [("a".to_owned(), 50)]);
    assert_eq!(disk.files().len(), files, "nothing was left to remove");
}

/// How far [`goes`] came.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Came {
    Nowhere,
    First,
    Written,
    Synced,
}

/// A list, and another in its place, until something fails for good.
fn goes(disk: &SimDisk) -> Came {
    let mut came = Came::Nowhere;
    let Ok((mut store, _)) = try_open(disk) else { return came };
    // What failed once is tried again: a list that the disk did not take is none.
    let twice =
        |store: &mut Store, version| listed(store, "a", version).or_else(|_| listed(store, "a", version));
    let first = twice(&mut store, 50);
    if (store.sync().is_ok() || store.sync().is_ok()) && first.is_ok() {
        came = Came::First;
    }
    if store.begin(&id("b"), false).map(|list| store.install(list)).is_err() {
        return came;
    }
    let written = twice(&mut store, 80);
    if came == Came::First && written.is_ok() {
        came = Came::Written;
    }
    if (store.sync().is_ok() || store.sync().is_ok()) && written.is_ok() {
        came = Came::Synced;
    }
    came
}

#[test]
fn a_crash_or_an_error_at_every_operation_leaves_a_whole_list() {
    let disk = SimDisk::default();
    assert_eq!(goes(&disk), Came::Synced);
    let operations = disk.operations();
    assert!(operations > 20, "{operations}");
    for at in 0..operations {
        for part in [0, 400, 1000, 1300] {
            for fault in [Fault::Crash(part), Fault::Error(io::ErrorKind::StorageFull, part)] {
                let disk = SimDisk::default();
                disk.fail(at, fault);
                let came = goes(&disk);
                let names = disk.unsynced_names();
                assert!(names < 12, "{names}");
                for kept in [None].into_iter().chain((0..1 << names).map(Some)) {
                    let disk = disk.copy();
                    kept.map_or_else(|| disk.kill(), |kept| disk.lose_power(kept));
                    let found = versions(&disk);
                    let what = format!("{fault:?} at {at}, {came:?}, names {kept:x?}: {found:?}");
                    let [version] = &found[..] else {
                        assert!(found.is_empty() && came == Came::Nowhere, "{what}");
                        continue;
                    };
                    let least =
                        if came == Came::Synced || came == Came::Written && kept.is_none() { 80 } else { 50 };
                    assert!(
                        version.0 == "a" && [50, 80].contains(&version.1) && version.1 >= least,
                        "{what}"
                    );
                }
            }
        }
    }
}

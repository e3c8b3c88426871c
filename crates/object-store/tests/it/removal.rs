//! What is dropped beside the store.

use std::io;

use object_store::{Change, Record, Store, SubscriptionId};

use crate::{
    script::{open, put},
    sim_disk::{Fault, SimDisk},
};

fn id(name: &str) -> SubscriptionId {
    SubscriptionId::from(name)
}

/// A store that has two lists.
fn two(disk: &SimDisk) -> Store {
    let (mut store, _) = open(disk);
    for name in ["a", "b"] {
        let objects = (0..12).map(|key| put(key, 50 - key, Change::Added));
        let list: Vec<Record> =
            [Record::Begin].into_iter().chain(objects).chain([Record::Complete { version: 50 }]).collect();
        store.append(&id(name), &list).unwrap();
    }
    store.sync().unwrap();
    store
}

/// What a store that is opened on what is left of the disk has.
fn found(disk: &SimDisk) -> Vec<(String, u64)> {
    let (store, restored) = open(disk);
    assert!(store.problems().is_empty(), "{:?}", store.problems());
    let mut all: Vec<_> = restored.iter().map(|all| (all.subscription.to_string(), all.version)).collect();
    all.sort();
    all
}

fn after_kill(disk: &SimDisk) -> Vec<(String, u64)> {
    let disk = disk.copy();
    disk.kill();
    found(&disk)
}

#[test]
fn others_are_stored_and_synced_while_it_is_written() {
    for syncs in [false, true] {
        let disk = SimDisk::default();
        let mut store = two(&disk);
        let files = disk.files().len();
        let mut dropping = store.begin_drop(&id("a")).unwrap();
        store.append(&id("b"), &[put(1, 51, Change::Modified)]).unwrap();
        let operations = disk.operations();
        store.hand_over(&id("b")).unwrap();
        let waited = store.unsynced().wait();
        store.settle(waited).unwrap();
        assert!(!store.is_durable());
        // The file of what is handed over, and the folder.
        assert!(disk.operations() - operations <= 3, "the drop is not waited for");
        assert_eq!(after_kill(&disk), [("a".to_owned(), 50), ("b".to_owned(), 51)]);
        if syncs {
            store.sync().unwrap();
        }
        dropping.hand_over().unwrap();
        assert_eq!(after_kill(&disk), [("b".to_owned(), 51)]);
        store.settle_drop(dropping);
        store.sync().unwrap();
        assert!(store.is_durable());
        disk.lose_power(0);
        assert!(disk.files().len() < files);
        assert_eq!(found(&disk), [("b".to_owned(), 51)]);
    }
}

/// What there is of a drop at which something fails, and whether it was to be there after a kill, and after a loss of power.
fn dropped(disk: &SimDisk, store: &mut Store, syncs: bool) -> [bool; 2] {
    let Ok(mut dropping) = store.begin_drop(&id("a")) else { return [false; 2] };
    let between = syncs && store.sync().is_ok();
    let written = dropping.hand_over().is_ok();
    store.settle_drop(dropping);
    let synced = store.sync().is_ok() || !disk.is_crashed() && store.sync().is_ok();
    [between || written || synced, between || synced]
}

#[test]
fn a_crash_or_an_error_at_every_operation_leaves_all_or_nothing() {
    for syncs in [false, true] {
        let whole = SimDisk::default();
        let mut store = two(&whole);
        let before = whole.operations();
        assert_eq!(dropped(&whole, &mut store, syncs), [true; 2]);
        let operations = whole.operations() - before;
        assert!(operations > 4, "{operations}");
        for at in 0..operations {
            for part in [0, 400, 1000, 1300] {
                for fault in [Fault::Crash(part), Fault::Error(io::ErrorKind::StorageFull, part)] {
                    let disk = SimDisk::default();
                    let mut store = two(&disk);
                    disk.fail(at, fault);
                    let is_dropped = dropped(&disk, &mut store, syncs);
                    let names = disk.unsynced_names();
                    for kept in [None].into_iter().chain((0..1 << names).map(Some)) {
                        let disk = disk.copy();
                        kept.map_or_else(|| disk.kill(), |kept| disk.lose_power(kept));
                        let found = found(&disk);
                        let (a, b) = (("a".to_owned(), 50), ("b".to_owned(), 50));
                        let must = is_dropped[usize::from(kept.is_some())];
                        let is_good = found == [b.clone()] || !must && found == [a, b];
                        assert!(is_good, "{fault:?} at {at}, {is_dropped:?}, names {kept:x?}: {found:?}");
                    }
                }
            }
        }
    }
}

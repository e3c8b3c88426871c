//! States that random operations reach too seldom, each built on purpose.

use std::{io, path::Path, sync::Arc};

use bytes::Bytes;
use object_store::{Change, Record, Sizes, Store, SubscriptionId};

use crate::{
    crash_matrix::check_all_losses,
    model::Model,
    script::{self, Run, STEPS, put},
    sim_disk::{Fault, SimDisk},
};

fn append(store: &mut Store, model: &mut Model, records: &[Record]) {
    let services = SubscriptionId::from("services");
    store.append(&services, records).unwrap();
    model.append(&services, records);
}

/// A write leaves a hole, and behind it records that were never there as far as anyone was told. They must not come up
/// when what is written into the hole ends where they begin.
#[test]
fn what_is_behind_a_hole_stays_away() {
    let disk = SimDisk::default();
    let (mut store, mut model) = (script::open(&disk).0, Model::default());
    let event = |version: u64| Record::Put {
        key: Bytes::from_static(b"key"),
        version,
        body: Bytes::from(format!("body {version}")),
        change: Change::Modified,
    };
    append(&mut store, &mut model, &[Record::Begin, Record::Complete { version: 10 }]);
    append(&mut store, &mut model, &[event(11)]);
    store.sync().unwrap();
    model.synced();
    append(&mut store, &mut model, &[event(12), event(13), event(14)]);
    disk.fail(0, Fault::Crash(1333));
    assert!(store.sync().is_err());
    disk.kill();
    let (mut store, restored) = script::open(&disk);
    assert_eq!(restored[0].version, 11);
    model.check_crash(&restored);
    append(&mut store, &mut model, &[event(15)]);
    store.sync().unwrap();
    model.synced();
    model.check_crash(&script::open(&disk).1);
}

/// What is left out of a file must not rely on the end of a list that is not on the disk.
#[test]
fn a_list_is_not_compacted_before_its_end_is_durable() {
    for fails in 0..6 {
        let disk = SimDisk::default();
        let (mut store, mut model) = (script::open(&disk).0, Model::default());
        append(&mut store, &mut model, &[Record::Begin]);
        for _ in 0..12 {
            let list: Vec<_> = (0..3).map(|key| put(key, 10, Change::Added)).collect();
            append(&mut store, &mut model, &list);
        }
        store.sync().unwrap();
        model.synced();
        append(&mut store, &mut model, &[Record::Complete { version: 10 }]);
        disk.fail(fails, Fault::Error(io::ErrorKind::StorageFull, 0));
        let _ = store.sync();
        let _ = store.compact_step(10_000);
        check_all_losses(&disk, &model, &format!("operation {fails} of the sync fails"));
    }
}

/// A sync that failed anywhere, compaction at once, and then the power goes.
#[test]
fn compaction_after_a_sync_that_failed() {
    for steps in 4..STEPS {
        for fails in 0..10 {
            let disk = SimDisk::default();
            let mut run = Run { store: script::open(&disk).0, model: Model::default() };
            for step in 0..steps {
                run.step(step).unwrap();
            }
            let services = SubscriptionId::from("services");
            let version = run.model.0[&services].version().unwrap();
            let events: Vec<_> = (1..14).map(|at| put(at % 2, version + at, Change::Modified)).collect();
            append(&mut run.store, &mut run.model, &events);
            disk.fail(fails, Fault::Error(io::ErrorKind::StorageFull, 1000));
            if run.store.sync().is_ok() {
                run.model.synced();
            }
            let _ = run.store.compact_step(10_000);
            let _ = run.store.compact_step(10_000);
            check_all_losses(&disk, &run.model, &format!("{steps} steps, operation {fails} fails"));
        }
    }
}

/// The last file can be one from which records were left out: cut short it is damaged, and no earlier state.
#[test]
fn a_rewritten_file_that_is_the_last_is_whole_or_damaged() {
    let sizes = Sizes { segment: (900, 900), history: (100, 100), burst: 3600 };
    let open =
        |disk: &SimDisk| Store::open_on(Arc::new(disk.clone()), Path::new("/store"), None, sizes).unwrap();
    let mut rewritten = 0;
    for events in 10..60 {
        let disk = SimDisk::default();
        let (mut store, mut model) = (open(&disk).0, Model::default());
        let list = [Record::Begin, put(1, 5, Change::Added), Record::Complete { version: 100 }];
        append(&mut store, &mut model, &list);
        for event in 0..events {
            append(&mut store, &mut model, &[put(0, 101 + event, Change::Modified)]);
            store.sync().unwrap();
        }
        let before = disk.files();
        store.compact_step(u64::MAX).unwrap();
        let (path, content) = disk.files().into_iter().next_back().unwrap();
        if before.last().is_some_and(|(old, same)| (old, same) == (&path, &content)) {
            continue;
        }
        rewritten += 1;
        for length in 0..content.len() {
            let copy = disk.copy();
            copy.spoil(&path, content[..length].to_vec());
            model.check_damage(&open(&copy).1);
        }
    }
    assert!(rewritten > 2, "{rewritten}");
}

/// Whatever was left out elsewhere, the file that grows can lose its end, and the state is an earlier one.
#[test]
fn the_file_that_grows_is_never_relied_on() {
    for events in 10..40 {
        let disk = SimDisk::default();
        let (mut store, mut model) = (script::open(&disk).0, Model::default());
        let list = [Record::Begin, put(1, 5, Change::Added), Record::Complete { version: 100 }];
        append(&mut store, &mut model, &list);
        for event in 0..events {
            append(&mut store, &mut model, &[put(0, 101 + event, Change::Modified)]);
            store.sync().unwrap();
            store.compact_step(u64::MAX).unwrap();
        }
        let before = disk.files();
        append(&mut store, &mut model, &[put(1, 101 + events, Change::Modified)]);
        store.sync().unwrap();
        let grown = disk.files().into_iter().find(|file| !before.contains(file)).unwrap();
        store.compact_step(u64::MAX).unwrap();
        for length in 0..grown.1.len() {
            let copy = disk.copy();
            copy.spoil(&grown.0, grown.1[..length].to_vec());
            let (store, restored) = script::open(&copy);
            assert!(store.problems().is_empty(), "{events} events, cut to {length}: {:?}", store.problems());
            assert_eq!(restored.len(), 1);
            model.check_damage(&restored);
        }
    }
}

/// Names reach the disk in any order, too: an event's file must not be there without those of the list, whoever wrote that.
#[test]
fn no_event_is_there_without_its_list() {
    let services = SubscriptionId::from("services");
    let mut without = 0;
    for fate in 0..512u64 {
        for is_killed in [false, true] {
            let disk = SimDisk::default();
            let (mut store, mut model) = (script::open(&disk).0, Model::default());
            append(&mut store, &mut model, &[Record::Begin]);
            let list: Vec<_> = (0..12).map(|key| put(key, 10, Change::Added)).collect();
            append(&mut store, &mut model, &list);
            append(&mut store, &mut model, &[Record::Complete { version: 100 }]);
            store.hand_over(&services).unwrap();
            model.handed_over(&services);
            if is_killed {
                drop(store);
                disk.kill();
                model.killed();
                store = script::open(&disk).0;
            }
            for event in 0..12 {
                append(&mut store, &mut model, &[put(event % 3, 101 + event, Change::Modified)]);
                store.hand_over(&services).unwrap();
                model.handed_over(&services);
            }
            drop(store);
            disk.lose_power(fate.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let (store, restored) = script::open(&disk);
            assert!(store.problems().is_empty(), "{fate}, {is_killed}: {:?}", store.problems());
            model.check_crash(&restored);
            without += u64::from(restored[0].version < 112);
        }
    }
    assert!(without > 100, "{without} of 1024 lost events");
}

/// The files of a list that was given up are gone for good before another list takes their names, or they would be read as a part
/// of it.
#[test]
fn a_list_given_up_does_not_come_back_behind_the_next() {
    let services = SubscriptionId::from("services");
    let mut new = 0;
    for fate in 0..512u64 {
        for fails in 0..6 {
            let disk = SimDisk::default();
            let (mut store, mut model) = (script::open(&disk).0, Model::default());
            append(&mut store, &mut model, &[Record::Begin]);
            let given_up: Vec<_> = (0..16).map(|key| put(key, 10, Change::Added)).collect();
            append(&mut store, &mut model, &given_up);
            store.hand_over(&services).unwrap();
            model.handed_over(&services);
            drop(store);
            disk.kill();
            model.killed();
            let (opened, restored) = script::open(&disk);
            store = opened;
            model.check_crash(&restored);
            append(&mut store, &mut model, &[Record::Begin, put(1, 90, Change::Added)]);
            append(&mut store, &mut model, &[Record::Complete { version: 100 }]);
            disk.fail(fails, Fault::Error(io::ErrorKind::StorageFull, 0));
            if store.hand_over(&services).is_ok() {
                model.handed_over(&services);
            }
            drop(store);
            disk.lose_power(fate);
            let (store, restored) = script::open(&disk);
            assert!(store.problems().is_empty(), "{fate}, {fails}: {:?}", store.problems());
            model.check_crash(&restored);
            new += usize::from(!restored.is_empty());
        }
    }
    assert!(new > 100, "{new} of 3072 are there");
}

/// What was handed over and waited for outlives the power without a sync, whatever was appended meanwhile; what could not be waited for
/// is written again by the next.
#[test]
fn what_was_waited_for_is_durable() {
    let services = SubscriptionId::from("services");
    for is_lost in [false, true] {
        let disk = SimDisk::default();
        let (mut store, mut model) = (script::open(&disk).0, Model::default());
        append(&mut store, &mut model, &[Record::Begin, Record::Complete { version: 100 }]);
        append(&mut store, &mut model, &[put(1, 101, Change::Added)]);
        store.sync().unwrap();
        model.synced();
        append(&mut store, &mut model, &[put(1, 102, Change::Modified)]);
        store.hand_over(&services).unwrap();
        let unsynced = store.unsynced();
        if !is_lost {
            model.synced();
        }
        append(&mut store, &mut model, &[put(1, 103, Change::Modified)]);
        store.hand_over(&services).unwrap();
        if is_lost {
            disk.fail(0, Fault::Error(io::ErrorKind::Other, 0));
        }
        let waited = unsynced.wait();
        store.settle(waited).unwrap();
        assert!(!store.is_durable(), "one came meanwhile");
        check_all_losses(&disk, &model, "not synced");
        if is_lost {
            store.sync().unwrap();
        } else {
            let waited = store.unsynced().wait();
            store.settle(waited).unwrap();
        }
        model.synced();
        assert!(store.is_durable());
        check_all_losses(&disk, &model, "synced");
    }
}

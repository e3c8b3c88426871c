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
    let sizes = Sizes { segment: (900, 900), history: (100, 100) };
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

/// Whoever is told of an event waits for it to be handed over: for no disk, however many files that begins, while nobody syncs and
/// while somebody waits for the files before.
#[test]
fn no_event_waits_for_the_disk() {
    let disk = SimDisk::default();
    let (mut store, mut model) = (script::open(&disk).0, Model::default());
    let services = SubscriptionId::from("services");
    append(&mut store, &mut model, &[Record::Begin, Record::Complete { version: 100 }]);
    store.sync().unwrap();
    let (before, files) = (disk.waits(), disk.files().len());
    for event in 0..200 {
        append(&mut store, &mut model, &[put(event % 5, 101 + event, Change::Modified)]);
        store.hand_over(&services).unwrap();
        if event % 40 == 0 {
            store.unsynced().unwrap();
        }
    }
    assert_eq!(disk.waits(), before);
    assert!(disk.files().len() > files + 5, "{} files", disk.files().len());
    let synced = store.unsynced().unwrap().wait();
    let waited = disk.waits();
    append(&mut store, &mut model, &[put(1, 301, Change::Modified)]);
    store.hand_over(&services).unwrap();
    store.synced(synced).unwrap();
    assert_eq!(disk.waits(), waited, "to take note of what was waited for is to wait for nothing");
    store.compact_step(u64::MAX).unwrap();
    drop(store);
    disk.lose_power(0);
    let restored = script::open(&disk).1;
    assert!(restored[0].version >= 300, "{}", restored[0].version);
    model.check_damage(&restored);
}

/// The power takes one of several files that nobody has waited for yet, wherever: the log ends there, and goes on from there.
#[test]
fn files_behind_one_that_the_power_took_are_none() {
    let services = SubscriptionId::from("services");
    let mut shorter = 0;
    for fate in 0..512u64 {
        let disk = SimDisk::default();
        let (mut store, mut model) = (script::open(&disk).0, Model::default());
        append(&mut store, &mut model, &[Record::Begin, Record::Complete { version: 100 }]);
        append(&mut store, &mut model, &[put(0, 101, Change::Added)]);
        store.sync().unwrap();
        model.synced();
        for event in 0..40 {
            append(&mut store, &mut model, &[put(event % 3, 102 + event, Change::Modified)]);
            store.hand_over(&services).unwrap();
            if event % 10 == 9 {
                // What is long enough is sealed, and waited for too late.
                store.unsynced().unwrap();
            }
        }
        drop(store);
        disk.lose_power(fate.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for _ in 0..2 {
            let (mut store, restored) = script::open(&disk);
            assert!(store.problems().is_empty(), "{fate}: {:?}", store.problems());
            model.check_crash(&restored);
            shorter += u64::from(restored[0].version < 141);
            let version = restored[0].version;
            append(&mut store, &mut model, &[put(7, version + 1, Change::Added)]);
            store.sync().unwrap();
            model.synced();
            disk.lose_power(0);
        }
    }
    assert!(shorter > 300, "{shorter} of 1024 are shorter");
}

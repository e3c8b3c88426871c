//! Every byte, every bit-flip, every operation: nothing but whole states comes back.

use std::{io, panic, path::PathBuf};

use object_store::{Change, Record, Store, SubscriptionId};

use crate::{
    model::Model,
    script::{self, Run, STEPS, put, run, try_open},
    sim_disk::{Fault, SimDisk},
};

/// Opens a spoiled copy of the disk and checks that what is there is whole; that it can be written again and opened.
fn check_spoiled(disk: &SimDisk, model: &Model, what: &str) {
    let checked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        let (store, restored) = script::open(disk);
        model.check_damage(&restored);
        drop(store);
        disk.kill();
        let (mut store, again) = script::open(disk);
        assert_eq!(again, restored, "the second time it is what it was");
        assert!(store.problems().is_empty(), "and without problems: {:?}", store.problems());
        for one in again {
            store.append(&one.subscription, &[put(9, one.version + 1, Change::Added)]).unwrap();
        }
        store.sync().unwrap();
        let (_, last) = script::open(disk);
        let versions = |of: &[object_store::Restored]| of.iter().map(|one| one.version).collect::<Vec<_>>();
        let before: Vec<_> = versions(&restored).iter().map(|version| version + 1).collect();
        assert_eq!(versions(&last), before);
    }));
    assert!(checked.is_ok(), "{what}");
}

/// The disk after the script, with files of several subscriptions, rewritten and not.
fn scripted() -> (SimDisk, Model, Vec<(PathBuf, Vec<u8>)>) {
    let disk = SimDisk::default();
    let mut run = run(&disk);
    run.store.sync().unwrap();
    run.model.synced();
    let files = disk.files();
    assert!(files.len() >= 6, "{files:?}");
    let rewritten = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let parts: Vec<_> = name.split('-').collect();
        parts.len() == 4 && parts[2] != parts[3]
    };
    assert!(files.iter().any(|(path, _)| rewritten(path)), "the script compacts: {files:?}");
    (disk, run.model, files)
}

#[test]
fn what_was_written_is_read() {
    let (disk, mut model, _) = scripted();
    let (store, restored) = script::open(&disk);
    assert!(store.problems().is_empty());
    assert_eq!(restored.len(), 2, "services and secrets; pods were dropped");
    assert!(restored.iter().any(|one| !one.history.is_empty()));
    model.check_crash(&restored);
}

#[test]
fn every_truncation_of_every_file() {
    let (disk, model, files) = scripted();
    for (path, content) in files {
        for length in 0..content.len() {
            let copy = disk.copy();
            copy.spoil(&path, content[..length].to_vec());
            check_spoiled(&copy, &model, &format!("{} cut to {length}", path.display()));
        }
    }
}

#[test]
fn every_flip_of_every_byte() {
    let (disk, model, files) = scripted();
    for (path, content) in files {
        for at in 0..content.len() {
            // One bit, another for each byte, and all bits.
            for flip in [1 << (at % 8), 0xff] {
                let mut content = content.clone();
                content[at] ^= flip;
                let copy = disk.copy();
                copy.spoil(&path, content);
                check_spoiled(&copy, &model, &format!("{} byte {at} ^ {flip:#x}", path.display()));
            }
        }
    }
}

/// What comes back then is an earlier state, and nothing else would say so. The last record may have been cut short.
#[test]
fn records_behind_one_that_is_damaged_are_told_of() {
    let (disk, of) = (SimDisk::default(), SubscriptionId::from("pods"));
    let (mut store, _) = script::open(&disk);
    store.append(&of, &[Record::Begin, put(1, 1, Change::Added), Record::Complete { version: 1 }]).unwrap();
    let written = |store: &mut Store| {
        store.sync().unwrap();
        disk.files().into_iter().map(|(_, content)| content.len()).max().unwrap()
    };
    let mut ends = vec![written(&mut store)];
    for version in 2..6 {
        store.append(&of, &[put(1, version, Change::Modified)]).unwrap();
        ends.push(written(&mut store));
    }
    let last_begins = ends[ends.len() - 2];
    let (path, content) = disk.files().into_iter().max_by_key(|(_, content)| content.len()).unwrap();
    for at in ends[0]..content.len() {
        let copy = disk.copy();
        let mut content = content.clone();
        content[at] ^= 0x10;
        copy.spoil(&path, content);
        let (store, restored) = script::open(&copy);
        let told: Vec<_> = store.earlier().iter().map(|(of, path)| (of.clone(), path.clone())).collect();
        let expected = if at < last_begins { vec![(of.clone(), path.clone())] } else { vec![] };
        assert_eq!(told, expected, "byte {at} of {ends:?}");
        assert!(store.problems().is_empty(), "{:?}", store.problems());
        let whole = ends.iter().filter(|end| **end <= at).count() as u64;
        assert_eq!(restored.iter().map(|one| one.version).collect::<Vec<_>>(), [whole], "byte {at}");
    }
}

/// The end of a process leaves the beginning of a list, which is no damage; that a byte is another is.
#[test]
fn of_a_list_that_is_not_whole_it_is_told_whether_all_of_it_reads() {
    let (disk, of) = (SimDisk::default(), SubscriptionId::from("pods"));
    let (mut store, _) = script::open(&disk);
    let longest = || disk.files().into_iter().max_by_key(|(_, content)| content.len()).unwrap();
    store.append(&of, &[Record::Begin, put(1, 1, Change::Added)]).unwrap();
    store.sync().unwrap();
    let last_begins = longest().1.len();
    store.append(&of, &[put(2, 1, Change::Added)]).unwrap();
    store.sync().unwrap();
    let (path, content) = longest();
    let told = |content: Vec<u8>| {
        let copy = disk.copy();
        copy.spoil(&path, content);
        let (store, restored) = script::open(&copy);
        assert!(restored.is_empty());
        assert_eq!(store.problems().len() + store.unfinished().len(), 1);
        let unfinished = store.unfinished().first();
        assert!(unfinished.is_none_or(|unfinished| unfinished.files == [path.clone()]));
        unfinished.map(|unfinished| unfinished.is_read)
    };
    for length in [0].into_iter().chain(last_begins..=content.len()) {
        assert_eq!(told(content[..length].to_vec()), Some(true), "cut to {length}");
    }
    // That the last record is longer than the file could be the end of the process, too.
    let told_by_itself = |at: &usize| !(last_begins..last_begins + 4).contains(at);
    for at in (0..content.len()).filter(told_by_itself) {
        let mut content = content.clone();
        content[at] ^= 0x10;
        assert_ne!(told(content), Some(true), "byte {at}, the last record begins at {last_begins}");
    }
}

#[test]
fn a_damaged_subscription_leaves_the_others() {
    let (disk, _, files) = scripted();
    let all = script::open(&disk.copy()).1;
    for (path, content) in files {
        let copy = disk.copy();
        copy.spoil(&path, vec![0xaa; content.len()]);
        let (store, restored) = script::open(&copy);
        let same = restored.iter().filter(|one| all.contains(one)).count();
        assert!(same >= all.len() - 1, "{}", path.display());
        let lost = all.len() - restored.len();
        assert_eq!(store.problems().len(), lost, "each loss is told: {:?}", store.problems());
    }
}

#[test]
fn garbage_behind_the_end_of_every_file() {
    let (disk, model, files) = scripted();
    for (path, content) in &files {
        for (_, other) in &files {
            for garbage in [other.clone(), vec![0; 50], content[content.len() / 2..].to_vec()] {
                let copy = disk.copy();
                copy.spoil(path, [content.clone(), garbage].concat());
                check_spoiled(&copy, &model, &format!("garbage behind {}", path.display()));
            }
        }
    }
}

/// Runs the script on a disk that crashes at an operation; then what was synced is there, whichever of the names that
/// were not synced are.
#[test]
fn a_crash_at_every_operation() {
    let disk = SimDisk::default();
    run(&disk);
    let operations = disk.operations();
    assert!(operations > 50, "{operations}");
    for at in 0..operations {
        for part in PARTS {
            let disk = SimDisk::default();
            disk.fail(at, Fault::Crash(part));
            let model = goes_on(&disk);
            check_all_losses(&disk, &model, &format!("crash at operation {at}, {part} thousandths"));
        }
    }
}

/// Each operation fails once, the process goes on as if nothing had been, and in the end the power is lost.
#[test]
fn an_error_at_every_operation_that_nobody_minds() {
    let disk = SimDisk::default();
    run(&disk);
    for at in 0..disk.operations() {
        for part in PARTS {
            let disk = SimDisk::default();
            disk.fail(at, Fault::Error(io::ErrorKind::StorageFull, part));
            let model = goes_on(&disk);
            check_all_losses(&disk, &model, &format!("error at operation {at}, {part} thousandths"));
        }
    }
}

const PARTS: [usize; 7] = [0, 400, 700, 1000, 1001, 1300, 1700];

/// Runs the script, whatever fails, to its end or the crash.
fn goes_on(disk: &SimDisk) -> Model {
    let Ok((store, _)) = try_open(disk) else { return Model::default() };
    let mut run = Run { store, model: Model::default() };
    for step in 0..STEPS {
        let _ = run.step(step);
        if disk.is_crashed() {
            break;
        }
    }
    run.model
}

/// The process is killed, or the power is lost with each set of the names that were not synced.
pub(crate) fn check_all_losses(disk: &SimDisk, model: &Model, what: &str) {
    let names = disk.unsynced_names();
    assert!(names < 10, "{names} names wait for the disk");
    // Bits above those of names make the difference for writes that nobody waited for.
    let losses = (0..4u64 << names).map(|loss| (loss & ((1 << names) - 1)) | (loss >> names) << 50);
    for kept in [None].into_iter().chain(losses.map(Some)) {
        let disk = disk.copy();
        match kept {
            None => disk.kill(),
            Some(kept) => disk.lose_power(kept),
        }
        let mut model = model.clone();
        if kept.is_none() {
            model.killed();
        }
        let checked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            let (store, restored) = script::open(&disk);
            assert!(store.problems().is_empty(), "a crash is no damage: {:?}", store.problems());
            model.check_crash(&restored);
            // What was shown does not vanish when the power goes now.
            drop(store);
            disk.lose_power(0);
            model.synced();
            model.check_crash(&script::open(&disk).1);
        }));
        assert!(checked.is_ok(), "{what}, names {kept:x?}");
    }
}

/// Each operation fails once; the same step is tried again, and all is as if nothing had been.
#[test]
fn an_error_at_every_operation() {
    let disk = SimDisk::default();
    let first = script::open(&disk).0;
    let opened = disk.operations();
    drop(first);
    let disk = SimDisk::default();
    run(&disk);
    for at in opened..disk.operations() {
        for (kind, part) in
            [(io::ErrorKind::StorageFull, 0), (io::ErrorKind::StorageFull, 600), (io::ErrorKind::Other, 1000)]
        {
            let checked = panic::catch_unwind(|| fail_at(at, kind, part));
            assert!(checked.is_ok(), "operation {at}, {kind}, {part} thousandths");
        }
    }
}

fn fail_at(at: u64, kind: io::ErrorKind, part: usize) {
    let disk = SimDisk::default();
    disk.fail(at, Fault::Error(kind, part));
    let mut run = Run { store: script::open(&disk).0, model: Model::default() };
    let mut errors = 0;
    for step in 0..STEPS {
        while let Err(error) = run.step(step) {
            errors += 1;
            assert!(errors < 2, "{error}");
        }
    }
    run.store.sync().unwrap();
    run.model.synced();
    // Removals at the start are tried again in silence.
    let services = SubscriptionId::from("services");
    assert!(run.model.0[&services].version().is_some());
    drop(run.store);
    disk.lose_power(0);
    let (store, restored) = script::open(&disk);
    assert!(store.problems().is_empty(), "{:?}", store.problems());
    run.model.check_crash(&restored);
}

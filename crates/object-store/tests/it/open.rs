//! What opening a store does beside reading it: locks, modes, keys, and what it refuses.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use object_store::{Change, Error, Key, OpenError, ProblemKind, Record, Restored, Store, SubscriptionId};

use crate::{
    script::{self, SIZES, delete, put, run},
    sim_disk::{Fault, SimDisk},
};

fn id(name: &str) -> SubscriptionId {
    SubscriptionId::from(name)
}

fn list(version: u64) -> Vec<Record> {
    vec![Record::Begin, put(1, version, Change::Added), Record::Complete { version }]
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_second_process_is_told_who_has_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path(), None).unwrap();
    let refused = Store::open(dir.path(), None).unwrap_err();
    let OpenError::InUse { path, holder } = &refused else { panic!("{refused}") };
    assert_eq!((path, holder), (&dir.path().join("lock"), &std::process::id().to_string()));
    assert!(refused.to_string().contains(&*dir.path().to_string_lossy()), "{refused}");
    drop(store);
    Store::open(dir.path(), None).unwrap();
}

#[test]
fn only_the_owner_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let (mut store, _) = Store::open(&dir, None).unwrap();
    store.append(&id("services"), &list(1)).unwrap();
    store.blobs().put("a", b"b").unwrap();
    store.sync().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for folder in [&dir, &dir.join("logs"), &dir.join("blobs")] {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
    let files = files(&dir);
    assert_eq!(files.len(), 3, "lock, log, blob");
    assert!(files.iter().all(|path| mode(path) == 0o600), "{files:?}");
}

#[test]
fn an_error_names_the_file_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "").unwrap();
    let refused = Store::open(&path.join("store"), None).unwrap_err().to_string();
    assert!(refused.contains(&*path.to_string_lossy()) && refused.contains("remove the file"), "{refused}");
}

#[test]
fn another_key_destroys_nothing() {
    let disk = SimDisk::default();
    run(&disk).store.sync().unwrap();
    let before = script::open(&disk).1;
    let with = |key: Option<Key>| {
        Store::open_on(Arc::new(disk.clone()), Path::new("/store"), key.as_ref(), SIZES).unwrap()
    };
    for key in [None, Some(Key::new([2; 32]))] {
        let (mut store, restored) = with(key);
        assert_eq!(restored.len(), 1, "what is not sealed needs no key");
        let [problem] = store.problems() else { panic!("{:?}", store.problems()) };
        assert!(matches!(problem.kind, ProblemKind::WrongKey));
        assert_eq!(problem.subscription, Some(id("secrets")));
        assert!(problem.to_string().contains("start with that key"), "{problem}");
        let refused = store.append(&id("secrets"), &list(1)).unwrap_err();
        assert!(matches!(refused, Error::WrongKey { .. }), "{refused}");
        store.sync().unwrap();
    }
    assert_eq!(script::open(&disk).1, before, "the right key opens all of it");
    // Dropped by name, it can be begun again.
    let (mut store, _) = with(None);
    store.append(&id("secrets"), &[vec![Record::Drop], list(3)].concat()).unwrap();
    store.sync().unwrap();
    let (store, restored) = with(None);
    assert!(store.problems().is_empty() && restored.len() == 2, "{:?}", store.problems());
}

#[test]
fn sealed_bodies_are_not_on_the_disk() {
    let disk = SimDisk::default();
    let mut store = script::open(&disk).0;
    let body = Bytes::from_static(b"the password");
    let secret =
        |version| Record::Put { key: "a".into(), version, body: body.clone(), change: Change::Modified };
    let records = [Record::BeginSealed, secret(1), Record::Complete { version: 1 }, secret(2)];
    store.append(&id("secrets"), &records).unwrap();
    store.sync().unwrap();
    let found = disk.files().iter().any(|(_, content)| content.windows(body.len()).any(|part| part == body));
    assert!(!found);
    assert_eq!(script::open(&disk).1[0].objects[0].body, body);
    assert!(!format!("{records:?}").contains("password"));
    assert!(!format!("{:?}", script::open(&disk).1).contains("password"));
}

#[test]
fn of_many_that_several_threads_read_each_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<_> = (10..90).map(|number| format!("list-{number}")).collect();
    let (mut store, _) = Store::open(dir.path(), None).unwrap();
    for (version, name) in (1..).zip(&names) {
        store.append(&id(name), &list(version)).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    // A folder in the place of a file is no file that could be read.
    let unreadable = [&names[3], &names[60]].map(|name| {
        let is_of =
            |path: &PathBuf| fs::read(path).unwrap().windows(name.len()).any(|part| part == name.as_bytes());
        let path = files(&dir.path().join("logs")).into_iter().find(is_of).unwrap();
        fs::remove_file(&path).unwrap();
        path
    });
    for path in &unreadable {
        fs::create_dir(path).unwrap();
    }
    let (store, restored) = Store::open(dir.path(), None).unwrap();
    let mut found: Vec<_> =
        restored.iter().map(|found| (found.subscription.to_string(), found.objects[0].version)).collect();
    found.sort();
    let all = names.iter().cloned().zip(1..);
    let expected: Vec<_> = all.filter(|(name, _)| *name != names[3] && *name != names[60]).collect();
    assert_eq!(found, expected);
    let told: BTreeSet<_> = store.problems().iter().map(|problem| problem.path.clone()).collect();
    assert_eq!(told, BTreeSet::from(unreadable));
}

#[test]
fn what_cannot_be_read_now_is_kept() {
    let disk = SimDisk::default();
    run(&disk).store.sync().unwrap();
    let before = script::open(&disk).1;
    let start = disk.operations();
    script::open(&disk);
    let mut unreadable = 0;
    for at in 0..disk.operations() - start {
        disk.fail(at, Fault::Error(io::ErrorKind::Other, 0));
        if let Ok((store, restored)) = script::try_open(&disk)
            && let [problem] = store.problems()
        {
            unreadable += 1;
            assert!(matches!(problem.kind, ProblemKind::Unreadable(_)), "{problem}");
            assert_eq!(restored.len(), 1, "the other one is there");
        }
        disk.calm();
        assert_eq!(script::open(&disk).1, before, "operation {at}");
    }
    assert!(unreadable >= 4, "{unreadable}");
}

#[test]
fn records_that_do_not_fit_are_refused_whole() {
    let disk = SimDisk::default();
    let mut store = script::open(&disk).0;
    let services = id("services");
    let early = store.append(&services, &[put(1, 1, Change::Added)]).unwrap_err();
    assert!(matches!(early, Error::NotBegun { .. }), "{early}");
    assert!(store.append(&services, &[Record::Complete { version: 1 }]).is_err());
    assert!(store.append(&services, &[Record::Begin, Record::Bookmark { version: 1 }]).is_err());
    store.append(&services, &list(5)).unwrap();
    let late = [put(2, 6, Change::Added), put(3, 6, Change::Added)];
    let refused = store.append(&services, &late).unwrap_err();
    assert!(matches!(refused, Error::NotAhead { version: 6, current: 6, .. }), "{refused}");
    let long =
        Record::Put { key: vec![0; 70_000].into(), version: 9, body: Bytes::new(), change: Change::Added };
    assert!(matches!(store.append(&services, &[delete(1, 8), long]), Err(Error::TooLong { .. })));
    store.sync().unwrap();
    let restored: Vec<Restored> = script::open(&disk).1;
    assert_eq!((restored[0].version, restored[0].objects.len()), (5, 1));
}

#[test]
fn a_full_disk_is_told_and_forgotten() {
    let disk = SimDisk::default();
    let mut store = script::open(&disk).0;
    let services = id("services");
    store.append(&services, &list(5)).unwrap();
    store.sync().unwrap();
    for version in 6..9 {
        store.append(&services, &[put(2, version, Change::Modified)]).unwrap();
        disk.fail(0, Fault::Error(io::ErrorKind::StorageFull, 300));
        let full = store.sync().unwrap_err();
        assert!(full.to_string().contains("free some space"), "{full}");
        assert!(store.statistics().backlog > 0);
    }
    store.sync().unwrap();
    assert_eq!(store.statistics().backlog, 0);
    disk.lose_power(0);
    let restored = script::open(&disk).1;
    assert_eq!((restored[0].version, restored[0].history.len()), (8, 3));
}

#[test]
fn a_list_that_is_begun_anew_leaves_its_room_on_a_full_disk() {
    let disk = SimDisk::default();
    let mut store = script::open(&disk).0;
    let (services, nodes) = (id("services"), id("nodes"));
    store.append(&services, &[Record::Begin, put(1, 2, Change::Added)]).unwrap();
    store.append(&nodes, &list(1)).unwrap();
    store.sync().unwrap();
    store.append(&services, &[Record::Begin]).unwrap();
    store.append(&nodes, &[put(2, 6, Change::Modified)]).unwrap();
    disk.fail(0, Fault::Error(io::ErrorKind::StorageFull, 0));
    store.sync().unwrap();
    disk.lose_power(0);
    let restored = script::open(&disk).1;
    assert_eq!((restored.len(), restored[0].version), (1, 6));
}

#[test]
fn a_disk_that_stays_full_does_not_fill_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path(), None).unwrap();
    let services = id("services");
    store.append(&services, &list(1)).unwrap();
    store.sync().unwrap();
    // Nothing can be made in what is a file.
    fs::remove_dir_all(dir.path().join("logs")).unwrap();
    fs::write(dir.path().join("logs"), "").unwrap();
    let body = Bytes::from(vec![7; 1 << 20]);
    let refused = (2..30).find_map(|version| {
        let record = Record::Put { key: "a".into(), version, body: body.clone(), change: Change::Modified };
        store.append(&services, &[record]).err()
    });
    assert!(matches!(refused, Some(Error::Disk(_))), "{refused:?}");
    assert!(store.statistics().backlog < 8 << 20);
}

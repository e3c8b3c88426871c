use std::{sync::mpsc, thread};

use kube_wire::resource::GroupVersionResource;

use super::{
    durable::{SPARE, excess},
    test_disk::TestDisk,
    *,
};

fn key(resource: &str) -> Key {
    Key::pooled(&GroupVersionResource::new("", "v1", resource))
}

/// A store on that disk, and a cache, which have the same empty list at version 1.
fn listed(disk: &Arc<TestDisk>, dir: &Path, key: &Key) -> (Storage, Cache) {
    let (storage, _) = Storage::open_on(disk.clone(), dir, [7; 32]).unwrap();
    let (mut cache, first) = (Cache::new(Limits::default()), ResourceVersion::new(1).unwrap());
    cache.replace(Vec::new(), first).unwrap();
    storage.replace(key, &[], first);
    (storage, cache)
}

/// A Service of so many bytes, as a stream of it would be told.
fn told(cache: &mut Cache, version: u64, bytes: usize) -> Arc<Event> {
    let service = serde_json::json!({ "metadata": {
        "namespace": "a", "name": "s", "resourceVersion": version.to_string(), "annotations": { "filler": "x".repeat(bytes) },
    } });
    let object = Object::from_json(service.to_string().into()).unwrap();
    let change = if version == 2 { Change::Added } else { Change::Modified };
    cache.apply(change, object.into()).unwrap().unwrap()
}

/// The version of the only subscription in a store that is opened after `kill -9`.
fn after_restart(dir: &Path) -> Option<u64> {
    let (storage, caches) = Storage::open(dir, [7; 32]).unwrap();
    assert!(storage.unreadable().is_empty(), "{:?}", storage.unreadable());
    caches.values().next()?.resource_version().map(ResourceVersion::get)
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_loses_nothing_that_is_shown_and_catches_up() {
    let key = key("services");
    // Few changes wait in memory; many are a hole that only a whole list closes.
    for (changes, bytes, is_hole) in [(3, 100, false), (12, 1 << 20, true)] {
        let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
        let (storage, mut cache) = listed(&disk, folder.path(), &key);
        let mut version = 2;
        storage.apply(&key, &[told(&mut cache, version, bytes)]);
        assert_eq!(storage.unstored(), Vec::<String>::new());
        disk.fill(true);
        for _ in 0..changes {
            version += 1;
            storage.apply(&key, &[told(&mut cache, version, bytes)]);
            assert!(storage.unstored()[0].starts_with("node /api/v1/services: "), "{:?}", storage.unstored());
        }
        assert!(!storage.wants_whole(&key), "it is not tried each time");
        tokio::time::advance(AGAIN).await;
        assert_eq!(storage.wants_whole(&key), is_hole);
        disk.fill(false);
        version += 1;
        storage.apply(&key, &[told(&mut cache, version, bytes)]);
        if is_hole {
            assert_eq!(storage.unstored().len(), 1, "behind a hole nothing is stored");
            let all = cache.snapshot().unwrap();
            storage.replace(&key, all.iter(), all.resource_version());
        }
        assert_eq!(storage.unstored(), Vec::<String>::new());
        version += 1;
        storage.apply(&key, &[told(&mut cache, version, bytes)]);
        drop(storage);
        assert_eq!(after_restart(folder.path()), Some(version), "{changes} changes");
    }
}

#[test]
fn a_restart_while_the_disk_is_full_finds_what_was_stored_before() {
    let key = key("services");
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
    let (storage, mut cache) = listed(&disk, folder.path(), &key);
    storage.apply(&key, &[told(&mut cache, 2, 100)]);
    disk.fill(true);
    (3..30).for_each(|version| storage.apply(&key, &[told(&mut cache, version, 1 << 20)]));
    drop(storage);
    assert_eq!(after_restart(folder.path()), Some(2));
}

#[test]
fn documents_and_events_do_not_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, _) = Storage::open(folder.path(), [7; 32]).unwrap();
    let busy = storage.store.lock();
    let (done, waiting) = mpsc::channel();
    let documents = storage.clone();
    let writer = thread::spawn(move || {
        documents.put_blob("a", b"open").unwrap();
        documents.put_sealed_blob("b", b"sealed").unwrap();
        documents.remove_blob("a").unwrap();
        done.send((documents.blob("a"), documents.blob("b"))).unwrap();
    });
    let found = waiting.recv_timeout(Duration::from_secs(30)).expect("not kept by the store");
    assert_eq!(found, (None, Some(Bytes::from_static(b"sealed"))));
    drop(busy);
    writer.join().unwrap();
}

type Mend = fn(&Storage);

#[test]
fn a_document_that_is_damaged_is_named_until_it_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (storage, _) = Storage::open(folder.path(), [7; 32]).unwrap();
    for name in ["allowances", "token"] {
        storage.put_blob(name, b"as it was").unwrap();
    }
    let mend: [(&str, Mend); 3] = [
        ("allowances", |storage| storage.put_blob("allowances", b"anew").unwrap()),
        ("allowances", |storage| storage.remove_blob("allowances").unwrap()),
        ("token", |storage| storage.put_sealed_blob("token", b"anew").unwrap()),
    ];
    for (name, mend) in mend {
        storage.put_blob(name, b"as it was").unwrap();
        for file in std::fs::read_dir(folder.path().join("blobs")).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(storage.blob(name), None);
        }
        let said = storage.unreadable();
        assert!(said.len() == 1 && said[0].starts_with(name) && said[0].contains("damaged"), "{said:?}");
        mend(&storage);
        assert_eq!(storage.unreadable(), Vec::<String>::new());
    }
}

/// What is stored meanwhile, forgotten and counted.
#[test]
fn a_list_on_a_slow_disk_holds_up_nothing_else() {
    let (services, nodes, pods) = (key("services"), key("nodes"), key("pods"));
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
    let (storage, mut cache) = listed(&disk, folder.path(), &services);
    storage.apply(&services, &[told(&mut cache, 2, 100)]);
    let first = ResourceVersion::new(1).unwrap();
    assert!(storage.replace(&nodes, &[], first));
    disk.shut(true);
    let lists = [&nodes, &pods].map(|key| {
        let (storage, key) = (storage.clone(), key.clone());
        thread::spawn(move || storage.replace(&key, &[], ResourceVersion::new(7).unwrap()))
    });
    disk.until_waiting(2);
    let (done, waiting) = mpsc::channel();
    let other = storage.clone();
    let writer = thread::spawn(move || {
        other.apply(&services, &[told(&mut cache, 3, 100)]);
        other.statistics();
        done.send(other.unstored()).unwrap();
    });
    let unstored = waiting.recv_timeout(Duration::from_secs(30)).expect("not kept by the lists");
    assert_eq!(unstored, Vec::<String>::new());
    disk.shut(false);
    writer.join().unwrap();
    assert!(lists.into_iter().all(|list| list.join().unwrap()));
    drop(storage);
    let (storage, caches) = Storage::open(folder.path(), [7; 32]).unwrap();
    assert_eq!(storage.unreadable(), Vec::<String>::new());
    let mut versions: Vec<_> = caches.values().filter_map(Cache::resource_version).collect();
    versions.sort();
    assert_eq!(versions.into_iter().map(ResourceVersion::get).collect::<Vec<_>>(), [3, 7, 7]);
}

#[tokio::test]
async fn the_files_do_not_grow_with_what_is_written_while_it_is_written() {
    let key = key("services");
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
    let (storage, mut cache) = listed(&disk, folder.path(), &key);
    let (mut version, mut written) = (1, 0);
    for patient in [false, true] {
        for _ in 0..6 {
            for _ in 0..200 {
                version += 1;
                storage.apply(&key, &[told(&mut cache, version, 64 << 10)]);
            }
            written += 200 * (64 << 10);
            storage.tend(patient, false).unwrap();
        }
        let Statistics { length, live, .. } = storage.statistics();
        assert!(length < 2 * live + 3 * SPARE, "{length} of {written}, {live} live");
    }
}

/// A Node of so many bytes.
fn node(name: &str, bytes: usize) -> Arc<Object> {
    let node = serde_json::json!({ "metadata": {
        "name": name, "resourceVersion": "1", "annotations": { "filler": "x".repeat(bytes) },
    } });
    Object::from_json(node.to_string().into()).unwrap().into()
}

#[tokio::test]
async fn a_list_that_is_too_large_for_the_disk_keeps_nothing_else_from_it() {
    let (services, nodes) = (key("services"), key("nodes"));
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
    let (storage, mut cache) = listed(&disk, folder.path(), &services);
    let first = ResourceVersion::new(1).unwrap();
    let small = [node("a", 1 << 10)];
    assert!(storage.replace(&nodes, &small, first), "there is room for that");
    disk.limit(2 << 20);
    let large: Vec<_> = (0..8).map(|number| node(&format!("n-{number}"), 1 << 20)).collect();
    for version in 2..6 {
        assert!(!storage.replace(&nodes, &large, ResourceVersion::new(version).unwrap()));
        assert!(storage.unstored()[0].starts_with("node /api/v1/nodes: "), "{:?}", storage.unstored());
        storage.apply(&services, &[told(&mut cache, version, 100 << 10)]);
        assert_eq!(storage.unstored().len(), 1, "{:?}", storage.unstored());
        // Memory is not where it is instead.
        assert_eq!(storage.statistics().backlog / (1 << 20), 0);
    }
    // What was stored before is what a restart finds; it can be let go all the same.
    let stored = |storage: Storage| {
        drop(storage);
        let (storage, caches) = Storage::open_on(disk.clone(), folder.path(), [7; 32]).unwrap();
        let versions = [&services, &nodes].map(|key| caches.get(&key.to_string())?.resource_version());
        (storage, versions.map(|version| version.map(ResourceVersion::get)))
    };
    let (storage, versions) = stored(storage);
    assert_eq!(versions, [Some(5), Some(1)]);
    storage.forget(&nodes.to_string()).unwrap();
    storage.tend(false, false).unwrap();
    assert_eq!(stored(storage).1, [Some(5), None]);
}

#[tokio::test]
async fn what_a_new_list_replaces_leaves_its_room_though_another_does_not_fit() {
    let (services, nodes) = (key("services"), key("nodes"));
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
    let (storage, mut cache) = listed(&disk, folder.path(), &services);
    for version in 1..3 {
        assert!(storage.replace(&nodes, &[node("a", 1 << 20)], ResourceVersion::new(version).unwrap()));
    }
    // Both lists are there until all else is durable, and that does not fit beside them.
    disk.limit(2 << 20);
    storage.apply(&services, &[told(&mut cache, 2, 100 << 10)]);
    assert_eq!(storage.unstored().len(), 1, "{:?}", storage.unstored());
    storage.tend(false, false).unwrap();
    assert_eq!(storage.unstored(), Vec::<String>::new());
}

#[tokio::test]
async fn where_files_cannot_be_put_in_order_what_changes_is_durable_all_the_same() {
    let (services, nodes) = (key("services"), key("nodes"));
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
    let (storage, mut cache) = listed(&disk, folder.path(), &services);
    disk.keep_files();
    (2..800).for_each(|version| storage.apply(&services, &[told(&mut cache, version, 64 << 10)]));
    assert!(excess(&storage.store.lock()) > 0, "there is much to be put in order");
    for version in 1..3 {
        assert!(storage.replace(&nodes, &[node("a", 1 << 20)], ResourceVersion::new(version).unwrap()));
    }
    assert!(!storage.tend(true, false).unwrap(), "it may wait");
    assert!(storage.tend(false, false).unwrap());
    assert!(storage.store.lock().is_durable(), "what was replaced is gone, too");
}

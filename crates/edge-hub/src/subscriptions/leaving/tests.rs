use std::{collections::BTreeSet, path::Path, sync::mpsc};

use kube_wire::resource_version::ResourceVersion;
use watch_cache::Cache;

use super::*;
use crate::{
    storage::{Storage, test_disk::TestDisk},
    subscriptions::{Carrier, offline::Offline},
};

fn key(resource: &str) -> Key {
    Key::pooled(&GroupVersionResource::new("", "v1", resource))
}

/// A store that has empty lists of these, at version 1.
fn stored(disk: &Arc<TestDisk>, dir: &Path, resources: &[&str]) {
    let (storage, _) = Storage::open_on(disk.clone(), dir, [7; 32]).unwrap();
    for resource in resources {
        assert!(storage.replace(&key(resource), &[], ResourceVersion::new(1).unwrap()));
    }
}

/// What a store has, by the resource, and at which version.
fn found(dir: &Path) -> Vec<(String, u64)> {
    let (_, caches) = Storage::open(dir, [7; 32]).unwrap();
    let version = |cache: &Cache| cache.resource_version().map_or(0, ResourceVersion::get);
    let mut found: Vec<_> = caches.iter().map(|(name, cache)| (name.clone(), version(cache))).collect();
    found.sort();
    found
}

/// Both what was open and what nobody had asked for.
#[test]
fn nobody_waits_while_the_disk_forgets_and_what_is_opened_anew_begins_with_nothing_and_stays() {
    for opened in [true, false] {
        let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
        stored(&disk, folder.path(), &["nodes", "pods"]);
        let hub = Offline::new(&disk, folder.path());
        let (nodes, pods) = (key("nodes"), key("pods"));
        if opened {
            let own = nodes.clone();
            let first = hub.at_once(move |all| all.open_own(&own).unwrap());
            assert!(first.is_whole());
        }
        disk.shut(true);
        let resource = nodes.resource.clone();
        let own = nodes.clone();
        hub.at_once(move |all| if opened { all.close_own(&own) } else { all.let_go(&resource, false) });
        disk.until_waiting(1);
        let other = hub.at_once(move |all| all.open_own(&pods).unwrap());
        assert!(other.is_whole(), "another is there as it was");
        let anew = nodes.clone();
        let second = hub.at_once(move |all| all.open_own(&anew).unwrap());
        assert!(!second.is_whole() && !second.closed().is_cancelled());
        assert!(hub.subscriptions.leaving.names.lock().contains_key(&nodes.to_string()));
        // As its task does, which waits for the one before.
        let (stay, _leave) = hub.subscriptions.leaving.come(&nodes.to_string());
        let (storage, of) = (hub.storage.clone(), nodes.clone());
        let stores = hub.runtime.spawn(async move {
            stay.before.unwrap().cancelled().await;
            storage.replace(&of, &[], ResourceVersion::new(5).unwrap())
        });
        disk.shut(false);
        assert!(hub.runtime.block_on(stores).unwrap());
        assert!(hub.subscriptions.leaving.names.lock().is_empty());
        hub.end();
        assert_eq!(found(folder.path()), [(nodes.to_string(), 5), (key("pods").to_string(), 1)]);
    }
}

#[test]
fn the_end_of_the_hub_forgets_nothing_but_what_was_let_go_before() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
    stored(&disk, folder.path(), &["nodes", "pods", "services"]);
    let hub = Offline::new(&disk, folder.path());
    for resource in ["nodes", "pods"] {
        let own = key(resource);
        hub.at_once(move |all| all.open_own(&own).unwrap());
    }
    disk.shut(true);
    hub.at_once(|all| all.close_own(&key("nodes")));
    disk.until_waiting(1);
    hub.shutdown.cancel();
    disk.shut(false);
    hub.end();
    assert_eq!(found(folder.path()), [(key("pods").to_string(), 1), (key("services").to_string(), 1)]);
}

#[test]
fn what_clients_are_answered_from_stays_when_the_hub_no_longer_reads_it() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
    stored(&disk, folder.path(), &["nodes", "pods"]);
    let hub = Offline::new(&disk, folder.path());
    for (resource, asks) in [("nodes", true), ("pods", false)] {
        let of = key(resource);
        let opened = hub.at_once(move |all| all.open_own(&of).unwrap());
        let of = key(resource);
        hub.at_once(move |all| {
            if asks {
                all.open(&of, true, &Carrier::node(), BTreeSet::new()).unwrap();
            }
            all.close_own(&of);
        });
        assert_eq!(opened.closed().is_cancelled(), !asks, "{resource}");
    }
    hub.end();
    assert_eq!(found(folder.path()), [(key("nodes").to_string(), 1)]);
}

/// A task that is told both at once may end before it has removed anything.
#[test]
fn what_is_let_go_as_the_hub_ends_is_forgotten() {
    let resources = ["nodes", "pods", "services", "endpoints", "events", "secrets", "configmaps", "leases"];
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
    stored(&disk, folder.path(), &resources);
    stored(&disk, folder.path(), &["stays"]);
    let hub = Offline::new(&disk, folder.path());
    for resource in resources {
        let own = key(resource);
        hub.at_once(move |all| all.open_own(&own).unwrap());
    }
    // The runtime has one thread: no task goes on while it is held.
    let (held, holds) = mpsc::channel();
    let (release, gate) = mpsc::channel::<()>();
    hub.runtime.spawn(async move {
        held.send(()).unwrap();
        gate.recv().unwrap();
    });
    holds.recv().unwrap();
    for resource in resources {
        hub.at_once(move |all| all.close_own(&key(resource)));
    }
    hub.shutdown.cancel();
    release.send(()).unwrap();
    hub.end();
    assert_eq!(found(folder.path()), [(key("stays").to_string(), 1)]);
}

/// What was on its way to the disk when the stream was closed.
#[test]
fn a_list_that_is_being_written_is_forgotten_after_it() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
    stored(&disk, folder.path(), &["nodes"]);
    let hub = Offline::new(&disk, folder.path());
    let writing = Arc::new(Writing::new(hub.tasks.clone()));
    disk.shut(true);
    let storage = hub.storage.clone();
    hub.runtime.block_on(async {
        let list = move || _ = storage.replace(&key("nodes"), &[], ResourceVersion::new(7).unwrap());
        let writes = writing.clone();
        let waits = tokio::spawn(async move { writes.write(list).await });
        let slow = disk.clone();
        tokio::task::spawn_blocking(move || slow.until_waiting(1)).await.unwrap();
        // Its stream is closed: nobody waits for the list any more.
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        let (left, reflector) =
            (hub.subscriptions.leaving.leave(&key("nodes").to_string()), hub.subscriptions.reflector.clone());
        let forgets = writing.clone();
        let forgets = tokio::spawn(async move { forgets.write(move || left.forget(&reflector)).await });
        tokio::task::yield_now().await;
        assert!(!forgets.is_finished());
        disk.shut(false);
        forgets.await.unwrap();
    });
    hub.end();
    assert_eq!(found(folder.path()), []);
}

#[test]
fn each_waits_for_all_before_it() {
    let leaving = Leaving::default();
    assert!(leaving.come("a").0.before.is_none());
    let first = leaving.leave("a");
    let second = leaving.come("a").0.before.unwrap();
    let left = leaving.leave("a");
    let third = leaving.come("a").0.before.unwrap();
    drop(first);
    assert!(second.is_cancelled() && !third.is_cancelled());
    assert!(leaving.come("a").0.before.is_some() && leaving.come("b").0.before.is_none());
    drop(left);
    assert!(third.is_cancelled() && leaving.come("a").0.before.is_none());
}

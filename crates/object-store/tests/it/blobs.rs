//! Blobs are the old content or the new.

use std::{path::Path, sync::Arc};

use object_store::{Error, Key, Sizes, Store};

use crate::{
    script,
    sim_disk::{Fault, SimDisk},
};

const NAME: &str = "token/ns/pod-1";

#[test]
fn a_blob_is_what_was_put_last() {
    let disk = SimDisk::default();
    let store = script::open(&disk).0;
    assert_eq!(store.blobs().get(NAME).unwrap(), None);
    store.blobs().put(NAME, b"first").unwrap();
    store.blobs().put_sealed(NAME, b"second").unwrap();
    store.blobs().put("discovery", b"").unwrap();
    disk.lose_power(0);
    assert_eq!(store.blobs().get(NAME).unwrap().unwrap(), "second");
    assert_eq!(store.blobs().get("discovery").unwrap().unwrap(), "");
    assert!(!disk.files().iter().any(|(_, content)| content.windows(6).any(|bytes| bytes == b"second")));
    store.blobs().remove(NAME).unwrap();
    disk.lose_power(0);
    assert_eq!(store.blobs().get(NAME).unwrap(), None);
}

#[test]
fn a_crash_leaves_the_old_or_the_new() {
    for at in 0..3 {
        for part in [0, 500, 1000] {
            for kept in [0, 1, 2, 3] {
                let disk = SimDisk::default();
                let store = script::open(&disk).0;
                store.blobs().put(NAME, b"old").unwrap();
                disk.fail(at, Fault::Crash(part));
                assert!(store.blobs().put(NAME, b"new").is_err());
                disk.lose_power(kept);
                let store = script::open(&disk).0;
                let found = store.blobs().get(NAME).unwrap().unwrap();
                assert!(found == "old" || found == "new", "{at} {part} {kept}: {found:?}");
            }
        }
    }
}

#[test]
fn a_damaged_blob_is_told_and_can_be_put_anew() {
    let disk = SimDisk::default();
    let store = script::open(&disk).0;
    store.blobs().put_sealed(NAME, b"content").unwrap();
    let (path, content) = disk.files().into_iter().find(|(path, _)| path.ends_with_blob()).unwrap();
    for at in 0..content.len() {
        let mut flipped = content.clone();
        flipped[at] ^= 4;
        disk.spoil(&path, flipped);
        assert!(matches!(store.blobs().get(NAME), Err(Error::Damaged { .. })), "byte {at}");
        disk.spoil(&path, content[..at].to_vec());
        assert!(matches!(store.blobs().get(NAME), Err(Error::Damaged { .. })), "cut to {at}");
    }
    store.blobs().put(NAME, b"anew").unwrap();
    assert_eq!(store.blobs().get(NAME).unwrap().unwrap(), "anew");
}

trait EndsWithBlob {
    fn ends_with_blob(&self) -> bool;
}

impl EndsWithBlob for Path {
    fn ends_with_blob(&self) -> bool {
        self.extension().is_some_and(|extension| extension == "blob")
    }
}

#[test]
fn another_key_opens_nothing_and_removes_nothing() {
    let disk = SimDisk::default();
    script::open(&disk).0.blobs().put_sealed(NAME, b"content").unwrap();
    let with = |key: Option<Key>| {
        Store::open_on(Arc::new(disk.clone()), Path::new("/store"), key.as_ref(), Sizes::default())
    };
    for key in [None, Some(Key::new([2; 32]))] {
        let refused = with(key).unwrap().0.blobs().get(NAME).unwrap_err();
        assert!(matches!(refused, Error::WrongKey { .. }), "{refused}");
        assert!(refused.to_string().contains("start with that key"), "{refused}");
    }
    assert!(matches!(with(None).unwrap().0.blobs().put_sealed(NAME, b""), Err(Error::NoKey(_))));
    assert_eq!(script::open(&disk).0.blobs().get(NAME).unwrap().unwrap(), "content");
}

#[test]
fn a_check_finds_each_bit_that_is_not_as_it_was() {
    let disk = SimDisk::default();
    let store = script::open(&disk).0;
    store.blobs().put("discovery", b"open").unwrap();
    store.blobs().put_sealed(NAME, b"content").unwrap();
    let check = || store.blobs().check().unwrap();
    assert!(check().count == 2 && check().problems.is_empty(), "{:?}", check());
    let blobs: Vec<_> = disk.files().into_iter().filter(|(path, _)| path.ends_with_blob()).collect();
    for (path, content) in &blobs {
        for at in 0..content.len() {
            let mut flipped = content.clone();
            flipped[at] ^= 4;
            for spoilt in [flipped, content[..at].to_vec()] {
                disk.spoil(path, spoilt);
                let found = check();
                let [(_, Error::Damaged { path: named })] = &found.problems[..] else { panic!("{found:?}") };
                assert!(found.count == 2 && named == path, "{found:?}");
            }
        }
        disk.spoil(path, content.clone());
    }
    // One in the place of another is whole, and not what is asked for.
    disk.spoil(&blobs[0].0, blobs[1].1.clone());
    assert_eq!(check().problems.len(), 1);
    disk.spoil(&blobs[0].0, blobs[0].1.clone());
    drop(store);
    let other = Some(Key::new([2; 32]));
    let (store, _) =
        Store::open_on(Arc::new(disk.clone()), Path::new("/store"), other.as_ref(), Sizes::default())
            .unwrap();
    let found = store.blobs().check().unwrap();
    let [(Some(name), Error::WrongKey { .. })] = &found.problems[..] else { panic!("{found:?}") };
    assert_eq!(name, NAME);
}

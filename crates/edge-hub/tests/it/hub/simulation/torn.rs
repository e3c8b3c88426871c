//! What a write that was cut short leaves in a file of the store, as the file's format has it: length, checksum, kind, sequence, and the rest.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write as _,
    ops::Range,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use object_store::{Change, Record, Store, SubscriptionId};

use super::parts::folder;

/// A length of four bytes and a checksum, which stand before what they are of.
const PREFIX: usize = 8;

/// The sequence of a record, behind its kind.
const SEQUENCE: Range<usize> = PREFIX + 1..PREFIX + 9;

/// In how many parts a record is cut.
pub(super) const PARTS: usize = 40;

/// What is left of a write that was on its way when the hub was killed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Torn {
    /// So many bytes that are of no record.
    Noise(usize),
    /// So many parts of the record that was to come next, less than all of them.
    Record(usize),
}

impl Torn {
    /// What stands behind what is in that file then. A write goes behind whole records: what was torn before is cut off first. So where that
    /// is still there it is noise, which is nobody's either.
    fn behind(self, file: &[u8]) -> Vec<u8> {
        match self {
            Self::Noise(length) => vec![0x5a; length],
            Self::Record(parts) => next(file).map_or_else(
                || vec![0x5a; parts],
                |record| record[..(record.len() * parts / PARTS).max(1)].to_vec(),
            ),
        }
    }
}

/// The record that would come next, which is as the last one but for its sequence; its checksum nobody can tell of a part. Nothing if there is
/// none or something else is behind it.
fn next(file: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, mut last) = (file, None);
    while !rest.is_empty() {
        let length = u32::from_le_bytes(*rest.first_chunk()?) as usize;
        let (record, behind) = rest.split_at_checked(PREFIX + length)?;
        (rest, last) = (behind, Some(record));
    }
    let mut next = last?.to_vec();
    let sequence: &mut [u8; 8] = next.get_mut(SEQUENCE)?.try_into().ok()?;
    *sequence = (u64::from_le_bytes(*sequence) + 1).to_le_bytes();
    Some(next)
}

/// Leaves in each log what a write that was cut short leaves, which nobody was shown, at the end of the file that is written to.
pub(super) fn tear(root: &Path, torn: Torn) {
    for path in written(root) {
        let left = torn.behind(&fs::read(&path).unwrap());
        OpenOptions::new().append(true).open(path).unwrap().write_all(&left).unwrap();
    }
}

/// The file of each log that is written to. That is the last of the latest list, as names tell: `LOG-LIST-FIRST-LAST.log`, in hexadecimal.
fn written(root: &Path) -> impl Iterator<Item = PathBuf> {
    let mut newest = BTreeMap::<String, ([u64; 2], PathBuf)>::new();
    let files = fs::read_dir(root.join("store/logs")).into_iter().flatten();
    for path in files.map(|file| file.unwrap().path()) {
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        let parts: Vec<&str> = name.split('-').collect();
        let [log, list, first, _] = parts[..] else { continue };
        let order = [list, first].map(|number| u64::from_str_radix(number, 16).unwrap());
        let log = newest.entry(log.to_owned()).or_default();
        if log.1.as_os_str().is_empty() || log.0 < order {
            *log = (order, path);
        }
    }
    newest.into_values().map(|(_, path)| path)
}

/// A record of an object, the same each time but for its version.
fn put(version: u64, change: Change) -> Record {
    Record::Put { key: Bytes::from_static(b"a/s"), version, body: Bytes::from_static(b"{\"n\":1}"), change }
}

/// What is said to come next is what comes next, and a part of it is as good as nothing.
#[test]
fn what_is_torn_is_the_beginning_of_what_the_store_writes_next() {
    let root = folder();
    let dir = root.path().join("store");
    let log = SubscriptionId::from("node /api/v1/services");
    let (mut store, _) = Store::open(&dir, None).unwrap();
    let begun =
        [Record::Begin, put(1, Change::Added), Record::Complete { version: 1 }, put(2, Change::Modified)];
    store.append(&log, &begun).unwrap();
    store.sync().unwrap();
    let path = written(root.path()).next().unwrap();
    let before = fs::read(&path).unwrap();
    let expected = next(&before).unwrap();
    store.append(&log, &[put(3, Change::Modified)]).unwrap();
    store.sync().unwrap();
    let after = fs::read(&path).unwrap();
    assert!(after.starts_with(&before), "it is written behind what there is");
    let came = &after[before.len()..];
    assert_eq!((came.len(), &came[..4]), (expected.len(), &expected[..4]), "as long, and it says so");
    assert_eq!(came[PREFIX..SEQUENCE.end], expected[PREFIX..SEQUENCE.end], "of that kind and sequence");
    let key = SEQUENCE.end + 8;
    assert_eq!(came[key..], expected[key..], "after the version");
    drop(store);
    let versions = |file: &[u8]| {
        fs::write(&path, file).unwrap();
        let (_, restored) = Store::open(&dir, None).unwrap();
        restored.iter().map(|log| log.version).collect::<Vec<_>>()
    };
    assert_eq!(versions(&after), [3]);
    for parts in 1..PARTS {
        let torn = Torn::Record(parts).behind(&before);
        assert!(torn.len() < expected.len() && expected.starts_with(&torn), "{parts}: {torn:?}");
        assert_eq!(versions(&[&before[..], &torn].concat()), [2], "{parts}");
        let again = Torn::Record(parts).behind(&[&before[..], &torn].concat());
        assert_eq!(again, vec![0x5a; parts], "behind what is torn there comes no record");
    }
    assert_eq!(Torn::Noise(3).behind(&before), [0x5a; 3]);
}

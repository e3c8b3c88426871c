//! A process that writes as fast as it can is killed, again and again, on the real disk.

use std::{
    env,
    io::{BufRead, BufReader, Write, stdout},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use bytes::Bytes;
use object_store::{Change, OpenError, Record, Restored, Store, SubscriptionId};

const FOLDER: &str = "ISTHMUS_KILL_TEST_FOLDER";
const OBJECTS: u64 = 200;

/// The state at a version is a function of the version.
fn body(version: u64) -> Bytes {
    format!("{version} ").repeat(100).into()
}

fn key(version: u64) -> Bytes {
    (version * 7919 % OBJECTS).to_string().into()
}

/// A child of another test's has what is open here until it begins its program, the lock with it.
fn open(dir: &Path) -> (Store, Option<Restored>) {
    let (store, mut restored) = loop {
        match Store::open(dir, None) {
            Err(OpenError::InUse { .. }) => thread::sleep(Duration::from_millis(1)),
            opened => break opened.unwrap(),
        }
    };
    assert!(store.problems().is_empty(), "{:?}", store.problems());
    (store, restored.pop())
}

/// Writes `batches` batches of 20 events, each synced, and says how far it is.
fn write(dir: &Path, batches: u64) -> u64 {
    let subscription = SubscriptionId::from("slices");
    let (mut store, restored) = open(dir);
    let mut version = OBJECTS;
    if let Some(restored) = restored {
        version = check(&restored);
    } else {
        let list = (1..=OBJECTS).map(|version| put(version, Change::Added));
        let list = [Record::Begin].into_iter().chain(list).chain([Record::Complete { version }]);
        store.append(&subscription, &list.collect::<Vec<_>>()).unwrap();
    }
    for _ in 0..batches {
        let events: Vec<_> = (version + 1..=version + 20).map(|v| put(v, Change::Modified)).collect();
        store.append(&subscription, &events).unwrap();
        store.sync().unwrap();
        version += 20;
        let _ = writeln!(stdout(), "durable {version}");
        store.compact_step(1 << 20).unwrap();
    }
    version
}

fn put(version: u64, change: Change) -> Record {
    Record::Put { key: key(version), version, body: body(version), change }
}

/// The version of a state that is whole.
fn check(restored: &Restored) -> u64 {
    let now = restored.version;
    let mut versions: Vec<_> = restored.objects.iter().map(|object| object.version).collect();
    versions.sort_unstable();
    assert!(versions.into_iter().eq(now + 1 - OBJECTS..=now), "a mixture at {now}");
    for object in &restored.objects {
        assert_eq!((&object.key, &object.body), (&key(object.version), &body(object.version)));
    }
    let history: Vec<_> = restored.history.iter().map(|event| event.object.version).collect();
    assert!(history.into_iter().eq(restored.history_after + 1..=now), "a hole in the history at {now}");
    now
}

/// Run by itself it writes some batches; as a child of the test below it writes until it is killed.
#[test]
fn writer() {
    if let Ok(dir) = env::var(FOLDER) {
        write(Path::new(&dir), u64::MAX);
    }
    let dir = tempfile::tempdir().unwrap();
    let version = write(dir.path(), 30);
    assert_eq!(check(&open(dir.path()).1.unwrap()), version);
}

#[test]
fn what_was_durable_is_there_after_twenty_kills() {
    let dir = tempfile::tempdir().unwrap();
    let mut durable = 0;
    for kill in 0..20u64 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "kill::writer", "--nocapture"])
            .env(FOLDER, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = thread::spawn(move || {
            let said = |line: String| line.strip_prefix("durable ").and_then(|version| version.parse().ok());
            lines.map_while(Result::ok).filter_map(said).last().unwrap_or(0u64)
        });
        thread::sleep(Duration::from_millis(150 + kill * 17 % 90));
        child.kill().unwrap();
        child.wait().unwrap();
        durable = reader.join().unwrap().max(durable);
        if let (store, Some(restored)) = open(dir.path()) {
            let found = check(&restored);
            assert!(found >= durable, "kill {kill}: {found} is before {durable}");
            drop(store);
        } else {
            assert_eq!(durable, 0, "kill {kill}: nothing is left");
        }
    }
    assert!(durable > 1000, "the writer wrote: {durable}");
}

use bytes::Bytes;
use object_store::{Change, Key, Record, Store, SubscriptionId};
use tempfile::TempDir;

use super::*;

fn secret() -> String {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "s", "namespace": "a", "uid": "u", "resourceVersion": "7",
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "hunter2" },
        },
        "data": { "password": "aHVudGVyMg==" },
    })
    .to_string()
}

/// A hub's folder with one subscription of Secrets in it, and two documents.
fn folder() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("storage.key"), [7; 32]).unwrap();
    let (mut store, _) = Store::open(&root.path().join("store"), Some(&Key::new([7; 32]))).unwrap();
    let put = Record::Put {
        key: Bytes::from_static(b"a/s"),
        version: 7,
        body: secret().into(),
        change: Change::Added,
    };
    let records = [Record::BeginSealed, put, Record::Complete { version: 7 }];
    store.append(&SubscriptionId::from("node /api/v1/secrets"), &records).unwrap();
    store.flush().unwrap();
    store.sync().unwrap();
    store.blobs().put("documents", b"{}").unwrap();
    store.blobs().put_sealed("node-token-a", b"a token").unwrap();
    root
}

/// What is printed, what is said beside it, and how it ends.
fn said(root: &TempDir, command: CacheCommand) -> (String, String, String) {
    said_with(root, command, None)
}

fn said_with(root: &TempDir, command: CacheCommand, key: Option<PathBuf>) -> (String, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = CacheCommandArgs { command, root_dir: root.path().to_owned(), storage_key_file: key };
    let result =
        run(&args, &mut out, &mut err).map_or_else(|error| error.to_string(), |code| format!("{code:?}"));
    (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), result)
}

fn shown(root: &TempDir, command: CacheCommand) -> (String, String) {
    let (out, _, result) = said(root, command);
    (out, result)
}

fn wanted(key: &str, show_secrets: bool) -> CacheCommand {
    CacheCommand::Get(GetArgs { resource: "secrets".to_owned(), key: key.to_owned(), show_secrets })
}

#[test]
fn what_is_held_is_listed() {
    let (text, _) = shown(&folder(), CacheCommand::Ls);
    let words: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(
        [words[0], words[1], words[2], words[3], words[5], words[6]],
        ["secrets", "node", "1", "7", "yes", "/api/v1/secrets"]
    );
}

#[test]
fn values_of_secrets_are_shown_only_when_asked_for() {
    let root = folder();
    let (text, _) = shown(&root, wanted("a/s", false));
    assert!(text.contains("password") && !text.contains("aHVudGVyMg") && !text.contains("hunter2"), "{text}");
    let (text, _) = shown(&root, wanted("a/s", true));
    assert!(text.contains("aHVudGVyMg==") && text.contains("hunter2"), "{text}");
    let (text, result) = shown(&root, wanted("a/t", false));
    assert!(text.is_empty() && result.contains("no secrets \"a/t\" is held"), "{result}");
}

#[test]
fn damage_is_found_and_left_alone() {
    let root = folder();
    let (text, code) = shown(&root, CacheCommand::Verify);
    assert!(text.ends_with("1 subscriptions with 1 objects and 2 documents read, 0 damaged\n"), "{text}");
    assert_eq!(code, format!("{:?}", ExitCode::SUCCESS));
    let log = files(&root.path().join("store"))
        .into_iter()
        .max_by_key(|path| std::fs::metadata(path).unwrap().len())
        .unwrap();
    // Its head no longer reads.
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[3] ^= 0xff;
    std::fs::write(&log, &bytes).unwrap();
    let (text, code) = shown(&root, CacheCommand::Verify);
    assert!(text.contains("damaged: ") && text.contains(&*log.to_string_lossy()), "{text}");
    assert_eq!(code, format!("{:?}", ExitCode::from(exit::CHECK_FAILED)));
    assert_eq!(std::fs::read(&log).unwrap(), bytes, "the file stays as it is");
    let left = std::fs::read_dir(root.path()).unwrap().count();
    assert_eq!(left, 2, "no copy stays");
}

#[test]
fn damaged_documents_are_found_by_their_names() {
    let root = folder();
    for file in files(&root.path().join("store").join("blobs")) {
        let bytes = std::fs::read(&file).unwrap();
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            std::fs::write(&file, flipped).unwrap();
            let (text, code) = shown(&root, CacheCommand::Verify);
            assert!(text.contains(&format!("damaged: {}", file.display())), "byte {at}: {text}");
            assert!(text.contains("by itself once there is a link"), "byte {at}: {text}");
            assert!(text.ends_with("and 2 documents read, 1 damaged\n"), "{text}");
            assert_eq!(code, format!("{:?}", ExitCode::from(exit::CHECK_FAILED)));
        }
        std::fs::write(&file, bytes).unwrap();
    }
    // Whole, and sealed with a key that is no longer there.
    let (store, _) = Store::open(&root.path().join("store"), Some(&Key::new([8; 32]))).unwrap();
    store.blobs().put_sealed("node-token-b", b"a token").unwrap();
    drop(store);
    let (text, code) = shown(&root, CacheCommand::Verify);
    assert!(text.starts_with("damaged: node-token-b: ") && text.contains("another key"), "{text}");
    assert_eq!(code, format!("{:?}", ExitCode::from(exit::CHECK_FAILED)));
}

#[test]
fn nothing_is_written_and_nothing_removed() {
    let root = folder();
    let store = root.path().join("store");
    // What a hub would bring into order: the end of a log that was cut short, and what a write left.
    let [log] = &files(&store.join("logs"))[..] else { panic!("one log") };
    let mut bytes = std::fs::read(log).unwrap();
    bytes.extend([7; 5]);
    std::fs::write(log, bytes).unwrap();
    std::fs::write(store.join("blobs").join("a.new"), "half").unwrap();
    std::fs::write(store.join("logs").join("b.new"), "half").unwrap();
    let there = || {
        let mut all: Vec<_> = files(root.path());
        all.sort();
        let read = |path: PathBuf| {
            (std::fs::metadata(&path).unwrap().modified().unwrap(), std::fs::read(&path), path)
        };
        all.into_iter().map(read).map(|(at, content, path)| (at, content.unwrap(), path)).collect::<Vec<_>>()
    };
    let folders = || [root.path(), &store].map(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    let before = (there(), folders());
    for command in [CacheCommand::Ls, CacheCommand::Verify, wanted("a/s", false)] {
        let (text, code) = shown(&root, command);
        assert!(!text.contains("damaged:"), "{text}");
        assert_eq!(code, format!("{:?}", ExitCode::SUCCESS), "{text}");
        assert_eq!((there(), folders()), before);
    }
}

#[test]
fn copies_that_an_earlier_version_left_are_removed_and_nothing_else_is() {
    let root = folder();
    let left = root.path().join(".inspect-17");
    std::fs::create_dir_all(left.join("logs")).unwrap();
    std::fs::write(left.join("logs").join("a"), "a copy").unwrap();
    let before = files(&root.path().join("store"));
    remove_copies(root.path());
    assert!(!left.exists());
    assert_eq!(files(&root.path().join("store")), before);
    assert!(root.path().join("storage.key").exists());
}

#[test]
fn of_several_copies_the_newest_is_shown_and_whose_it_is() {
    let root = folder();
    let (mut store, _) = Store::open(&root.path().join("store"), Some(&Key::new([7; 32]))).unwrap();
    let copies =
        [("node /api/v1/services", 3), ("user a /api/v1/services", 12), ("users /api/v1/services", 9)];
    for (subscription, version) in copies {
        let body = serde_json::json!({ "apiVersion": "v1", "kind": "Service", "metadata": {
            "name": "s", "namespace": "a", "uid": "u", "resourceVersion": version.to_string(),
        } });
        let put = Record::Put {
            key: Bytes::from_static(b"a/s"),
            version,
            body: body.to_string().into(),
            change: Change::Added,
        };
        let records = [Record::Begin, put, Record::Complete { version: 20 }];
        store.append(&SubscriptionId::from(subscription), &records).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let asked = GetArgs { resource: "services".to_owned(), key: "a/s".to_owned(), show_secrets: false };
    let (out, err, _) = said(&root, CacheCommand::Get(asked));
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(object["metadata"]["resourceVersion"], "12");
    assert_eq!(err, "from user a /api/v1/services, at version 12\n");
}

#[test]
fn what_a_running_hub_is_fetching_is_no_damage() {
    let root = folder();
    let (mut store, _) = Store::open(&root.path().join("store"), Some(&Key::new([7; 32]))).unwrap();
    let of = SubscriptionId::from("node /api/v1/services");
    let put = Record::Put {
        key: Bytes::from_static(b"a/s"),
        version: 9,
        body: Bytes::from_static(b"{}"),
        change: Change::Added,
    };
    store.append(&of, &[Record::Begin, put]).unwrap();
    store.flush().unwrap();
    store.sync().unwrap();
    let (text, code) = shown(&root, CacheCommand::Verify);
    assert!(text.contains("no whole list yet") && text.ends_with("documents read, 0 damaged\n"), "{text}");
    assert_eq!(code, format!("{:?}", ExitCode::SUCCESS));
    drop(store);
    // The end of the process, as it is and in the middle of a record.
    let name = of.0.as_bytes();
    let is_its = |path: &PathBuf| std::fs::read(path).unwrap().windows(name.len()).any(|part| part == name);
    let log = files(&root.path().join("store").join("logs")).into_iter().find(is_its).unwrap();
    let bytes = std::fs::read(&log).unwrap();
    for length in [bytes.len(), bytes.len() - 3, 0] {
        std::fs::write(&log, &bytes[..length]).unwrap();
        let (text, code) = shown(&root, CacheCommand::Verify);
        assert!(
            text.contains("no whole list: ")
                && text.contains("when the hub ended, or its file was cut since"),
            "{length}: {text}"
        );
        assert!(
            !text.contains("left over") && text.ends_with("documents read, 0 damaged\n"),
            "{length}: {text}"
        );
        assert_eq!(code, format!("{:?}", ExitCode::SUCCESS));
    }
    // Its head, and the record.
    for at in [3, 20, bytes.len() - 2] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        std::fs::write(&log, flipped).unwrap();
        let (text, code) = shown(&root, CacheCommand::Verify);
        assert!(text.contains(&format!("damaged: {}", log.display())), "byte {at}: {text}");
        assert!(text.ends_with("documents read, 1 damaged\n"), "byte {at}: {text}");
        assert_eq!(code, format!("{:?}", ExitCode::from(exit::CHECK_FAILED)));
    }
}

#[test]
fn of_a_whole_list_that_was_cut_it_is_not_said_that_it_was_being_fetched_alone() {
    let root = folder();
    let [log] = &files(&root.path().join("store").join("logs"))[..] else { panic!("one log") };
    let bytes = std::fs::read(log).unwrap();
    let (subscription, key) = (&b"node /api/v1/secrets"[..], &b"a/s"[..]);
    let at = |part: &[u8]| bytes.windows(part.len()).position(|window| window == part).unwrap();
    // Nothing of it, some of its head, and some of its first record.
    for length in [0, at(subscription) + 1, at(key) + 1] {
        std::fs::write(log, &bytes[..length]).unwrap();
        let (text, code) = shown(&root, CacheCommand::Verify);
        let (list, end) = (format!("no whole list: {}", log.display()), "or its file was cut since");
        let is_damaged = text.contains(&format!("damaged: {}", log.display()));
        // A head that is cut short may be damage as well: that is said instead.
        assert!(is_damaged != (text.contains(&list) && text.contains(end)), "{length}: {text}");
        if length == 0 || length == at(key) + 1 {
            assert!(!is_damaged && text.ends_with("documents read, 0 damaged\n"), "{length}: {text}");
            assert_eq!(code, format!("{:?}", ExitCode::SUCCESS));
        }
    }
}

/// A Service in the version of a list or an event.
fn put(version: u64, change: Change) -> Record {
    let body = serde_json::json!({ "apiVersion": "v1", "kind": "Service", "metadata": {
        "name": "s", "namespace": "a", "uid": "u", "resourceVersion": version.to_string(),
    } });
    Record::Put { key: Bytes::from_static(b"a/s"), version, body: body.to_string().into(), change }
}

#[test]
fn a_last_record_that_does_not_read_is_named_and_is_no_damage() {
    let root = folder();
    let (mut store, _) = Store::open(&root.path().join("store"), Some(&Key::new([7; 32]))).unwrap();
    let of = SubscriptionId::from("node /api/v1/services");
    let list = [Record::Begin, put(1, Change::Added), Record::Complete { version: 1 }];
    store.append(&of, &list).unwrap();
    store.append(&of, &[put(2, Change::Modified)]).unwrap();
    store.sync().unwrap();
    let of_version = |version: u64| {
        let part = format!(r#""resourceVersion":"{version}""#);
        let has = |bytes: &[u8]| bytes.windows(part.len()).any(|window| window == part.as_bytes());
        let logs = files(&root.path().join("store").join("logs"));
        let read = logs.into_iter().map(|path| (std::fs::read(&path).unwrap(), path));
        read.into_iter().find(|(bytes, _)| has(bytes)).unwrap()
    };
    let start = of_version(2).0.len();
    store.append(&of, &[put(3, Change::Modified)]).unwrap();
    store.sync().unwrap();
    drop(store);
    let (bytes, log) = of_version(3);
    let (cut, end) = (|length: usize| bytes[..length].to_vec(), bytes.len());
    let zeroed = |from: usize| [&bytes[..from], &vec![0; end - from][..]].concat();
    let mut flipped = bytes.clone();
    flipped[end - 1] ^= 0x10;
    for (what, content, torn) in [
        ("whole", bytes.clone(), None),
        ("cut before it", cut(start), None),
        ("cut to a byte of it", cut(start + 1), Some(1)),
        ("cut by a byte", cut(end - 1), Some(end - 1 - start)),
        ("zeroed", zeroed(start), Some(end - start)),
        ("its end zeroed", zeroed(end - 5), Some(end - start)),
        ("flipped", flipped, Some(end - start)),
        ("all of the file cut", Vec::new(), Some(0)),
    ] {
        std::fs::write(&log, content).unwrap();
        let (text, code) = shown(&root, CacheCommand::Verify);
        let said = torn.map(|bytes| match bytes {
            0 => "the last file is empty".to_owned(),
            bytes => format!("the last record is torn, {bytes} bytes"),
        });
        let path = log.display();
        if let Some(said) = said {
            let line = format!("{path} ({of}): {said}: what came before it is whole\n");
            assert!(text.contains(&line), "{what}: {text}");
        } else {
            assert_eq!(text.lines().count(), 1, "{what}: {text}");
        }
        assert!(
            text.ends_with("2 subscriptions with 2 objects and 2 documents read, 0 damaged\n"),
            "{what}: {text}"
        );
        assert_eq!(code, format!("{:?}", ExitCode::SUCCESS), "{what}");
    }
}

#[test]
fn what_is_lost_behind_damage_is_counted_apart() {
    let root = folder();
    let (mut store, _) = Store::open(&root.path().join("store"), Some(&Key::new([7; 32]))).unwrap();
    let of = SubscriptionId::from("node /api/v1/services");
    let list = [Record::Begin, put(1, Change::Added), Record::Complete { version: 1 }];
    store.append(&of, &list).unwrap();
    store.append(&of, &[put(2, Change::Modified), put(3, Change::Modified)]).unwrap();
    store.sync().unwrap();
    drop(store);
    let second = br#""resourceVersion":"2""#;
    let found = files(&root.path().join("store").join("logs")).into_iter().find_map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(second.len()).position(|part| part == second)?;
        Some((path, bytes, at))
    });
    let (log, mut bytes, at) = found.unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(&log, bytes).unwrap();
    let (text, code) = shown(&root, CacheCommand::Verify);
    assert!(text.contains(&format!("an earlier state: {}", log.display())), "{text}");
    assert!(!text.contains("damaged: "), "{text}");
    assert!(text.ends_with("2 documents read, 0 damaged, 1 of an earlier state\n"), "{text}");
    assert_eq!(code, format!("{:?}", ExitCode::from(exit::CHECK_FAILED)));
}

#[test]
fn what_a_new_list_replaced_is_no_damage() {
    let root = folder();
    let logs = root.path().join("store").join("logs");
    let before: Vec<_> = files(&logs).into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect();
    let (mut store, _) = Store::open(&root.path().join("store"), Some(&Key::new([7; 32]))).unwrap();
    let of = SubscriptionId::from("node /api/v1/secrets");
    store.append(&of, &[Record::BeginSealed, Record::Complete { version: 9 }]).unwrap();
    store.sync().unwrap();
    drop(store);
    // The hub was killed before it had removed them.
    for (content, path) in before {
        std::fs::write(path, content).unwrap();
    }
    let (text, code) = shown(&root, CacheCommand::Verify);
    assert!(text.contains("left over") && text.ends_with("2 documents read, 0 damaged\n"), "{text}");
    assert_eq!(code, format!("{:?}", ExitCode::SUCCESS));
}

#[test]
fn what_helps_against_a_key_that_is_cut_short_is_said() {
    let root = folder();
    std::fs::write(root.path().join("storage.key"), [7; 20]).unwrap();
    let (_, error) = shown(&root, CacheCommand::Verify);
    assert!(error.contains("storage.key") && error.contains("put back the whole one"), "{error}");
}

#[test]
fn a_key_that_is_elsewhere_is_asked_for_and_taken() {
    let (root, elsewhere) = (folder(), tempfile::tempdir().unwrap());
    let (beside, key) = (root.path().join("storage.key"), elsewhere.path().join("a.key"));
    std::fs::remove_file(beside).unwrap();
    let (out, err, _) = said_with(&root, CacheCommand::Verify, None);
    assert!(out.contains("damaged: ") && err.contains("--storage-key-file"), "{out}{err}");
    let (_, _, error) = said_with(&root, CacheCommand::Verify, Some(key.clone()));
    assert!(error.starts_with("--storage-key-file: cannot read "), "{error}");
    tls::private_file::write(&key, &[7; 32]).unwrap();
    let (out, err, code) = said_with(&root, CacheCommand::Verify, Some(key));
    assert!(out.contains(" 0 damaged") && err.is_empty(), "{out}{err}");
    assert_eq!(code, format!("{:?}", ExitCode::SUCCESS));
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn where_no_hub_has_run_it_says_so() {
    let root = tempfile::tempdir().unwrap();
    let (_, error) = shown(&root, CacheCommand::Ls);
    let root = root.path().display();
    assert_eq!(
        error,
        format!(
            "--root-dir: no hub has kept anything in {root} yet: start one (`edge-hub run`), or name the folder that it was given as \
             --root-dir"
        )
    );
}

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

/// A hub's folder with one subscription of Secrets in it.
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
    root
}

fn shown(root: &TempDir, command: CacheCommand) -> (String, String) {
    let mut out = Vec::new();
    let args = CacheCommandArgs { command, root_dir: root.path().to_owned() };
    let result = run(&args, &mut out).map_or_else(|error| error.to_string(), |code| format!("{code:?}"));
    (String::from_utf8(out).unwrap(), result)
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
    assert!(text.ends_with("1 subscriptions with 1 objects read, 0 damaged\n"), "{text}");
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
    assert!(text.contains("no whole list yet") && text.ends_with("objects read, 0 damaged\n"), "{text}");
    assert_eq!(code, format!("{:?}", ExitCode::SUCCESS));
    drop(store);
    let (text, code) = shown(&root, CacheCommand::Verify);
    assert!(text.ends_with(" 1 damaged\n"), "{text}");
    assert_eq!(code, format!("{:?}", ExitCode::from(exit::CHECK_FAILED)));
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

//! Reads a store without touching it, whether a hub writes to it meanwhile or not.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use object_store::{Blobs, Key, OpenError, Restored, Sizes, Store, Torn, Unfinished};
use tracing::{info, warn};

use super::untouched::Untouched;
use crate::run::storage_key::{self, SHORT_KEY};

/// A running hub may put files in the place of others while they are read: then it is tried again.
const ATTEMPTS: usize = 3;

/// How the names of copies begin that were made in the hub's folder once, to look into them.
const COPY: &[u8] = b".inspect-";

/// What the store holds.
pub(super) struct Contents {
    /// Whole subscriptions, in the order of their names.
    pub(super) restored: Vec<Restored>,
    /// What is damaged, for people.
    pub(super) problems: Vec<String>,
    /// Where records are lost behind one that does not read, for people: damage leaves that, and a loss of power may.
    pub(super) earlier: Vec<String>,
    /// What does not count and is no damage, for people: a list that is or was being fetched, a last record that is not whole, and what is left over.
    pub(super) notes: Vec<String>,
    /// What is kept beside the subscriptions.
    pub(super) blobs: Arc<Blobs>,
    /// Whether there was a key for what is sealed.
    pub(super) has_key: bool,
}

/// Why the store cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is no store.
    #[error("no hub has kept anything in {} yet: start one (`edge-hub run`), or name the folder that it was given as --root-dir", root.display())]
    Absent {
        /// The folder that was named.
        root: PathBuf,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The documents in it cannot be found.
    #[error(transparent)]
    Documents(#[from] object_store::Error),
}

/// Reads the store below `root`, with the key that is given or the one beside the store.
pub(super) fn read(root: &Path, given: Option<[u8; 32]>) -> Result<Contents, ReadError> {
    if let Err(error) = fs::metadata(root.join("store"))
        && error.kind() == io::ErrorKind::NotFound
    {
        return Err(ReadError::Absent { root: root.to_owned() });
    }
    let key = match given {
        Some(given) => Some(Key::new(given)),
        None => key(&storage_key::beside(root))?,
    };
    let mut attempt = 0;
    loop {
        attempt += 1;
        let contents = once(root, key.as_ref())?;
        let is_whole = contents.problems.is_empty() && contents.earlier.is_empty();
        if is_whole || attempt == ATTEMPTS {
            return Ok(contents);
        }
    }
}

fn once(root: &Path, key: Option<&Key>) -> Result<Contents, ReadError> {
    let store = root.join("store");
    let disk = Untouched::default();
    let (opened, mut restored) = Store::open_on(Arc::new(disk.clone()), &store, key, Sizes::default())?;
    restored.sort_by(|a, b| a.subscription.0.cmp(&b.subscription.0));
    let mut problems: Vec<String> = opened.problems().iter().map(ToString::to_string).collect();
    let (is_running, mut notes) = (is_running(&store), Vec::new());
    for unfinished in opened.unfinished() {
        let what = told(unfinished);
        if is_running {
            notes.push(format!("no whole list yet: {what}"));
        } else if unfinished.is_read {
            notes.push(format!(
                "no whole list: {what}: it was being fetched when the hub ended, or its file was cut since; it is fetched anew by a link"
            ));
        } else {
            problems.push(format!("{what}: it holds no whole list, and not all that is there reads"));
        }
    }
    notes.extend(opened.torn().iter().map(|torn| tail(torn, is_running)));
    // What replaced lists leave, what was dropped, and the other files of a damaged list.
    let is_log = |path: &PathBuf| {
        path.parent().is_some_and(|folder| folder.ends_with("logs"))
            && path.extension().is_none_or(|extension| extension != "new")
    };
    let is_told = |path: &PathBuf| {
        opened.unfinished().iter().any(|unfinished| unfinished.files.contains(path))
            || opened.problems().iter().any(|problem| problem.path == *path)
    };
    let left = disk.removed().into_iter().filter(|path| is_log(path) && !is_told(path));
    notes.extend(left.map(|path| format!("left over, and removed by a hub: {}", path.display())));
    let earlier = opened.earlier().iter().map(|(subscription, path)| {
        let path = path.display();
        format!(
            "{path} ({subscription}): a record does not read and what was written after it is lost, as after a loss of power"
        )
    });
    let earlier = earlier.collect();
    Ok(Contents { restored, problems, earlier, notes, blobs: opened.blobs(), has_key: key.is_some() })
}

/// The file in which a list ends, and whose it is.
fn told(unfinished: &Unfinished) -> String {
    let Unfinished { subscription, files, .. } = unfinished;
    let path = files.last().map_or_else(String::new, |path| path.display().to_string());
    subscription.as_ref().map_or_else(|| path.clone(), |subscription| format!("{path} ({subscription})"))
}

/// How a file ends of which the last record is not whole.
fn tail(torn: &Torn, is_running: bool) -> String {
    let Torn { subscription, path, bytes } = torn;
    let path = path.display();
    let what = match bytes {
        0 => "the last file is empty".to_owned(),
        bytes => format!("the last record is torn, {bytes} bytes"),
    };
    let why = if is_running { " (a hub runs, and may be writing it)" } else { "" };
    format!("{path} ({subscription}): {what}{why}: what came before it is whole")
}

/// Whether a hub has the store: it fetches lists then, and removes files of what it has dropped a while later.
fn is_running(store: &Path) -> bool {
    let locked = fs::File::open(store.join("lock")).map(|lock| lock.try_lock_shared());
    matches!(locked, Ok(Err(fs::TryLockError::WouldBlock)))
}

/// Removes the copies that commands of an earlier version left when they were interrupted; this one makes none. What cannot be removed stays.
pub(crate) fn remove_copies(root: &Path) {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(COPY)) {
        let path = entry.path();
        match fs::remove_dir_all(&path) {
            Ok(()) => info!(path = %path.display(), "removed a copy of the store that a command had left"),
            Err(error) => {
                warn!(path = %path.display(), %error, "a copy of the store that a command left stays");
            }
        }
    }
}

/// The key that bodies are sealed with; none if no hub has made one.
fn key(path: &Path) -> Result<Option<Key>, ReadError> {
    match fs::read(path) {
        // A hub reads no more of it either.
        Ok(bytes) => match bytes.first_chunk::<32>() {
            Some(bytes) => Ok(Some(Key::new(*bytes))),
            None => Err(ReadError::File { path: path.to_owned(), source: io::Error::other(SHORT_KEY) }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReadError::File { path: path.to_owned(), source }),
    }
}

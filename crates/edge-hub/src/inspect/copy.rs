//! Reads a store without touching it: its files are copied into a private folder, which is opened and removed.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use object_store::{Key, OpenError, Restored, Store};

/// A running hub may put files in the place of others while they are copied: then it is tried again.
const ATTEMPTS: usize = 3;

/// What the store holds.
pub(super) struct Contents {
    /// Whole subscriptions, in the order of their names.
    pub(super) restored: Vec<Restored>,
    /// What is damaged, for people.
    pub(super) problems: Vec<String>,
    /// What is not as it was to be and no damage, for people: a list that is being fetched, or what a loss of power leaves.
    pub(super) notes: Vec<String>,
}

/// Why the store cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A file cannot be read, or the copy not written.
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
    /// The copy cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// A folder that is removed with its value.
struct Private(PathBuf);

impl Drop for Private {
    fn drop(&mut self) {
        // Of a private folder that stays nobody else reads anything.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Reads the store below `root`.
pub(super) fn read(root: &Path) -> Result<Contents, CopyError> {
    if let Err(error) = fs::metadata(root.join("store"))
        && error.kind() == io::ErrorKind::NotFound
    {
        return Err(CopyError::Absent { root: root.to_owned() });
    }
    let key = key(&root.join("storage.key"))?;
    let mut attempt = 0;
    loop {
        attempt += 1;
        match once(root, key.as_ref()) {
            Ok(contents) if !contents.problems.is_empty() && attempt < ATTEMPTS => {}
            Err(CopyError::File { source, .. })
                if source.kind() == io::ErrorKind::NotFound
                    && attempt < ATTEMPTS
                    && root.join("store").exists() => {}
            result => return result,
        }
    }
}

fn once(root: &Path, key: Option<&Key>) -> Result<Contents, CopyError> {
    let store = root.join("store");
    let copy = Private(root.join(format!(".inspect-{}", std::process::id())));
    copy_folder(&store, &copy.0)?;
    let logs = names(&copy.0.join("logs"))?;
    let (opened, mut restored) = Store::open(&copy.0, key)?;
    restored.sort_by(|a, b| a.subscription.0.cmp(&b.subscription.0));
    let there = |text: String| text.replace(&copy.0.display().to_string(), &store.display().to_string());
    let mut problems: Vec<String> =
        opened.problems().iter().map(|problem| there(problem.to_string())).collect();
    // The store removes what it found to be no whole list, and says so only of what had been whole before.
    let gone = logs.iter().filter(|path| !path.exists()).map(|path| there(path.display().to_string()));
    let is_told = |path: &String| problems.iter().any(|problem| problem.starts_with(path));
    let unfinished: Vec<String> = gone.filter(|path| !is_told(path)).collect();
    let mut notes = Vec::new();
    if is_running(&store) {
        let note = |path| format!("no whole list yet, or any more: {path}");
        notes.extend(unfinished.into_iter().map(note));
    } else {
        let damaged = |path| {
            format!("{path}: it holds no whole list: damaged, cut short, or being fetched when the hub ended")
        };
        problems.extend(unfinished.into_iter().map(damaged));
    }
    let earlier = opened.earlier().iter().map(|(subscription, path)| {
        let path = there(path.display().to_string());
        format!(
            "an earlier state: {path} ({subscription}): a record does not read and what was written after it is lost, as after a loss of power"
        )
    });
    notes.extend(earlier);
    Ok(Contents { restored, problems, notes })
}

/// Whether a hub has the store: it fetches lists then, and removes files of what it has dropped a while later.
fn is_running(store: &Path) -> bool {
    let locked = fs::File::open(store.join("lock")).map(|lock| lock.try_lock_shared());
    matches!(locked, Ok(Err(fs::TryLockError::WouldBlock)))
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), CopyError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| CopyError::File { path, source }
    };
    let entries = fs::read_dir(from).map_err(file(from))?;
    fs::DirBuilder::new().mode(0o700).create(to).map_err(file(to))?;
    for entry in entries {
        let entry = entry.map_err(file(from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().map_err(file(&path))?.is_dir() {
            copy_folder(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(file(&path))?;
        }
    }
    Ok(())
}

/// The files in a folder.
fn names(folder: &Path) -> Result<Vec<PathBuf>, CopyError> {
    let file = |source| CopyError::File { path: folder.to_owned(), source };
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry.map_err(file)?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(file(error)),
    }
}

/// The key that bodies are sealed with; none if no hub has made one.
fn key(path: &Path) -> Result<Option<Key>, CopyError> {
    match fs::read(path) {
        Ok(bytes) => match <[u8; 32]>::try_from(bytes.as_slice()) {
            Ok(bytes) => Ok(Some(Key::new(bytes))),
            Err(_) => {
                Err(CopyError::File { path: path.to_owned(), source: io::Error::other("not 32 bytes long") })
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CopyError::File { path: path.to_owned(), source }),
    }
}

//! What is in the folder of CNI configurations, as container runtimes see it. Reads only.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{LOOPBACK_FILE, disk, read};

/// The ends of the names that container runtimes read.
const EXTENSIONS: [&str; 3] = ["conf", "conflist", "json"];

/// The folder cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder is there, but not readable.
    #[error("cannot list {}: {source}; run edge-hub as root, or name another folder with --cni-conf-dir", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else has the folder's name.
    #[error("{} is not a folder; remove it, or name another with --cni-conf-dir", .0.display())]
    NotAFolder(PathBuf),
    /// A name that the journal cannot hold.
    #[error("{} has a name that is not UTF-8; rename or remove it", .0.display())]
    Name(PathBuf),
}

/// One name in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The loopback configuration, a plain file with this content.
    Loopback(String),
    /// A folder. Container runtimes pass over it.
    Folder,
    /// Anything else: a file, a symbolic link, a pipe. It is never opened.
    Other,
}

/// The folder's names and what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfDir {
    pub(super) path: PathBuf,
    /// The folders that have to be made, outermost first.
    pub(super) missing: Vec<PathBuf>,
    pub(super) entries: BTreeMap<String, Entry>,
}

impl ConfDir {
    /// Reads the folder.
    pub(super) fn observe(path: &Path) -> Result<Self, Error> {
        let list = |source| Error::List { path: path.to_owned(), source };
        // Absolute, for the journal outlives the working directory.
        let path = &std::path::absolute(path).map_err(list)?;
        let mut entries = BTreeMap::new();
        match fs::read_dir(path) {
            Ok(dir) => {
                for entry in dir {
                    let entry = entry.map_err(list)?;
                    let kind = entry.file_type().map_err(list)?;
                    let Ok(name) = entry.file_name().into_string() else {
                        // Names that nobody reads do not matter.
                        if is_configuration(&entry.file_name().to_string_lossy()) && !kind.is_dir() {
                            return Err(Error::Name(entry.path()));
                        }
                        continue;
                    };
                    let entry = match kind {
                        _ if kind.is_dir() => Entry::Folder,
                        _ if kind.is_file() && name == LOOPBACK_FILE => {
                            read::text(&entry.path()).map_or(Entry::Other, Entry::Loopback)
                        }
                        _ => Entry::Other,
                    };
                    entries.insert(name, entry);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::NotAFolder(path.to_owned()));
            }
            Err(error) => return Err(list(error)),
        }
        let mut missing: Vec<_> =
            path.ancestors().take_while(|dir| !dir.exists()).map(Path::to_owned).collect();
        missing.reverse();
        Ok(Self { path: path.to_owned(), missing, entries })
    }

    /// The configurations that a container runtime reads, in its order.
    pub(super) fn active(&self) -> impl Iterator<Item = &String> {
        self.entries
            .iter()
            .filter(|(name, entry)| is_configuration(name) && **entry != Entry::Folder)
            .map(|(name, _)| name)
    }

    /// The content of the loopback configuration, if it is a plain file.
    pub(super) fn loopback(&self) -> Option<&str> {
        match self.entries.get(LOOPBACK_FILE) {
            Some(Entry::Loopback(content)) => Some(content),
            _ => None,
        }
    }

    /// Whether an interrupted write left its temporary file.
    pub(super) fn left_over(&self) -> Option<PathBuf> {
        let temporary = disk::temporary(&self.path.join(LOOPBACK_FILE));
        let name = temporary.file_name()?.to_str()?;
        self.entries.contains_key(name).then_some(temporary)
    }
}

/// As libcni decides it: by what follows the last dot.
fn is_configuration(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| EXTENSIONS.contains(&extension))
}

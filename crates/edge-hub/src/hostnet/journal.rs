//! The journal: what `enable` changes on this node, written before it is changed, and enough to undo it.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{disk, disk::Disk, read};

const FILE: &str = "journal.json";
const FORMAT: u32 = 1;

/// The journal cannot be read, written or locked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("cannot read the journal {}: {reason}; run edge-hub as root, or name another folder with --state-dir", path.display())]
    Read {
        /// The journal.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// It says nothing that can be understood.
    #[error(
        "the journal {} is damaged: {reason}; move the files *{} in the folder of CNI configurations back by hand, \
         then remove the journal", path.display(), super::SET_ASIDE_SUFFIX
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A newer program wrote it.
    #[error("the journal {} has format {format}, this edge-hub knows {FORMAT}; use the newer edge-hub", path.display())]
    Newer {
        /// The journal.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// Another process works on this node.
    #[error("another edge-hub works on {}; wait until it has finished", .0.display())]
    Locked(PathBuf),
    /// The folder cannot be locked.
    #[error("cannot lock {}: {source}; run edge-hub as root, or name another folder with --state-dir", path.display())]
    Lock {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be written.
    #[error(transparent)]
    Disk(#[from] disk::Error),
}

/// One change, which can be done again and undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum Step {
    /// A folder was made.
    CreateFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A configuration got a name that nobody reads.
    SetAside {
        /// The folder of both names.
        folder: PathBuf,
        /// The name before.
        from: String,
        /// The name after.
        to: String,
    },
    /// A configuration was written.
    Write {
        /// The file.
        path: PathBuf,
        /// What was written, to be recognised again.
        content: String,
    },
}

/// Everything that was changed, in the order in which it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Journal {
    pub(super) steps: Vec<Step>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    steps: Vec<Step>,
}

impl Journal {
    /// Reads the journal; without one, nothing was changed.
    pub(super) fn load(state_dir: &Path) -> Result<Self, Error> {
        let path = state_dir.join(FILE);
        let text = match read::text(&path) {
            Ok(text) => text,
            Err(read::Error::NotFound) => return Ok(Self::default()),
            Err(reason @ (read::Error::NotText | read::Error::NotAFile | read::Error::TooLarge)) => {
                return Err(Error::Damaged { path, reason: reason.to_string() });
            }
            Err(reason @ read::Error::Io(_)) => return Err(Error::Read { path, reason: reason.to_string() }),
        };
        let damaged =
            |error: serde_json::Error| Error::Damaged { path: path.clone(), reason: error.to_string() };
        let any: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
        if let Some(format) = any.get("format").and_then(serde_json::Value::as_u64)
            && let Ok(format) = u32::try_from(format)
            && format > FORMAT
        {
            return Err(Error::Newer { path, format });
        }
        let Stored { format: _, steps } = serde_json::from_value(any).map_err(damaged)?;
        Ok(Self { steps })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Writes the journal. The folder is there: the lock made it.
    pub(super) fn save(&self, state_dir: &Path, disk: &mut dyn Disk) -> Result<(), Error> {
        let path = state_dir.join(FILE);
        let stored = Stored { format: FORMAT, steps: self.steps.clone() };
        let mut text = serde_json::to_string_pretty(&stored)
            .map_err(|error| Error::Damaged { path: path.clone(), reason: error.to_string() })?;
        text.push('\n');
        Ok(disk::write_atomically(disk, &path, text.as_bytes(), 0o600)?)
    }

    /// Removes the journal: nothing is changed any more.
    pub(super) fn remove(state_dir: &Path, disk: &mut dyn Disk) -> Result<(), Error> {
        Ok(disk::remove_file(disk, &state_dir.join(FILE))?)
    }
}

/// Keeps a second process off until it is dropped. The system drops it with the process.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Explicitly: a child process that was forked off in between would keep a file that is only closed locked.
        let _ = self.0.unlock();
    }
}

impl Lock {
    /// Locks the folder of the journal, which is made if it does not exist, and clears what an interrupted write left.
    pub(super) fn take(state_dir: &Path, disk: &mut dyn Disk) -> Result<Self, Error> {
        let failed = |source| Error::Lock { path: state_dir.to_owned(), source };
        let state_dir = std::path::absolute(state_dir).map_err(failed)?;
        let missing: Vec<_> = state_dir.ancestors().take_while(|dir| !dir.exists()).collect();
        for dir in missing.iter().rev() {
            disk::create_dir(disk, dir, if *dir == state_dir { 0o700 } else { 0o755 })?;
        }
        if !fs::metadata(&state_dir).map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let folder = File::open(&state_dir).map_err(failed)?;
        folder.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::Locked(state_dir.clone()),
            TryLockError::Error(source) => failed(source),
        })?;
        let left_over = disk::temporary(&state_dir.join(FILE));
        if fs::symlink_metadata(&left_over).is_ok() {
            disk::remove_file(disk, &left_over)?;
        }
        Ok(Self(folder))
    }
}

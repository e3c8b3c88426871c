//! The key that what is private is sealed with on the disk: given by `--storage-key-file`, from where a disk that is taken does not bring it along; else made
//! at the first start, and kept beside the store.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use ring::rand::{SecureRandom, SystemRandom};
use tls::private_file;
use tracing::warn;

use super::app::StartError;

/// What is wrong with a key that is cut short, and what helps. With another key what the old one sealed can be neither read nor replaced.
pub(crate) const SHORT_KEY: &str = "it is cut short, a key has 32 bytes: put back the whole one, or remove it and the folder store beside it: what is held there is lost, and fetched again by a link";

/// Why a key that is given cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StorageKeyError {
    /// The file cannot be read.
    #[error(
        "cannot read {}: {source}; it must hold the key that what is stored was sealed with: for a first start make one with `head -c 32 /dev/urandom`, else it is the storage.key of before",
        path.display()
    )]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others than its owner may read the file.
    #[error("{} may be read by others: make its mode 0600 or 0400", path.display())]
    Open {
        /// Which one.
        path: PathBuf,
    },
    /// It is no key. What it is instead is left out: it may be a secret.
    #[error(
        "{} holds no key, which is 32 bytes as they are, neither written in letters nor with a line's end: `head -c 32 /dev/urandom` makes one",
        path.display()
    )]
    Malformed {
        /// Which one.
        path: PathBuf,
    },
}

/// Where the key of the store in `root` is if none is given.
pub(crate) fn beside(root: &Path) -> PathBuf {
    root.join("storage.key")
}

/// A key that is given by its file.
pub(crate) fn read(path: &Path) -> Result<[u8; 32], StorageKeyError> {
    let failed = |source| StorageKeyError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    // Nobody reads a pipe but whom it is for.
    if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
        return Err(StorageKeyError::Open { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    // One more than a key has.
    file.take(33).read_to_end(&mut bytes).map_err(failed)?;
    <[u8; 32]>::try_from(bytes).map_err(|_| StorageKeyError::Malformed { path: path.to_owned() })
}

/// The key of the store in `root`: the one that is given, or the one beside it.
pub(super) fn open(root: &Path, given: Option<&Path>) -> Result<[u8; 32], StartError> {
    let beside = beside(root);
    let Some(path) = given else {
        return made(&beside).map_err(|source| StartError::Folder { path: beside, source });
    };
    let key = read(path)?;
    tell_of_another(&beside, path, &key);
    Ok(key)
}

/// Says that a key lies beside the store still, though another file is given for it.
fn tell_of_another(beside: &Path, given: &Path, key: &[u8; 32]) {
    let Ok(left) = fs::read(beside) else { return };
    if fs::canonicalize(given).ok() == fs::canonicalize(beside).ok() {
        return;
    }
    if left.first_chunk::<32>() == Some(key) {
        warn!(
            path = %beside.display(),
            "--storage-key-file: the same key lies beside the store still, where whoever has the disk finds it: remove that file"
        );
    } else {
        warn!(
            path = %beside.display(),
            "--storage-key-file: another key lies beside the store. What was sealed with that one is neither read nor replaced with this one: give that one, or remove it and the folder store beside it: what is held there is lost, and fetched again by a link"
        );
    }
}

/// The key in that file, made if there is none.
fn made(path: &Path) -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    match File::open(path) {
        Ok(mut file) => {
            file.read_exact(&mut key).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), SHORT_KEY),
                _ => error,
            })?;
            Ok(key)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            SystemRandom::new()
                .fill(&mut key)
                .map_err(|_| io::Error::other("the system has no randomness"))?;
            // Whole or not at all: half a key would lock the store for ever.
            private_file::write(path, &key)?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn the_key_is_made_once_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("storage.key");
        let first = open(folder.path(), None).unwrap();
        assert_ne!(first, [0; 32]);
        assert_eq!(open(folder.path(), None).unwrap(), first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, b"short").unwrap();
        let error = open(folder.path(), None)
            .expect_err("a damaged key is not replaced: what it sealed would be lost");
        let told = error.to_string();
        assert!(told.contains(&*path.to_string_lossy()) && told.contains("remove it"), "{told}");
        assert_eq!(fs::read(&path).unwrap(), b"short");
    }

    #[test]
    fn a_key_that_is_given_is_taken_and_none_is_made() {
        let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = elsewhere.path().join("a.key");
        let taken = || open(root.path(), Some(&path)).map_err(|error| error.to_string());
        let refused = |why: &str| {
            let told = taken().unwrap_err();
            assert!(told.starts_with("--storage-key-file: ") && told.contains(why), "{told}");
            assert!(told.contains(&*path.to_string_lossy()), "{told}");
        };
        refused("head -c 32 /dev/urandom");
        assert!(!path.exists(), "it may be a disk that is not mounted yet");
        private_file::write(&path, &[7; 32]).unwrap();
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(taken().unwrap(), [7; 32]);
        }
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        refused("make its mode 0600");
        for content in [
            &[7; 31][..],
            &[7; 33],
            b"",
            b"0707070707070707070707070707070707070707070707070707070707070707\n",
        ] {
            private_file::write(&path, content).unwrap();
            refused("32 bytes");
        }
        assert!(!beside(root.path()).exists());
    }
}

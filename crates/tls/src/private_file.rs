//! Files that only their owner reads: keys and what goes with them. Written whole or not at all.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Writes a file with mode 0600, so that after a crash there is the file before or this one, whole, and never a moment at which
/// others could read it.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let half = unfinished(path);
    // One that an earlier process left has its mode, not ours.
    match fs::remove_file(&half) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&half, path)?;
    sync_folder(path)
}

/// Removes a file, durably; one that is not there is as good.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A file system that can only be read says that of a file that is not there, too.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem && !fs::exists(path)? => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(path),
    }
}

/// Makes a folder, and those above it, that only its owner may look into. One that is so already is left alone: it may be on a file system
/// that can only be read.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    if fs::metadata(path)?.permissions().mode() & 0o7777 == 0o700 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// Whether others than the owner may read a file.
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o077 != 0)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_reads_it_whatever_was_there() {
        let folder = std::env::temp_dir().join(format!("isthmus-private-{}", std::process::id()));
        super::folder(&folder).unwrap();
        let path = folder.join("key.pem");
        fs::write(&path, "old").unwrap();
        fs::write(unfinished(&path), "half").unwrap();
        assert!(is_open_to_others(&path).unwrap());
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(!is_open_to_others(&path).unwrap());
        assert!(!unfinished(&path).exists());
        remove(&path).unwrap();
        remove(&path).unwrap();
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_is_as_it_should_be_is_not_written_to() {
        use std::os::unix::fs::MetadataExt;

        let folder = std::env::temp_dir().join(format!("isthmus-private-folder-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        super::folder(&folder).unwrap();
        let made = fs::metadata(&folder).unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, 0o700);
        // Longer than the clock of a file system takes to go on.
        std::thread::sleep(std::time::Duration::from_millis(30));
        super::folder(&folder).unwrap();
        let changed = |metadata: &fs::Metadata| (metadata.ctime(), metadata.ctime_nsec());
        assert_eq!(changed(&fs::metadata(&folder).unwrap()), changed(&made));
        fs::remove_dir(&folder).unwrap();
    }
}

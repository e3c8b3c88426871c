//! The only code that touches files: single operations, each of which may be cut short at any byte.
//!
//! A trait, so that tests can fail any operation, tear any write and forget names that were not synced.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::Arc,
};

/// What says that the folder is this process's, for as long as anybody has it.
pub(crate) type FolderLock = Arc<dyn Send + Sync>;

/// What the store does with files. Writes but one kind wait until the bytes are on the disk; names wait for [`Disk::sync_dir`].
pub trait Disk: fmt::Debug + Send + Sync {
    /// Makes a folder that only its owner can enter; one that is there is made so.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Reads a whole file into `content`, which is emptied first.
    fn read(&self, path: &Path, content: &mut Vec<u8>) -> io::Result<()>;
    /// Writes a whole new file, in the place of one that is there, readable by its owner alone.
    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Writes into a file at `offset`.
    fn write(&self, path: &Path, offset: u64, content: &[u8]) -> io::Result<()>;
    /// Writes into a file at `offset` without waiting: every reader sees it, a loss of power may take any part of it.
    fn write_soon(&self, path: &Path, offset: u64, content: &[u8]) -> io::Result<()>;
    /// Waits until what is in a file is on the disk.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Cuts a file to `length` bytes.
    fn truncate(&self, path: &Path, length: u64) -> io::Result<()>;
    /// Renames a file over another, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Waits until the names in a folder are on the disk.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the lock of a file that says who holds it; [`io::ErrorKind::WouldBlock`] when another process has it.
    /// The lock lives as long as what is returned.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

/// The node's file system.
#[derive(Clone, Copy, Debug)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                // One that is so already is left alone: a file system that can only be read is no reason not to read it.
                if fs::metadata(path)?.permissions().mode() & 0o7777 == 0o700 {
                    return Ok(());
                }
                fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            }
            result => result,
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn read(&self, path: &Path, content: &mut Vec<u8>) -> io::Result<()> {
        content.clear();
        let mut file = File::open(path)?;
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        content.try_reserve(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
        file.read_to_end(content).map(|_| ())
    }

    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        // A left-over of an interrupted write, whatever it is, must be neither followed nor appended to.
        remove_if_there(self, path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let written = file.write_all(content).and_then(|()| file.sync_all());
        if written.is_err() {
            // A part of it would take the last of a disk that is full.
            let _ = fs::remove_file(path);
        }
        written
    }

    fn write(&self, path: &Path, offset: u64, content: &[u8]) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.write_all_at(content, offset)?;
        file.sync_data()
    }

    fn write_soon(&self, path: &Path, offset: u64, content: &[u8]) -> io::Result<()> {
        OpenOptions::new().write(true).open(path)?.write_all_at(content, offset)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = match opened {
            // The lock of one that is there can be had all the same, and keeps others out as well.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                File::open(path).map_err(|_| error)?
            }
            opened => opened?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Only for the message of who finds it locked: a full disk, or one that can only be read, must not keep the store
        // from being read.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Box::new(file))
    }
}

/// Removes a file; that it is gone already is as good.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

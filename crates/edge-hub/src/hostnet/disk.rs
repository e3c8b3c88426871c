//! The only code that changes the node: single file operations, each atomic or harmless when cut short.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// A file operation failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}; {}", path.display(), remedy(source))]
pub struct Error {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run edge-hub as root",
        io::ErrorKind::ReadOnlyFilesystem => "make the file system writable",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space and run the command again"
        }
        io::ErrorKind::NotADirectory => "remove the file that stands where a folder must be",
        _ => "correct that and run the command again: it goes on where it stopped",
    }
}

/// What may be done to the node's files. A trait so that tests can stop between any two operations.
pub trait Disk {
    /// Makes one folder.
    fn create_dir(&mut self, path: &Path, mode: u32) -> io::Result<()>;
    /// Writes a whole file and waits until it is on the disk. Cut short, it may leave a part.
    fn write(&mut self, path: &Path, content: &[u8], mode: u32) -> io::Result<()>;
    /// Renames a file, atomically.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&mut self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&mut self, path: &Path) -> io::Result<()>;
    /// Waits until the names in a folder are on the disk.
    fn sync_dir(&mut self, path: &Path) -> io::Result<()>;
}

/// The node's file system.
#[derive(Clone, Copy, Debug)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        DirBuilder::new().mode(mode).create(path)
    }

    fn write(&mut self, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        // A left-over of an interrupted write, whatever it is, must be neither followed nor appended to.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(content)?;
        // The umask must not decide who can read it.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// Replaces or creates a file so that readers see the old content or the new, and never a part.
pub(super) fn write_atomically(
    disk: &mut dyn Disk,
    path: &Path,
    content: &[u8],
    mode: u32,
) -> Result<(), Error> {
    let (dir, temporary) = (folder(path), temporary(path));
    disk.write(&temporary, content, mode).map_err(failed("write", &temporary))?;
    disk.rename(&temporary, path).map_err(failed("write", path))?;
    disk.sync_dir(dir).map_err(failed("sync", dir))
}

/// Renames within a folder, for good.
pub(super) fn rename(disk: &mut dyn Disk, from: &Path, to: &Path) -> Result<(), Error> {
    disk.rename(from, to).map_err(failed("rename", from))?;
    disk.sync_dir(folder(to)).map_err(failed("sync", folder(to)))
}

/// Removes a file, for good.
pub(super) fn remove_file(disk: &mut dyn Disk, path: &Path) -> Result<(), Error> {
    disk.remove_file(path).map_err(failed("remove", path))?;
    disk.sync_dir(folder(path)).map_err(failed("sync", folder(path)))
}

/// Makes one folder.
pub(super) fn create_dir(disk: &mut dyn Disk, path: &Path, mode: u32) -> Result<(), Error> {
    disk.create_dir(path, mode).map_err(failed("create the folder", path))
}

/// Removes a folder that this program made, if nobody put anything into it.
pub(super) fn remove_empty_dir(disk: &mut dyn Disk, path: &Path) -> Result<(), Error> {
    match disk.remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        result => result.map_err(failed("remove the folder", path)),
    }
}

/// Where the new content of a file is written first. The name is always the same, so that an interrupted write leaves
/// nothing that the next one does not take away; its end is not one that container runtimes read.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.isthmus-new"))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error { action, path: path.to_owned(), source }
}

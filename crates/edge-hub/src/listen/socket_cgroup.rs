//! In which cgroup of version 2 a TCP socket was made, as the kernel tells whoever asks (`sock_diag(7)`, `INET_DIAG_CGROUP_ID`, Linux 5.8).
//! It takes no capability, and cannot be changed by the process.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::{DirEntryExt, MetadataExt},
    path::{Path, PathBuf},
};

use crate::sock_diag;

/// The attribute that is the number of the cgroup; it is always told.
const CGROUP: u16 = 21;

/// How deep cgroups may lie in each other, for this to end.
const DEPTH: usize = 16;

/// The folder, beneath `root`, of the cgroup in which the socket was made that is bound to `local` and connected to `remote`.
pub(super) fn of(local: SocketAddr, remote: SocketAddr, root: &Path) -> Option<PathBuf> {
    let told = sock_diag::ask(local, remote, 0).ok()?;
    let number = u64::from_ne_bytes(told.attribute(CGROUP)?.try_into().ok()?);
    if fs::metadata(root).ok()?.ino() == number {
        return Some(root.to_owned());
    }
    folder(root, number, DEPTH)
}

/// The folder with that number beneath `parent`: a cgroup's number is its folder's.
fn folder(parent: &Path, number: u64, depth: usize) -> Option<PathBuf> {
    if depth == 0 {
        return None;
    }
    let entries = fs::read_dir(parent).ok()?.flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut within = Vec::new();
    for entry in folders {
        if entry.ino() == number {
            return Some(entry.path());
        }
        within.push(entry.path());
    }
    within.iter().find_map(|parent| folder(parent, number, depth - 1))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Where cgroups of version 2 are mounted, alone or beside others.
    fn mounted() -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
        line.split(' ').nth(1).map(PathBuf::from)
    }

    #[test]
    fn a_socket_was_made_in_the_cgroup_of_its_process() {
        let (Some(root), Ok(own)) = (mounted(), fs::read_to_string("/proc/self/cgroup")) else { return };
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap().to_owned();
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(bind) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            let found = of(local, remote, &root).unwrap();
            assert_eq!(found, root.join(&own).components().as_path(), "{bind}");
            assert_eq!(of(remote, SocketAddr::new(local.ip(), 1), &root), None, "another connection");
        }
    }

    #[test]
    fn a_folder_is_found_by_its_number() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir(root.path().join("z")).unwrap();
        let number = fs::metadata(&deep).unwrap().ino();
        assert_eq!(folder(root.path(), number, DEPTH).as_deref(), Some(deep.as_path()));
        assert_eq!(folder(root.path(), number, 2), None);
        assert_eq!(folder(root.path(), u64::MAX, DEPTH), None);
    }
}

//! In which cgroup of version 2 a TCP socket was made, as the kernel tells whoever asks (`sock_diag(7)`, `INET_DIAG_CGROUP_ID`, Linux 5.8).
//! It takes no capability, and cannot be changed by the process.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    os::unix::fs::{DirEntryExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::{
    io,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SOCK_DIAG, recv, send,
        socket_with,
    },
};

/// `AF_INET`, `AF_INET6`, `IPPROTO_TCP`.
const FAMILIES: [u8; 2] = [2, 10];
const TCP: u8 = 6;

/// `SOCK_DIAG_BY_FAMILY`, `NLM_F_REQUEST`.
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;

/// The attribute that is the number of the cgroup.
const CGROUP: u16 = 21;

/// The lengths of `nlmsghdr`, `inet_diag_req_v2`, `inet_diag_msg`.
const HEADER: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;

/// How deep cgroups may lie in each other, for this to end.
const DEPTH: usize = 16;

/// The folder, beneath `root`, of the cgroup in which the socket was made that is bound to `local` and connected to `remote`.
pub(super) fn of(local: SocketAddr, remote: SocketAddr, root: &Path) -> Option<PathBuf> {
    let answer = ask(&question(local, remote)).ok()?;
    let number = cgroup(&answer, local.port(), remote.port())?;
    if fs::metadata(root).ok()?.ino() == number {
        return Some(root.to_owned());
    }
    folder(root, number, DEPTH)
}

fn ask(question: &[u8]) -> io::Result<Vec<u8>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    send(&socket, question, SendFlags::empty())?;
    let mut answer = vec![0; 4096];
    // The kernel answers before the question is sent off.
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    answer.truncate(length);
    Ok(answer)
}

/// About one socket, by its addresses.
fn question(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + QUESTION);
    out.extend(u32::try_from(HEADER + QUESTION).unwrap_or_default().to_ne_bytes());
    out.extend(BY_FAMILY.to_ne_bytes());
    out.extend(REQUEST.to_ne_bytes());
    // Its number, and ours: there is one question only.
    out.extend([0; 8]);
    out.extend([FAMILIES[usize::from(local.is_ipv6())], TCP, 0, 0]);
    // In whatever state.
    out.extend(u32::MAX.to_ne_bytes());
    out.extend(local.port().to_be_bytes());
    out.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        let mut words = [0; 16];
        match address {
            IpAddr::V4(address) => words[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => words = address.octets(),
        }
        out.extend(words);
    }
    // On any interface, and with any cookie.
    out.extend(0_u32.to_ne_bytes());
    out.extend([u8::MAX; 8]);
    out
}

/// The number of the cgroup in an answer about a socket with these ports.
fn cgroup(answer: &[u8], local: u16, remote: u16) -> Option<u64> {
    let length = usize::try_from(u32::from_ne_bytes(answer.get(..4)?.try_into().ok()?)).ok()?;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let message = answer.get(HEADER..length)?;
    let port = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
    if kind != BY_FAMILY || port(4)? != local || port(6)? != remote {
        return None;
    }
    let mut attributes = message.get(ANSWER..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..length)?;
        if kind == CGROUP {
            return Some(u64::from_ne_bytes(value.try_into().ok()?));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
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

    #[test]
    fn an_answer_that_breaks_off_or_is_an_error_names_no_cgroup() {
        let mut answer = vec![0; HEADER + ANSWER];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[HEADER + 4..HEADER + 8].copy_from_slice(&[0, 1, 0, 2]);
        for (kind, value) in [(8_u16, vec![0; 4]), (CGROUP, 4711_u64.to_ne_bytes().to_vec())] {
            // The shorter one is filled up to four bytes.
            let length = if kind == 8 { 5 } else { 12_u16 };
            answer.extend(length.to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend(value);
        }
        let length = u32::try_from(answer.len()).unwrap().to_ne_bytes();
        answer[..4].copy_from_slice(&length);
        assert_eq!(cgroup(&answer, 1, 2), Some(4711));
        assert_eq!(cgroup(&answer, 1, 3), None, "another socket");
        for end in 0..answer.len() {
            assert_eq!(cgroup(&answer[..end], 1, 2), None, "{end} bytes");
        }
        answer[4..6].copy_from_slice(&2_u16.to_ne_bytes());
        assert_eq!(cgroup(&answer, 1, 2), None, "an error");
    }
}

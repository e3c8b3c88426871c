//! What kind of process is at the other end of a loopback connection: one of the node, one of a pod that shares the node's
//! network, or the container runtime. All may run as root, and only the first is the node.
//!
//! Where cgroups are of version 2 alone the kernel says in which cgroup the socket was made, to anybody who asks. Elsewhere the process
//! that has the socket is looked for in `/proc`, which takes `CAP_SYS_PTRACE`. Either costs milliseconds, and is done only for callers
//! who show nothing else, once for a connection. So many wait for that, and so long; whoever finds no place, or waits longer, is told to ask again.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tracing::debug;

use super::{pod_cgroup, socket_cgroup};
use crate::queue::Queue;

/// Two are looked for at once, while no more than so many wait: many callers at once are to cost time, and neither threads nor memory.
static QUEUE: LazyLock<Queue> = LazyLock::new(|| Queue::new(2, 512));

/// How long a caller waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// The processes that were found last: most connections are of the kubelet and a few agents.
static RECENT: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// How many processes are looked at first.
const FIRST: usize = 8;

/// Where a process belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// To the node.
    Node,
    /// To a pod.
    Pod,
    /// To the container runtime, which connects for whoever may forward a port of a pod that shares the node's network.
    Runtime,
}

/// A TCP connection as its other end sees it, and the number of that end's socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Socket {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) inode: u64,
}

/// The process at the other end of a connection; clones are the same.
#[derive(Debug, Clone)]
pub struct CallerProcess {
    socket: Option<Socket>,
    origin: Arc<OnceCell<Origin>>,
    /// Too many waited to have it looked for, the last time.
    crowded: Arc<AtomicBool>,
}

impl CallerProcess {
    /// The process behind a socket, of which nothing is known yet.
    pub(super) fn behind(socket: Option<Socket>) -> Self {
        Self { socket, origin: Arc::default(), crowded: Arc::default() }
    }

    /// One of which nothing can be found out.
    pub(crate) fn unknown() -> Self {
        Self::behind(None)
    }

    /// A process that is known to belong there.
    pub fn of(origin: Origin) -> Self {
        Self { origin: Arc::new(OnceCell::new_with(Some(origin))), ..Self::unknown() }
    }

    /// Where it belongs, if that was found out.
    pub fn origin(&self) -> Option<Origin> {
        self.origin.get().copied()
    }

    /// Whether that was not looked for, as too many waited for it: the next request may have it.
    pub fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Finds out where it belongs, if that is not known. What is not found is looked for again by the next request.
    pub async fn find(&self) {
        let Some(socket) = self.socket else { return };
        let looked = self.origin.get_or_try_init(|| async {
            let looked = QUEUE.take_turn(PATIENCE, move || origin(&socket)).await;
            self.crowded.store(looked.is_none(), Ordering::Relaxed);
            looked.flatten().ok_or(())
        });
        if looked.await.is_err() {
            debug!(peer = %socket.local, "whose process that is cannot be found out");
        }
    }
}

fn origin(socket: &Socket) -> Option<Origin> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let by_socket = pod_cgroup::only_version_2(&own)
        .then(|| socket_cgroup::of(socket.local, socket.remote, Path::new("/sys/fs/cgroup")))
        .flatten();
    by_socket.map(|folder| pod_cgroup::origin_of_path(&folder)).or_else(|| {
        // Only where to look first: a number may be another process's by now.
        let first = RECENT.lock().clone();
        let process = process_of(Path::new("/proc"), &first, socket.inode)?;
        note(&mut RECENT.lock(), process);
        let told = |file| fs::read_to_string(format!("/proc/{process}/{file}")).ok();
        if pod_cgroup::is_of_runtime(told("comm")?.trim_end()) {
            return Some(Origin::Runtime);
        }
        pod_cgroup::origin(&told("cgroup")?)
    })
}

/// This process was found last.
fn note(recent: &mut Vec<u32>, process: u32) {
    recent.retain(|other| *other != process);
    recent.insert(0, process);
    recent.truncate(FIRST);
}

/// A process that has the socket: one of the `first`, or any other.
fn process_of(proc: &Path, first: &[u32], inode: u64) -> Option<u32> {
    let link = format!("socket:[{inode}]");
    let has = |process: &u32| {
        let files = fs::read_dir(proc.join(format!("{process}/fd"))).into_iter().flatten().flatten();
        files.map(|file| file.path()).any(|file| fs::read_link(file).is_ok_and(|to| to == Path::new(&link)))
    };
    let entries = fs::read_dir(proc).ok()?.flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    first.iter().copied().chain(processes).find(has)
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        os::unix::fs::symlink,
    };

    use super::*;
    use crate::listen::socket_owner;

    #[test]
    fn the_process_is_the_one_that_has_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        for (process, file) in [("12", "socket:[4711]"), ("13", "socket:[471]"), ("self", "socket:[471]")] {
            let files = folder.path().join(process).join("fd");
            fs::create_dir_all(&files).unwrap();
            symlink("/dev/null", files.join("0")).unwrap();
            symlink(file, files.join("3")).unwrap();
        }
        // One whose files may not be read.
        fs::create_dir_all(folder.path().join("11")).unwrap();
        for first in [&[][..], &[0, 12], &[12, 13]] {
            assert_eq!(process_of(folder.path(), first, 471), Some(13));
            assert_eq!(process_of(folder.path(), first, 4712), None);
        }
    }

    #[test]
    fn a_socket_of_this_process_leads_to_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let owner = socket_owner::of(peer, server.local_addr().unwrap()).unwrap();
        let process = process_of(Path::new("/proc"), &[], owner.socket.inode);
        assert_eq!(process, Some(std::process::id()));
        drop(client);
    }

    #[tokio::test]
    async fn what_was_found_out_is_kept_and_what_was_not_is_not() {
        let known = CallerProcess::of(Origin::Pod);
        known.find().await;
        assert_eq!(known.origin(), Some(Origin::Pod));
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        // Nobody has a socket of that number.
        let gone = CallerProcess::behind(Some(Socket { local: at(1), remote: at(1), inode: u64::MAX }));
        gone.find().await;
        assert_eq!(gone.origin(), None);
    }

    #[test]
    fn a_few_processes_are_looked_at_first() {
        let mut recent = Vec::new();
        (0..20).for_each(|process| note(&mut recent, process));
        note(&mut recent, 15);
        assert_eq!(recent, [15, 19, 18, 17, 16, 14, 13, 12]);
    }
}

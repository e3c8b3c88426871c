//! Which user owns the other end of a loopback TCP connection: the kernel is asked about that socket (`sock_diag(7)`), or where it does not
//! answer that, its tables are read, `/proc/net/tcp` and `/proc/net/tcp6` (proc(5)), which takes the longer the more sockets there are.
//!
//! The kernel knows every socket of the network namespace with its owner. The peer's socket is the one whose local address is
//! the connection's remote address and the other way round. One that its process has closed has no owner and no number any more, and is listed as
//! root's by kernels before 6.17: whoever sends a request and closes at once must not pass for root, so only sockets with a number count. One that is only
//! shut down for writing, as `nc` does at the end of its input, has its process still.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::io::Errno;

use super::caller_process::Socket;
use crate::sock_diag;

/// Who has a socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// The user.
    pub(super) uid: u32,
    /// The socket itself.
    pub(super) socket: Socket,
}

/// Whether the kernel has told of a socket, so that it can.
static TELLS: AtomicBool = AtomicBool::new(false);

/// The owner of the socket that is bound to `peer` and connected to `own`.
pub(super) fn of(peer: SocketAddr, own: SocketAddr) -> Option<Owner> {
    match asked(peer, own) {
        // A socket that no process has is an answer, too.
        Ok((uid, inode)) => {
            TELLS.store(true, Ordering::Relaxed);
            let socket = Socket { local: peer, remote: own, inode: inode.into() };
            (inode != 0).then_some(Owner { uid, socket })
        }
        // A client that is gone already: whoever comes and goes is not to have large tables read each time.
        Err(Errno::NOENT) if TELLS.load(Ordering::Relaxed) => None,
        Err(_) => listed(peer, own),
    }
}

/// The user and the number that the kernel answers.
fn asked(peer: SocketAddr, own: SocketAddr) -> Result<(u32, u32), Errno> {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    sock_diag::ask(plain(peer), plain(own), 0)?.owner().ok_or(Errno::PROTO)
}

fn listed(peer: SocketAddr, own: SocketAddr) -> Option<Owner> {
    let tables: &[&str] =
        if peer.is_ipv4() { &["/proc/net/tcp", "/proc/net/tcp6"] } else { &["/proc/net/tcp6"] };
    tables.iter().find_map(|table| {
        let lines = BufReader::new(File::open(table).ok()?).lines();
        lines.skip(1).map_while(Result::ok).find_map(|line| owner(&line, peer, own))
    })
}

/// The owner named in a line of the table, if the line is about this connection as its peer sees it.
fn owner(line: &str, peer: SocketAddr, own: SocketAddr) -> Option<Owner> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    // Skipped: state, queues, timer, retransmissions. The next is the user.
    let uid = fields.nth(4)?.parse().ok()?;
    // And after the time-outs the socket's number; zero if no process has it.
    let inode = fields.nth(1)?.parse().ok()?;
    let same =
        |a: SocketAddr, b: SocketAddr| a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical();
    let socket = Socket { local: peer, remote: own, inode };
    (same(local, peer) && same(remote, own) && inode != 0).then_some(Owner { uid, socket })
}

/// `0100007F:2815`: 32-bit words in the machine's byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (index, chunk) in octets.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_owner_of_a_loopback_connection_is_this_process_user() {
        let me = rustix_uid();
        for bind in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let Ok(listener) = TcpListener::bind(bind) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            let owner = of(peer, server.local_addr().unwrap()).unwrap();
            assert_eq!(owner.uid, me, "{bind}");
            let own = server.local_addr().unwrap();
            let listed = listed(peer, own).map(|owner| (owner.uid, owner.socket.inode));
            let asked = asked(peer, own).map(|(uid, inode)| (uid, u64::from(inode)));
            assert_eq!(asked.ok(), listed, "{bind}: they know the same");
            drop(client);
        }
    }

    #[test]
    fn a_connection_that_its_process_closed_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // What nobody reads yet stays on its way.
        std::io::Write::write_all(&mut client, &[0; 1024]).unwrap();
        drop(client);
        let (server, peer) = listener.accept().unwrap();
        let own = server.local_addr().unwrap();
        assert!(of(peer, own).is_none() && listed(peer, own).is_none());
    }

    #[test]
    fn a_connection_that_is_gone_is_known_to_be_without_a_table() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket2::SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(asked(peer, server.local_addr().unwrap()), Err(Errno::NOENT));
    }

    #[test]
    fn a_connection_that_is_shut_down_for_writing_has_its_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(of(peer, server.local_addr().unwrap()).unwrap().uid, rustix_uid());
    }

    #[test]
    fn another_connection_and_garbage_have_no_owner() {
        let line = "   1: 0100007F:C001 0100007F:2815 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0";
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let found = owner(line, at(0xC001), at(0x2815)).unwrap();
        assert_eq!((found.uid, found.socket.inode), (1000, 4711));
        assert!(owner(line, at(0x2815), at(0xC001)).is_none(), "our own end is not the peer");
        // What a process has closed is listed as root's, without a number, while what it sent last is on its way.
        let closed = line.replace(" 01 ", " 04 ").replace("1000        0 4711", "0        0 0");
        assert!(owner(&closed, at(0xC001), at(0x2815)).is_none());
        for garbage in ["", "1:", "1: zz:zz 0:0 01 a b c 1000", "1: 0100007F 0100007F:2815 01 0 0 0 1000 0 1"]
        {
            assert!(owner(garbage, at(0xC001), at(0x2815)).is_none(), "{garbage:?}");
        }
    }

    fn rustix_uid() -> u32 {
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap())
    }
}

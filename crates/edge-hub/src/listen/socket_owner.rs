//! Which user owns the other end of a loopback TCP connection, from `/proc/net/tcp` and `/proc/net/tcp6` (proc(5)).
//!
//! The kernel lists every socket of the network namespace with its owner. The peer's socket is the one whose local address is
//! the connection's remote address and the other way round.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// The owner of the socket that is bound to `peer` and connected to `own`.
pub(super) fn of(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let tables: &[&str] =
        if peer.is_ipv4() { &["/proc/net/tcp", "/proc/net/tcp6"] } else { &["/proc/net/tcp6"] };
    tables.iter().find_map(|table| {
        let lines = BufReader::new(File::open(table).ok()?).lines();
        lines.skip(1).map_while(Result::ok).find_map(|line| owner(&line, peer, own))
    })
}

/// The owner named in a line of the table, if the line is about this connection as its peer sees it.
fn owner(line: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    // Skipped: state, queues, timer, retransmissions. The next is the user.
    let uid = fields.nth(4)?.parse().ok()?;
    let same =
        |a: SocketAddr, b: SocketAddr| a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical();
    (same(local, peer) && same(remote, own)).then_some(uid)
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
            assert_eq!(of(peer, server.local_addr().unwrap()), Some(me), "{bind}");
            drop(client);
        }
    }

    #[test]
    fn another_connection_and_garbage_have_no_owner() {
        let line = "   1: 0100007F:C001 0100007F:2815 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0";
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(owner(line, at(0xC001), at(0x2815)), Some(1000));
        assert_eq!(owner(line, at(0x2815), at(0xC001)), None, "our own end is not the peer");
        for garbage in ["", "1:", "1: zz:zz 0:0 01 a b c 1000", "1: 0100007F 0100007F:2815 01 0 0 0 1000"] {
            assert_eq!(owner(garbage, at(0xC001), at(0x2815)), None, "{garbage:?}");
        }
    }

    fn rustix_uid() -> u32 {
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap())
    }
}

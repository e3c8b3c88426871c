//! What the kernel knows of a TCP socket, asked for by its addresses (`sock_diag(7)`). It takes no capability, no `unsafe`, and not
//! even the socket.

use std::net::{IpAddr, SocketAddr};

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

/// `NLMSG_ERROR`.
const ERROR: u16 = 2;

/// The lengths of `nlmsghdr`, `inet_diag_req_v2`, `inet_diag_msg`.
const HEADER: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;

/// Where `inet_diag_msg` has `idiag_wqueue`, `idiag_uid`, `idiag_inode`.
const QUEUED: usize = 60;
const USER: usize = 64;
const INODE: usize = 68;

/// What the kernel told of one socket.
#[derive(Debug)]
pub(crate) struct Told(Vec<u8>);

/// Asks about the socket that is bound to `local` and connected to `remote`. It tells the attributes that it always tells, and those of
/// `extensions`: bit *n* - 1 is for attribute *n*. `ENOENT` where there is no such socket, or the kernel cannot tell of any.
pub(crate) fn ask(local: SocketAddr, remote: SocketAddr, extensions: u8) -> io::Result<Told> {
    let answer = exchange(&question(local, remote, extensions))?;
    if knows_none(&answer) {
        return Err(io::Errno::NOENT);
    }
    Told::read(answer, local.port(), remote.port()).ok_or(io::Errno::PROTO)
}

/// Whether the answer is `ENOENT`.
fn knows_none(answer: &[u8]) -> bool {
    let error = (-io::Errno::NOENT.raw_os_error()).to_ne_bytes();
    answer.get(4..6) == Some(&ERROR.to_ne_bytes()) && answer.get(HEADER..HEADER + 4) == Some(&error)
}

fn exchange(question: &[u8]) -> io::Result<Vec<u8>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    send(&socket, question, SendFlags::empty())?;
    let mut answer = vec![0; 4096];
    // The kernel answers before the question is sent off.
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    answer.truncate(length);
    Ok(answer)
}

fn question(local: SocketAddr, remote: SocketAddr, extensions: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + QUESTION);
    out.extend(u32::try_from(HEADER + QUESTION).unwrap_or_default().to_ne_bytes());
    out.extend(BY_FAMILY.to_ne_bytes());
    out.extend(REQUEST.to_ne_bytes());
    // Its number, and ours: there is one question only.
    out.extend([0; 8]);
    out.extend([FAMILIES[usize::from(local.is_ipv6())], TCP, extensions, 0]);
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

impl Told {
    /// An answer, if it is about a socket with these ports.
    fn read(mut answer: Vec<u8>, local: u16, remote: u16) -> Option<Self> {
        let length = usize::try_from(u32::from_ne_bytes(answer.get(..4)?.try_into().ok()?)).ok()?;
        let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
        let message = answer.get(HEADER..length).filter(|message| message.len() >= ANSWER)?;
        let port = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
        if kind != BY_FAMILY || port(4)? != local || port(6)? != remote {
            return None;
        }
        answer.truncate(length);
        answer.drain(..HEADER);
        Some(Self(answer))
    }

    /// Bytes that were sent and not acknowledged, or are still to be sent.
    pub(crate) fn queued(&self) -> Option<u32> {
        self.word(QUEUED)
    }

    /// The user whose it is, and its number; zero if no process has it.
    pub(crate) fn owner(&self) -> Option<(u32, u32)> {
        self.word(USER).zip(self.word(INODE))
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    /// An attribute.
    pub(crate) fn attribute(&self, wanted: u16) -> Option<&[u8]> {
        let mut attributes = self.0.get(ANSWER..)?;
        loop {
            let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
            let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
            let value = attributes.get(4..length)?;
            if kind == wanted {
                return Some(value);
            }
            attributes = attributes.get(length.next_multiple_of(4)..)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_breaks_off_or_is_an_error_tells_nothing() {
        const WANTED: u16 = 21;
        let mut answer = vec![0; HEADER + ANSWER];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[HEADER + 4..HEADER + 8].copy_from_slice(&[0, 1, 0, 2]);
        for (at, word) in [(QUEUED, 78_u32), (USER, 1000), (INODE, 4711)] {
            answer[HEADER + at..HEADER + at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        for (kind, value) in [(8_u16, vec![0; 4]), (WANTED, 4711_u64.to_ne_bytes().to_vec())] {
            // The shorter one is filled up to four bytes.
            let length = if kind == 8 { 5 } else { 12_u16 };
            answer.extend(length.to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend(value);
        }
        let length = u32::try_from(answer.len()).unwrap().to_ne_bytes();
        answer[..4].copy_from_slice(&length);
        let read = |answer: &[u8], remote| Told::read(answer.to_vec(), 1, remote);
        let told = read(&answer, 2).unwrap();
        assert_eq!(told.attribute(WANTED), Some(&4711_u64.to_ne_bytes()[..]));
        assert_eq!((told.attribute(22), told.queued()), (None, Some(78)));
        assert_eq!(told.owner(), Some((1000, 4711)));
        assert!(read(&answer, 3).is_none(), "another socket");
        for end in 0..answer.len() {
            assert!(read(&answer[..end], 2).is_none(), "{end} bytes");
        }
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        assert!(read(&answer, 2).is_none(), "an error");
        assert!(!knows_none(&answer), "another error");
        answer[HEADER..HEADER + 4].copy_from_slice(&(-2_i32).to_ne_bytes());
        assert!(knows_none(&answer));
    }
}

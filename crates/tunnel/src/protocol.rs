//! What both ends of a link agree on: names on the wire, limits, and what each status means.

use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::route::{Direction, Refusal};

/// The version of the protocol. Another one is refused.
pub const VERSION: u32 = 1;

/// ALPN of links over which the one that accepted asks.
pub const ALPN_REVERSE: &[u8] = b"isthmus-reverse/1";

/// ALPN of links over which the one that dialled asks.
pub const ALPN_FORWARD: &[u8] = b"h2";

/// Where the two ends introduce themselves.
pub const HELLO_PATH: &str = "/.well-known/isthmus-tunnel";

/// Ties the log lines of a stream's hops together.
pub const HEADER_REQUEST_ID: &str = "isthmus-request-id";

/// The class of a stream.
pub const HEADER_CLASS: &str = "isthmus-class";

/// Where a client is that nobody vouches for, as far as the one knows that it came to: it has its part of what a link carries, and no more. Only from
/// those who forward for others: what any other asks for is its own.
pub const HEADER_SOURCE: &str = "isthmus-source";

/// How many nodes a stream has passed.
pub const HEADER_HOPS: &str = "isthmus-hops";

/// Why a stream was not opened, in one word.
pub const HEADER_REASON: &str = "isthmus-reason";

/// The reason of the end that answers whose link has as many streams as it may have now: of that link alone, no other hop says so.
pub(crate) const FULL: &str = "full";

/// The most nodes a stream passes. The longest way that is meant is of five: an ordinary node, its pool's endpoint, a gateway that does not have the link,
/// the other one that has it, and the endpoint of the other pool, which dials that pool's nodes itself. One more is for an election of which one of them has
/// not heard yet. Here ends what goes in circles.
pub const MAX_HOPS: u8 = 6;

/// The longest [`crate::hello::Hello`] in bytes.
pub const MAX_HELLO: usize = 4096;

/// The longest header list of a request, in bytes.
pub const MAX_HEADER_LIST: u32 = 16 * 1024;

/// The longest DATA frame that this end takes, in bytes. With its header of 9 bytes it fills two TLS records of 16 KiB: HTTP/2's default of
/// 16 KiB would take a whole record and one of 9 bytes, and a system call, each.
pub const MAX_FRAME: u32 = 2 * 16 * 1024 - 9;

/// The most streams of a link.
pub const MAX_STREAMS: u32 = 1024;

/// The limits of time and number that a link is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From a connection to its first byte: who dials speaks first, so it is there after one round trip.
    pub first_byte: Duration,
    /// From a connection to the end of its TLS handshake; and as long again to its registration.
    pub handshake: Duration,
    /// Connections that have not begun their TLS handshake; more wait in the kernel's queue.
    pub waiting: usize,
    /// Connections that have, and are not registered yet. Of these and of those before one source has a quarter at most.
    pub pending: usize,
    /// Links of one peer that take new streams. An honest one has one a direction, class and address, of which there may be two, and as many again while
    /// each is made anew.
    pub links_of_a_peer: usize,
    /// Links of one peer in all, with those that are not registered yet, and those that take no streams any more and last as long as theirs do. All of
    /// them together may hold [`crate::window::PEER`].
    pub links_of_a_peer_in_all: usize,
    /// Streams of one link; it may have fewer by what it may hold, as long as that is so little.
    pub streams: u32,
    /// Connections that this node holds to destinations for streams of peers.
    pub dialled_for_peers: usize,
    /// Dialling a destination.
    pub dial: Duration,
    /// Opening a stream in all, over all hops and attempts.
    pub open: Duration,
    /// The most of that which one way has while there is another, beside four round trips of its link. A peer that has lost power says nothing
    /// until it is found dead.
    pub one_way: Duration,
    /// How long streams may go on when a process ends, or a peer's rights have changed. A link that is only replaced has no such limit.
    pub drain: Duration,
    /// When a peer is dead.
    pub liveness: crate::liveness::Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            first_byte: Duration::from_secs(3),
            handshake: Duration::from_secs(10),
            waiting: 1024,
            pending: 128,
            links_of_a_peer: 16,
            links_of_a_peer_in_all: 3 * 16,
            streams: MAX_STREAMS,
            dialled_for_peers: 4096,
            dial: Duration::from_secs(5),
            open: Duration::from_secs(15),
            one_way: Duration::from_secs(2),
            drain: Duration::from_mins(5),
            liveness: crate::liveness::Limits::default(),
        }
    }
}

/// Kinds of traffic that have connections of their own, so that a lost packet of one does not hold the other back. What a stream is
/// taken for is known before anything passed: by the way it came in. What links then carry counts as well ([`crate::candidates`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Somebody may wait: all that comes to nodes from the cloud. To a gateway exec and scrapes look like port-forward and cp.
    Interactive,
    /// It may be much: what programs of a node send out by the loopback proxy.
    Bulk,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Interactive, Self::Bulk];

    /// As it is written on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Bulk => "bulk",
        }
    }

    /// Reads what [`Class::name`] writes; what is unknown is interactive.
    pub fn from_name(name: &[u8]) -> Self {
        if name == b"bulk" { Self::Bulk } else { Self::Interactive }
    }
}

impl Direction {
    /// The ALPN of links of this direction.
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Self::Reverse => ALPN_REVERSE,
            Self::Forward => ALPN_FORWARD,
        }
    }
}

/// Why a stream was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum OpenError {
    /// The request is none.
    #[error("malformed request")]
    Malformed,
    /// The destination is on no list.
    #[error("destination not allowed")]
    NotAllowed,
    /// Nobody knows the destination.
    #[error("unknown destination")]
    Unknown,
    /// Several pools have this address.
    #[error("several pools have this address: use the node's name")]
    Ambiguous,
    /// The destination does not take the connection.
    #[error("the destination refused the connection")]
    Unreachable,
    /// No link leads there, or none that takes streams.
    #[error("no tunnel to the destination")]
    NoLink,
    /// Whoever nobody vouches for has as much as it gets: places at a way in, or streams of the links that lead there.
    #[error("too many that nobody vouches for")]
    Crowded,
    /// It took too long.
    #[error("the destination did not answer in time")]
    Timeout,
    /// The stream went in circles.
    #[error("too many hops")]
    Loop,
}

impl OpenError {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Malformed,
        Self::NotAllowed,
        Self::Unknown,
        Self::Ambiguous,
        Self::Unreachable,
        Self::NoLink,
        Self::Crowded,
        Self::Timeout,
        Self::Loop,
    ];

    /// The status by which a peer or client is told.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::NotAllowed => StatusCode::FORBIDDEN,
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Ambiguous => StatusCode::MISDIRECTED_REQUEST,
            Self::Unreachable => StatusCode::BAD_GATEWAY,
            Self::NoLink | Self::Crowded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Loop => StatusCode::LOOP_DETECTED,
        }
    }

    /// What a peer's answer means. Of several with one status the reason says which; by itself it says nothing.
    pub fn from_answer(status: StatusCode, reason: Option<&[u8]>) -> Self {
        let mut of_status = Self::ALL.into_iter().filter(|error| error.status() == status);
        let first = of_status.clone().next().unwrap_or(Self::NoLink);
        of_status.find(|error| reason == Some(error.reason().as_bytes())).unwrap_or(first)
    }

    /// One word for headers, metrics and logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotAllowed => "not_allowed",
            Self::Unknown => "unknown",
            Self::Ambiguous => "ambiguous",
            Self::Unreachable => "unreachable",
            Self::NoLink => "no_link",
            Self::Crowded => "crowded",
            Self::Timeout => "timeout",
            Self::Loop => "loop",
        }
    }

    /// Whether it says something of who asked, and not of the state of the tunnel.
    pub(crate) fn is_audited(self) -> bool {
        match self {
            Self::Malformed
            | Self::NotAllowed
            | Self::Unknown
            | Self::Ambiguous
            | Self::Crowded
            | Self::Loop => true,
            Self::Unreachable | Self::NoLink | Self::Timeout => false,
        }
    }

    /// Whether another way might lead there where this one does not.
    pub fn is_worth_another_way(self) -> bool {
        match self {
            Self::Malformed | Self::NotAllowed | Self::Unknown | Self::Ambiguous | Self::Loop => false,
            Self::Unreachable | Self::NoLink | Self::Crowded | Self::Timeout => true,
        }
    }
}

impl From<Refusal> for OpenError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotAllowed => Self::NotAllowed,
            Refusal::Unknown => Self::Unknown,
            Refusal::Ambiguous => Self::Ambiguous,
            Refusal::NotAMember | Refusal::NoGateway => Self::NoLink,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_means_one_error() {
        for error in OpenError::ALL {
            assert_eq!(OpenError::from_answer(error.status(), Some(error.reason().as_bytes())), error);
            let of_status = if error == OpenError::Crowded { OpenError::NoLink } else { error };
            for reason in [None, Some(&b"draining"[..])] {
                assert_eq!(OpenError::from_answer(error.status(), reason), of_status);
            }
        }
        let crowded = Some(OpenError::Crowded.reason().as_bytes());
        assert_eq!(OpenError::from_answer(StatusCode::FORBIDDEN, crowded), OpenError::NotAllowed);
        assert_eq!(OpenError::from_answer(StatusCode::IM_A_TEAPOT, crowded), OpenError::NoLink);
    }
}

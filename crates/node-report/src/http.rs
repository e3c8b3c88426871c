//! How reports and answers travel: `POST` [`PATH`] over HTTP/1.1 and TLS 1.3, one request a report, one after the other. HTTP/2, as earlier
//! hubs speak it, is taken too.
//!
//! | status | means | body |
//! |---|---|---|
//! | 200 | taken, or dropped because a newer one is held: see [`crate::Answer`] | `Answer` |
//! | 400 | malformed ([`crate::report::Malformed`]), too old a protocol, not protobuf | text |
//! | 401 | who signed the certificate is not trusted any more | text |
//! | 403 | the certificate is another node's | text |
//! | 404 | the cluster has no such node | text |
//! | 408 | did not come in in time | text |
//! | 409 | the delta's base is not held: send a full report | `Answer`, or none |
//! | 413 | longer than [`MAX_BYTES`] | text |
//! | 421 | not the leader; [`LEADER_HEADER`] says who is, if that is known | text |
//! | 429, 503 | shed; wait for `Retry-After` seconds | text |

/// The protocol, as the handshake names it (ALPN).
pub const PROTOCOL: &[u8] = b"http/1.1";

/// Path of the listener.
pub const PATH: &str = "/report/v1";

/// `Content-Type` of reports and of answers.
pub const CONTENT_TYPE: &str = "application/x-protobuf";

/// Header of an answer 421: `host:port` of the leader.
pub const LEADER_HEADER: &str = "isthmus-leader";

/// The longest report, in bytes. 4,096 pods with every quantity and long names need less.
pub const MAX_BYTES: usize = 4 << 20;

/// Keys of the ConfigMap by which nodes find the leader.
pub mod config_map {
    /// PEM of who signs the listener's certificate.
    pub const CA: &str = "ca.crt";
    /// Name that the listener's certificate must have.
    pub const SERVER_NAME: &str = "server-name";
    /// `host:port` of each replica, by comma, the leader first; in the order that was given where they were.
    pub const SERVERS: &str = "servers";
    /// Epoch of the leader who wrote the ConfigMap.
    pub const EPOCH: &str = "epoch";
}

//! TCP as connections that last need it: no delay, and a peer that vanished noticed.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tracing::debug;

/// How long nothing may pass before the peer's kernel is asked whether it is there, how long its answer is waited for, and how often it is
/// asked until the connection is broken: a minute and a half in all, which mobile links are away for.
pub const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 6);

/// Sends at once, and has the kernel ask a silent peer whether it is there ([`KEEPALIVE`]).
pub fn tune(socket: &SockRef<'_>) {
    let (idle, interval, retries) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(retries);
    set([
        ("TCP_NODELAY", socket.set_tcp_nodelay(true)),
        ("SO_KEEPALIVE", socket.set_tcp_keepalive(&keepalive)),
    ]);
}

/// Says of each option which could not be set. The connection works without them, less well.
pub fn set<const N: usize>(results: [(&str, io::Result<()>); N]) {
    for (option, result) in results {
        if let Err(error) = result {
            debug!(option, %error, "cannot set a socket option");
        }
    }
}

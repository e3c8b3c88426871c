//! TCP as connections that last need it: no delay, and a peer that vanished noticed.

use std::{
    io,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

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

/// What counts as one address where places are shared out: of IPv6 the network of one subscriber, who has all of it.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// Says of each option which could not be set. The connection works without them, less well.
pub fn set<const N: usize>(results: [(&str, io::Result<()>); N]) {
    for (option, result) in results {
        if let Err(error) = result {
            debug!(option, %error, "cannot set a socket option");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn of_version_6_a_network_is_one_address() {
        let source = |text: &str| super::source(text.parse().unwrap()).to_string();
        assert_eq!(source("2001:db8:1:2:3:4:5:6"), source("2001:db8:1:2::7"));
        assert_ne!(source("2001:db8:1:2::7"), source("2001:db8:1:3::7"));
        assert_eq!(source("::ffff:10.0.0.1"), "10.0.0.1");
    }
}

//! How a connection to an API server comes about, beneath TLS.
//!
//! A trait, so that a whole hub can be run without a network and on a clock that does not wait: then its histories are counted in
//! thousands (`tests/it/hub/simulation`).

use std::{future, io, net::SocketAddr, pin::Pin, time::Duration};

use futures::future::BoxFuture;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};

use super::{Endpoint, Timing};

/// What TLS is spoken over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + 'static> Stream for S {}

/// A connection, whatever it is.
pub type BoxStream = Pin<Box<dyn Stream>>;

/// Is told the addresses of both ends of a new connection of the kernel, ours first, and says after how long without an acknowledgement
/// it ends.
pub type Connected<'a> = &'a (dyn Fn(SocketAddr, SocketAddr) -> Duration + Sync);

/// Makes connections.
pub trait Dial: Send + Sync + 'static {
    /// The addresses of `endpoint`, in the order in which they are tried. None, where there are no names.
    fn resolve<'a>(&'a self, _: &'a Endpoint) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(future::ready(Ok(Vec::new())))
    }

    /// A connection to `endpoint`, which is at one of `addresses`.
    fn dial<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        addresses: &'a [SocketAddr],
        timing: &'a Timing,
        connected: Connected<'a>,
    ) -> BoxFuture<'a, io::Result<BoxStream>>;
}

/// Connections of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Tcp;

impl Dial for Tcp {
    fn resolve<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let found = lookup_host((endpoint.host(), endpoint.port())).await?;
            Ok(found.collect::<Vec<_>>())
        })
    }

    fn dial<'a>(
        &'a self,
        _: &'a Endpoint,
        addresses: &'a [SocketAddr],
        timing: &'a Timing,
        connected: Connected<'a>,
    ) -> BoxFuture<'a, io::Result<BoxStream>> {
        Box::pin(async move {
            let tcp = TcpStream::connect(addresses).await?;
            tcp.set_nodelay(true)?;
            let patience = connected(tcp.local_addr()?, tcp.peer_addr()?);
            watch_path(&tcp, timing, patience)?;
            let stream: BoxStream = Box::pin(tcp);
            Ok(stream)
        })
    }
}

/// Has the kernel end the connection with an error when packets vanish: it asks for an acknowledgement, with packets that carry
/// nothing, when it has none for a while. A receiver that takes nothing for longer than `patience` counts as gone, too.
fn watch_path(tcp: &TcpStream, timing: &Timing, patience: Duration) -> io::Result<()> {
    let socket = SockRef::from(tcp);
    let probes =
        TcpKeepalive::new().with_time(timing.path_probe_after).with_interval(timing.path_probe_interval);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(patience))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_ends_a_connection_whose_packets_vanish_within_five_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let timing = Timing::default();
        watch_path(&tcp, &timing, timing.path_timeout).unwrap();
        let socket = SockRef::from(&tcp);
        assert!(socket.keepalive().unwrap());
        let (after, every) = (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
        let silent = socket.tcp_user_timeout().unwrap().unwrap();
        // It looks at each probe's turn whether nothing was acknowledged for so long.
        let turns = silent.saturating_sub(after).as_secs().div_ceil(every.as_secs());
        let noticed = after + every * u32::try_from(turns).unwrap();
        assert!(turns >= 2, "one probe that is lost is no black hole");
        // What is sent and not acknowledged keeps it from probing: a PING goes with it, and is given its own time.
        let asked_last = noticed + timing.ping_timeout;
        assert!(asked_last < Duration::from_secs(5), "{asked_last:?}");
        let asked_before = timing.ping_after_asked + timing.ping_timeout;
        assert!(asked_before < Duration::from_secs(5), "{asked_before:?}");
    }
}

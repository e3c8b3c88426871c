//! A port within the process: who listens on it is found by who has a clone of it. Nothing of the kernel is between the two ends, so
//! that a test can run on a clock that stands still while anybody has something to do.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How much one end may write before the other has read: like a socket's.
const BUFFER: usize = 64 * 1024;

/// A port; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Port(Arc<Mutex<Option<UnboundedSender<DuplexStream>>>>);

/// What comes in at a port. Once it is dropped, connections are refused.
#[derive(Debug)]
pub struct Incoming(UnboundedReceiver<DuplexStream>);

impl Port {
    /// Listens, in the place of who did before.
    pub fn listen(&self) -> Incoming {
        let (sender, receiver) = unbounded_channel();
        *self.0.lock() = Some(sender);
        Incoming(receiver)
    }

    /// Connects; refused while nobody listens.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let (near, far) = duplex(BUFFER);
        let port = self.0.lock();
        let taken = port.as_ref().is_some_and(|port| port.send(far).is_ok());
        if taken { Ok(near) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
    }

    /// What stands for it where an address must.
    pub fn address() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 443).into()
    }
}

impl Incoming {
    /// The next connection.
    pub async fn accept(&mut self) -> DuplexStream {
        match self.0.recv().await {
            Some(connection) => connection,
            // Another listens in its place.
            None => std::future::pending().await,
        }
    }

    /// Ends all connections that nobody has accepted.
    pub fn refuse_waiting(&mut self) {
        while self.0.try_recv().is_ok() {}
    }
}

impl axum::serve::Listener for Incoming {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        (Self::accept(self).await, Port::address())
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Port::address())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn who_listens_last_is_found_and_nobody_once_it_is_gone() {
        let port = Port::default();
        assert!(port.connect().is_err(), "nobody listens");
        let first = port.listen();
        let mut second = port.listen();
        drop(first);
        let mut near = port.connect().unwrap();
        near.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        second.accept().await.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
        drop(second);
        assert!(port.connect().is_err(), "nobody listens any more");
    }
}

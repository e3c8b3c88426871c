//! The link between hub and API server: a TCP relay that counts bytes and can be cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::instrument;

/// A relay that runs until it is dropped.
pub(super) struct Relay {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
    whole: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Relays connections to `target`, as `host:port`.
    pub(super) async fn start(target: String) -> Result<Self> {
        instrument::run(Self::start_here(target)).await
    }

    async fn start_here(target: String) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (bytes, whole) = (Arc::new(AtomicU64::new(0)), watch::Sender::new(true));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target, bytes.clone(), whole.subscribe()));
        Ok(Self { address, bytes, whole, _tasks: tasks })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes in both directions so far, TLS included.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Ends all connections and lets none come about.
    pub(super) fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Lets connections come about again.
    pub(super) fn heal(&self) {
        self.whole.send_replace(true);
    }
}

async fn accept(listener: TcpListener, target: String, bytes: Arc<AtomicU64>, whole: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        if !*whole.borrow() {
            continue;
        }
        let (target, bytes, mut whole) = (target.clone(), bytes.clone(), whole.clone());
        connections.spawn(async move {
            let Ok(far) = TcpStream::connect(&target).await else { return };
            // Without it small frames would wait for acknowledgements, which no wire of the benchmark's delays.
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let (near_in, near_out) = near.into_split();
            let (far_in, far_out) = far.into_split();
            tokio::select! {
                () = copy(near_in, far_out, &bytes) => {}
                () = copy(far_in, near_out, &bytes) => {}
                _ = whole.wait_for(|whole| !whole) => {}
            }
        });
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, bytes: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        bytes.fetch_add(length as u64, Relaxed);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

//! An HTTP proxy that is the only way out of a site.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::site::read_head;

/// Who asks for the one destination that it knows comes to the server; everybody else is refused.
pub(super) struct HttpProxy {
    pub(super) address: SocketAddr,
    granted: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl HttpProxy {
    /// Knows `destination`, a name and port, which is `server`.
    pub(super) async fn start(destination: String, server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (granted, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        let (counted, wanted) = (granted.clone(), format!("CONNECT {destination} HTTP/1.1\r\n"));
        tasks.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let (counted, wanted) = (counted.clone(), wanted.clone());
                clients.spawn(async move {
                    let head = read_head(&mut client).await;
                    if !head.starts_with(&wanted) {
                        let _ = client.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await;
                        return;
                    }
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    counted.fetch_add(1, Ordering::SeqCst);
                    let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, granted, _tasks: tasks }
    }

    /// How many connections went through it.
    pub(super) fn granted(&self) -> usize {
        self.granted.load(Ordering::SeqCst)
    }
}

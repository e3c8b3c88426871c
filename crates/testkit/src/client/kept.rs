//! Connections that are used again: what asks a hundred thousand times asks for answers, not for handshakes.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::task::JoinSet;

/// A connection, which ends with this.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    pub(super) _tasks: JoinSet<()>,
}

/// Those that wait for their next request. The one that came last goes first, so that one that nobody needs any more is closed by the server.
#[derive(Clone, Default)]
pub(super) struct Kept(Arc<Mutex<Vec<Connection>>>);

impl Kept {
    pub(super) fn put(&self, connection: Connection) {
        self.0.lock().push(connection);
    }

    /// One that the server has not closed, if there is any.
    pub(super) async fn take(&self) -> Option<Connection> {
        loop {
            let mut connection = self.0.lock().pop()?;
            if connection.sender.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::connection::Endpoint;

    /// A server that closes each connection after so many answers, without a word; it counts them.
    async fn server(answers: usize, tasks: &mut JoinSet<()>) -> (Endpoint, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::plain(listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let connections = count.clone();
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::Relaxed);
                for _ in 0..answers {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        request.push(stream.read_u8().await.unwrap());
                    }
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                }
            }
        });
        (endpoint, count)
    }

    #[tokio::test]
    async fn a_connection_serves_until_it_is_closed_and_then_there_is_another() {
        let mut tasks = JoinSet::new();
        for (answers, keeping, connections) in [(2, true, 3), (1, false, 6), (6, true, 1)] {
            let (endpoint, count) = server(answers, &mut tasks).await;
            let endpoint = if keeping { endpoint.keeping() } else { endpoint };
            for _ in 0..6 {
                let mut answer = endpoint.get("/", "text/plain").await.unwrap();
                assert_eq!(answer.bytes().await.unwrap(), "ok");
            }
            assert_eq!(count.load(Ordering::Relaxed), connections, "{answers}");
        }
    }
}

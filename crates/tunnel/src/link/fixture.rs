//! Peers of links under test.

use h2::client::SendRequest;
use http::Request;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, copy, duplex, split},
    task::{JoinHandle, JoinSet},
};

use super::*;
use crate::protocol::HELLO_PATH;

/// What begins a connection, before any frame.
const PREFACE: usize = 24;

pub(super) fn terms() -> Terms {
    let (table, stats) = (Arc::default(), Arc::default());
    Terms { instance: "i".into(), limits: Limits::default(), table, stats }
}

pub(super) fn peer(node: &str) -> Peer {
    Peer {
        node: node.to_owned(),
        domain: Domain::Cloud,
        direction: Direction::Reverse,
        class: Class::Interactive,
        expires: SystemTime::now(),
    }
}

/// Grants what was asked for, and keeps it until it ends.
pub(super) async fn keep(asked: answer::Asked) {
    let guard = asked.room().await;
    let mut stream = asked.grant(guard).unwrap();
    let _ = stream.read(&mut [0]).await;
}

/// Takes what a peer sends to us, and leaves out that it acknowledges settings.
async fn leave_out_acknowledgements(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let mut preface = [0; PREFACE];
    from.read_exact(&mut preface).await?;
    to.write_all(&preface).await?;
    loop {
        let mut head = [0; 9];
        from.read_exact(&mut head).await?;
        let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        from.read_exact(&mut body).await?;
        if (head[3], head[4]) != (4, 1) {
            to.write_all(&head).await?;
            to.write_all(&body).await?;
        }
    }
}

/// What carries a link whose other end acknowledges nothing, and that end.
pub(super) fn deaf(tasks: &mut JoinSet<()>) -> (DuplexStream, DuplexStream) {
    let ((ours, line_ours), (line_theirs, theirs)) = (duplex(1 << 16), duplex(1 << 16));
    let ((mut down, up), (from, mut to)) = (split(line_ours), split(line_theirs));
    tasks.spawn(async move { drop(leave_out_acknowledgements(from, up).await) });
    tasks.spawn(async move { drop(copy(&mut down, &mut to).await) });
    (ours, theirs)
}

/// A peer that has introduced itself, and its connection, which ends with the link.
pub(super) async fn introduced(
    theirs: DuplexStream,
) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let (mut send, connection) = h2::client::handshake(theirs).await.unwrap();
    let connection = tokio::spawn(connection);
    let hello = Request::post(format!("https://tunnel{HELLO_PATH}")).body(()).unwrap();
    let (response, mut body) = send.send_request(hello, false).unwrap();
    body.send_data(Hello::new("deaf", Class::Interactive).to_json().into(), true).unwrap();
    response.await.unwrap();
    (send, connection)
}

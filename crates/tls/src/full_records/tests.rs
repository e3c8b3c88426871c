use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use super::*;
use crate::issue::CertificateAuthority;
use crate::resolver::ServingCertificate;

/// What TLS 1.3 adds to a record: its head, the type, the tag.
const OVERHEAD: usize = 5 + 1 + 16;

/// Bound of what is waited for: a busy machine takes a part of it.
const DEADLINE: Duration = Duration::from_secs(30);

/// Notes how much each call of the kernel would be given.
struct Recorder {
    inner: DuplexStream,
    writes: Vec<usize>,
}

impl AsyncRead for Recorder {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Recorder {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, buf))?;
        self.writes.push(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs))?;
        self.writes.push(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Both ends, with room for `room` bytes between them.
async fn connected(room: usize) -> (FullRecords<Recorder>, client::TlsStream<DuplexStream>) {
    crate::install_provider();
    let day = Duration::from_hours(24);
    let authority = CertificateAuthority::generate("test", 30 * day, Timestamp::now()).unwrap();
    let leaf = authority.issue(&["a.example".to_owned()], day, Timestamp::now()).unwrap();
    let serving = ServingCertificate::new();
    serving.install(&leaf.certificate.to_pem(), leaf.key.expose()).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(serving.server_config().unwrap()));
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().der().clone()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let (near, far) = duplex(room);
    let near = Recorder { inner: near, writes: Vec::new() };
    let name = ServerName::try_from("a.example").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let (server, client) = tokio::join!(acceptor.accept(near), connector.connect(name, far));
    let mut server = server.unwrap();
    server.get_mut().0.writes.clear();
    (FullRecords::new(server), client.unwrap())
}

/// An answer as HTTP/2 writes it: frames behind their heads, each flushed, and a flush when nothing is left.
async fn send_frames(server: &mut FullRecords<Recorder>, frames: usize) -> Vec<u8> {
    let mut sent = Vec::new();
    for number in 0..frames {
        let (head, payload) = ([7; 9], vec![u8::try_from(number % 251).unwrap(); RECORD]);
        sent.extend_from_slice(&[head.as_slice(), &payload].concat());
        let written = server.write_vectored(&[IoSlice::new(&head), IoSlice::new(&payload)]).await.unwrap();
        assert_eq!(written, head.len() + payload.len());
        server.flush().await.unwrap();
    }
    server.flush().await.unwrap();
    sent
}

#[tokio::test]
async fn a_large_answer_is_few_records_and_few_writes() {
    const FRAMES: usize = 5;
    let (mut server, mut client) = connected(1 << 20).await;
    let sent = send_frames(&mut server, FRAMES).await;
    let mut got = vec![0; sent.len()];
    timeout(DEADLINE, client.read_exact(&mut got)).await.unwrap().unwrap();
    assert!(got == sent);
    let writes = &server.tls.get_ref().0.writes;
    assert_eq!(writes.len(), 2, "{writes:?}");
    let records = sent.len().div_ceil(RECORD);
    assert_eq!(writes.iter().sum::<usize>(), sent.len() + records * OVERHEAD, "{records} records");
}

/// Events of a watch, each of which ends in the middle of a record.
#[tokio::test]
async fn what_is_left_of_an_event_is_not_copied_once_more() {
    const FRAMES: [usize; 4] = [RECORD, RECORD, RECORD, 14_079];
    let (mut server, mut client) = connected(1 << 20).await;
    let mut sent = Vec::new();
    for event in 0..6 {
        for (number, length) in FRAMES.into_iter().enumerate() {
            // What stands around an event is a short frame before its first one.
            let head = vec![8; if number == 0 { 9 + 31 + 9 } else { 9 }];
            let payload = vec![event * 16 + u8::try_from(number).unwrap(); length];
            sent.extend_from_slice(&[head.as_slice(), &payload].concat());
            let written =
                server.write_vectored(&[IoSlice::new(&head), IoSlice::new(&payload)]).await.unwrap();
            assert_eq!(written, head.len() + length);
            server.flush().await.unwrap();
            assert!(server.tail.len() < RECORD / 4, "{} bytes are kept", server.tail.len());
        }
    }
    server.flush().await.unwrap();
    let mut got = vec![0; sent.len()];
    timeout(DEADLINE, client.read_exact(&mut got)).await.unwrap().unwrap();
    assert!(got == sent);
    let overhead = server.tls.get_ref().0.writes.iter().sum::<usize>() - sent.len();
    assert_eq!(overhead, 6 * FRAMES.len() * OVERHEAD, "one record for each frame");
}

#[tokio::test]
async fn what_is_small_goes_at_once() {
    let (mut server, mut client) = connected(1 << 20).await;
    for _ in 0..3 {
        server.write_all(b"pong").await.unwrap();
        server.flush().await.unwrap();
        // No task of the server runs meanwhile.
        let mut got = [0; 4];
        timeout(DEADLINE, client.read_exact(&mut got)).await.unwrap().unwrap();
        assert_eq!(&got, b"pong");
    }
    assert_eq!(server.tls.get_ref().0.writes.len(), 3);
}

#[tokio::test]
async fn a_flush_that_was_put_off_is_made_up_for() {
    let (mut server, mut client) = connected(1 << 20).await;
    let answer = vec![1; 100 * 1_024 + 1];
    let expected = answer.clone();
    // Flushed once, and then it only waits for the client.
    let serving = tokio::spawn(async move {
        server.write_all(&answer).await.unwrap();
        server.flush().await.unwrap();
        server.read_u8().await.unwrap()
    });
    let mut got = vec![0; expected.len()];
    timeout(DEADLINE, client.read_exact(&mut got)).await.unwrap().unwrap();
    assert!(got == expected);
    client.write_all(&[9]).await.unwrap();
    client.flush().await.unwrap();
    assert_eq!(timeout(DEADLINE, serving).await.unwrap().unwrap(), 9);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_sent_a_bounded_amount() {
    let (mut server, mut client) = connected(4 << 10).await;
    let sending = tokio::spawn(async move {
        let sent = send_frames(&mut server, 40).await;
        server.shutdown().await.unwrap();
        sent
    });
    // It goes on once the client reads, to the last byte.
    let mut got = Vec::new();
    timeout(DEADLINE, client.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got == timeout(DEADLINE, sending).await.unwrap().unwrap());

    let (mut server, _client) = connected(4 << 10).await;
    let taken = fill(&mut server);
    assert!(taken <= QUEUE + 2 * RECORD, "{taken} bytes");
}

/// Writes until no more is taken, and tells how much was.
fn fill(server: &mut FullRecords<Recorder>) -> usize {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let (frame, mut taken) = (vec![0; RECORD + 9], 0);
    while let Poll::Ready(written) = Pin::new(&mut *server).poll_write(&mut cx, &frame) {
        taken += written.unwrap();
        assert!(taken < 1 << 20);
        let _ = Pin::new(&mut *server).poll_flush(&mut cx);
    }
    taken
}

//! A link's streams get the window that their number allows, while it changes.

use std::time::Duration;

use tokio::time::Instant;

use super::LinkError;
use crate::{socket::Traffic, window::stream_window};

/// How long a change waits for the acknowledgement of the one before.
const AGAIN: Duration = Duration::from_millis(100);

/// How long a peer may take to acknowledge one (RFC 9113, 6.5.3): over 64 kbit/s twice as long as what may be queued before it. Until then its streams have
/// windows for a number that they no longer are.
const ACKNOWLEDGED: Duration = Duration::from_mins(1);

/// Keeps the window of a link's streams to what their number allows.
pub(crate) struct Follower {
    window: u32,
    /// Since when a change waits. That none is wanted for a moment acknowledges nothing.
    waits: Option<Instant>,
}

impl Follower {
    /// As a link begins.
    pub(crate) fn new() -> Self {
        Self { window: stream_window(0), waits: None }
    }

    /// Ends when the window should be looked at.
    pub(crate) async fn due(&self, traffic: &Traffic) {
        if self.window == stream_window(traffic.streams()) {
            traffic.window_changed().await;
        } else {
            tokio::select! {
                () = traffic.window_changed() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// Has `set` change the window, if it is not as it should be: it fails while the change before is not acknowledged. A peer that never acknowledges would
    /// keep the widest windows for as many streams as it likes, and loses its link.
    pub(crate) fn follow<E>(
        &mut self,
        traffic: &Traffic,
        set: impl FnOnce(u32) -> Result<(), E>,
    ) -> Result<(), LinkError> {
        let wanted = stream_window(traffic.streams());
        if wanted == self.window {
            return Ok(());
        }
        if set(wanted).is_ok() {
            (self.window, self.waits) = (wanted, None);
        } else if self.waits.get_or_insert_with(Instant::now).elapsed() >= ACKNOWLEDGED {
            return Err(LinkError::Unacknowledged);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::SystemTime};

    use http::{Method, Request};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, copy, duplex, split},
        task::JoinSet,
        time::timeout,
    };
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        ending::Ending,
        link::{Peer, Terms, answer},
        protocol::{Class, HELLO_PATH, Limits},
        route::Direction,
        view::Domain,
    };

    /// What begins a connection, before any frame.
    const PREFACE: usize = 24;

    /// Takes what a peer sends to us, and leaves out that it acknowledges settings.
    async fn leave_out_acknowledgements(
        mut from: impl tokio::io::AsyncRead + Unpin,
        mut to: impl tokio::io::AsyncWrite + Unpin,
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
    fn deaf(tasks: &mut JoinSet<()>) -> (DuplexStream, DuplexStream) {
        let ((ours, line_ours), (line_theirs, theirs)) = (duplex(1 << 16), duplex(1 << 16));
        let ((mut down, up), (from, mut to)) = (split(line_ours), split(line_theirs));
        tasks.spawn(async move { drop(leave_out_acknowledgements(from, up).await) });
        tasks.spawn(async move { drop(copy(&mut down, &mut to).await) });
        (ours, theirs)
    }

    /// Introduces itself and asks for streams, so many that each is to have a narrower window, and keeps them.
    async fn ask_for_streams(theirs: DuplexStream) {
        let (mut send, connection) = h2::client::handshake(theirs).await.unwrap();
        let mut connection = tokio::spawn(connection);
        let hello = Request::post(format!("https://tunnel{HELLO_PATH}")).body(()).unwrap();
        let (response, mut body) = send.send_request(hello, false).unwrap();
        body.send_data(crate::hello::Hello::new("deaf", Class::Interactive).to_json().into(), true).unwrap();
        response.await.unwrap();
        let mut kept = Vec::new();
        for _ in 0..8 {
            let ask = Request::builder().method(Method::CONNECT).uri("a1:1").body(()).unwrap();
            let (response, body) = send.send_request(ask, false).unwrap();
            kept.push((response.await.unwrap().into_body(), body));
        }
        let _ = (&mut connection).await;
    }

    async fn held(carrier: DuplexStream) -> Result<(), LinkError> {
        let terms = Terms {
            instance: "i".into(),
            limits: Limits::default(),
            table: Arc::default(),
            stats: Arc::default(),
        };
        let peer = Peer {
            node: "a1".to_owned(),
            domain: Domain::Cloud,
            direction: Direction::Reverse,
            class: Class::Interactive,
            expires: SystemTime::now(),
        };
        let ending = Ending::at(CancellationToken::new());
        answer::run(
            carrier,
            peer,
            &terms,
            &ending,
            || {},
            |asked| async move {
                let mut stream = asked.grant().unwrap();
                let _ = stream.read(&mut [0; 1]).await;
            },
        )
        .await
    }

    /// Its PINGs are answered, so nothing else says that anything is amiss.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_acknowledges_no_window_loses_its_link() {
        let mut tasks = JoinSet::new();
        let (ours, theirs) = deaf(&mut tasks);
        tasks.spawn(ask_for_streams(theirs));
        let ended = timeout(ACKNOWLEDGED * 2, held(ours)).await.expect("it goes on");
        assert!(matches!(ended, Err(LinkError::Unacknowledged)), "{ended:?}");

        let (ours, theirs) = duplex(1 << 16);
        tasks.spawn(ask_for_streams(theirs));
        let ended = timeout(ACKNOWLEDGED * 2, held(ours)).await;
        assert!(ended.is_err(), "who acknowledges loses its link, too: {ended:?}");
    }
}

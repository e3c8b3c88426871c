//! Asks whether a process is gone, by dialling where it listens: a machine whose kernel refuses a connection has no process that listens there.
//!
//! Anything else says nothing: a process that stands still is dialled with success, and of one that was cut off nothing is heard.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Pauses before each dial. All must be refused, so that no moment of the network's own counts.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(75), Duration::from_millis(125)];

/// What does not answer by then does not refuse.
const ANSWER: Duration = Duration::from_millis(200);

/// How long to wait before asking again what did not refuse: a process that dumps its memory listens until it has.
const AGAIN: Duration = Duration::from_millis(250);

/// Returns when nobody listens at `at`; not before.
pub(super) fn nobody_listens(at: SocketAddr) -> BoxFuture<'static, ()> {
    async move {
        while !refuses(at).await {
            sleep(AGAIN).await;
        }
    }
    .boxed()
}

async fn refuses(at: SocketAddr) -> bool {
    for pause in PAUSES {
        sleep(pause).await;
        let dialled = timeout(ANSWER, TcpStream::connect(at)).await;
        if !matches!(dialled, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_gone_when_its_address_refuses_and_not_while_it_only_does_not_answer() {
        // It accepts nothing, as one that stands still.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let asked = nobody_listens(at);
        let mut asked = std::pin::pin!(asked);
        let while_it_listens = Duration::from_secs(1);
        assert!(timeout(while_it_listens, &mut asked).await.is_err());
        drop(listener);
        timeout(Duration::from_secs(10), asked).await.expect("it is gone");
    }

    #[tokio::test]
    async fn an_address_that_nobody_has_says_nothing() {
        // TEST-NET-1: no way, no answer, or a refusal by what is on the way; never a connection.
        let asked = timeout(Duration::from_secs(1), TcpStream::connect("192.0.2.1:9")).await;
        if !matches!(asked, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused) {
            assert!(!refuses("192.0.2.1:9".parse().unwrap()).await);
        }
    }
}
